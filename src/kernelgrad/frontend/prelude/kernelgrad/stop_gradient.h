// kernelgrad::stop_gradient(x): x, as a number, or a struct of numbers, that derivatives do not flow through.
#pragma once
#define KERNELGRAD_STOP_GRADIENT

template <class T> T __kg_stop(T x);

namespace kernelgrad {
template <class T> inline T stop_gradient(T v) { return __kg_stop(v); }
} // namespace kernelgrad
