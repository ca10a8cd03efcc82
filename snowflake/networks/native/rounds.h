// The rounds of messages, forward and backward, over a few observations at a time, so that what one step writes the
// next reads from the cache. Weights and gradients are in the order of `run_rounds`: root, joint, message layers.
#pragma once

#include "product.h"

// One call. Arrays are contiguous, rows of `size` numbers; nodes come first, row 0 of them the root.
template <class T> struct Call {
  int64_t nodes, batch, size, count, depth, bfloat, keep;
  const int64_t *senders_start, *senders;      // of each node, in compressed rows; null where nodes have no neighbours
  const T* senders_weight;
  const int64_t *receivers_start, *receivers;  // the same the other way round
  const T* receivers_weight;
  const T *states, *received;                  // (nodes, batch, size); received may be null
  const T* const* weights;                     // 8 + 2 * depth
  T *out, *memory;
  const T* upper;                              // gradient of out
  T *d_states, *d_received;                    // null where not wanted
  T* const* grads;                             // as weights; null where not wanted
};

constexpr ptrdiff_t CHUNK_BYTES = 1 << 17;  // of one array: a round's arrays and the weights share a core's cache
constexpr int KEEP = 0, RESET = 1, CANDIDATE = 2, STATE = 3, SENT = 4;  // arrays of a round; SENT and more: layers
constexpr int TYPES = 2, UPDATE_MATRICES = 6, UPDATE_BIASES = 3;
constexpr int GOT = 0, FIRST = 1, SCALED = 2, D_KEEP = 3, D_RESET = 4, D_CANDIDATE = 5, D_GOT = 6, UPPER = 7, SPARE = 9;
constexpr int PAIRED = 10, TEMPORARIES = 16;  // PAIRED and more: operands as `pair_rows` lays them out

// Where everything lies in `memory`.
template <class T> struct Plan {
  ptrdiff_t nodes, batch, size, width, count, depth, chunk, matrices, biases, square;
  bool bfloat, keep;

  explicit Plan(const Call<T>& call)
      : nodes(call.nodes), batch(call.batch), size(call.size), width(padded<T>(call.size)), count(call.count),
        depth(call.depth), matrices(call.depth + TYPES * UPDATE_MATRICES), biases(call.depth + TYPES * UPDATE_BIASES),
        square(width * width), bfloat(call.bfloat), keep(call.keep) {
    chunk = std::max<ptrdiff_t>(1, CHUNK_BYTES / ptrdiff_t(nodes * width * sizeof(T)));
    if (chunk > TILE_ROWS) chunk -= chunk % TILE_ROWS;
    chunk = std::min(chunk, batch);
  }
  ptrdiff_t sets() const { return keep ? count : 2; }  // a round reads the states of the one before only
  ptrdiff_t arrays() const { return sets() * (SENT + depth); }
  // Packed weights, biases, and gradients of both; temporaries of a chunk; arrays of the rounds.
  ptrdiff_t weights_at() const { return 0; }
  ptrdiff_t biases_at() const { return matrices * square; }
  ptrdiff_t grads_at() const { return biases_at() + biases * width; }
  ptrdiff_t bias_grads_at() const { return grads_at() + (keep ? matrices * square : 0); }
  ptrdiff_t temporaries_at() const { return bias_grads_at() + (keep ? biases * width : 0); }
  ptrdiff_t rounds_at() const { return temporaries_at() + (keep ? TEMPORARIES : SCALED + 1) * nodes * chunk * width; }
  ptrdiff_t numbers() const { return rounds_at() + arrays() * nodes * (keep ? batch : chunk) * width; }
};

// Matrices and biases by place: the layers of the message function, then keep, reset, candidate of messages, keep and
// reset of the state, candidate of the scaled state, for the root and for the joints.
struct Place {
  ptrdiff_t weight, part;  // which of `weights`, and which block of rows in it
};
inline Place matrix_place(ptrdiff_t i, ptrdiff_t depth) {
  if (i < depth) return {4 * TYPES + 2 * i, 0};
  const ptrdiff_t type = (i - depth) / UPDATE_MATRICES, k = (i - depth) % UPDATE_MATRICES;
  return k < 3 ? Place{4 * type, k} : k < 5 ? Place{4 * type + 2, k - 3} : Place{4 * type + 3, 0};
}
inline Place bias_place(ptrdiff_t i, ptrdiff_t depth) {
  if (i < depth) return {4 * TYPES + 2 * i + 1, 0};
  return {4 * ((i - depth) / UPDATE_BIASES) + 1, (i - depth) % UPDATE_BIASES};
}

