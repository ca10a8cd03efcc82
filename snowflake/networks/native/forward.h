// The rounds forward.
#pragma once

#include "rounds.h"

// What the nodes receive in round t, into GOT.
template <class T> void receive(const Chunk<T>& at, ptrdiff_t t) {
  const Call<T>& call = at.call;
  T* got = at.temporary(GOT);
  if (t == 0 && call.received)
    at.fetch(call.received, got);
  else if (!call.senders)
    std::fill(got, got + at.rows() * at.width(), T(0));
  else
    aggregate(call.senders_start, call.senders, call.senders_weight, at, at.array(t, SENT + at.plan.depth - 1), got,
              [](Vec<T> sum, ptrdiff_t) { return sum; });
}

template <class T> void send(const Chunk<T>& at, ptrdiff_t t) {
  const ptrdiff_t width = at.width();
  const T* x = at.state_before(t);
  for (ptrdiff_t i = 0; i < at.plan.depth; ++i) {
    T* out = at.array(t, SENT + i);
    multiply(at.rows(), width, at.plan.size, width, Terms<T>{at.plan.bfloat, 1, {x}, {at.matrix(i)}}, at.bias(i), 0, out,
             [&](ptrdiff_t r, ptrdiff_t rows, ptrdiff_t c, ptrdiff_t columns) {
               each<T>(width, r, rows, c, columns, [&](ptrdiff_t o) { store(out + o, tanh_of<T>(load(out + o))); });
             });
    x = out;
  }
}

template <class T> void update(const Chunk<T>& at, ptrdiff_t t, int type) {
  const ptrdiff_t width = at.width(), size = at.plan.size, skip = at.first(type) * width, rows = at.rows(type);
  const T *got = at.temporary(GOT) + skip, *state = at.state_before(t) + skip;
  T *keep = at.array(t, KEEP) + skip, *reset = at.array(t, RESET) + skip, *scaled = at.temporary(SCALED) + skip;
  T *candidate = at.array(t, CANDIDATE) + skip, *next = at.array(t, STATE) + skip;
  auto matrix = [&](int k) { return at.matrix(at.matrix_of(type, k)); };
  auto bias = [&](int k) { return at.bias(at.bias_of(type, k)); };
  multiply(rows, width, size, width, Terms<T>{at.plan.bfloat, 2, {got, state}, {matrix(0), matrix(3)}}, bias(0), 0, keep,
           [&](ptrdiff_t r, ptrdiff_t n, ptrdiff_t c, ptrdiff_t columns) {
             each<T>(width, r, n, c, columns, [&](ptrdiff_t o) { store(keep + o, sigmoid<T>(load(keep + o))); });
           });
  multiply(rows, width, size, width, Terms<T>{at.plan.bfloat, 2, {got, state}, {matrix(1), matrix(4)}}, bias(1), 0, reset,
           [&](ptrdiff_t r, ptrdiff_t n, ptrdiff_t c, ptrdiff_t columns) {
             each<T>(width, r, n, c, columns, [&](ptrdiff_t o) {
               const Vec<T> gate = sigmoid<T>(load(reset + o));
               store(reset + o, gate);
               store(scaled + o, gate * load(state + o));
             });
           });
  multiply(rows, width, size, width, Terms<T>{at.plan.bfloat, 2, {got, scaled}, {matrix(2), matrix(5)}}, bias(2), 0, candidate,
           [&](ptrdiff_t r, ptrdiff_t n, ptrdiff_t c, ptrdiff_t columns) {
             each<T>(width, r, n, c, columns, [&](ptrdiff_t o) {
               const Vec<T> value = tanh_of<T>(load(candidate + o));
               store(candidate + o, value);
               store(next + o, value + load(keep + o) * (load(state + o) - value));
             });
           });
}

template <class T> void forward(const Call<T>& call) {
  const Plan<T> plan(call);
  pack_weights(call, plan, true);
  for (ptrdiff_t begin = 0; begin < plan.batch; begin += plan.chunk) {
    const Chunk<T> at{call, plan, begin, std::min(plan.chunk, plan.batch - begin)};
    at.fetch(call.states, at.temporary(FIRST));
    for (ptrdiff_t t = 0; t < plan.count; ++t) {
      if (call.senders && !(t == 0 && call.received)) send(at, t);
      receive(at, t);
      for (int type = 0; type < TYPES; ++type) update(at, t, type);
    }
    at.deliver(at.array(plan.count - 1, STATE), call.out);
  }
}
