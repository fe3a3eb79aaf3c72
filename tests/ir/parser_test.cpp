#include "compiler/ir/module.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

std::string errorOf(const std::string &text) {
  Expected<std::unique_ptr<Module>> module = parseModule(text, "t.ir");
  return module ? "no error" : module.error().text();
}

/// The error of a module whose third line is `line`.
std::string tableError(const std::string &line) {
  return errorOf("module @m {\n  input @x : f32[2,3] role=data\n  " + line + "\n}\n");
}

/// The error of a node on line 5.
std::string nodeError(const std::string &line) {
  return errorOf(
      "module @m {\n  input @x : f32[2,3] role=data\n  bucket #b : f32 padded=32 { }\n  segment @s {\n    " +
      line + "\n  }\n}\n");
}

TEST(Parser, saysWhereTheFrameIsBroken) {
  EXPECT_EQ(errorOf(""), "error: t.ir:1: expected \"module\", found the end of the text\n");
  EXPECT_EQ(errorOf("modul @m {}"), "error: t.ir:1: expected \"module\", found \"modul\"\n");
  EXPECT_EQ(errorOf("module m {}"), "error: t.ir:1: expected the module's name (@…), found \"m\"\n");
  EXPECT_EQ(errorOf("module @m {\n"), "error: t.ir:2: expected a keyword, found the end of the text\n");
  EXPECT_EQ(errorOf("module @m {\n  segment @s {\n"),
            "error: t.ir:3: expected an op, found the end of the text\n");
  EXPECT_EQ(errorOf("module @m {\n}\n}"), "error: t.ir:3: expected the end of the text, found \"}\"\n");
  EXPECT_EQ(errorOf("module @m {}"), "no error");
  EXPECT_EQ(errorOf("module @\"m {\n}"), "error: t.ir:1: expected '\"' at the end of the module's name\n");
  EXPECT_EQ(errorOf("module @\"\\q\" {\n}"),
            "error: t.ir:1: expected \\\", \\\\, \\n or \\xNN after a backslash\n");
}

TEST(Parser, refusesUnknownKeywordsAndSuffixes) {
  EXPECT_EQ(tableError("weight @w : f32[2]"), "error: t.ir:3: unknown keyword \"weight\", expected mesh, "
                                              "fact, region, input, constant, param, bucket, "
                                              "storage or segment\n");
  EXPECT_EQ(tableError("param @w : f32[2] trainable"),
            "error: t.ir:3: unknown suffix \"trainable\", expected (in this order) group, frozen, tied, "
            "bucket, place\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x device=1"),
            "error: t.ir:5: unknown suffix \"device\", expected (in this order) bucket, place, stream, "
            "after, loc\n");
}

TEST(Parser, keepsTheOrderOfSuffixes) {
  EXPECT_EQ(tableError("param @w : f32[2] tied frozen"),
            "error: t.ir:3: suffix \"frozen\" must stand once, and before \"tied\"\n");
  EXPECT_EQ(tableError("param @w : f32[2] tied tied"),
            "error: t.ir:3: suffix \"tied\" must stand once, and before \"tied\"\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x stream=gather place=arena+0"),
            "error: t.ir:5: suffix \"place\" must stand once, and before \"stream\"\n");
}

