// A stack of linear layers with tanh between them, forward and backward, over some rows at a time.
#pragma once

#include "product.h"

// One call. Arrays are contiguous; layer i has weight (sizes[i + 1], sizes[i]) and bias (sizes[i + 1]).
template <class T> struct MlpCall {
  int64_t rows, depth, final_tanh, bfloat, keep;
  const int64_t* sizes;      // depth + 1
  const T* x;                // (rows, sizes[0])
  const T* const* weights;   // weight and bias of each layer
  T *out, *memory;           // out: (rows, sizes[depth])
  const T* upper;            // gradient of out
  T* d_x;                    // null where not wanted
  T* const* grads;           // as weights; null where not wanted
};

template <class T> struct Mlp {
  static constexpr ptrdiff_t CHUNK = 192;  // rows at a time, a multiple of the rows of a tile
  const MlpCall<T>& call;

  ptrdiff_t depth() const { return call.depth; }
  ptrdiff_t size(ptrdiff_t i) const { return call.sizes[i]; }
  ptrdiff_t width(ptrdiff_t i) const { return padded<T>(size(i)); }
  bool single() const { return size(depth()) == 1 && !call.final_tanh; }  // the last layer is a sum over each row
  // Both packings of a layer's weight, and its gradient, take this much; its bias a row of the width.
  ptrdiff_t square(ptrdiff_t i) const { return width(i) * width(i + 1); }
  ptrdiff_t chunk() const { return std::min<ptrdiff_t>(CHUNK, call.rows); }
  ptrdiff_t widest() const {
    ptrdiff_t most = 0;
    for (ptrdiff_t i = 0; i <= depth(); ++i) most = std::max(most, width(i));
    return most;
  }
  ptrdiff_t kept_rows() const { return call.keep ? call.rows : chunk(); }
  // Memory: weight, its gradient, bias and its gradient by layer; two chunks of deltas; inputs; outputs by layer.
  ptrdiff_t layer_numbers(ptrdiff_t i) const { return 2 * square(i) + 2 * width(i + 1); }
  ptrdiff_t layers_numbers(ptrdiff_t end) const {
    ptrdiff_t sum = 0;
    for (ptrdiff_t i = 0; i < end; ++i) sum += layer_numbers(i);
    return sum;
  }
  ptrdiff_t numbers() const {
    ptrdiff_t sum = layers_numbers(depth()) + 3 * chunk() * widest();
    for (ptrdiff_t i = 0; i < depth(); ++i) sum += kept_rows() * width(i + 1);
    return sum;
  }
  T* weight(ptrdiff_t i) const { return call.memory + layers_numbers(i); }
  T* weight_grad(ptrdiff_t i) const { return weight(i) + square(i); }
  T* bias(ptrdiff_t i) const { return weight_grad(i) + square(i); }
  T* bias_grad(ptrdiff_t i) const { return bias(i) + width(i + 1); }
  T* temporary(ptrdiff_t k) const { return call.memory + layers_numbers(depth()) + k * chunk() * widest(); }
  T* output(ptrdiff_t i, ptrdiff_t begin) const {
    T* at = temporary(3);
    for (ptrdiff_t k = 0; k < i; ++k) at += kept_rows() * width(k + 1);
    return at + (call.keep ? begin * width(i + 1) : 0);
  }
  // What layer i reads, (n, width(i)).
  const T* input(ptrdiff_t i, ptrdiff_t begin, ptrdiff_t n) const {
    if (i) return output(i - 1, begin);
    const T* x = call.x + begin * size(0);
    if (size(0) == width(0)) return x;
    pad(n, size(0), width(0), x, temporary(2));
    return temporary(2);
  }

  void forward() const {
    for (ptrdiff_t i = 0; i < depth(); ++i) {
      if (i == depth() - 1 && single())
        pad(1, size(i), width(i), call.weights[2 * i], weight(i));
      else
        pack(call.bfloat, call.weights[2 * i], size(i), size(i + 1), width(i + 1), true, weight(i));
      pad(1, size(i + 1), width(i + 1), call.weights[2 * i + 1], bias(i));
    }
    for (ptrdiff_t begin = 0; begin < call.rows; begin += chunk()) {
      const ptrdiff_t n = std::min(chunk(), call.rows - begin);
      const T* x = input(0, begin, n);
      for (ptrdiff_t i = 0; i < depth(); ++i) x = layer(i, x, begin, n);
    }
  }

  const T* layer(ptrdiff_t i, const T* x, ptrdiff_t begin, ptrdiff_t n) const {
    const bool last = i == depth() - 1;
    if (last && single()) {
      for (ptrdiff_t r = 0; r < n; ++r) {
        Vec<T> sums{};
        for (ptrdiff_t k = 0; k < width(i); k += LANES<T>) sums += load(x + r * width(i) + k) * load(weight(i) + k);
        T sum = bias(i)[0];
        for (int k = 0; k < LANES<T>; ++k) sum += sums[k];
        call.out[begin + r] = sum;
      }
      return nullptr;
    }
    T* out = output(i, begin);
    const ptrdiff_t columns = width(i + 1);
    const bool plain = last && !call.final_tanh;
    multiply(n, columns, size(i), width(i), Terms<T>{bool(call.bfloat), 1, {x}, {weight(i)}}, bias(i), 0, out,
             [&](ptrdiff_t r, ptrdiff_t rows, ptrdiff_t c, ptrdiff_t some) {
               if (!plain) each<T>(columns, r, rows, c, some, [&](ptrdiff_t o) { store(out + o, tanh_of<T>(load(out + o))); });
             });
    if (last) strip(n, size(i + 1), columns, out, call.out + begin * size(i + 1));
    return out;
  }

  // The first layer that gradients are wanted of, or below which.
  ptrdiff_t lowest() const {
    ptrdiff_t i = 0;
    while (!call.d_x && i < depth() - 1 && !call.grads[2 * i] && !call.grads[2 * i + 1]) ++i;
    return i;
  }

  void backward() const {
    for (ptrdiff_t i = 0; i < depth(); ++i) {
      pack(call.bfloat && !(i == depth() - 1 && single()), call.weights[2 * i], size(i + 1), size(i), width(i), false, weight(i));
      std::fill(weight_grad(i), weight_grad(i) + square(i), T(0));
      std::fill(bias_grad(i), bias_grad(i) + width(i + 1), T(0));
    }
    for (ptrdiff_t begin = 0; begin < call.rows; begin += chunk())
      backward(begin, std::min(chunk(), call.rows - begin));
    for (ptrdiff_t i = 0; i < depth(); ++i) {
      if (T* grad = call.grads[2 * i]) strip(size(i + 1), size(i), width(i), weight_grad(i), grad);
      if (T* grad = call.grads[2 * i + 1]) std::copy(bias_grad(i), bias_grad(i) + size(i + 1), grad);
    }
  }

  void backward(ptrdiff_t begin, ptrdiff_t n) const {
    const ptrdiff_t top = depth() - 1, end = lowest();
    T *delta = temporary(0), *other = temporary(1);
    if (!single()) pad(n, size(depth()), width(depth()), call.upper + begin * size(depth()), delta);
    if (call.final_tanh) {
      const T* y = output(top, begin);
      each<T>(width(depth()), 0, n, 0, width(depth()),
              [&](ptrdiff_t o) { store(delta + o, load(delta + o) * (T(1) - load(y + o) * load(y + o))); });
    }
    for (ptrdiff_t i = top; i >= end; --i) {
      const T* x = input(i, begin, n);
      const bool row = i == top && single();
      if (row)
        row_gradients(i, x, call.upper + begin, n);
      else {
        if (call.grads[2 * i]) add_outer(false, n, size(i + 1), width(i + 1), width(i), delta, x, weight_grad(i));
        if (call.grads[2 * i + 1]) add_rows(n, width(i + 1), delta, bias_grad(i));
      }
      if (i == end && !(i == 0 && call.d_x)) return;
      auto through = [&](ptrdiff_t r, ptrdiff_t rows, ptrdiff_t c, ptrdiff_t some) {  // the tanh below
        if (i == 0) return;
        each<T>(width(i), r, rows, c, some, [&](ptrdiff_t o) {
          store(other + o, load(other + o) * (T(1) - load(x + o) * load(x + o)));
        });
      };
      if (row) {
        const T *upper = call.upper + begin, *line = weight(i);
        const ptrdiff_t panel = tile_width<T>(width(i));  // with one row, panels lie one after the other: a plain row
        for (ptrdiff_t r = 0; r < n; ++r)
          for (ptrdiff_t c = 0; c < width(i); c += panel) {
            for (ptrdiff_t j = c; j < c + panel; j += LANES<T>) store(other + r * width(i) + j, load(line + j) * upper[r]);
            through(r, 1, c, panel);
          }
      } else {
        multiply(n, width(i), size(i + 1), width(i + 1), Terms<T>{bool(call.bfloat), 1, {delta}, {weight(i)}}, (const T*)nullptr, 0, other,
                 through);
      }
      std::swap(delta, other);
    }
    strip(n, size(0), width(0), delta, call.d_x + begin * size(0));
  }

  void row_gradients(ptrdiff_t i, const T* x, const T* upper, ptrdiff_t n) const {
    for (ptrdiff_t c = 0; call.grads[2 * i] && c < width(i); c += LANES<T>) {
      Vec<T> sum = load(weight_grad(i) + c);
      for (ptrdiff_t r = 0; r < n; ++r) sum += load(x + r * width(i) + c) * upper[r];
      store(weight_grad(i) + c, sum);
    }
    for (ptrdiff_t r = 0; r < n; ++r) bias_grad(i)[0] += upper[r];
  }
};
