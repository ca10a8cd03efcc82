// The rounds backward, from the last to the first; gradients of weights add up over rounds and chunks.
#pragma once

#include "forward.h"

template <class T> struct Backward {
  const Call<T>& call;
  const Plan<T> plan;

  explicit Backward(const Call<T>& c) : call(c), plan(c) {}

  bool wants(Place place) const { return call.grads[place.weight] != nullptr; }
  bool wants_matrix(ptrdiff_t i) const { return wants(matrix_place(i, plan.depth)); }
  bool wants_bias(ptrdiff_t i) const { return wants(bias_place(i, plan.depth)); }

  // An operand of `add_matrix`: as it is, or laid out for bfloat in one of six places.
  const T* operand(const Chunk<T>& at, int place, ptrdiff_t rows, const T* x) const {
    if constexpr (HAS_BFLOAT && sizeof(T) == 4)
      if (plan.bfloat) {
        pair_rows(x, rows, plan.width, at.temporary(PAIRED + place));
        return at.temporary(PAIRED + place);
      }
    return x;
  }

  void add_matrix(const Chunk<T>& at, ptrdiff_t i, ptrdiff_t rows, const T* delta, const T* input) const {
    const ptrdiff_t lines = plan.bfloat ? (rows + 1) / 2 : rows;
    if (wants_matrix(i))
      add_outer(plan.bfloat, lines, plan.size, plan.width, plan.width, delta, input, at.matrix_grad(i));
  }

  void add_bias(const Chunk<T>& at, ptrdiff_t i, ptrdiff_t rows, const T* delta) const {
    if (wants_bias(i)) add_rows(rows, plan.width, delta, at.bias_grad(i));
  }

  // Through the update of one node type: from `upper` into `lower` (if not null) and D_GOT (if `through`).
  void update(const Chunk<T>& at, ptrdiff_t t, int type, const T* upper, T* lower, bool through) const {
    const ptrdiff_t width = plan.width, size = plan.size, skip = at.first(type) * width, rows = at.rows(type);
    const T *state = at.state_before(t) + skip, *keep = at.array(t, KEEP) + skip, *reset = at.array(t, RESET) + skip;
    const T *candidate = at.array(t, CANDIDATE) + skip, *got = at.temporary(GOT) + skip;
    T *d_keep = at.temporary(D_KEEP) + skip, *d_reset = at.temporary(D_RESET) + skip;
    T *d_candidate = at.temporary(D_CANDIDATE) + skip, *scaled = at.temporary(SCALED) + skip;
    T *d_scaled = at.temporary(SPARE) + skip, *d_got = at.temporary(D_GOT) + skip;
    auto matrix = [&](int k) { return at.matrix(at.matrix_of(type, k)); };
    upper += skip;
    if (lower) lower += skip;
    each<T>(width, 0, rows, 0, width, [&](ptrdiff_t o) {
      const Vec<T> z = load(keep + o), c = load(candidate + o), u = load(upper + o);
      store(d_keep + o, u * (load(state + o) - c) * z * (T(1) - z));
      store(d_candidate + o, (u - u * z) * (T(1) - c * c));
    });
    multiply(rows, width, size, width, Terms<T>{plan.bfloat, 1, {d_candidate}, {matrix(5)}}, (const T*)nullptr, 0, d_scaled,
             [&](ptrdiff_t row, ptrdiff_t n, ptrdiff_t column, ptrdiff_t columns) {
               each<T>(width, row, n, column, columns, [&](ptrdiff_t o) {
                 const Vec<T> d = load(d_scaled + o), s = load(state + o), r = load(reset + o);
                 store(d_reset + o, d * s * r * (T(1) - r));
                 store(scaled + o, r * s);
                 if (lower) store(lower + o, load(upper + o) * load(keep + o) + d * r);
               });
             });
    if (lower)
      multiply(rows, width, size, width, Terms<T>{plan.bfloat, 2, {d_keep, d_reset}, {matrix(3), matrix(4)}}, lower, width, lower);
    if (through)
      multiply(rows, width, size, width,
               Terms<T>{plan.bfloat, 3, {d_keep, d_reset, d_candidate}, {matrix(0), matrix(1), matrix(2)}}, (const T*)nullptr, 0, d_got);
    const T* deltas[] = {d_keep, d_reset, d_candidate};
    for (int k = 0; k < 3; ++k) add_bias(at, at.bias_of(type, k), rows, deltas[k]);
    bool wanted = false;
    for (int k = 0; k < UPDATE_MATRICES; ++k) wanted |= wants_matrix(at.matrix_of(type, k));
    if (!wanted) return;
    const T* inputs[] = {operand(at, 3, rows, got), operand(at, 4, rows, state), operand(at, 5, rows, scaled)};
    for (int k = 0; k < 3; ++k) {
      const T* delta = operand(at, k, rows, deltas[k]);
      add_matrix(at, at.matrix_of(type, k), rows, delta, inputs[0]);
      add_matrix(at, at.matrix_of(type, 3 + k), rows, delta, inputs[k < 2 ? 1 : 2]);
    }
  }

  // Through the messages of round t: from D_GOT into `lower` (if not null).
  void messages(const Chunk<T>& at, ptrdiff_t t, T* lower) const {
    const ptrdiff_t width = plan.width, rows = at.rows();
    T *delta = at.temporary(D_KEEP), *other = at.temporary(D_RESET);  // done with in this round
    const T* last = at.array(t, SENT + plan.depth - 1);
    aggregate(call.receivers_start, call.receivers, call.receivers_weight, at, at.temporary(D_GOT), delta,
              [&](Vec<T> sum, ptrdiff_t o) { return sum * (T(1) - load(last + o) * load(last + o)); });
    for (ptrdiff_t i = plan.depth - 1; i >= 0; --i) {
      const T* input = i ? at.array(t, SENT + i - 1) : at.state_before(t);
      if (wants_matrix(i)) add_matrix(at, i, rows, operand(at, 0, rows, delta), operand(at, 1, rows, input));
      add_bias(at, i, rows, delta);
      const Terms<T> terms{plan.bfloat, 1, {delta}, {at.matrix(i)}};
      if (i) {
        multiply(rows, width, plan.size, width, terms, (const T*)nullptr, 0, other,
                 [&](ptrdiff_t r, ptrdiff_t n, ptrdiff_t c, ptrdiff_t columns) {
                   each<T>(width, r, n, c, columns, [&](ptrdiff_t o) {
                     const Vec<T> y = load(input + o);
                     store(other + o, load(other + o) * (T(1) - y * y));
                   });
                 });
        std::swap(delta, other);
      } else if (lower) {
        multiply(rows, width, plan.size, width, terms, lower, width, lower);
      }
    }
  }

  void chunk(const Chunk<T>& at) const {
    bool trains_message = false;
    for (ptrdiff_t i = 0; i < plan.depth; ++i) trains_message |= wants_matrix(i) || wants_bias(i);
    at.fetch(call.states, at.temporary(FIRST));
    T* upper = at.temporary(UPPER);
    T* spare = at.temporary(UPPER + 1);
    at.fetch(call.upper, upper);
    for (ptrdiff_t t = plan.count - 1; t >= 0; --t) {
      const bool given = t == 0 && call.received, below = t > 0 || call.d_states;
      const bool through = given ? call.d_received != nullptr : call.senders && (below || trains_message);
      T* lower = below ? spare : nullptr;
      receive(at, t);
      for (int type = 0; type < TYPES; ++type) update(at, t, type, upper, lower, through);
      if (given && through) at.deliver(at.temporary(D_GOT), call.d_received);
      if (!given && through) messages(at, t, lower);
      std::swap(upper, spare);
    }
    if (call.d_states) at.deliver(upper, call.d_states);
  }

  void run() const {
    pack_weights(call, plan, false);
    std::fill(call.memory + plan.grads_at(), call.memory + plan.temporaries_at(), T(0));
    for (ptrdiff_t begin = 0; begin < plan.batch; begin += plan.chunk)
      chunk({call, plan, begin, std::min(plan.chunk, plan.batch - begin)});
    const Chunk<T> at{call, plan, 0, 0};
    const ptrdiff_t size = plan.size;
    for (ptrdiff_t i = 0; i < plan.matrices; ++i) {
      const Place place = matrix_place(i, plan.depth);
      if (wants(place))
        strip(size, size, plan.width, at.matrix_grad(i), call.grads[place.weight] + place.part * size * size);
    }
    for (ptrdiff_t i = 0; i < plan.biases; ++i) {
      const Place place = bias_place(i, plan.depth);
      if (wants(place)) std::copy(at.bias_grad(i), at.bias_grad(i) + size, call.grads[place.weight] + place.part * size);
    }
  }
};
