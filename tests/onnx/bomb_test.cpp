// Small files that ask for much. All are refused (or imported, where they are legal) in seconds and with
// little memory. A binary of its own: a child's peak memory counts from its parent's.

#include "tests/onnx/build_model.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace zerocc {
namespace {
// -----------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlack = 20; // sanitizers take their own
#else
constexpr double kSlack = 1;
#endif

struct Outcome {
  int code = -1; // -1: it did not exit by itself
  double megabytes = 0, seconds = 0;
};

/// `zerocc check` in a process of its own.
Outcome check(const std::string &bytes) {
  ScratchFolder folder;
  const std::string path = folder.write("model.onnx", bytes), program = ZEROCC_BIN_DIR "/zerocc";
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, 1);
    ::dup2(nowhere, 2);
    const rlimit time{60, 60};
    ::setrlimit(RLIMIT_CPU, &time);
    ::execl(program.c_str(), "zerocc", "check", path.c_str(), static_cast<char *>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  const auto secondsOf = [](const timeval &time) {
    return double(time.tv_sec) + double(time.tv_usec) * 1e-6;
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, double(usage.ru_maxrss) / 1024,
          secondsOf(usage.ru_utime) + secondsOf(usage.ru_stime)};
}

void expectCheap(const std::string &what, const std::string &bytes, int code = 1) {
  const Outcome outcome = check(bytes);
  EXPECT_EQ(outcome.code, code) << what;
  EXPECT_LT(outcome.megabytes, 200 * kSlack) << what;
  EXPECT_LT(outcome.seconds, 10 * kSlack) << what;
}

std::string field(int number, const std::string &content) {
  std::string out;
  for (uint64_t value : {uint64_t(number) << 3 | 2, uint64_t(content.size())}) {
    for (; value >= 0x80; value >>= 7)
      out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  }
  return out + content;
}

std::string repeated(const std::string &text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += text;
  return out;
}

TEST(Bomb, ManyEmptyMessages) {
  constexpr int kMany = 500000; // two bytes each
  const std::string empty;
  expectCheap("nodes", field(7, repeated(field(1, empty), kMany)));
  expectCheap("initializers", field(7, repeated(field(5, empty), kMany)));
  expectCheap("inputs", field(7, repeated(field(11, empty), kMany)));
  expectCheap("attributes", field(7, field(1, repeated(field(5, empty), kMany))));
  expectCheap("subgraphs", field(7, field(1, field(5, repeated(field(11, empty), kMany)))));
  expectCheap("names", field(7, field(1, repeated(field(1, empty), kMany))));
  expectCheap("functions", repeated(field(25, empty), kMany / 2));
  expectCheap("training", repeated(field(20, empty), kMany / 2));
}

TEST(Bomb, ManyDimensions) {
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Neg (x) }");
  onnx::ValueInfoProto &input = *model.mutable_graph()->mutable_input(0);
  for (int i = 0; i < 400000; ++i)
    input.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
  expectCheap("dimensions", model.SerializeAsString());
}

TEST(Bomb, ManyFindings) {
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) { y = Neg (x) }");
  for (int i = 0; i < 20000; ++i) {
    onnx::ValueInfoProto &input = *model.mutable_graph()->add_input();
    input = model.graph().input(0);
    input.set_name("x" + std::to_string(i));
    input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_param(
        "d" + std::to_string(i));
  }
  expectCheap("findings", model.SerializeAsString());
}

onnx::TensorProto &addInts(onnx::ModelProto &model, const std::string &name, std::vector<int64_t> values,
                           bool isScalar) {
  std::vector<int64_t> dims;
  if (!isScalar)
    dims.push_back(static_cast<int64_t>(values.size()));
  return addTensor(model, name, onnx::TensorProto::INT64, dims,
                   std::string(reinterpret_cast<const char *>(values.data()), values.size() * 8));
}

/// Reshapes whose shape is computed from an array of a million elements, each from another one.
onnx::ModelProto folding(int count, const std::string &steps, const std::string &last) {
  std::string text = "g (float[1, 4] x) => (float[1, 4] y) {\n", from = "x";
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    std::string part = steps;
    for (size_t at; (at = part.find('#')) != std::string::npos;)
      part.replace(at, 1, n);
    text += part + "k" + n + " = Gather (" + last + n + ", z)\ns" + n + " = Neg (k" + n + ")\ny" + n +
            " = Reshape (" + from + ", s" + n + ")\n";
    from = "y" + n;
  }
  onnx::ModelProto model = modelFromText(text + "y = Relu (" + from + ") }");
  addInts(model, "zero", {0}, true);
  addInts(model, "one", {1}, true);
  addInts(model, "million", {1 << 20}, true);
  addInts(model, "z", {1, 4}, false);
  return model;
}

