"""Kernels whose threads cooperate, for the tests on the CPU and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """`kernel(double *y, const double *x, int n)`, launched so."""

    source: str
    grid: Any = 3
    block: Any = 32
    n: int = 70
    shared: int = 0


HEAD = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
TREE = "for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) COMBINE; __syncthreads(); }"

CASES = {
    "tree_sum": Case(f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[32]; {HEAD}
          s[t] = i < n ? x[i] * x[i] : 0.0;
          __syncthreads();
          {TREE.replace("COMBINE", "s[t] += s[t + d]")}
          if (t == 0) y[blockIdx.x] = s[0] * s[0];
        }}"""),
    "tree_product": Case(f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[32]; {HEAD}
          s[t] = i < n ? x[i] + 0.5 : 1.0;
          __syncthreads();
          {TREE.replace("COMBINE", "s[t] *= s[t + d]")}
          if (t == 0) y[blockIdx.x] = s[0];
        }}"""),
    "dynamic_shared_memory": Case(
        f"""
        extern __shared__ double s[];
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = i < n ? sin(x[i]) : 0.0;
          __syncthreads();
          if (i < n) y[i] = s[t] * s[(t + 1) % blockDim.x];
        }}""",
        shared=256,
    ),
    "tiled_product": Case(
        """
        #define T 4
        __global__ void k(double* c, const double* a, int n) {
          __shared__ double A[T][T], B[T][T];
          int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
          double sum = 0;
          for (int t = 0; t < n / T; t++) {
            A[ty][tx] = a[row * n + t * T + tx];
            B[ty][tx] = a[(t * T + ty) * n + col];
            __syncthreads();
            for (int k = 0; k < T; k++) sum += A[ty][k] * B[k][tx];
            __syncthreads();
          }
          c[row * n + col] = sum * sum;
        }""",
        (2, 2),
        (4, 4),
        8,
    ),
    "shuffles": Case(
        """
        __global__ void k(double* y, const double* x, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          double v = i < n ? x[i] * x[i] : 0.0;
          for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o);
          double w = __shfl_sync(0xffffffffu, v, 0);
          double u = __shfl_xor_sync(0xffffffffu, w * x[i % n], 3);
          double q = __shfl_up_sync(0xffffffffu, u, 2, 8);
          if (i < n) y[i] = q * u + v;
        }""",
        2,
    ),
    "partial_warp": Case(
        """
        __global__ void k(double* y, const double* x, int n) {
          int t = threadIdx.x;
          double v = x[t] * x[t + 1];
          for (int o = 4; o > 0; o /= 2) v += __shfl_down_sync(0xffffu, v * v, o, 8);
          y[t] = v;
        }""",
        1,
        16,
    ),
    "early_return": Case(f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[32]; {HEAD}
          if (i >= n) return;
          s[t] = x[i] * x[i];
          __syncthreads();
          double v = s[0] * s[t];
          __syncthreads();
          s[t] = v * x[i];
          __syncthreads();
          y[i] = s[t] * s[0];
        }}"""),
    "double_buffered_scan": Case(
        """
        __global__ void k(double* y, const double* x, int n) {
          __shared__ double s[64];
          int t = threadIdx.x, b = 0;
          s[t] = x[t];
          __syncthreads();
          for (int d = 1; d < 32; d *= 2) {
            double v = s[b * 32 + t];
            if (t >= d) v = v + v * s[b * 32 + t - d];
            b = 1 - b;
            s[b * 32 + t] = v;
            __syncthreads();
          }
          y[t] = s[b * 32 + t];
        }""",
        1,
    ),
    "softmax_rows": Case(
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[32]; {HEAD}
          s[t] = x[i];
          __syncthreads();
          {TREE.replace("COMBINE", "s[t] = fmax(s[t], s[t + d])")}
          double m = s[0];
          __syncthreads();
          double e = exp(x[i] - m);
          s[t] = e;
          __syncthreads();
          {TREE.replace("COMBINE", "s[t] += s[t + d]")}
          y[i] = e / s[0];
        }}""",
        2,
    ),
    "histogram_in_shared_memory": Case(f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double h[4]; {HEAD}
          if (t < 4) h[t] = 0;
          __syncthreads();
          if (i < n) atomicAdd(&h[i % 4], x[i] * x[i]);
          __syncthreads();
          if (t < 4) atomicAdd(&y[t], h[t] * h[(t + 1) % 4]);
        }}"""),
    "phases_on_global_memory": Case(
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          y[i] = x[i % n] * x[i % n];
          __syncthreads();
          double v = y[blockIdx.x * blockDim.x + (t + 1) % blockDim.x];
          __syncthreads();
          y[i] = v * v + y[i];
        }}""",
        2,
    ),
    "barriers_in_a_device_function": Case(f"""
        __device__ double total(double* s, int t, double v) {{
          s[t] = v;
          __syncthreads();
          {TREE.replace("COMBINE", "s[t] += s[t + d]")}
          double all = s[0];
          __syncthreads();
          return all;
        }}
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[32]; {HEAD}
          double v = i < n ? x[i] : 0.0;
          double mean = total(s, t, v) / 32, spread = total(s, t, (v - mean) * (v - mean));
          if (i < n) y[i] = (v - mean) / sqrt(spread + 1e-3);
        }}"""),
}
