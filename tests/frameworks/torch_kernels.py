"""Kernels for the tests of operators, and what they compute in PyTorch's own terms."""

from __future__ import annotations

from typing import Any

import torch

import kernelgrad as kg

SOURCE = """
#include <cuda_fp16.h>
__global__ void weighted(double *y, const double *x, const double *w, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i] * sin(w[i]);
}
__global__ void grow(double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = exp(x[i]) * x[i];
}
__global__ void triple(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i];
}
__global__ void both(double *sum, int *sign, double *product, const double *x, const double *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    product[i] = x[i] * w[i];
    sign[i] = x[i] > 0 ? 1 : -1;
    atomicAdd(sum, x[i] * x[i]);
}
__global__ void gather(double *y, const double *x, const int *index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[index[i]] * x[index[i]];
}
__global__ void iterate(double *x, int n, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int k = 0; k < steps; k++) x[i] = sin(x[i]) * x[i];
}
__global__ void product(double *z, const double *x, const double *y, int rows, int inner, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    double sum = 0;
    for (int k = 0; k < inner; k++) sum += x[row * inner + k] * y[k * columns + column];
    z[row * columns + column] = sum;
}
__global__ void slots(double *y, int *count, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) y[atomicAdd(count, 1)] = x[i];
}
__global__ void halves(__half *y, const __half *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__half2float(x[i]) * __half2float(x[i]));
}
__constant__ double SCALE[1];
__device__ double STATE[1];
__global__ void scaled(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = SCALE[0] * x[i];
}
__global__ void stateful(double *y, const double *x) { y[0] = STATE[0] * x[0]; }
"""
MODULE = kg.compile(SOURCE)
BLOCK = 32


def blocks(x: Any, **_: Any) -> Any:
    return (x.numel() + BLOCK - 1) // BLOCK


def numel(x: Any, **_: Any) -> Any:
    return x.numel()


def elementwise(name: str, outputs: Any = None, **settings: Any) -> kg.torch.Op:
    return kg.torch.op(MODULE[name], outputs, grid=blocks, block=BLOCK, sizes={"n": numel}, **settings)


def weighted(x: Any, w: Any, a: Any) -> Any:
    return a * x * x * torch.sin(w)


def random(*shape: int, grad: bool = True, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)
