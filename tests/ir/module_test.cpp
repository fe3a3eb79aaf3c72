#include "compiler/ops/ops.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

TEST(Module, findsItsValuesAndTheirTables) {
  Module module;
  Value *x = module.addInput("x", {DType::f32, {2}});
  Value *w = module.addParameter("w", {DType::f32, {2}}, {});
  Value *s = module.addStorage("s", {DType::f32, {2}}, Region::carried);
  EXPECT_EQ(module.global("x"), x);
  EXPECT_EQ(module.global("s"), s);
  EXPECT_EQ(module.global("y"), nullptr);
  EXPECT_EQ(module.inputOf(x), &module.inputs[0]);
  EXPECT_EQ(module.parameterOf(w), &module.parameters[0]);
  EXPECT_EQ(module.parameterOf(x), nullptr);
  EXPECT_EQ(module.constantOf(s), nullptr);
}

TEST(Module, reindexFollowsErasureAndRenaming) {
  Module module;
  module.addParameter("a", {DType::f32, {2}}, {});
  Value *b = module.addParameter("b", {DType::f32, {2}}, {});
  module.parameters.erase(module.parameters.begin());
  b->name = "c";
  module.reindex();
  EXPECT_EQ(module.global("a"), nullptr);
  EXPECT_EQ(module.global("b"), nullptr);
  EXPECT_EQ(module.global("c"), b);
  EXPECT_EQ(module.parameterOf(b), &module.parameters[0]);
}

TEST(Module, keepsOneScalarPerDtypeAndValue) {
  Module module;
  Value *one = module.scalarF32(1);
  EXPECT_EQ(module.scalarF32(1), one);
  EXPECT_EQ(one->name, "f32:1.0");
  EXPECT_NE(module.scalar(DType::f64, 1), one);
  EXPECT_NE(module.scalarF32(-0.0f), module.scalarF32(0.0f));
  EXPECT_EQ(module.scalar(DType::f32, 1e20)->name, "f32:1e20");
  EXPECT_EQ(module.constants.size(), 5u);
}

TEST(Module, scalarsStepAsideForNamesOfTheModel) {
  Module module;
  Value *own = module.addInput("f32:1.0", {DType::f32, {}});
  Value *one = module.scalarF32(1);
  EXPECT_NE(one, own);
  EXPECT_EQ(one->name, "f32:1.0~");
  EXPECT_EQ(module.scalarF32(1), one);
}

TEST(Module, replaceUsesReachesOperandsResultsAndPlaces) {
  Module module;
  Value *x = module.addInput("x", {DType::f32, {2}});
  Value *y = module.addInput("y", {DType::f32, {2}});
  Graph &graph = module.addGraph("s");
  Node *node = graph.append(OpKind::Add, {x, x}, x->type);
  node->result()->place = {Place::Kind::value, x, Region::arena, 0};
  graph.results = {{"a", x}, {"b", node->result()}};
  llvm::DenseMap<const Value *, Value *> replacements;
  replacements[x] = y;
  replaceUses(graph, replacements);
  EXPECT_EQ(node->input(0), y);
  EXPECT_EQ(node->input(1), y);
  EXPECT_EQ(node->result()->place.base, y);
  EXPECT_EQ(graph.results[0].second, y);
  EXPECT_EQ(graph.results[1].second, node->result());
}

TEST(Module, usesListsANodeOncePerRead) {
  Module module;
  Value *x = module.addInput("x", {DType::f32, {2}});
  Graph &graph = module.addGraph("s");
  Node *sum = graph.append(OpKind::Add, {x, x}, x->type);
  graph.results = {{"y", sum->result()}};
  const Uses uses(graph);
  EXPECT_EQ(uses.of(x).size(), 2u);
  EXPECT_TRUE(uses.of(sum->result()).empty());
  EXPECT_TRUE(uses.isYielded(sum->result()));
  EXPECT_FALSE(uses.isYielded(x));
}