TEST(Parser, refusesBrokenTables) {
  EXPECT_EQ(tableError("param @x : f32[2]"), "error: t.ir:3: @x is declared twice\n");
  EXPECT_EQ(tableError("param @\"\" : f32[2]"), "error: t.ir:3: a module-level value needs a name\n");
  EXPECT_EQ(tableError("param @w : f33[2]"), "error: t.ir:3: expected a dtype, found \"f33\"\n");
  EXPECT_EQ(tableError("param @w : f32"), "error: t.ir:3: expected '[', found the end of the line\n");
  EXPECT_EQ(tableError("param @w : f32[-1]"), "error: t.ir:3: f32[-1] has a negative dim\n");
  EXPECT_EQ(tableError("param @w : f32[99999999999999999999]"),
            "error: t.ir:3: expected a dim of 64 bits, found \"99999999999999999999\"\n");
  EXPECT_EQ(tableError("param @w : f32[288230376151711744]"),
            "error: t.ir:3: f32[288230376151711744] has 2^60 bytes or more\n");
  EXPECT_EQ(tableError("param @w : f32[288230376151711743]"), "no error");
  EXPECT_EQ(tableError("param @w : u8[0,9223372036854775807,9223372036854775807]"), "no error");
  EXPECT_EQ(tableError("param @w : f32[1,1,1,1,1,1,1,1]"), "no error");
  EXPECT_EQ(tableError("param @w : f32[1,1,1,1,1,1,1,1,1]"),
            "error: t.ir:3: f32[1,1,1,1,1,1,1,1,1] has 9 axes, the limit is 8\n");
  EXPECT_EQ(tableError("param @w : f32[2] = init"),
            "error: t.ir:3: expected […], initializer(\"…\"), found \"init\"\n");
  EXPECT_EQ(tableError("constant @w : f32[2] = none"),
            "error: t.ir:3: expected […], initializer(\"…\") or init, found \"none\"\n");
  EXPECT_EQ(tableError("param @w : f32[2] bucket=#b+0"), "error: t.ir:3: #b is not a bucket\n");
  EXPECT_EQ(tableError("bucket #b : f32 padded=32 { @x+0 }"), "error: t.ir:3: @x is not a parameter\n");
  EXPECT_EQ(tableError("bucket #b : f32 parameters=shared { }"),
            "error: t.ir:3: expected a field (whole, kept, refetched), found \"shared\"\n");
  EXPECT_EQ(tableError("bucket #b : f32 { }\n  bucket #b : f32 { }"),
            "error: t.ir:4: #b is declared twice\n");
  EXPECT_EQ(tableError("region heap 12"),
            "error: t.ir:3: expected a region (persistent, carried, arena, inputs), found \"heap\"\n");
  EXPECT_EQ(tableError("region arena 12 13"), "error: t.ir:3: expected the end of the line, found \"13\"\n");
  EXPECT_EQ(tableError("mesh shard=0"), "error: t.ir:3: shard must be between 1 and 1048576, is 0\n");
  EXPECT_EQ(tableError("mesh shard=1048576"), "no error");
  EXPECT_EQ(tableError("mesh shard=1048577"),
            "error: t.ir:3: shard must be between 1 and 1048576, is 1048577\n");
  EXPECT_EQ(tableError("fact a=b"), "error: t.ir:3: expected a value, found \"b\"\n");
  EXPECT_EQ(tableError("fact a=1\n  fact a=2"), "error: t.ir:4: attribute \"a\" is given twice\n");
  EXPECT_EQ(tableError("input @i : i64[] role=data range=[0)"),
            "error: t.ir:3: a range has two bounds, [low,high)\n");
  EXPECT_EQ(tableError("storage @s : f32[2] place=%x+0"),
            "error: t.ir:3: place names a value that is not defined here\n");
  EXPECT_EQ(tableError("storage @s : f32[2] place=_+0"), "error: t.ir:3: expected a suffix, found \"+\"\n");
  EXPECT_EQ(tableError("segment @s {\n  }\n  param @w : f32[2]"),
            "error: t.ir:5: expected \"segment\" or '}' after the first segment, found \"param\"\n");
  EXPECT_EQ(tableError("segment @s {\n  }\n  segment @s {\n  }"),
            "error: t.ir:5: segment @s is written twice\n");
}

TEST(Parser, refusesDataThatDoesNotFit) {
  EXPECT_EQ(tableError("constant @c : f32[2] = [1.0]"),
            "error: t.ir:3: f32[2] has 2 elements, 1 are written\n");
  EXPECT_EQ(tableError("constant @c : f32[2] = [1, 2, 3]"),
            "error: t.ir:3: f32[2] has 2 elements, 3 are written\n");
  EXPECT_EQ(tableError("constant @c : u8[1] = [256]"), "error: t.ir:3: 256 does not fit u8\n");
  EXPECT_EQ(tableError("constant @c : u8[1] = [255]"), "no error");
  EXPECT_EQ(tableError("constant @c : i8[1] = [-129]"), "error: t.ir:3: -129 does not fit i8\n");
  EXPECT_EQ(tableError("constant @c : i32[1] = [1.5]"), "error: t.ir:3: expected ']', found \".5\"\n");
  EXPECT_EQ(tableError("constant @c : bool[1] = [1]"),
            "error: t.ir:3: expected a bool (false, true), found \"1\"\n");
  EXPECT_EQ(tableError("constant @c : f32[1] = [one]"), "error: t.ir:3: expected a number, found \"one\"\n");
  EXPECT_EQ(tableError("constant @c : f32[1] = [1e999]"),
            "error: t.ir:3: expected a number, found \"1e999\"\n");
}

