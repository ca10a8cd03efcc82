// Products of tall matrices with small square ones: a tile of rows and columns at a time stays in registers.
#pragma once

#include <algorithm>

#include "bfloat.h"
#include "vector.h"

constexpr int TILE_ROWS = 6;

// Width of a tile: whole where it divides the padded width H of all arrays, else half.
template <class T> constexpr ptrdiff_t WHOLE = TILE_VECTORS * LANES<T>;
template <class T> constexpr ptrdiff_t HALF = WHOLE<T> / 2;
template <class T> ptrdiff_t padded(ptrdiff_t size) { return (size + HALF<T> - 1) / HALF<T> * HALF<T>; }
template <class T> ptrdiff_t tile_width(ptrdiff_t width) { return width % WHOLE<T> ? HALF<T> : WHOLE<T>; }

// Up to three products whose sum is wanted, left_t * right_t, of equal shapes; `bfloat`: of operands rounded to bfloat16.
template <class T> struct Terms {
  bool bfloat;
  int count;
  const T* left[3];
  const T* right[3];
};

// Strides of left[i, k] (row, step), of the rows of right, and of start[i, j] and out[i, j].
struct Strides {
  ptrdiff_t row, step, right, start, out;
};

// sum[i, j] += sum over t, k of left_t[i, k] * right_t[k, j].
template <class T, int ROWS, int VECTORS>
inline void add_products(const Terms<T>& terms, ptrdiff_t depth, const Strides& by, ptrdiff_t offset,
                         Vec<T> (&sum)[ROWS][VECTORS]) {
  const ptrdiff_t row = by.row, step = by.step, right = by.right;
  for (int t = 0; t < terms.count; ++t) {
    const T* a = terms.left[t] + offset;
    const T* b = terms.right[t];
    for (ptrdiff_t k = 0; k < depth; ++k, a += step, b += right) {
      Vec<T> line[VECTORS];
#pragma GCC unroll 8
      for (int j = 0; j < VECTORS; ++j) line[j] = load(b + j * LANES<T>);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) {
        const T x = a[i * row];
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; ++j) sum[i][j] += line[j] * x;
      }
    }
  }
}

// out[i, j] = start[i, j] + sum over t, k of left_t[i, k] * right_t[k, j], for ROWS rows and VECTORS vectors of columns.
// `start` may be null, which is zero, or `out` itself. The sum comes first: it is shorter than what start has gathered.
// Not inlined, which would compile it once for everything that `after` may be.
template <class T, int ROWS, int VECTORS, bool BFLOAT>
__attribute__((noinline)) void tile(const Terms<T>& terms, ptrdiff_t depth, const Strides& by, ptrdiff_t offset, const T* start, T* out) {
  Vec<T> sum[ROWS][VECTORS] = {};
  if constexpr (!BFLOAT)
    add_products(terms, depth, by, offset, sum);
  else if (by.step == 1)
    for (int t = 0; t < terms.count; ++t)
      bfloat_tile(terms.left[t] + offset, by.row, terms.right[t], depth, sum);
  else
    bfloat_outer_tile(terms.left[0] + offset, by.step, terms.right[0], by.right, depth, sum);
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < VECTORS; ++j) {
      const ptrdiff_t at = j * LANES<T>;
      store(out + i * by.out + at, start ? sum[i][j] + load(start + i * by.start + at) : sum[i][j]);
    }
}

// Computes out, (rows, width), tile by tile; after each, calls after(first row, rows, first column, columns) on it while
// it is in the nearest cache. `panel` is the distance between the columns of two tiles in right.
template <class T, int VECTORS, bool BFLOAT, class After>
inline void tiles_as(ptrdiff_t rows, ptrdiff_t width, ptrdiff_t depth, Terms<T> terms, const Strides& by, ptrdiff_t panel,
                  const T* start, T* out, After&& after) {
  constexpr ptrdiff_t columns = VECTORS * LANES<T>;
  for (ptrdiff_t c = 0; c < width; c += columns) {
    for (ptrdiff_t r = 0; r < rows;) {
      const T* from = start ? start + r * by.start + c : nullptr;
      T* to = out + r * by.out + c;
      const ptrdiff_t left = rows - r, offset = r * by.row;
      ptrdiff_t done = 1;
      if (left >= TILE_ROWS) {
        tile<T, TILE_ROWS, VECTORS, BFLOAT>(terms, depth, by, offset, from, to), done = TILE_ROWS;
      } else if (left >= 4) {
        tile<T, 4, VECTORS, BFLOAT>(terms, depth, by, offset, from, to), done = 4;
      } else if (left >= 2) {
        tile<T, 2, VECTORS, BFLOAT>(terms, depth, by, offset, from, to), done = 2;
      } else {
        tile<T, 1, VECTORS, BFLOAT>(terms, depth, by, offset, from, to);
      }
      after(r, done, c, columns);
      r += done;
    }
    for (int t = 0; t < terms.count; ++t) terms.right[t] += panel;
  }
}

