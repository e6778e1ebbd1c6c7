"""Kernels whose threads keep the elements of a row from one loop over it to the next, and neighbours that do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

SUM = "for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d); return v;"
MAX = "for (int d = 16; d > 0; d >>= 1) v = max(v, __shfl_xor_sync(0xffffffff, v, d)); return v;"
HELPERS = f"""
__device__ T warp_sum(T v) {{ {SUM} }}
__device__ T warp_max(T v) {{ {MAX} }}
__device__ T block_sum(T v)
{{
    __shared__ T s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {{
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }}
    v = s[0];
    __syncthreads();
    return v;
}}
"""
WARP = "int row = blockIdx.x * 2 + threadIdx.x / 32, c0 = threadIdx.x % 32; if (row >= rows) return; "
BLOCK = "int row = blockIdx.x; "

# The body of `k(T *y, const T *x, const T *w, int rows, int n)`: blocks of 64 threads.
KEPT = {
    "softmax, a warp a row": WARP
    + "T top = -1e30, sum = 0; for (int c = c0; c < n; c += 32) top = max(top, x[row * n + c]); top = warp_max(top);"
    "for (int c = c0; c < n; c += 32) sum += exp(x[row * n + c] - top); sum = warp_sum(sum);"
    "for (int c = c0; c < n; c += 32) y[row * n + c] = exp(x[row * n + c] - top) / sum;",
    "softmax, a block a row, strides of the block": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += blockDim.x) sum += exp(x[row * n + c]); sum = block_sum(sum);"
    "for (int c = threadIdx.x; c < n; c += blockDim.x) y[row * n + c] = exp(x[row * n + c]) / sum;",
    "while and pointers": BLOCK
    + "const T *p = x + (size_t)row * n; T sum = 0; unsigned c = threadIdx.x; while (c < n) { sum += p[c] * p[c];"
    " c += 64; } sum = 1 + block_sum(sum);"
    "for (unsigned c = threadIdx.x; c < n; c += 64) y[row * n + c] = p[c] / sum;",
    "up to and with": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c <= n - 1; c += 64) sum += x[row * n + c] * w[c]; sum = block_sum(sum);"
    "for (int c = threadIdx.x; c <= n - 1; c += 64) y[row * n + c] = x[row * n + c] * sum * w[c];",
    "three sums": BLOCK
    + "T m = 0, q = 0; for (int c = threadIdx.x; c < n; c += 64) m += x[row * n + c]; m = block_sum(m) / n;"
    "for (int c = threadIdx.x; c < n; c += 64) { T d = x[row * n + c] - m; q += d * d; }"
    "q = rsqrt(block_sum(q) / n + (T)1e-3);"
    "for (int c = threadIdx.x; c < n; c += 64) y[row * n + c] = (x[row * n + c] - m) * q * w[c];",
    "sixty-four bits": BLOCK
    + "T sum = 0; for (long long c = threadIdx.x; c < (long long)n; c += 64) sum += sin(x[(long long)row * n + c]);"
    "sum = block_sum(sum); for (size_t c = threadIdx.x; c < n; c += 64) y[row * n + c] = sin(x[row * n + c]) * sum;",
    "blocks of two axes": "int row = blockIdx.x * 2 + threadIdx.y, t = threadIdx.x; if (row < rows) { T sum = 0;"
    "for (int c = t; c < n; c += 32) sum += x[row * n + c] * x[row * n + c]; sum = warp_sum(sum);"
    "for (int c = t; c < n; c += 32) y[row * n + c] = x[row * n + c] / (1 + sum); }",
    "names that are taken": BLOCK
    + "__shared__ T _row_0[64]; int t = threadIdx.x; T sum = 0; for (int c = t; c < n; c += 64) sum += x[row * n + c];"
    "_row_0[t] = sum; sum = 1 + block_sum(sum);"
    "for (int c = t; c < n; c += 64) y[row * n + c] = x[row * n + c] * sum * _row_0[63 - t];",
    "columns of a row, transposed": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[c * rows + row] * x[c * rows + row];"
    "sum = 1 + block_sum(sum); for (int c = threadIdx.x; c < n; c += 64) y[c * rows + row] = x[c * rows + row] / sum;",
}
NOT_KEPT = {
    "other turns": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[row * n + c]; sum = block_sum(sum);"
    "for (int c = threadIdx.x; c < n - 1; c += 64) y[row * n + c] = x[row * n + c] * sum;",
    "other elements": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[row * n + c]; sum = block_sum(sum);"
    "for (int c = threadIdx.x; c < n; c += 64) y[row * n + c] = x[row * n + n - 1 - c] * sum;",
    "in some turns": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) if (c % 3) sum += x[row * n + c] * x[row * n + c];"
    "sum = block_sum(sum); for (int c = threadIdx.x; c < n; c += 64) if (c % 2) y[row * n + c] = x[row * n + c] / sum;",
    "an element of all turns": BLOCK
    + "T sum = 0; for (int c = threadIdx.x; c < n; c += 64) sum += x[row * n + threadIdx.x] * c;"
    "sum = block_sum(sum); for (int c = threadIdx.x; c < n; c += 64) y[row * n + c] = c * sum;",
}
OWN = "int i = threadIdx.x; if (i >= rows) return; "
# A row a thread.
KEPT_BY_THREADS = {
    "a product": OWN + "T s = 1; for (int k = 0; k < n; ++k) s *= 1 + (T)0.1 * x[k * rows + i]; y[i] = s;",
    "a row of memory": OWN + "T s = 1; for (int k = 0; k < n; ++k) s = s * sin(x[i * n + k]) + 1; y[i] = s;",
    "written to": OWN
    + "T s = w[0]; for (int k = 0; k < n; ++k) { s = s * x[k * rows + i] + 1; y[k * rows + i] = s * s; }",
}
NOT_KEPT_BY_THREADS = {
    "windows": OWN + "T s = 1; for (int k = 0; k < n; ++k) s *= 1 + (T)0.1 * x[k + i]; y[i] = s;",
    "shared": OWN + "T s = 1; for (int k = 0; k < n; ++k) s = s * x[k * rows + i] + w[k]; y[i] = s;",
}
ROWS = 6


def compiled(body: str, element: str = "double") -> Any:
    params = "T *y, const T *x, const T *w, int rows, int n"
    return kg.compile(f"typedef {element} T; {HELPERS} __global__ void k({params}) {{ {body} }}")["k"]


def launch_of(body: str) -> tuple[Any, Any]:
    if body.startswith(OWN):
        return 1, ROWS
    return (ROWS if body.startswith(BLOCK) else (ROWS + 1) // 2), (32, 2) if "threadIdx.y" in body else 64


def arrays(n: int, element: Any = np.float64) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.uniform(-2, 2, size).astype(element) for size in (ROWS * n + 3, ROWS * n + 3, n + 3)]