TEST(Parser, refusesBrokenNodes) {
  EXPECT_EQ(nodeError("%y : f32[2,3] = negate @x"), "error: t.ir:5: unknown op \"negate\"\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg %z"), "error: t.ir:5: %z is not defined before its use\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg %y"), "error: t.ir:5: %y is not defined before its use\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @z"), "error: t.ir:5: @z is not declared\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x, x"),
            "error: t.ir:5: expected a value (%… or @…), found \"x\"\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x\n    %y : f32[2,3] = neg @x"),
            "error: t.ir:6: %y is defined twice\n");
  EXPECT_EQ(nodeError("%1 : f32[2,3] = neg @x\n    %\"1\" : f32[2,3] = neg %1"), "no error");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x bucket=#c"), "error: t.ir:5: #c is not a bucket\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x place=arena+0,_"),
            "error: t.ir:5: place= needs one entry per result, of which there are 1\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x place=%z+0"),
            "error: t.ir:5: place names a value that is not defined here\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x after=%z"),
            "error: t.ir:5: after= names a value that is not defined in this segment\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x stream=copy"),
            "error: t.ir:5: expected a stream (compute, gather, reduce), found \"copy\"\n");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x {a=1, a=1}"),
            "error: t.ir:5: attribute \"a\" is given twice\n");
  EXPECT_EQ(nodeError("yield a=%y"), "error: t.ir:5: %y is not defined before its use\n");
  EXPECT_EQ(nodeError("yield a=@x\n    %y : f32[2,3] = neg @x"),
            "error: t.ir:6: expected '}', found \"%\"\n");
}

TEST(Parser, comparesResultTypesWithTheShapeRule) {
  EXPECT_EQ(nodeError("%y : f32[3,2] = neg @x"),
            "error: t.ir:5: result 0 of neg is written f32[3,2], the shape rule gives f32[2,3]\n");
  EXPECT_EQ(nodeError("%y : f16[2,3] = neg @x"),
            "error: t.ir:5: result 0 of neg is written f16[2,3], the shape rule gives f32[2,3]\n");
  EXPECT_EQ(nodeError("%y : f32[2,3], %z : f32[2,3] = neg @x"),
            "error: t.ir:5: neg: the number of results is 2, the op table says 1\n");
  EXPECT_EQ(nodeError("neg @x"), "error: t.ir:5: neg: the number of results is 0, the op table says 1\n");
  EXPECT_EQ(nodeError("%y : f32[2,2] = matmul @x, @x"),
            "error: t.ir:5: matmul: inner dimensions differ: left is [2,3], right is [2,3]\n");
  EXPECT_EQ(nodeError("%y : f32[2,2] = matmul @x, @x {trans_b=1}"), "no error");
  EXPECT_EQ(nodeError("%y : f32[2,3] = neg @x, @x"), "error: t.ir:5: neg: takes 1 operand, got 2\n");
  EXPECT_EQ(nodeError("%y : f32[32] = buffer bucket=#b"), "no error");
  EXPECT_EQ(nodeError("%y : f32[31] = buffer bucket=#b"),
            "error: t.ir:5: result 0 of buffer is written f32[31], the shape rule gives f32[32]\n");
}

TEST(Parser, survivesEveryTruncationAndEveryOverwrittenByte) {
  const std::string text = R"(module @m {
  mesh shard=2
  fact a=[1,2]
  input @x : i64[2] role=tokens range=[0,9) ignore=-1
  constant @c : f32[2] = [1.5, nan]
  param @w : f32[20] = initializer("w") tied bucket=#b+0
  bucket #b : f32 padded=64 { @w+0 }
  storage @s : f32[32] region=carried place=carried+0
  segment @s {
    %f : f32[64] = fetch.start @s {in_place=0} bucket=#b place=arena+0 stream=gather loc("n")
    %"1" : f32[64] = fetch.wait %f after=%f
    release %"1"
    yield f=%f
  }
}
)";
  ASSERT_TRUE(parseModule(text)) << errorOf(text);
  for (size_t i = 0; i < text.size(); ++i) {
    (void)parseModule(text.substr(0, i));
    for (char c : {'\0', '"', '{', '}', '[', '\n', '-', '9', '%', '@', '\xff'}) {
      std::string changed = text;
      changed[i] = c;
      if (Expected<std::unique_ptr<Module>> module = parseModule(changed)) {
        const std::string printed = print(**module);
        Expected<std::unique_ptr<Module>> again = parseModule(printed);
        ASSERT_TRUE(again) << again.error().text() << printed;
        EXPECT_EQ(print(**again), printed);
      }
    }
  }
}

} // namespace
} // namespace zerocc
