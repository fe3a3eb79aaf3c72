// The facts of the ladder notice a step that is built wrong: each test takes the step of a small network, does one
// thing to it that a faulty pass might do, and wants the fault named.

#include "passes/facts.h"
#include "passes/pipeline.h"

#include <gtest/gtest.h>

namespace zerocc {
namespace {

constexpr const char *kNetwork = R"(module @m {
  fact static_count=4.0
  input @x : f32[4,8] role=data
  constant @n : f64[] = [4.0]
  param @a : f32[8,8] = initializer("a") group=decay
  param @b : f32[8,8] = initializer("b") group=decay
  segment @micro_step {
    %0 : f32[4,8] = matmul @x, @a loc("a")
    %1 : f32[4,8] = matmul %0, @b loc("b")
    %2 : f32[] = reduce_sum %1 {axes=[0,1]} loc("loss")
    %3 : f64[] = cast %2 {to="f64"} loc("loss")
    %4 : f32[4,8] = exp %1 loc("loss~")
    %5 : f32[8,8] = matmul %0, %4 {trans_a=1} loc("b~")
    %6 : f32[4,8] = matmul %4, @b {trans_b=1} loc("b~")
    %7 : f32[8,8] = matmul @x, %6 {trans_a=1} loc("a~")
    yield loss=%3, count=@n, grad:a=%7, grad:b=%5
  }
}
)";

class Facts : public testing::Test {
protected:
  std::unique_ptr<Module> build(int64_t shard, int64_t replicate, int64_t stage, int64_t microSteps = 1,
                                const std::string &reduce = "auto", const std::string &network = kNetwork) {
    auto module = parseModule(network);
    EXPECT_TRUE(module) << module.error().text();
    Decisions decisions;
    decisions.shard = shard;
    decisions.replicate = replicate;
    decisions.stage = stage;
    decisions.microSteps = microSteps;
    decisions.reduce = reduce;
    decisions.bucketBytes = 1;
    decisions.persistenceBytes = 0;
    for (const char *name : {"partition", "build-step", "insert-fetch-release", "schedule"}) {
      auto report = findPass(name)->run(**module, decisions);
      EXPECT_TRUE(report) << report.error().text();
    }
    return std::move(*module);
  }

  // Takes the first node of `op` out of a segment; readers of its result get its first operand instead.
  void drop(Module &module, const std::string &segment, OpKind op) {
    Graph &graph = *module.graph(segment);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node *node = graph.nodes[i];
      if (node->op != op)
        continue;
      graph.nodes.erase(graph.nodes.begin() + static_cast<int64_t>(i));
      for (Node *reader : graph.nodes)
        for (Value *&input : reader->inputs)
          if (!node->results.empty() && input == node->result())
            input = node->input(0);
      return;
    }
    FAIL() << "no " << opText(op) << " in " << segment;
  }

  void expectFinding(const Status &status, const std::string &text) {
    ASSERT_FALSE(status) << "nothing found";
    EXPECT_NE(status.error().text().find(text), std::string::npos) << status.error().text();
  }
};

TEST_F(Facts, HoldForEveryPreset) {
  for (int64_t stage = 0; stage < 4; ++stage)
    for (int64_t shard : {1, 2, 3})
      for (int64_t replicate : {1, 2})
        for (int64_t microSteps : {1, 2, 3})
          for (const char *reduce : {"auto", "boundary", "micro-step"}) {
            auto module = build(shard, replicate, stage, microSteps, reduce);
            Status facts = checkFetchesAndSpreads(*module);
            EXPECT_TRUE(facts) << facts.error().text() << print(*module);
            Status order = checkStartsBeforeWaits(*module);
            EXPECT_TRUE(order) << order.error().text();
          }
}

TEST_F(Facts, HoldForAGradientBehindReshapes) {
  std::string network = kNetwork, yield = "    yield";
  network.replace(network.find(yield), yield.size(), "    %8 : f32[64] = reshape %7 {shape=[64]} loc(\"a~\")\n"
                                                     "    %9 : f32[8,8] = reshape %8 {shape=[8,8]} loc(\"a~\")\n    yield");
  network.replace(network.find("grad:a=%7"), 9, "grad:a=%9");
  for (int64_t stage = 0; stage < 4; ++stage)
    for (int64_t microSteps : {1, 3}) {
      auto module = build(2, 2, stage, microSteps, "auto", network);
      Status facts = checkFetchesAndSpreads(*module);
      EXPECT_TRUE(facts) << facts.error().text() << print(*module);
    }
}

