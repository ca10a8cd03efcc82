// What Python calls, by ctypes: each function for float (32) and double (64). None of them touches Python.
#include "backward.h"

#define FOR(T, NAME)                                                                                  \
  extern "C" int64_t rounds_numbers_##NAME(const Call<T>* call) { return Plan<T>(*call).numbers(); }  \
  extern "C" void rounds_forward_##NAME(const Call<T>* call) { forward(*call); }                      \
  extern "C" void rounds_backward_##NAME(const Call<T>* call) { Backward<T>(*call).run(); }

FOR(float, 32)
FOR(double, 64)
