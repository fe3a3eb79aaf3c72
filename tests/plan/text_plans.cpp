#include "tests/plan/text_plans.h"

#include "compiler/plan/emit.h"
#include "passes/compile.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace zerocc {
namespace {

[[noreturn]] void giveUp(const Error &error) {
  std::fputs(error.text().c_str(), stderr);
  std::abort();
}

} // namespace

std::vector<std::string> splitSettings(const std::string &settings) {
  std::istringstream words(settings);
  std::vector<std::string> list;
  for (std::string word; words >> word;)
    list.push_back(word);
  return list;
}

plan::Plan planOfText(const std::string &text, const std::vector<std::string> &settings) {
  auto module = parseModule(text);
  if (!module)
    giveUp(module.error());
  Decisions decisions;
  decisions.loss = "cross-entropy:logits";
  PipelineOptions options;
  for (const std::string &setting : settings) {
    if (setting == "inference") {
      options.inference = true;
      continue;
    }
    auto [name, value] = llvm::StringRef(setting).split('=');
    if (Status ok = setDecision(decisions, name, value); !ok)
      giveUp(ok.error());
  }
  options.check = true;
  auto compiled = compileModule(**module, decisions, false, options);
  if (!compiled)
    giveUp(compiled.error());
  EmitOptions emit;
  emit.inference = options.inference;
  emit.optimizer = options.inference ? "" : compiled->decisions.optimizer;
  emit.groups = {"decay", "no-decay"};
  return emitPlan(*compiled->module, emit);
}

std::string modelText(int layers, int width, int vocabulary) {
  const int batch = 2, tokens = 4, rows = batch * tokens;
  std::ostringstream out;
  auto dims = [](std::initializer_list<int> list) {
    std::string text = "[";
    for (int d : list)
      text += (text.size() > 1 ? "," : "") + std::to_string(d);
    return text + "]";
  };
  std::string cube = dims({batch, tokens, width}), flat = dims({rows, width}), wide = dims({rows, 4 * width});
  auto parameter = [&](const std::string &name, const std::string &shape, const char *more = "") {
    out << "  param @" << name << " : f32" << shape << " = initializer(\"" << name << "\") group=decay"
        << more << "\n";
  };
  out << "module @m {\n";
  out << "  input @ids : i64" << dims({batch, tokens}) << " role=tokens range=[0," << vocabulary << ")\n";
  parameter("wte", dims({vocabulary, width}), " tied");
  parameter("wpe", dims({tokens, width}));
  for (int l = 0; l < layers; ++l) {
    std::string layer = "h." + std::to_string(l) + ".";
    parameter(layer + "ln.w", dims({width}));
    parameter(layer + "ln.b", dims({width}));
    parameter(layer + "fc.w", dims({width, 4 * width}));
    parameter(layer + "fc.b", dims({4 * width}));
    parameter(layer + "pr.w", dims({4 * width, width}));
    parameter(layer + "pr.b", dims({width}));
  }
  out << "  segment @forward {\n";
  auto node = [&](const std::string &name, const std::string &shape, const std::string &rest,
                  const std::string &at) {
    out << "    %" << name << " : f32" << shape << " = " << rest << " loc(\"/" << at << "\")\n";
  };
  node("e", cube, "gather @wte, @ids {axis=0}", "wte");
  node("p", cube, "broadcast @wpe {shape=" + cube + "}", "wpe");
  node("x0", cube, "add %e, %p", "add");
  for (int l = 0; l < layers; ++l) {
    std::string i = std::to_string(l), h = "@h." + i + ".", at = "h." + i;
    out << "    %y" << i << " : f32" << cube << ", %mean" << i << " : f32" << dims({batch, tokens})
        << ", %rstd" << i << " : f32" << dims({batch, tokens}) << " = layer_norm %x" << i << ", " << h
        << "ln.w, " << h << "ln.b {eps=1e-05} loc(\"/" << at << "/ln\")\n";
    node("r" + i, flat, "reshape %y" + i + " {shape=" + flat + "}", at + "/fc");
    node("u" + i, wide, "matmul %r" + i + ", " + h + "fc.w", at + "/fc");
    node("ub" + i, wide, "broadcast " + h + "fc.b {shape=" + wide + "}", at + "/fc");
    node("v" + i, wide, "add %u" + i + ", %ub" + i, at + "/fc");
    node("g" + i, wide, "gelu %v" + i, at + "/gelu");
    node("z" + i, flat, "matmul %g" + i + ", " + h + "pr.w", at + "/pr");
    node("zr" + i, cube, "reshape %z" + i + " {shape=" + cube + "}", at + "/pr");
    node("zb" + i, cube, "broadcast " + h + "pr.b {shape=" + cube + "}", at + "/pr");
    node("w" + i, cube, "add %zr" + i + ", %zb" + i, at + "/pr");
    node("x" + std::to_string(l + 1), cube, "add %x" + i + ", %w" + i, at + "/add");
  }
  node("f", flat, "reshape %x" + std::to_string(layers) + " {shape=" + flat + "}", "head");
  node("lo", dims({rows, vocabulary}), "matmul %f, @wte {trans_b=1}", "head");
  node("logits", dims({batch, tokens, vocabulary}),
       "reshape %lo {shape=" + dims({batch, tokens, vocabulary}) + "}", "head");
  out << "    yield logits=%logits\n  }\n}\n";
  return out.str();
}

} // namespace zerocc