// Views of memory for the observations [begin, begin + n).
template <class T> struct Chunk {
  const Call<T>& call;
  const Plan<T>& plan;
  ptrdiff_t begin, n;

  ptrdiff_t width() const { return plan.width; }
  ptrdiff_t rows() const { return plan.nodes * n; }
  ptrdiff_t first(int type) const { return type ? n : 0; }  // rows of a node type
  ptrdiff_t rows(int type) const { return type ? rows() - n : n; }
  T* matrix(ptrdiff_t i) const { return call.memory + plan.weights_at() + i * plan.square; }
  T* bias(ptrdiff_t i) const { return call.memory + plan.biases_at() + i * plan.width; }
  T* matrix_grad(ptrdiff_t i) const { return call.memory + plan.grads_at() + i * plan.square; }
  T* bias_grad(ptrdiff_t i) const { return call.memory + plan.bias_grads_at() + i * plan.width; }
  ptrdiff_t matrix_of(int type, int k) const { return plan.depth + type * UPDATE_MATRICES + k; }
  ptrdiff_t bias_of(int type, int k) const { return plan.depth + type * UPDATE_BIASES + k; }
  T* temporary(int i) const { return call.memory + plan.temporaries_at() + i * plan.nodes * plan.chunk * width(); }
  T* array(ptrdiff_t t, ptrdiff_t i) const {
    T* own = call.memory + plan.rounds_at() + (plan.keep ? plan.arrays() * plan.nodes * begin * width() : 0);
    return own + ((t % plan.sets()) * (SENT + plan.depth) + i) * rows() * width();
  }
  T* state_before(ptrdiff_t t) const { return t ? array(t - 1, STATE) : temporary(FIRST); }

  void fetch(const T* from, T* to) const {  // (nodes, batch, size) -> (nodes, n, width)
    for (ptrdiff_t v = 0; v < plan.nodes; ++v)
      pad(n, plan.size, width(), from + (v * plan.batch + begin) * plan.size, to + v * n * width());
  }
  void deliver(const T* from, T* to) const {
    for (ptrdiff_t v = 0; v < plan.nodes; ++v)
      strip(n, plan.size, width(), from + v * n * width(), to + (v * plan.batch + begin) * plan.size);
  }
};

// out[v] = f(sum over the neighbours u of v of weight * in[u], offset), for nodes of n rows each.
template <class T, class F>
void aggregate(const int64_t* start, const int64_t* others, const T* weight, const Chunk<T>& at, const T* in, T* out,
               F&& f) {
  const ptrdiff_t block = at.n * at.width();
  for (ptrdiff_t v = 0; v < at.plan.nodes; ++v)
    for (ptrdiff_t j = 0; j < block; j += LANES<T>) {
      Vec<T> sum{};
      for (int64_t e = start[v]; e < start[v + 1]; ++e) sum += load(in + others[e] * block + j) * weight[e];
      store(out + v * block + j, f(sum, v * block + j));
    }
}

template <class T> void pack_weights(const Call<T>& call, const Plan<T>& plan, bool transpose) {
  const Chunk<T> at{call, plan, 0, 0};
  const ptrdiff_t size = plan.size;
  for (ptrdiff_t i = 0; i < plan.matrices; ++i) {
    const Place place = matrix_place(i, plan.depth);
    pack(plan.bfloat, call.weights[place.weight] + place.part * size * size, size, size, plan.width, transpose, at.matrix(i));
  }
  for (ptrdiff_t i = 0; i < plan.biases; ++i) {
    const Place place = bias_place(i, plan.depth);
    pad(1, size, plan.width, call.weights[place.weight] + place.part * size, at.bias(i));
  }
}
