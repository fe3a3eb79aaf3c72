#pragma once

#include "runtime/data/npy.h"

#include <map>
#include <span>
#include <string>
#include <vector>

namespace zerocc {

/// How far a value may be from the recorded one, relative to the largest one of its tensor.
struct Tolerances {
  double loss = 1e-4;
  double gradient = 1e-4;
  double weight = 1e-4;
  /// Times the recorded `spread/NAME` (how far f32 and f64 training drift apart) that a weight, loss
  /// or norm may differ besides.
  double spread = 4;
};

/// The worst element of one tensor so far.
struct Difference {
  std::string key;
  double absolute = 0; // largest |got - wanted|
  double scale = 1;    // what a tolerance is relative to
  double allowed = 0;  // absolute difference that passes
  int64_t at = 0;      // index of that element (or step)
  double got = 0, wanted = 0;
  int64_t compared = 0, elements = 0; // of the tensor, or steps
  double scaled() const { return absolute / scale; }
  bool passes() const { return absolute <= allowed; } // false for NaN
};

/// A run beside a recorded training (REF.npz, models/record.py): `loss` and `grad_norm` per step, `grad/NAME`
/// of the first step, `weight/NAME` and `buffer/NAME` (running statistics) after the third. With prefix "clip/" or "sgd/" the recording of that
/// name; gradients and buffers have no prefix.
///
/// A tensor's scale is its largest recorded magnitude, at least 1e-6; for a gradient at least 1e-3 of the
/// largest gradient of all, since some are zero but for f32 rounding, which the tolerance of 1e-4 then amounts to.
class Comparison {
public:
  static Expected<Comparison> open(const std::string &path, const std::string &prefix = "",
                                   const Tolerances &tolerances = {});

  int64_t steps() const { return losses_; } // recorded
  std::vector<std::string> gradients() const { return namesBehind("grad/"); }
  std::vector<std::string> weights() const { return namesBehind(prefix_ + "weight/"); }
  std::vector<std::string> buffers() const; // with a prefix: none
  bool hasGradient(const std::string &name) const { return archive_.has("grad/" + name); }
  bool hasWeight(const std::string &name) const { return archive_.has(prefix_ + "weight/" + name); }

  /// A step beyond the recording is not compared.
  Status compareLoss(int64_t step, double loss);
  Status compareGradNorm(int64_t step, double norm);
  /// Elements [begin, begin + got.size()) of a parameter: parts may come one by one, from several ranks in
  /// turn.
  Status compareGradient(const std::string &name, int64_t begin, std::span<const float> got);
  Status compareWeight(const std::string &name, int64_t begin, std::span<const float> got);
  Status compareBuffer(const std::string &name, int64_t begin, std::span<const float> got);

  const std::map<std::string, Difference> &differences() const { return differences_; } // by key
  /// Recorded gradients, weights and buffers that were not compared, or not whole.
  std::vector<std::string> missing() const;
  /// Everything compared is near enough, and something was compared.
  bool passed() const;
  /// A line each for losses, norms, gradients, weights, buffers with the worst named, then the failures. Names are as they
  /// stand in the file: escapeForTerminal is for who prints it.
  std::string report() const;

private:
  explicit Comparison(NpzFile archive) : archive_(std::move(archive)) {}
  std::vector<std::string> namesBehind(const std::string &prefix) const;
  Expected<const ArrayView *> array(const std::string &key);
  Status compare(const std::string &key, int64_t begin, std::span<const float> got, double tolerance,
                 double leastScale, double spread);
  Expected<double> allowedSpread(const std::string &key);
  Status compareScalar(const std::string &name, int64_t step, double got);

  NpzFile archive_;
  std::string prefix_;
  Tolerances tolerances_;
  int64_t losses_ = 0;
  double largestGradient_ = 0;
  std::map<std::string, ArrayView> arrays_; // read so far
  std::map<std::string, Difference> differences_;
};

} // namespace zerocc
