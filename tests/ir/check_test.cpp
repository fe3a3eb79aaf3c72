#include "compiler/ir/module.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

std::string findings(const Module &module) {
  Status status = checkModule(module);
  return status ? "" : status.error().text();
}

/// A module with one input and a segment of two nodes, to be broken.
struct Example {
  Module module;
  Value *x;
  Graph *graph;
  Node *a, *b;

  Example() {
    module.name = "m";
    x = module.addInput("x", {DType::f32, {2}});
    graph = &module.addGraph("s");
    a = graph->append(OpKind::Neg, {x}, x->type, {}, "/neg");
    b = graph->append(OpKind::Add, {a->result(), x}, x->type);
    a->result()->name = "a";
    graph->results = {{"y", b->result()}};
  }
};

TEST(Check, acceptsASoundModule) { EXPECT_EQ(findings(Example().module), ""); }

TEST(Check, listsAllFindings) {
  Example e;
  e.b->result()->type = {DType::f32, {3}};
  e.a->inputs[0] = nullptr;
  e.graph->results.push_back({"y", e.x});
  EXPECT_EQ(findings(e.module), "error: segment @s: neg %a (\"/neg\"): operand 0 is missing\n"
                                "error: segment @s: add %0: result 0 is f32[3], the shape rule gives f32[2]\n"
                                "error: segment @s: yields \"y\" twice\n");
}

TEST(Check, findsUsesBeforeDefinitions) {
  Example e;
  std::swap(e.graph->nodes[0], e.graph->nodes[1]);
  EXPECT_EQ(findings(e.module), "error: segment @s: add %0: operand 0 %a is used before its definition\n");
}

TEST(Check, findsValuesOfOtherGraphs) {
  Example e;
  Graph &other = e.module.addGraph("other");
  other.append(OpKind::Neg, {e.a->result()}, e.x->type);
  other.results = {{"y", e.a->result()}};
  EXPECT_EQ(findings(e.module), "error: segment @other: neg %0: operand 0 is a value of another graph\n"
                                "error: segment @other: yields as \"y\" a value that is not defined\n");
}

TEST(Check, findsNodesThatBreakTheOpTable) {
  Example e;
  e.b->inputs.pop_back();
  e.a->op = OpKind::Not;
  EXPECT_EQ(findings(e.module), "error: segment @s: not %a (\"/neg\"): needs bool operands, got f32[2]\n"
                                "error: segment @s: add %0: takes 2 operands, got 1\n");
}

TEST(Check, findsNodesThatStandTwice) {
  Example e;
  e.graph->nodes.push_back(e.a);
  EXPECT_EQ(findings(e.module), "error: segment @s: neg %a (\"/neg\") stands twice\n");
}

TEST(Check, findsEventsFromLaterNodes) {
  Example e;
  e.a->after = {e.b};
  e.b->after = {e.a};
  EXPECT_EQ(findings(e.module),
            "error: segment @s: neg %a (\"/neg\"): after= names a node that does not come before\n");
}

TEST(Check, findsPlacesThatLeaveTheirBase) {
  Example e;
  Value *big = e.module.addStorage("big", {DType::f32, {4}}, Region::persistent);
  e.a->result()->place = {Place::Kind::value, big, Region::arena, 2};
  EXPECT_EQ(findings(e.module), "");
  e.a->result()->place.offset = 3;
  EXPECT_EQ(findings(e.module),
            "error: segment @s: neg %a (\"/neg\"): result %a: f32[2] at offset 3 leaves f32[4]\n");
  e.a->result()->place = {Place::Kind::region, nullptr, Region::arena, -1};
  EXPECT_EQ(findings(e.module),
            "error: segment @s: neg %a (\"/neg\"): result %a: place has the negative offset -1\n");
}

TEST(Check, findsTablesThatContradictEachOther) {
  Example e;
  e.module.mesh.shard = 2;
  e.module.addParameter("w", {DType::f32, {20}}, {});
  e.module.addParameter("v", {DType::f32, {4}}, {});
  Bucket &bucket = e.module.buckets.emplace_back();
  bucket.name = "b";
  bucket.elements = 24;
  bucket.paddedElements = 64;
  bucket.ranges = {{0, 0, 20}, {1, 32, 36}};
  e.module.parameters[0].bucket = 0;
  e.module.parameters[1].bucket = 0;
  e.module.parameters[1].bucketOffset = 32;
  EXPECT_EQ(findings(e.module), "");
  bucket.ranges[1] = {1, 19, 24};
  bucket.paddedElements = 32;
  EXPECT_EQ(findings(e.module), "error: @v is not a member of #b at offset 32\n"
                                "error: #b, member @v: begins at 19, before 20\n"
                                "error: #b, member @v: holds 5 elements, the parameter has 4\n"
                                "error: #b, member @v: the parameter says it is elsewhere\n"
                                "error: #b says 24 elements, its members have 25\n"
                                "error: #b has 32 elements, not a multiple of 64\n");
}

TEST(Check, findsBrokenModuleLevelValues) {
  Example e;
  e.module.addConstant("c", {DType::f32, {2}}, {DataSource::Kind::inlineBytes, "1234", ""});
  e.module.inputs[0].of = "ids";
  e.module.addStorage("s", {DType::f32, {-1}}, Region::persistent);
  EXPECT_EQ(findings(e.module), "error: @x: of=ids is not an input\n"
                                "error: @c is f32[2] of 8 bytes, its data has 4\n"
                                "error: @s: f32[-1] has a negative dim\n");
}

TEST(Check, findsNamesThatWereChangedWithoutReindex) {
  Example e;
  e.x->name = "z";
  EXPECT_EQ(findings(e.module), "error: @z is not in the module's look-up: reindex() is missing\n");
  e.module.reindex();
  EXPECT_EQ(findings(e.module), "");
}

TEST(Check, constantsWithoutDataAreTheResultsOfInit) {
  Example e;
  e.module.addConstant("folded", {DType::f32, {}}, {});
  EXPECT_EQ(findings(e.module), "error: @folded has no data, and no segment @init yields it\n");
  Graph &init = e.module.addGraph("init");
  init.results = {{"folded", e.x}, {"x", e.x}};
  EXPECT_EQ(findings(e.module), "error: segment @init: yields f32[2] as @folded of type f32[]\n"
                                "error: segment @init: yields \"x\", which is not a constant without data\n");
}

} // namespace
} // namespace zerocc
