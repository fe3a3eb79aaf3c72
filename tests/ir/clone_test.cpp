#include "compiler/ir/module.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

std::unique_ptr<Module> example() {
  Expected<std::unique_ptr<Module>> module = parseModule(R"(module @m {
  mesh shard=2 replicate=2 micro_steps=3
  fact a=1
  region arena 64
  input @x : f32[20] role=data
  constant @c : f32[] = [2.0]
  param @w : f32[20] frozen tied bucket=#b+0 place=@s+0
  bucket #b : f32 padded=128 { @w+0 }
  storage @s : f32[128] region=carried place=carried+0
  segment @forward {
    %a : f32[20] = neg @x place=%b+0 loc("n")
    %b : f32[20] = add %a, @w {tag=1} bucket=#b place=arena+0 stream=gather after=%a
    yield y=%b, w=@w
  }
}
)");
  EXPECT_TRUE(module) << module.error().text();
  return std::move(*module);
}

TEST(Clone, modulesPrintEqually) {
  std::unique_ptr<Module> module = example();
  EXPECT_EQ(print(*cloneModule(*module)), print(*module));
}

TEST(Clone, modulesShareNothing) {
  std::unique_ptr<Module> module = example();
  const std::string before = print(*module);
  std::unique_ptr<Module> copy = cloneModule(*module);
  module.reset();
  EXPECT_EQ(print(*copy), before); // also under the address sanitizer
  EXPECT_TRUE(checkModule(*copy)) << checkModule(*copy).error().text();
  const Graph &graph = *copy->graph("forward");
  EXPECT_EQ(graph.nodes[1]->after[0], graph.nodes[0]);
  EXPECT_EQ(graph.nodes[0]->result()->place.base, graph.nodes[1]->result());
  EXPECT_EQ(copy->parameters[0].value->place.base, copy->global("s"));
  EXPECT_EQ(graph.nodes[1]->input(1), copy->global("w"));
}

TEST(Clone, graphsShareModuleLevelValuesOnly) {
  std::unique_ptr<Module> module = example();
  const Graph &graph = *module->graph("forward");
  llvm::DenseMap<const Value *, Value *> map;
  const Graph &copy = cloneGraph(*module, graph, "eval", &map);
  ASSERT_EQ(copy.nodes.size(), 2u);
  EXPECT_EQ(copy.name, "eval");
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.lookup(graph.nodes[0]->result()), copy.nodes[0]->result());
  EXPECT_EQ(copy.nodes[1]->input(0), copy.nodes[0]->result());
  EXPECT_EQ(copy.nodes[1]->input(1), module->global("w"));
  EXPECT_EQ(copy.nodes[1]->after[0], copy.nodes[0]);
  EXPECT_EQ(copy.nodes[0]->result()->place.base, copy.nodes[1]->result());
  EXPECT_EQ(copy.nodes[1]->bucket, 0);
  EXPECT_EQ(copy.nodes[1]->stream, Stream::gather);
  EXPECT_EQ(copy.results[0].second, copy.nodes[1]->result());
  EXPECT_EQ(copy.results[1].second, module->global("w"));
  EXPECT_TRUE(checkModule(*module)) << checkModule(*module).error().text();
}

} // namespace
} // namespace zerocc
