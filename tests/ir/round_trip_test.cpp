#include "compiler/ir/module.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

/// Parses, prints, and expects the same text again from what was printed.
std::string reprint(const std::string &text) {
  Expected<std::unique_ptr<Module>> module = parseModule(text);
  if (!module)
    return module.error().text();
  const std::string printed = print(**module);
  Expected<std::unique_ptr<Module>> again = parseModule(printed);
  if (!again)
    return "printed text does not parse: " + again.error().text();
  EXPECT_EQ(print(**again), printed);
  return printed;
}

const char *const kEverything = R"(module @gpt {
  mesh shard=2 replicate=1 micro_steps=3
  fact note="a \"b\" \\ \n\x01"
  fact optimizer="adamw"
  fact real=64.0
  fact sizes=[1,-2]
  fact small=1e-05
  fact whole=64
  region persistent 18944
  region arena 4096
  input @input_ids : i64[2,32] role=tokens range=[0,96)
  input @labels : i64[2,32] role=labels of=input_ids shift=1 range=[0,96) ignore=-100 place=inputs+512
  constant @c0 : f32[] = [1.5]
  constant @c1 : bool[2] = [true, false]
  constant @c2 : bf16[4] = [1.0, nan, inf, -inf]
  constant @c3 : f16[2] = [0.10003662, -65504.0]
  constant @c4 : i64[2] = [-9223372036854775808, 9223372036854775807]
  constant @c5 : f64[1] = [0.1]
  constant @c6 : f32[0] = []
  constant @mask : bool[1,1,32,32] = initializer("h.0 \"attn\".bias")
  constant @folded : f32[4] = init
  param @wte : f32[96,48] = initializer("wte.weight") group=decay tied bucket=#b0+0
  param @wpe : f32[48] group=no-decay frozen bucket=#b0+4608 place=@b0.whole+4608
  param @"odd name" : f32[2] group=decay
  bucket #b0 : f32 grad=bf16 parameters=refetched gradients=micro-step states=sharded padded=4672 { @wte+0 @wpe+4608 }
  bucket #b1 : f32 grad=f32 parameters=whole gradients=boundary states=whole frozen padded=0 { }
  storage @b0.param : f32[2336] region=persistent place=persistent+0
  storage @b0.whole : f32[4672] region=carried
  segment @init {
    %0 : f32[] = copy @c0
    %1 : f32[4] = broadcast %0 {shape=[4]}
    yield folded=%1
  }
  segment @forward {
    %f : f32[4672] = fetch.start @b0.param bucket=#b0 place=arena+0 stream=gather
    %w : f32[4672] = fetch.wait %f after=%f
    %w2 : f32[96,48] = member %w {offset=0, shape=[96,48]} place=%w+0
    %0 : f32[2,32,48] = gather %w2, @input_ids {axis=0} loc("/wte/Gather")
    %"12" : f32[2,32,48], %b : f32[2,32], %1 : f32[2,32] = layer_norm %0, @wpe {eps=1e-05} place=arena+64,_,@b0.whole+0 after=%f,%w loc("/ln~")
    release %w
    yield loss=%"12", "odd name"=%b
  }
  segment @empty {
  }
}
)";

TEST(RoundTrip, everythingPrintsAsItWasRead) { EXPECT_EQ(reprint(kEverything), kEverything); }

TEST(RoundTrip, wholeModulesPassTheCheck) {
  Expected<std::unique_ptr<Module>> module = parseModule(kEverything);
  ASSERT_TRUE(module) << module.error().text();
  // The bucket's end lies in the padding of the shard axis: 4672 is a multiple of 64.
  Status status = checkModule(**module);
  EXPECT_TRUE(status) << status.error().text();
}

TEST(RoundTrip, tablesMayComeInAnyOrderAndCommentsAreDropped) {
  EXPECT_EQ(reprint(R"(// a module
module @m { // its tables
  bucket #b0 : f32 padded=32 { @b+0 }
  storage @s : f32[32]   // persistent by default
  param @b : f32[20] bucket=#b0+0 place=@s+0
}
)"),
            R"(module @m {
  param @b : f32[20] group=decay bucket=#b0+0 place=@s+0
  bucket #b0 : f32 grad=f32 parameters=whole gradients=boundary states=whole padded=32 { @b+0 }
  storage @s : f32[32] region=persistent
}
)");
}

TEST(RoundTrip, unnamedValuesAreNumberedInOrderOfDefinition) {
  EXPECT_EQ(reprint(R"(module @m {
  input @x : f32[2] role=data
  segment @s {
    %7 : f32[2] = neg @x
    %a : f32[2] = neg %7
    %3 : f32[2] = neg %a
    yield out=%3
  }
})"),
            R"(module @m {
  input @x : f32[2] role=data
  segment @s {
    %0 : f32[2] = neg @x
    %a : f32[2] = neg %0
    %1 : f32[2] = neg %a
    yield out=%1
  }
}
)");
}

TEST(RoundTrip, valuesOfOneNameAreToldApart) {
  Module module;
  module.name = "m";
  Value *x = module.addInput("x", {DType::f32, {}});
  Graph &graph = module.addGraph("s");
  for (const char *name : {"a", "a", "a~2", "a", "0", ""})
    graph.append(OpKind::Neg, {x}, x->type)->result()->name = name;
  const std::string expected = R"(module @m {
  input @x : f32[] role=data
  segment @s {
    %a : f32[] = neg @x
    %a~3 : f32[] = neg @x
    %a~2 : f32[] = neg @x
    %a~4 : f32[] = neg @x
    %"0" : f32[] = neg @x
    %0 : f32[] = neg @x
  }
}
)";
  EXPECT_EQ(print(module), expected);
  EXPECT_EQ(reprint(expected), expected);
}

TEST(RoundTrip, aHundredThousandNodesTakeLinearTime) {
  Module module;
  module.name = "m";
  Value *x = module.addInput("x", {DType::f32, {2}});
  Graph &graph = module.addGraph("s");
  for (int i = 0; i < 100000; ++i)
    x = graph.append(OpKind::Neg, {x}, x->type)->result();
  graph.results.push_back({"y", x});
  const std::string text = print(module);
  EXPECT_EQ(reprint(text), text);
  EXPECT_TRUE(checkModule(module));
  EXPECT_EQ(print(*cloneModule(module)), text);
}

} // namespace
} // namespace zerocc
