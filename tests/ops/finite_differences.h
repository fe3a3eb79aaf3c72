#pragma once

#include "compiler/ops/interpreter.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

namespace zerocc {

/// Random numbers that are the same everywhere: no standard distribution is.
class Random {
public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  /// In [low, high).
  int64_t integer(int64_t low, int64_t high) { return low + static_cast<int64_t>(engine_() % (high - low)); }
  bool coin() { return integer(0, 2) != 0; }

private:
  std::mt19937_64 engine_;
};

inline HostTensor randomDirection(const TensorType &type, Random &random) {
  HostTensor out = HostTensor::zeros(type);
  for (double &v : out.reals)
    v = random.uniform(-1, 1);
  return out;
}

inline double dot(const HostTensor &a, const HostTensor &b) {
  double sum = 0;
  for (size_t i = 0; i < a.reals.size(); ++i)
    sum += a.reals[i] * b.reals[i];
  return sum;
}

/// x + step * direction
inline HostTensor moved(const HostTensor &x, const HostTensor &direction, double step) {
  HostTensor out = x;
  for (size_t i = 0; i < out.reals.size(); ++i)
    out.reals[i] += step * direction.reals[i];
  return out;
}

/// Compares a derivative along a direction with the central difference (f(+step) - f(-step)) / 2 step.
/// `size` is the size of the terms that were summed, so that a sum that cancels is not judged by its small
/// result.
inline void expectDerivative(double analytic, double above, double below, double step, double size) {
  double numeric = (above - below) / (2 * step);
  double tolerance = 1e-6 * std::max({1e-2, size, std::fabs(analytic), std::fabs(numeric)});
  EXPECT_TRUE(std::fabs(analytic - numeric) <= tolerance)
      << "gradient along the direction " << analytic << ", finite difference " << numeric << ", step "
      << step;
}

} // namespace zerocc