TEST(GraphBuilder, makesNoNodeForWhatChangesNothing) {
  Module module;
  Value *x = module.addInput("x", {DType::f32, {2, 3}});
  Graph &graph = module.addGraph("s");
  GraphBuilder b(module, graph);
  EXPECT_EQ(b.reshape(x, {2, 3}), x);
  EXPECT_EQ(b.transpose(x, {0, 1}), x);
  EXPECT_EQ(b.broadcast(x, {2, 3}), x);
  EXPECT_EQ(b.slice(x, {0, 0}, {2, 3}), x);
  EXPECT_EQ(b.cast(x, DType::f32), x);
  EXPECT_EQ(b.concat({x}, 0), x);
  EXPECT_EQ(b.reduceSum(x, {}), x);
  EXPECT_TRUE(graph.nodes.empty());
  EXPECT_NE(b.slice(x, {1, 0}, {2, 3}, {-1, 1}), x);
}

TEST(GraphBuilder, splatsShareTheirConstant) {
  Module module;
  Value *x = module.addInput("x", {DType::f32, {2, 3}});
  Graph &graph = module.addGraph("s");
  GraphBuilder b(module, graph);
  b.location = "here";
  Value *half = b.splatLike(x, 0.5);
  EXPECT_EQ(half->type, x->type);
  EXPECT_EQ(half->definition->location, "here");
  EXPECT_EQ(b.splatLike(x, 0.5)->definition->input(0), half->definition->input(0));
  EXPECT_EQ(module.constants.size(), 1u);
}

TEST(GraphBuilder, tryMakeSaysWhatIsWrongAndMakesNothing) {
  Module module;
  Value *x = module.addInput("x", {DType::f32, {2, 3}});
  Graph &graph = module.addGraph("s");
  Expected<Node *> node = GraphBuilder(module, graph).tryMake(OpKind::MatMul, {x, x});
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().text(), "error: inner dimensions differ: left is [2,3], right is [2,3]\n");
  EXPECT_TRUE(graph.nodes.empty());
}

TEST(BroadcastShape, alignsRight) {
  EXPECT_EQ(broadcastShape({2, 3}, {3}), (Dims{2, 3}));
  EXPECT_EQ(broadcastShape({3}, {2, 1}), (Dims{2, 3}));
  EXPECT_EQ(broadcastShape({}, {2}), (Dims{2}));
  EXPECT_EQ(broadcastShape({1}, {0}), (Dims{0}));
  EXPECT_EQ(broadcastShape({2}, {3}), std::nullopt);
  EXPECT_EQ(broadcastShape({2}, {0}), std::nullopt);
}

TEST(OpTable, tellsRowsAndDifferentiableOps) {
  EXPECT_STREQ(opRow(OpKind::MatMul).shape, "matmulShape");
  EXPECT_EQ(opRow(OpKind::LayerNorm).results, 3);
  EXPECT_TRUE(isDifferentiable(OpKind::MatMul));
  EXPECT_FALSE(isDifferentiable(OpKind::Sign));
  EXPECT_FALSE(isDifferentiable(OpKind::Compare));
  EXPECT_FALSE(isDifferentiable(OpKind::SoftmaxGrad));
}

TEST(OpTable, costsAndWorkspace) {
  Module module;
  Value *a = module.addInput("a", {DType::f32, {5, 2, 3}});
  Value *b = module.addInput("b", {DType::f32, {5, 2, 4}});
  Value *ids = module.addInput("ids", {DType::i64, {2}});
  Graph &graph = module.addGraph("s");
  GraphBuilder g(module, graph);
  const Cost product = costOf(*g.matmul(a, b, true)->definition);
  EXPECT_EQ(product.flops, 2 * 5 * 3 * 2 * 4);
  EXPECT_EQ(product.bytes, 4 * (30 + 40 + 60));
  EXPECT_EQ(costOf(*g.reshape(a, {30})->definition).bytes, 0);
  const Cost rows = costOf(*g.gather(a, ids, 0)->definition);
  EXPECT_EQ(rows.bytes, 2 * 4 * 12 + 16);
  Value *rows2 = g.reduceSum(a, {2}), *x = g.reduceSum(a, {0});
  Value *mean = g.reduceSum(x, {1});
  EXPECT_EQ(workspaceBytes(*g.make(OpKind::LayerNormParameterGrad, {x, mean, mean, x})), 2 * 3 * 8);
  EXPECT_EQ(workspaceBytes(*rows2->definition), 0);
  EXPECT_EQ(workspaceBytes(*g.add(a, a)->definition), 0);
}

} // namespace
} // namespace zerocc
