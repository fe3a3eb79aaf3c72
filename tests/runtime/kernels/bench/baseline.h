#pragma once

#include <cstdint>

// What a plain loop does: the yardstick of the benchmark, compiled apart with the project's ordinary flags.

namespace zerocc::baseline {

void matmul(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c);
void matmulTransposed(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                      float *c); // b is [n, k]
void softmax(int64_t rows, int64_t width, const float *x, float *y);
void layerNorm(int64_t rows, int64_t width, const float *x, const float *scale, const float *bias, float *y);
void gelu(int64_t n, const float *x, float *y);
void biasAdd(int64_t rows, int64_t width, const float *x, const float *bias, float *y);
void sumRows(int64_t rows, int64_t width, const float *x, float *y);
void transpose(int64_t rows, int64_t columns, const float *x, float *y);
double crossEntropy(int64_t rows, int64_t width, const float *x, const int64_t *labels);
/// A convolution of images [n, c, h, w] with kernels [o, c/groups, k, k], padded by (k-1)/2.
struct ConvSizes {
  int64_t n, c, h, w, o, k, stride, groups;
  int64_t y(int64_t size) const { return (size - 1) / stride + 1; }
};
void conv(const ConvSizes &s, const float *x, const float *w, float *y);
void convDataGrad(const ConvSizes &s, const float *dy, const float *w, float *dx);
void convWeightGrad(const ConvSizes &s, const float *x, const float *dy, float *dw);
void maxPool(const ConvSizes &s, const float *x, float *y); // of k x k
void sumPool(const ConvSizes &s, const float *x, float *y);
void adamw(int64_t n, float *p, const float *g, float *m, float *v);

} // namespace zerocc::baseline