TEST_F(Facts, AGradientThatIsNotReducedOverShardIsNoticed) {
  auto module = build(2, 1, 1, 2);
  drop(*module, "last", OpKind::ReduceStart);
  expectFinding(checkSpreads(*module), "the gradient is partial over shard");
}

TEST_F(Facts, AGradientThatIsNotReducedOverReplicateIsNoticed) {
  auto module = build(2, 2, 3);
  drop(*module, "only", OpKind::AllReduceStart);
  expectFinding(checkSpreads(*module), "the gradient is partial over replicate, must be replicated");
}

TEST_F(Facts, AGradientReducedTwiceIsNoticed) {
  auto module = build(2, 1, 0);
  Graph &graph = *module->graph("only");
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i]->op == OpKind::ReduceStart) {
      graph.nodes.insert(graph.nodes.begin() + static_cast<int64_t>(i), graph.nodes[i]);
      break;
    }
  expectFinding(checkSpreads(*module), "the gradient is sharded over shard, must be partial");
}

TEST_F(Facts, AReducedGradientThatIsNotGatheredForWholeStatesIsNoticed) {
  auto module = build(2, 1, 0);
  drop(*module, "only", OpKind::AllGatherStart);
  expectFinding(checkSpreads(*module), "the gradient is sharded over shard, must be replicated");
}

TEST_F(Facts, AComputeNodeThatReadsAShardIsNoticed) {
  auto module = build(2, 1, 3);
  Graph &graph = *module->graph("only");
  Value *shard = module->global("b0.param");
  for (Node *node : graph.nodes)
    if (node->op == OpKind::Exp)
      node->inputs[0] = shard;
  expectFinding(checkSpreads(*module), "exp \"loss~\": reads a value that is sharded over shard");
}

TEST_F(Facts, APartAddedToAWholeIsNoticed) {
  auto module = build(2, 1, 2, 2);
  drop(*module, "last", OpKind::ReduceStart);
  expectFinding(checkSpreads(*module), "over shard");
}

TEST_F(Facts, AMissingAndADoubleReleaseAreNoticed) {
  auto module = build(2, 1, 3);
  drop(*module, "only", OpKind::Release);
  expectFinding(checkFetchesAndSpreads(*module), "has 0 releases, expected 1");
  module = build(2, 1, 3);
  Graph &graph = *module->graph("only");
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i]->op == OpKind::Release) {
      graph.nodes.push_back(graph.nodes[i]);
      break;
    }
  expectFinding(checkFetchesAndSpreads(*module), "has 2 releases, expected 1");
}

TEST_F(Facts, AReadBehindTheReleaseIsNoticed) {
  auto module = build(2, 1, 3);
  Graph &graph = *module->graph("only");
  for (size_t i = 0; i + 1 < graph.nodes.size(); ++i)
    if (graph.nodes[i + 1]->op == OpKind::Release) {
      std::swap(graph.nodes[i], graph.nodes[i + 1]);
      break;
    }
  expectFinding(checkFetchesAndSpreads(*module), "reads a released parameter");
}

TEST_F(Facts, AWaitBeforeItsStartIsNoticed) {
  auto module = build(2, 1, 3);
  Graph &graph = *module->graph("only");
  std::swap(graph.nodes[0], graph.nodes[1]);
  expectFinding(checkStartsBeforeWaits(*module), "stands before what it reads");
}

TEST_F(Facts, AParameterInNoBucketOrTwoIsNoticed) {
  auto module = build(2, 1, 3);
  BucketRange range = module->buckets[0].ranges[0];
  module->buckets[1].ranges[0] = range;
  expectFinding(checkEveryParameterInOneBucket(*module), "lies in 2 buckets");
  expectFinding(checkEveryParameterInOneBucket(*module), "lies in 0 buckets");
}

TEST(ParseSize, TakesUnitsAndRefusesOthers) {
  EXPECT_EQ(*parseSize("4096"), 4096);
  EXPECT_EQ(*parseSize("1.5GiB"), 1610612736);
  EXPECT_EQ(*parseSize("2 MB"), 2000000);
  for (const char *bad : {"", "MiB", "3 apples", "-1", "1e400GiB", "99999999999TiB"})
    EXPECT_FALSE(parseSize(bad)) << bad;
}

} // namespace
} // namespace zerocc
