"""Kernels that the tests of both PyTorch's and JAX's operators use: on the CPU in double precision, and on a GPU."""

from __future__ import annotations

HALVES = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
"""
ON_CPU = """
__global__ void weighted(double *y, const double *x, const double *w, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i] * sin(w[i]);
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
__constant__ double SCALE[1];
__device__ double STATE[1];
__global__ void scaled(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = SCALE[0] * x[i];
}
"""
ON_GPU = """
template <typename T> __global__ void scaled(T *y, const T *x, const T *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (T)((float)x[i] * (float)x[i] * (float)w[i]);
}
__global__ void gelu(float *y, const float *x, const float *bias, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i] + bias[i % columns];
    y[i] = 0.5f * v * (1 + erff(v * 0.70710678f));
}
__global__ void grow(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = a * expf(x[i]) * x[i];
}
"""
