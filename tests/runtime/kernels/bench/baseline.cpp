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

// products(x place, w place, y place, length): for `length` outputs of a row, which read every stride-th x.
template <typename F> static void forRows(const ConvSizes &s, F products) {
  const int64_t perGroup = s.c / s.groups, pad = (s.k - 1) / 2, height = s.y(s.h), width = s.y(s.w);
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.o; ++o)
      for (int64_t c = 0; c < perGroup; ++c)
        for (int64_t i = 0; i < height; ++i)
          for (int64_t ki = 0; ki < s.k; ++ki) {
            const int64_t row = i * s.stride + ki - pad;
            if (row < 0 || row >= s.h)
              continue;
            const int64_t channel = n * s.c + o / (s.o / s.groups) * perGroup + c;
            for (int64_t kj = 0; kj < s.k; ++kj) {
              int64_t first = 0, end = width;
              while (first * s.stride + kj - pad < 0)
                ++first;
              while (end > first && (end - 1) * s.stride + kj - pad >= s.w)
                --end;
              products((channel * s.h + row) * s.w + first * s.stride + kj - pad,
                       ((o * perGroup + c) * s.k + ki) * s.k + kj,
                       ((n * s.o + o) * height + i) * width + first, end - first);
            }
          }
}

void conv(const ConvSizes &s, const float *x, const float *w, float *y) {
  std::fill_n(y, s.n * s.o * s.y(s.h) * s.y(s.w), 0.0f);
  forRows(s, [&](int64_t i, int64_t k, int64_t o, int64_t length) {
    for (int64_t j = 0; j < length; ++j)
      y[o + j] += x[i + j * s.stride] * w[k];
  });
}

void convDataGrad(const ConvSizes &s, const float *dy, const float *w, float *dx) {
  std::fill_n(dx, s.n * s.c * s.h * s.w, 0.0f);
  forRows(s, [&](int64_t i, int64_t k, int64_t o, int64_t length) {
    for (int64_t j = 0; j < length; ++j)
      dx[i + j * s.stride] += dy[o + j] * w[k];
  });
}

void convWeightGrad(const ConvSizes &s, const float *x, const float *dy, float *dw) {
  std::fill_n(dw, s.o * (s.c / s.groups) * s.k * s.k, 0.0f);
  forRows(s, [&](int64_t i, int64_t k, int64_t o, int64_t length) {
    float sum = 0;
    for (int64_t j = 0; j < length; ++j)
      sum += dy[o + j] * x[i + j * s.stride];
    dw[k] += sum;
  });
}

template <typename F> static void pool(const ConvSizes &s, const float *x, float *y, float start, F combine) {
  const int64_t pad = (s.k - 1) / 2, height = s.y(s.h), width = s.y(s.w);
  for (int64_t plane = 0; plane < s.n * s.c; ++plane, x += s.h * s.w)
    for (int64_t i = 0; i < height; ++i)
      for (int64_t j = 0; j < width; ++j) {
        float best = start;
        for (int64_t a = 0; a < s.k; ++a)
          for (int64_t b = 0; b < s.k; ++b) {
            const int64_t row = i * s.stride + a - pad, column = j * s.stride + b - pad;
            if (row >= 0 && row < s.h && column >= 0 && column < s.w)
              best = combine(best, x[row * s.w + column]);
          }
        *y++ = best;
      }
}

void maxPool(const ConvSizes &s, const float *x, float *y) {
  pool(s, x, y, -INFINITY, [](float a, float b) { return std::max(a, b); });
}
void sumPool(const ConvSizes &s, const float *x, float *y) {
  pool(s, x, y, 0, [](float a, float b) { return a + b; });
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
