// kernelgrad::stop_gradient(x) for a build of your own, where it is x: derivatives do not flow through it, once
// kernelgrad takes them, which needs no #include of this. For nvcc: -I $(python -m kernelgrad include-dir)
#pragma once

#ifndef KERNELGRAD_STOP_GRADIENT
#define KERNELGRAD_STOP_GRADIENT

namespace kernelgrad {
template <class T> __host__ __device__ inline T stop_gradient(T x) { return x; }
} // namespace kernelgrad

#endif
