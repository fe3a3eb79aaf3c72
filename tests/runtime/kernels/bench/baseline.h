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
void adamw(int64_t n, float *p, const float *g, float *m, float *v);

} // namespace zerocc::baseline
