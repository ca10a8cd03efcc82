// Vectors of the machine's width, and the functions that activations need, on vectors of float and double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
constexpr int TILE_VECTORS = 4;  // of 32 registers, 24 hold the tile of a product
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
constexpr int TILE_VECTORS = 2;  // of 16 registers, 12
#elif defined(__aarch64__)
constexpr int VECTOR_BYTES = 16;
constexpr int TILE_VECTORS = 4;
#else
constexpr int VECTOR_BYTES = 16;
constexpr int TILE_VECTORS = 2;
#endif

template <class T> struct Simd;
template <> struct Simd<float> {
  typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
  typedef int32_t ivec __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int bits = 23, bias = 127, terms = 7;
  static constexpr float limit = 87.0f, tanh_limit = 20.0f;  // e^limit is finite, tanh(tanh_limit / 2) rounds to 1
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, round = 12582912.0f;
};
template <> struct Simd<double> {
  typedef double vec __attribute__((vector_size(VECTOR_BYTES)));
  typedef int64_t ivec __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int bits = 52, bias = 1023, terms = 14;
  static constexpr double limit = 708.0, tanh_limit = 40.0;
  static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  static constexpr double round = 6755399441055744.0;
};

template <class T> using Vec = typename Simd<T>::vec;
template <class T> constexpr int LANES = VECTOR_BYTES / sizeof(T);

template <class T> inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class T> inline void store(T* p, Vec<T> v) { std::memcpy(p, &v, sizeof v); }

constexpr double inverse_factorial(int k) { return k < 2 ? 1.0 : inverse_factorial(k - 1) / k; }

// e^r - 1 for |r| <= ln(2) / 2 by its Taylor series, whose remainder is below half a unit in the last place.
template <class T, int K = 1> inline Vec<T> series(Vec<T> r) {
  if constexpr (K == Simd<T>::terms)
    return Vec<T>{} + T(inverse_factorial(K));
  else
    return series<T, K + 1>(r) * r + T(inverse_factorial(K));
}

// Splits e^x = scale * (1 + rest) with scale a power of two; |x| <= limit.
template <class T> inline void split_exp(Vec<T> x, Vec<T>& scale, Vec<T>& rest) {
  typedef Simd<T> S;
  const Vec<T> n = (x * T(1.4426950408889634074) + S::round) - S::round;
  const Vec<T> r = (x - n * S::ln2_high) - n * S::ln2_low;
  rest = series<T>(r) * r;
  const typename S::ivec power = (__builtin_convertvector(n, typename S::ivec) + S::bias) << S::bits;
  std::memcpy(&scale, &power, sizeof scale);
}

template <class T> inline Vec<T> clamped(Vec<T> x, T limit) {  // keeps NaN
  const Vec<T> high = Vec<T>{} + limit;
  x = x > high ? high : x;
  return x < -high ? -high : x;
}

template <class T> inline Vec<T> sigmoid(Vec<T> x) {
  Vec<T> scale, rest;
  split_exp<T>(clamped<T>(-x, Simd<T>::limit), scale, rest);
  return T(1) / (scale * rest + scale + T(1));
}

template <class T> inline Vec<T> tanh_of(Vec<T> x) {
  Vec<T> scale, rest;
  split_exp<T>(clamped<T>(x + x, Simd<T>::tanh_limit), scale, rest);
  const Vec<T> minus_one = scale * rest + (scale - T(1));  // e^2x - 1, without cancellation near 0
  return minus_one / (minus_one + T(2));
}
