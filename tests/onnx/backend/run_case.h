#pragma once

#include "tests/onnx/backend/gradients.h"
#include "tests/onnx/backend/suite.h"

namespace zerocc {

enum class Outcome { passed, refused, wrong };
enum class KernelOutcome { notRun, refused, passed, wrong };

/// What became of one case.
struct CaseResult {
  SuiteCase suiteCase;
  std::string op; // what the case is about: its one node, or those of its model
  Outcome outcome = Outcome::refused;
  std::string why;
  int initializers = 0; // inputs that had to become initializers: 0 none, 1 integers and scalars, 2 all
  KernelOutcome kernels = KernelOutcome::notRun;
  std::string kernelWhy;
  GradientCheck gradient;
  std::string noPlan; // light models: why the model with weights gives no training plan
};

/// Runs cases: import, double interpreter, CPU kernels, gradients. Operands that a compiler must know
/// (shapes, axes, windows) are graph inputs in the suite: a case that is refused is tried again with its
/// integer and one-element inputs as initializers, then with all of them.
class CaseRunner {
public:
  CaseRunner();
  ~CaseRunner();

  /// `typesOnly`: the values of the results are random.
  CaseResult run(const SuiteCase &suiteCase, bool typesOnly);
  /// A model without recorded inputs, too big for the interpreter: the kernels only. With weights it is
  /// compiled.
  CaseResult runLight(const SuiteCase &suiteCase);

private:
  struct Imported;
  Expected<Imported> import(const SuiteData &data, CaseResult &result);
  Status compileLight(const SuiteData &data);
  void runDataSet(const SuiteData &data, bool typesOnly, CaseResult &result);
  void runKernelsOf(const Imported &imported, const std::vector<HostTensor> &expected, const SuiteData &data,
                    bool typesOnly, CaseResult &result);

  std::filesystem::path scratch_;
};

} // namespace zerocc
