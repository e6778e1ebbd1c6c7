"""Kernels that use CUB, with what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SOURCE = r"""
#include <cub/cub.cuh>

template <int N> __global__ void rms_norm(double *y, const double *x, int n) {
  typedef cub::BlockReduce<double, N> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ double scale;
  double sum = 0;
  for (int c = threadIdx.x; c < n; c += N) sum += x[blockIdx.x * n + c] * x[blockIdx.x * n + c];
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) scale = rsqrt(sum / n + 1e-5);
  __syncthreads();
  for (int c = threadIdx.x; c < n; c += N) y[blockIdx.x * n + c] = x[blockIdx.x * n + c] * scale;
}
template __global__ void rms_norm<32>(double *, const double *, int);
template __global__ void rms_norm<48>(double *, const double *, int);
template __global__ void rms_norm<96>(double *, const double *, int);

// Rotations are not commutative: their order must be kept.
struct Affine { double a, b; };
struct Then {
  __device__ Affine operator()(Affine f, Affine g) const { return {g.a * f.a, g.a * f.b + g.b}; }
};
__global__ void first_of(double *y, const double *x, int n) {
  typedef cub::BlockReduce<Affine, 16, cub::BLOCK_REDUCE_RAKING, 6> Reduce;
  __shared__ Reduce::TempStorage storage;
  int t = threadIdx.y * 16 + threadIdx.x;
  Affine own = {x[t], 0.5 * x[t] + 1};
  Affine all = Reduce(storage).Reduce(own, Then(), n);
  if (t == 0) y[0] = all.a, y[1] = all.b;
}

__global__ void scans(double *y, double *z, const double *x) {
  typedef cub::BlockScan<double, 80> Scan;
  __shared__ typename Scan::TempStorage storage;
  double items[3], sums[3], total;
  cub::LoadDirectBlocked(threadIdx.x, x, items);
  for (int k = 0; k < 3; ++k) items[k] *= items[k];
  Scan(storage).InclusiveSum(items, sums, total);
  cub::StoreDirectBlocked(threadIdx.x, y, sums);
  __syncthreads();
  Scan(storage).ExclusiveSum(items, sums);
  cub::StoreDirectBlocked(threadIdx.x, z, sums);
  if (threadIdx.x == 79) z[240] = total;
}

struct Before {
  double sum;
  __device__ double operator()(double total) {
    double old = sum;
    sum += total;
    return old;
  }
};
__global__ void running(double *y, const double *x, int tiles) {
  typedef cub::BlockScan<double, 64> Scan;
  __shared__ typename Scan::TempStorage storage;
  Before before = {1.5};
  for (int tile = 0; tile < tiles; ++tile) {
    double sum, v = x[tile * 64 + threadIdx.x];
    Scan(storage).ExclusiveSum(v * v, sum, before);
    y[tile * 64 + threadIdx.x] = sum * v;
    __syncthreads();
  }
}

__global__ void parts(double *y, const double *x) {
  typedef cub::WarpReduce<double, 8> Reduce;
  typedef cub::WarpScan<double, 16> Scan;
  __shared__ Reduce::TempStorage of_reduce[12];
  __shared__ Scan::TempStorage of_scan[6];
  int t = threadIdx.x;
  double v = x[t] * x[t], before;
  double sum = Reduce(of_reduce[t / 8]).Sum(v);
  double segment = Reduce(of_reduce[t / 8]).HeadSegmentedSum(v, t % 3 == 0);
  Scan(of_scan[t / 16]).ExclusiveSum(v * x[t], before);
  if (t % 8 == 0) y[t / 8] = sum;
  y[12 + t] = before;
  if (t % 3 == 0 || t % 8 == 0) y[108 + t] = segment;
}

__global__ void largest(double *y, const double *x) {
  typedef cub::KeyValuePair<int, double> Pair;
  typedef cub::BlockReduce<Pair, 64> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  Pair best = Reduce(storage).Reduce(Pair(threadIdx.x, x[threadIdx.x] * x[threadIdx.x]), cub::ArgMax());
  if (threadIdx.x == 0) y[0] = best.value, y[1] = best.key;
}

