// What Python calls, by ctypes: each function for float (32) and double (64). None of them touches Python.
#include "backward.h"
#include "mlp.h"

#define FOR(T, NAME)                                                                                  \
  extern "C" int64_t rounds_numbers_##NAME(const Call<T>* call) { return Plan<T>(*call).numbers(); }  \
  extern "C" int64_t rounds_forward_##NAME(const Call<T>* call) { return forward(*call), 0; }         \
  extern "C" int64_t rounds_backward_##NAME(const Call<T>* call) { return Backward<T>(*call).run(), 0; } \
  extern "C" int64_t mlp_numbers_##NAME(const MlpCall<T>* call) { return Mlp<T>{*call}.numbers(); }   \
  extern "C" int64_t mlp_forward_##NAME(const MlpCall<T>* call) { return Mlp<T>{*call}.forward(), 0; } \
  extern "C" int64_t mlp_backward_##NAME(const MlpCall<T>* call) { return Mlp<T>{*call}.backward(), 0; }

extern "C" int64_t multiplies_bfloat() { return HAS_BFLOAT; }

FOR(float, 32)
FOR(double, 64)
