"""Kernels of all kinds for tests of recordings, and how they are launched there."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
struct Scale { double a; double b; };
struct Part { double gain; double *x; int k; };
__device__ double state[4] = {1, 2, 3, 4};
__constant__ double weights[3] = {1.0, 0.5, 0.25};
__global__ void square(double *y, const double *x, int n) { I; y[i] = x[i] * x[i]; }
__global__ void scale(double *y, const double *x, double a, int n) { I; y[i] = a * x[i]; }
__global__ void affine(double *y, const double *x, double a, double b, int n) { I; y[i] = a * x[i] + b; }
__global__ void linear(double *y, const double *x, int n) { I; y[i] = 0.5 * x[i] + 0.25 * x[(i + 1) % n]; }
__global__ void sine(double *x, int n) { I; x[i] = sin(x[i]); }
__global__ void add_to(double *y, const double *x, int n) { I; y[i] += x[i]; }
__global__ void total(double *s, const double *x, int n) { I; atomicAdd(s, x[i] * x[i]); }
__global__ void floor_of(int *k, const double *x, int n) { I; k[i] = (int)x[i]; }
__global__ void count(int *k, int n) { I; k[i] += 1; }
__global__ void copy_bits(int *y, const int *x, int n) { I; y[i] = x[i]; }
__global__ void hidden(void *y, const void *x, int n) { I; ((double *)y)[i] = 3 * ((const double *)x)[i]; }
__global__ void rows(double **y, int n) { I; y[0][i] = 1; }
__global__ void slots(double *y, const double *x, int *used, int n) { I; y[atomicAdd(used, 1)] = x[i] * x[i]; }
__global__ void loud(double *y, const double *x, int n) { I; y[i] = x[i] * x[i]; if (i == 0) printf("heard\n"); }
__global__ void ticking(double *y, const double *x, int n) { I; y[i] = clock64() >= 0 ? x[i] * x[i] : 0; }
__global__ void twice(double *u, double *y, int n) {
    I;
    u[i] = sin(u[i]);
    __syncthreads();
    y[i] = u[i] * u[i ^ 1];
    __syncthreads();
    u[i] = u[i] * y[i];
}
__global__ void in_struct(double *y, Scale s, Part p, int n) { I; y[i] = s.a * p.gain * p.x[i] + s.b; }
__global__ void remember(const double *x, int n) { I; if (i < 4) state[i] = x[i] * state[i]; }
__global__ void recall(double *y, int n) { I; y[i] = state[i % 4] * weights[i % 3]; }
__global__ void failing(double *x, int n) { I; assert(x[i] < 100.0); x[i] = 2 * x[i]; }
__global__ void singles(float *y, const float *x, float a, int n) { I; y[i] = a * x[i] * x[i]; }
__global__ void as_float(float *y, int n) { I; y[i] = 2 * y[i]; }
namespace other { template <typename T, int K> __global__ void power(T *y, T a, int n) { I; y[i] = y[i] * a * K; } }
"""
N = 8


class Launches:
    """The kernels by their names, with a grid and a block for N elements."""

    def __init__(self) -> None:
        self.module_ = kg.compile(SOURCE)

    def __getattr__(self, name: str) -> Any:
        return self.module_[name][2, 4]


def x0() -> Any:
    return np.linspace(0.2, 1.6, N)
