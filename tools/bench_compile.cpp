// How long it takes to compile GPTs of GPT-3's width with 12 to 96 layers, the last one its 175 billion
// parameters: generate, import, all passes with their checks, emit, verify, encode. `ratio` is the fastest
// run against the fastest with half the layers: about 2 is linear, below 2 where work that does not grow
// (folding the causal mask) still counts.
//
//     ninja -C build/release bench_compile && build/release/bin/bench_compile

#include "compiler/onnx/generate.h"
#include "compiler/onnx/importer.h"
#include "compiler/plan/emit.h"
#include "passes/compile.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/verify.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

namespace zerocc {
namespace {

namespace fs = std::filesystem;

/// A file name in the system's temporary folder; the file goes with the object.
struct TemporaryFile {
  fs::path path = fs::temp_directory_path() / ("bench_compile-" + std::to_string(::getpid()) + ".onnx");
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

/// The encoded plan for 1024 ranks at stage 3.
Expected<std::string> compileGpt(const GptShape &shape, const std::string &path) {
  ZEROCC_ASSIGN(GeneratedModel model, generateGpt(shape, "weights"));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << model.bytes;
  ZEROCC_ASSIGN(auto imported, importOnnx(path, {}));
  Decisions decisions;
  decisions.shard = 1024;
  decisions.stage = 3;
  decisions.loss = "cross-entropy:logits";
  ZEROCC_ASSIGN(LadderResult compiled, compileModule(*imported, decisions, false, {}));
  EmitOptions emit;
  emit.loss = decisions.loss;
  emit.stage = decisions.stage;
  emit.modelFingerprint = fingerprint(print(*imported));
  emit.graphFingerprint = fingerprint(compiled.graphText);
  emit.groups = {"decay", "no-decay"};
  for (double decay : {0.01, 0.0}) {
    emit.defaults.add_group_weight_decay(decay);
    emit.defaults.add_group_lr_factor(1);
  }
  plan::Plan plan = emitPlan(*compiled.module, emit);
  if (std::vector<Diagnostic> findings = verifyPlan(plan); !findings.empty())
    return Error(std::move(findings));
  return encodePlan(plan);
}

void compileLayers(benchmark::State &state) {
  static std::map<int64_t, double> fastest; // seconds, by layers
  TemporaryFile file;
  int64_t layers = state.range(0);
  double planBytes = 0;
  for (auto _ : state) {
    auto begin = std::chrono::steady_clock::now();
    Expected<std::string> plan = compileGpt({layers, 12288, 96, 50257, 2048}, file.path);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!plan) {
      state.SkipWithError(plan.error().text().c_str());
      return;
    }
    planBytes = static_cast<double>(plan->size());
    fastest[layers] = fastest.count(layers) ? std::min(fastest[layers], seconds) : seconds;
  }
  state.counters["min_ms"] = fastest[layers] * 1e3;
  state.counters["ms_per_layer"] = fastest[layers] * 1e3 / static_cast<double>(layers);
  state.counters["plan_MiB"] = planBytes / (1 << 20);
  if (fastest.count(layers / 2))
    state.counters["ratio"] = fastest[layers] / fastest[layers / 2];
}
BENCHMARK(compileLayers)->Unit(benchmark::kMillisecond)->MinTime(2)->Arg(12)->Arg(24)->Arg(48)->Arg(96);

} // namespace
} // namespace zerocc

BENCHMARK_MAIN();
