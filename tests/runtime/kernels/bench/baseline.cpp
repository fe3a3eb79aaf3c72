#include "tests/runtime/kernels/bench/baseline.h"

#include <algorithm>
#include <cmath>

namespace zerocc::baseline {

void matmul(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
  for (int64_t i = 0; i < m; ++i) {
    std::fill_n(c + i * n, n, 0.0f);
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        c[i * n + j] += a[i * k + l] * b[l * n + j];
  }
}

void matmulTransposed(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += a[i * k + l] * b[j * k + l];
      c[i * n + j] = sum;
    }
}

void softmax(int64_t rows, int64_t width, const float *x, float *y) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    float greatest = *std::max_element(x, x + width), sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += y[i] = std::exp(x[i] - greatest);
    for (int64_t i = 0; i < width; ++i)
      y[i] /= sum;
  }
}

void layerNorm(int64_t rows, int64_t width, const float *x, const float *scale, const float *bias, float *y) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    float mean = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i)
      mean += x[i];
    mean /= static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i)
      squares += (x[i] - mean) * (x[i] - mean);
    float rstd = 1 / std::sqrt(squares / static_cast<float>(width) + 1e-5f);
    for (int64_t i = 0; i < width; ++i)
      y[i] = (x[i] - mean) * rstd * scale[i] + bias[i];
  }
}

void gelu(int64_t n, const float *x, float *y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = 0.5f * x[i] * (1 + std::tanh(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}

void biasAdd(int64_t rows, int64_t width, const float *x, const float *bias, float *y) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i)
      y[r * width + i] = x[r * width + i] + bias[i];
}

void sumRows(int64_t rows, int64_t width, const float *x, float *y) {
  std::fill_n(y, width, 0.0f);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i)
      y[i] += x[r * width + i];
}

void transpose(int64_t rows, int64_t columns, const float *x, float *y) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y[c * rows + r] = x[r * columns + c];
}

double crossEntropy(int64_t rows, int64_t width, const float *x, const int64_t *labels) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r, x += width) {
    float greatest = *std::max_element(x, x + width), sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += std::exp(x[i] - greatest);
    loss += greatest + std::log(sum) - x[labels[r]];
  }
  return loss;
}

void adamw(int64_t n, float *p, const float *g, float *m, float *v) {
  for (int64_t i = 0; i < n; ++i) {
    p[i] *= 0.999f;
    m[i] += 0.1f * (g[i] - m[i]);
    v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
    p[i] -= 0.001f * m[i] / (std::sqrt(v[i]) / 0.5f + 1e-8f);
  }
}

} // namespace zerocc::baseline
