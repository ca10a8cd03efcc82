// Products of float matrices whose operands are rounded to bfloat16, where the CPU multiplies such; sums are in float.
#pragma once

#include "vector.h"

#if defined(__AVX512BF16__) && defined(__AVX512F__)
#include <immintrin.h>
constexpr bool HAS_BFLOAT = true;

constexpr ptrdiff_t MAX_DEPTH = 512;

inline uint32_t bfloat_bits(float x) {  // to the nearest, ties to even, as the CPU rounds
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// As `pack`, with two rows of the matrix side by side in each number.
inline void pack_bfloat(const float* matrix, ptrdiff_t depth, ptrdiff_t size, ptrdiff_t width, ptrdiff_t columns,
                        bool transpose, float* out) {
  auto at = [&](ptrdiff_t k, ptrdiff_t j) {
    if (k >= depth || j >= size) return uint32_t(0);
    return bfloat_bits(transpose ? matrix[j * depth + k] : matrix[k * size + j]);
  };
  for (ptrdiff_t first = 0; first < width; first += columns)
    for (ptrdiff_t k = 0; k < depth; k += 2)
      for (ptrdiff_t j = first; j < first + columns; ++j) {
        const uint32_t both = at(k, j) | at(k + 1, j) << 16;
        std::memcpy(out++, &both, sizeof both);
      }
}

inline __m512bh bfloats(const float* p) {
  const __m512i bits = _mm512_loadu_si512(p);
  return (__m512bh)bits;
}

// sum[i][j] += left[i, :] * right, the rows of left rounded here.
template <int ROWS, int VECTORS>
inline void bfloat_tile(const float* left, ptrdiff_t row, const float* right, ptrdiff_t depth,
                        Vec<float> (&sum)[ROWS][VECTORS]) {
  alignas(64) uint32_t pairs[ROWS][MAX_DEPTH / 2];
  for (int i = 0; i < ROWS; ++i)
    for (ptrdiff_t k = 0; k < depth; k += 32) {
      const float* from = left + i * row + k;
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
      _mm512_store_si512(&pairs[i][k / 2], (__m512i)both);
    }
  for (ptrdiff_t k = 0; k < (depth + 1) / 2; ++k, right += VECTORS * 16) {
    __m512bh line[VECTORS];
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; ++j) line[j] = bfloats(right + j * 16);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32(pairs[i][k]);
#pragma GCC unroll 8
      for (int j = 0; j < VECTORS; ++j) sum[i][j] = (Vec<float>)_mm512_dpbf16_ps((__m512)sum[i][j], line[j], x);
    }
  }
}

// Lays two rows at a time of (rows, width) side by side, rounded; a last odd row beside zeros.
inline void pair_rows(const float* in, ptrdiff_t rows, ptrdiff_t width, float* out) {
  const __m512i mix = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                       20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (ptrdiff_t r = 0; r < rows; r += 2, in += 2 * width, out += width)
    for (ptrdiff_t c = 0; c < width; c += 16) {
      const __m512 low = _mm512_loadu_ps(in + c), high = r + 1 < rows ? _mm512_loadu_ps(in + width + c) : __m512{};
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
      _mm512_storeu_si512(out + c, _mm512_permutexvar_epi16(mix, both));
    }
}

// sum[i][j] += left^T * right, both laid out by `pair_rows`; left from its column i on.
template <int ROWS, int VECTORS>
inline void bfloat_outer_tile(const float* left, ptrdiff_t left_row, const float* right, ptrdiff_t right_row,
                              ptrdiff_t pairs, Vec<float> (&sum)[ROWS][VECTORS]) {
  for (ptrdiff_t k = 0; k < pairs; ++k, left += left_row, right += right_row) {
    __m512bh line[VECTORS];
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; ++j) line[j] = bfloats(right + j * 16);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const __m512bh x = (__m512bh)_mm512_set1_ps(left[i]);
#pragma GCC unroll 8
      for (int j = 0; j < VECTORS; ++j) sum[i][j] = (Vec<float>)_mm512_dpbf16_ps((__m512)sum[i][j], line[j], x);
    }
  }
}
#else
constexpr bool HAS_BFLOAT = false;
#endif