TEST(Bomb, ConstantsThatTakeMuchMemory) {
  const std::string range = "r# = Range (zero, million, one)\n n# = Neg (r#)\n";
  expectCheap("constants of many nodes", folding(100, range, "n").SerializeAsString(), 0);
  std::string chain = "a#x0 = Range (zero, million, one)\n";
  for (int i = 1; i < 101; ++i)
    chain += "a#x" + std::to_string(i) + " = Neg (a#x" + std::to_string(i - 1) + ")\n";
  expectCheap("constants of one node", folding(1, chain + "b# = Neg (a#x100)\n", "b").SerializeAsString(), 0);
}

TEST(Bomb, ConstantsThatTakeMuchTime) {
  const std::string range = "r# = Range (zero, million, one)\n n# = Neg (r#)\n";
  expectCheap("constants", folding(2000, range, "n").SerializeAsString());
}

TEST(Bomb, HugeResults) {
  const auto refuse = [](const std::string &graph, const std::vector<int64_t> &ints) {
    onnx::ModelProto model = modelFromText(graph);
    addInts(model, "s", ints, false);
    addInts(model, "zero", {0}, true);
    addInts(model, "huge", {int64_t(1) << 62}, true);
    addInts(model, "one", {1}, true);
    expectCheap(graph, model.SerializeAsString());
  };
  const int64_t big = int64_t(1) << 31;
  refuse("g (float[B, 4] x) => (float[B, 4] y) { y = Tile (x, s) }", {big, big});
  refuse("g (float[B, 4] x) => (float[B, 4] y) { y = Expand (x, s) }", {big, big, 1, 4});
  refuse("g (float[B, 4] x) => (float[B, 4] y) { c = ConstantOfShape (s) y = Add (x, c) }",
         {big, big, big, 4});
  refuse("g (float[B, 4] x) => (float[B, 4] y) { r = Range (zero, huge, one) y = Reshape (x, r) }", {});
  refuse("g (float[B, 4] x) => (float[B, 4] y) { y = Pad (x, s) }", {0, big << 28, 0, big << 28});
}

/// `for (many) { BODY }`, whose operands are x (or a list) and what `step` and the constants of HugeResults give.
void expectCheapLoop(const std::string &what, const std::string &before, const std::string &body, int64_t steps) {
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) {\n" + before +
                                         "r = Loop (steps, yes, from) <body = b (int64 i, bool c, float[B, 4] v) => "
                                         "(bool d, float[B, 4] w) { d = Identity (c)\n" +
                                         body + "}>\n y = Relu (x) z = Identity (r) }");
  addInts(model, "steps", {steps}, true);
  addInts(model, "zero", {0}, true);
  addTensor(model, "yes", onnx::TensorProto::BOOL, {}, std::string(1, 1));
  model.mutable_graph()->add_output()->set_name("r");
  expectCheap(what, model.SerializeAsString());
}

