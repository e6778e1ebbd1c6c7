"""Kernels for the tests of operators, and what they compute in PyTorch's own terms."""

from __future__ import annotations

from typing import Any

import torch

import kernelgrad as kg
from operator_kernels import HALVES, ON_CPU

SOURCE = (
    HALVES
    + ON_CPU
    + """
__global__ void grow(double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = exp(x[i]) * x[i];
}
__global__ void triple(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i];
}
__global__ void halves(__half *y, const __half *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__half2float(x[i]) * __half2float(x[i]));
}
__global__ void stateful(double *y, const double *x) { y[0] = STATE[0] * x[0]; }
"""
)
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