template <class T, class After>
inline void tiles(ptrdiff_t rows, ptrdiff_t width, ptrdiff_t depth, const Terms<T>& terms, const Strides& by,
                  ptrdiff_t panel, const T* start, T* out, After&& after) {
  const bool whole = tile_width<T>(width) == WHOLE<T>;
  if constexpr (HAS_BFLOAT && sizeof(T) == 4) {
    if (terms.bfloat && whole) return tiles_as<T, TILE_VECTORS, true>(rows, width, depth, terms, by, panel, start, out, after);
    if (terms.bfloat) return tiles_as<T, TILE_VECTORS / 2, true>(rows, width, depth, terms, by, panel, start, out, after);
  }
  if (whole) return tiles_as<T, TILE_VECTORS, false>(rows, width, depth, terms, by, panel, start, out, after);
  tiles_as<T, TILE_VECTORS / 2, false>(rows, width, depth, terms, by, panel, start, out, after);
}

struct Nothing {
  void operator()(ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t) const {}
};

// out = start + sum of left_t * right_t, with right_t packed by `pack`; left: (rows, left_row) of which `depth` columns
// count, out: (rows, width), start likewise or (start_row 0) one row or null.
template <class T, class After = Nothing>
inline void multiply(ptrdiff_t rows, ptrdiff_t width, ptrdiff_t depth, ptrdiff_t left_row, const Terms<T>& terms,
                     const T* start, ptrdiff_t start_row, T* out, After&& after = After{}) {
  const ptrdiff_t columns = tile_width<T>(width), lines = terms.bfloat ? (depth + 1) / 2 : depth;
  const Strides by{left_row, 1, columns, start_row, width};
  tiles(rows, width, depth, terms, by, lines * columns, start, out, after);
}

// out += left^T * right; left: (rows, left_row) of which `size` columns count, right: (rows, width), out: (size, width).
// With bfloat, both as `pair_rows` lays them out, and `rows` the number of pairs.
template <class T>
inline void add_outer(bool bfloat, ptrdiff_t rows, ptrdiff_t size, ptrdiff_t left_row, ptrdiff_t width, const T* left,
                      const T* right, T* out) {
  const Strides by{1, left_row, width, width, width};
  tiles(size, width, rows, Terms<T>{bfloat, 1, {left}, {right}}, by, tile_width<T>(width), out, out, Nothing{});
}

// out += the sum of the rows of (rows, width).
template <class T> inline void add_rows(ptrdiff_t rows, ptrdiff_t width, const T* in, T* out) {
  for (ptrdiff_t c = 0; c < width; c += LANES<T>) {
    Vec<T> sum{};
    for (ptrdiff_t r = 0; r < rows; ++r) sum += load(in + r * width + c);
    store(out + c, load(out + c) + sum);
  }
}

// Lays out a matrix, (depth, size), or the transpose of (size, depth), as a right factor of `multiply` for a width: its
// columns padded with zeros, those of a tile together.
template <class T>
void pack(bool bfloat, const T* matrix, ptrdiff_t depth, ptrdiff_t size, ptrdiff_t width, bool transpose, T* out) {
  const ptrdiff_t columns = tile_width<T>(width);
  if constexpr (HAS_BFLOAT && sizeof(T) == 4)
    if (bfloat) return pack_bfloat(matrix, depth, size, width, columns, transpose, out);
  for (ptrdiff_t first = 0; first < width; first += columns)
    for (ptrdiff_t k = 0; k < depth; ++k)
      for (ptrdiff_t j = first; j < first + columns; ++j)
        *out++ = j < size ? (transpose ? matrix[j * depth + k] : matrix[k * size + j]) : T(0);
}

// Copies rows of `size` numbers, and fills them up with zeros to `width`.
template <class T> inline void pad(ptrdiff_t rows, ptrdiff_t size, ptrdiff_t width, const T* from, T* to) {
  for (ptrdiff_t r = 0; r < rows; ++r, from += size, to += width) {
    std::copy(from, from + size, to);
    std::fill(to + size, to + width, T(0));
  }
}

// Copies rows of `width` numbers without their padding.
template <class T> inline void strip(ptrdiff_t rows, ptrdiff_t size, ptrdiff_t width, const T* from, T* to) {
  for (ptrdiff_t r = 0; r < rows; ++r, from += width, to += size) std::copy(from, from + size, to);
}

// Applies f to the offset of each vector of rows x columns of an array of a width.
template <class T, class F>
inline void each(ptrdiff_t width, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t column, ptrdiff_t columns, F&& f) {
  for (ptrdiff_t r = row; r < row + rows; ++r)
    for (ptrdiff_t c = column; c < column + columns; c += LANES<T>) f(r * width + c);
}
