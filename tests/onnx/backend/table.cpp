#include "tests/onnx/backend/table.h"

namespace zerocc {
namespace {

struct Counts {
  int cases = 0, passed = 0, random = 0, outOfScope = 0, notYet = 0, wrong = 0;
  int kernels = 0, kernelsRefused = 0, kernelsWrong = 0;
  int gradients = 0, zeroGradients = 0, notSmooth = 0, gradientsRefused = 0, gradientsWrong = 0;

  void add(const CaseResult &result, const Expectation *expectation) {
    ++cases;
    bool isRandom = expectation && expectation->kind == "random";
    if (result.outcome == Outcome::wrong)
      ++wrong;
    else if (result.outcome == Outcome::passed)
      ++(isRandom ? random : passed);
    else
      ++(expectation && expectation->kind == "out-of-scope" ? outOfScope : notYet);
    kernels += result.kernels == KernelOutcome::passed;
    kernelsRefused += result.kernels == KernelOutcome::refused;
    kernelsWrong += result.kernels == KernelOutcome::wrong;
    gradients += result.gradient.outcome == GradientOutcome::agrees;
    zeroGradients += result.gradient.outcome == GradientOutcome::agrees && result.gradient.isZero;
    notSmooth += result.gradient.outcome == GradientOutcome::notSmooth;
    gradientsRefused += result.gradient.outcome == GradientOutcome::refused;
    gradientsWrong += result.gradient.outcome == GradientOutcome::disagrees;
  }

  std::string row(const std::string &name) const {
    std::string text = "| " + name + " |";
    for (int count : {cases, passed, random, notYet, outOfScope, wrong, kernels, kernelsRefused, kernelsWrong,
                      gradients, zeroGradients, notSmooth, gradientsRefused, gradientsWrong})
      text += " " + (count ? std::to_string(count) : "") + " |";
    return text + "\n";
  }
};

std::string heading(const std::string &first) {
  return "| " + first +
         " | cases | passed | random | not yet | out of scope | wrong | kernels: passed | refused | wrong | "
         "gradients: "
         "agree | of these zero | not smooth | refused | wrong |\n|---|" +
         [] {
           std::string dashes;
           for (int i = 0; i < 14; ++i)
             dashes += "--:|";
           return dashes;
         }() +
         "\n";
}

/// How inputs were fed, and which of the ops that ONNX declares differentiable have a gradient that agrees.
std::string notes(const std::vector<CaseResult> &results) {
  int fed[3] = {};
  std::set<std::string> missing = differentiableOps();
  const size_t declared = missing.size();
  for (const CaseResult &result : results) {
    if (result.outcome == Outcome::passed && result.suiteCase.set != "light")
      ++fed[result.initializers];
    if (result.gradient.outcome == GradientOutcome::agrees)
      missing.erase(result.op);
  }
  std::string text = "\ninputs that had to be initializers, of those that pass: none in " +
                     std::to_string(fed[0]) + ", integers and single numbers in " + std::to_string(fed[1]) +
                     ", all in " + std::to_string(fed[2]) +
                     "\nops that ONNX declares differentiable: " + std::to_string(declared) +
                     ", with a gradient that agrees: " + std::to_string(declared - missing.size());
  const char *separator = "; without: ";
  for (const std::string &op : missing) {
    text += separator + op;
    separator = ", ";
  }
  return text + "\n";
}

} // namespace

std::string tableOf(const std::vector<CaseResult> &results, const Expectations &expectations) {
  Counts all;
  std::map<std::string, Counts> sets;
  std::map<std::string, std::map<std::string, Counts>> ops;
  for (const CaseResult &result : results) {
    const Expectation *expectation = expectations.of(result.suiteCase.name);
    all.add(result, expectation);
    sets[result.suiteCase.set].add(result, expectation);
    ops[result.suiteCase.set][result.op].add(result, expectation);
  }
  std::string text = "# ONNX 1.22 backend tests\n\n" + heading("set");
  for (const auto &[name, counts] : sets)
    text += counts.row(name);
  text += all.row("all");
  text += notes(results);
  for (const auto &[set, rows] : ops) {
    text += "\n## " + set + "\n\n" + heading("op");
    for (const auto &[name, counts] : rows)
      text += counts.row(name);
  }
  return text;
}

} // namespace zerocc