__global__ void exchanged(double *y, const double *x, int n) {
  typedef cub::BlockLoad<double, 64, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE> Load;
  typedef cub::BlockExchange<double, 64, 4> Exchange;
  __shared__ union {
    typename Load::TempStorage load;
    typename Exchange::TempStorage exchange;
  } storage;
  double items[4];
  Load(storage.load).Load(x, items, n, 0.5);
  __syncthreads();
  Exchange(storage.exchange).BlockedToStriped(items);
  for (int k = 0; k < 4; ++k) y[threadIdx.x + 64 * k] = items[k] * items[k];
}

void on_device(double *sums, double *best, const double *x, int n) {
  double *d_x, *d_sums, *d_best;
  cudaMalloc(&d_x, n * sizeof(double));
  cudaMalloc(&d_sums, n * sizeof(double));
  cudaMalloc(&d_best, sizeof(double));
  cudaMemcpy(d_x, x, n * sizeof(double), cudaMemcpyHostToDevice);
  void *storage = nullptr;
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(storage, bytes, d_x, d_sums, n);
  cudaMalloc(&storage, bytes);
  cub::DeviceScan::InclusiveSum(storage, bytes, d_x, d_sums, n);
  cub::DeviceReduce::Max(storage, bytes, d_sums, d_best, n);
  cudaMemcpy(sums, d_sums, n * sizeof(double), cudaMemcpyDeviceToHost);
  cudaMemcpy(best, d_best, sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(d_x), cudaFree(d_sums), cudaFree(d_best), cudaFree(storage);
}
"""


@dataclass(frozen=True)
class Case:
    """A launch: its outputs, given its input x."""

    kernel: str
    grid: int
    block: Any
    shape: tuple[int, ...]
    numbers: tuple[int, ...]
    expected: Callable[[np.ndarray], tuple[np.ndarray, ...]]

    def input(self) -> np.ndarray:
        return np.random.default_rng(1).normal(size=self.shape)


def _rms(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return (x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5),)


def _composed(n: int) -> Callable[[np.ndarray], tuple[np.ndarray, ...]]:
    def compute(x: np.ndarray) -> tuple[np.ndarray, ...]:
        a, b = 1.0, 0.0
        for v in x[:n]:
            a, b = v * a, v * b + 0.5 * v + 1
        return (np.array([a, b]),)

    return compute


def _scans(x: np.ndarray) -> tuple[np.ndarray, ...]:
    sums = np.cumsum(x * x)
    return sums, np.concatenate([[0], sums])


def _running(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return ((np.cumsum(x * x) - x * x + 1.5) * x,)


def _parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    squares, cubes = x * x, (x**3).reshape(6, 16)
    segments = np.zeros(96)
    starts = [t for t in range(96) if t % 3 == 0 or t % 8 == 0]
    for start, end in zip(starts, [*starts[1:], 96], strict=True):
        segments[start] = squares[start:end].sum()
    return (np.concatenate([squares.reshape(12, 8).sum(1), (np.cumsum(cubes, 1) - cubes).ravel(), segments]),)


def _largest(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return (np.array([(x * x).max(), np.argmax(x * x)]),)


def _exchanged(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return (np.concatenate([x[:250], np.full(6, 0.5)]) ** 2,)


CASES = {
    **{f"norm {n}": Case(f"rms_norm<{n}>", 3, n, (3, 100), (100,), _rms) for n in (32, 48, 96)},
    **{f"first {n}": Case("first_of", 1, (16, 6), (96,), (n,), _composed(n)) for n in (1, 32, 33, 90, 96)},
    "scans": Case("scans", 1, 80, (240,), (), _scans),
    "running": Case("running", 1, 64, (192,), (3,), _running),
    "parts": Case("parts", 1, 96, (96,), (), _parts),
    "largest": Case("largest", 1, 64, (64,), (), _largest),
    "exchanged": Case("exchanged", 1, 64, (256,), (250,), _exchanged),
}