TEST(Bomb, ManySteps) {
  constexpr int64_t kMany = 199999;
  expectCheapLoop("steps", "from = Identity (x)\n", "w = Neg (v)", int64_t(1) << 40);
  expectCheapLoop("nodes", "from = Identity (x)\n", "a = Neg (v) e = Neg (a) w = Neg (e)", kMany);
  expectCheapLoop("no nodes", "from = Identity (x)\n", "w = Identity (v)", int64_t(1) << 62);
  expectCheapLoop("loops in a loop", "from = Identity (x)\n",
                  "w = Loop (steps, yes, v) <body = b2 (int64 i2, bool c2, float[B, 4] v2) => (bool d2, float[B, 4] w2) "
                  "{ d2 = Identity (c2) w2 = Loop (steps, yes, v2) <body = b3 (int64 i3, bool c3, float[B, 4] v3) => "
                  "(bool d3, float[B, 4] w3) { d3 = Identity (c3) w3 = Identity (v3) }> }>",
                  kMany);
  expectCheapLoop("names", "from = Identity (x)\n", "w = Neg (v) " + std::string(100000, 'n') + " = Neg (w)", kMany);
  expectCheapLoop("long names", "from = Identity (x)\n",
                  "v" + std::string(100000, 'n') + " = Neg (v) w = Neg (v" + std::string(100000, 'n') + ")", kMany);
  expectCheapLoop("tables", "from = Identity (x)\n", "t = DFT (x) w = Neg (v)", kMany);
  expectCheapLoop("a list that grows in front", "from = SequenceConstruct (x)\n", "w = SequenceInsert (v, x, zero)",
                  kMany);
  expectCheapLoop("a list that shrinks", "many = Concat <axis = 0> (x, x)\nfrom = SequenceConstruct (x)\n",
                  "l = SequenceInsert (v, x) m = SequenceInsert (l, x) w = SequenceErase (m, zero)", kMany);
  const auto many = [](const std::string &text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) {
      std::string part = text;
      for (size_t at; (at = part.find('#')) != std::string::npos;)
        part.replace(at, 1, std::to_string(i));
      out += part;
    }
    return out;
  };
  expectCheapLoop("nodes that nothing needs", "from = Identity (x)\n", many("e# = Identity (v)\n", 20000) + "w = Neg (v)",
                  kMany);
  expectCheapLoop("a long body", "from = Identity (x)\n",
                  "e0 = Identity (v)\n" + many("a# = Identity (e#)\n", 1) + many("b# = Neg (a0) c# = Add (b#, v)\n", 3000) +
                      "w = Max (c0" + many(", c#", 3000) + ")",
                  kMany);
  expectCheapLoop("many operands", "from = Identity (x)\n", "a = Concat <axis = 0> (v" + many(", v", 20000) +
                  ")\n s = SequenceConstruct (a, a" + many(", a", 20000) + ")\n p = SequenceAt (s, zero)\n"
                  "w = ReduceMax <axes = [0]> (p)", kMany);
  expectCheapLoop("lists of parts", "from = Identity (x)\n",
                  "s = SplitToSequence <axis = 1> (x) p = SequenceAt (s, zero) w = Add (v, p)", kMany);
}

TEST(Bomb, ManyPartsAndBatches) {
  onnx::ModelProto model = modelFromText("g (float[B, 4] x) => (float[B, 4] y) {\n"
                                         "z = Slice (x, one, one, one)\n s = SplitToSequence <axis = 1> (z, zeros)\n"
                                         "p = SequenceAt (s, zero)\n y = Concat <axis = 1> (x, p) }");
  addInts(model, "zero", {0}, true);
  addInts(model, "one", {1}, false);
  addInts(model, "zeros", std::vector<int64_t>(1 << 21, 0), false);
  expectCheap("parts without elements", model.SerializeAsString());

  model = modelFromText("g (float[B, 4] x, float[4194304, 0, 4] c) => (float[B, 4] y)\n<float[1, 4] four = {1, 2, 3, 4}> {\n"
                        "e = Expand (four, states)\n h = Scan <num_scan_inputs = 1, "
                        "body = b (float[4] a, float[4] i) => (float[4] o) { o = Add (a, i) }> (lengths, e, c)\n"
                        "r = ReduceSum <axes = [0]> (h)\n y = Add (x, r) }", 8);
  addInts(model, "states", {1 << 22, 4}, false);
  addInts(model, "lengths", {0}, false);
  expectCheap("batches without steps", model.SerializeAsString());
}

TEST(Bomb, ManyNames) {
  std::string text = "g (float[B, 4] x) => (float[B, 4] y) {\n";
  onnx::ModelProto model =
      modelFromText("g (float[B, 4] x) => (float[B, 4] y) { v0 = Neg (x) y = Unknown (v20000) }");
  for (int i = 1; i <= 20000; ++i) {
    onnx::NodeProto &node = *model.mutable_graph()->add_node();
    node = model.graph().node(0);
    node.set_input(0, "v" + std::to_string(i - 1));
    node.set_output(0, "v" + std::to_string(i));
  }
  expectCheap("the last node comes too early", model.SerializeAsString());
  model.mutable_graph()->mutable_node()->SwapElements(1, 20001);
  expectCheap("another node comes too early", model.SerializeAsString());

  model = modelCalling("f");
  onnx::FunctionProto &function = *model.add_functions() = functionOf("f");
  addNode(function, "Neg", "v", "r");
  for (int i = 0; i < 50000; ++i) { // calls whose output has no name: what is in them has the same name every time
    onnx::NodeProto &node = *model.mutable_graph()->add_node();
    node.set_op_type("f");
    node.set_domain("local");
    node.add_input("x");
    node.add_output("");
  }
  expectCheap("calls", model.SerializeAsString(), 0);
}

} // namespace
} // namespace zerocc
