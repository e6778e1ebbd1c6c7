"""Kernels that read rows of which each element is one thread's, and single elements of which nobody knows whose."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg
from kept_row_cases import HELPERS

ROWS = 6
MAX = "top = max(top, x[row * n + c]);"
_BLOCK = (
    "int row = blockIdx.x, t = threadIdx.x; T top = -1e30, sum = 0;"
    "for (int c = t; c < n; c += 64) sum += exp(x[row * n + c] / 4); sum = block_sum(sum);"
)
_WARP = (
    "int row = blockIdx.x * 2 + threadIdx.x / 32, t = threadIdx.x % 32; if (row >= rows) return; T sum = 0;"
    "for (int c = t; c < n; c += 32) sum += exp(x[row * n + c] / 4); sum = warp_sum(sum);"
)
_TOP = (
    "int row = blockIdx.x, t = threadIdx.x; T top = -1e30, sum = 0; __shared__ T s[64];"
    f"for (int c = t; c < n; c += 64) {MAX} s[t] = top; __syncthreads();"
    "for (int d = 32; d > 0; d /= 2) { if (t < d) s[t] = max(s[t], s[t + d]); __syncthreads(); }"
    "top = s[0]; __syncthreads();"
    "for (int c = t; c < n; c += 64) sum += exp(x[row * n + c] - top); sum = block_sum(sum);"
)
_THREAD = (
    "int row = blockIdx.x * blockDim.x + threadIdx.x; if (row >= rows) return; T top = -1e30, sum = 0;"
    f"for (int c = 0; c < n; ++c) {MAX}"
    "for (int c = 0; c < n; ++c) sum += exp(x[row * n + c] - top);"
)
AT = "x[row * n + label[row]]"

# The body of `k(T *loss, const T *x, const int *label, const T *w, int rows, int n)`: blocks of 64 threads.
DEFERRED = {
    "a block a row": f"{_BLOCK} if (t == 0) loss[row] = log(sum) - {AT};",
    "a maximum before": f"{_TOP} if (t == 0) loss[row] = log(sum) + top - {AT};",
    "a warp a row": f"{_WARP} if (t == 0) loss[row] = log(sum) - {AT};",
    "a thread a row": f"{_THREAD} loss[row] = log(sum) + top - {AT};",
    "another thread, by blocks of two axes": "int row = blockIdx.x * 2 + threadIdx.y, t = threadIdx.x; T sum = 0;"
    " if (row < rows) { for (int c = t; c < n; c += 32) sum += exp(x[row * n + c] / 4); sum = warp_sum(sum);"
    f" if (t == 5) loss[row] = log(sum) - {AT}; }}",
    "the label first": f"int r = blockIdx.x; T at = x[r * n + label[r]]; {_BLOCK}"
    " if (t == 0) loss[row] = log(sum) - at;",
    "two labels": f"{_BLOCK} int o = rows - 1 - row;"
    f" if (t == 0) loss[row] = log(sum) - {AT} * w[0] - x[o * n + label[o]] * w[1];",
    "a helper": f"{_BLOCK} if (t == 0) loss[row] = log(sum) - pick(x + row * n, label[row]) - pick(x, label[0]);",
    "weights and what is ignored": f"{_BLOCK} int l = label[row];"
    f" if (t == 0) loss[row] = l % 3 ? w[abs(l) % 4] * (log(sum) - {AT}) : (T)0;",
    "smoothed": "int row = blockIdx.x, t = threadIdx.x; T sum = 0, mean = 0; for (int c = t; c < n; c += 64) {"
    " T v = x[row * n + c]; sum += exp(v / 4); mean += v; } sum = block_sum(sum); mean = block_sum(mean) / n;"
    f" if (t == 0) loss[row] = (T)0.9 * (log(sum) - {AT}) + (T)0.1 * (log(sum) - mean);",
    "a probability": f"{_BLOCK} if (t == 0) loss[row] = -log(exp({AT} / 4) / sum);",
    "all threads": f"{_BLOCK} T part = {AT} * (t % 3); part = block_sum(part);"
    " if (t == 0) loss[row] = log(sum) - part;",
    "a fixed column": f"{_BLOCK} if (t == 1) loss[row] = log(sum) - x[row * n + n - 1] * x[row * n + n / 2];",
}
# No element is one thread's, or the sum is wanted in the launch, or nothing would be had.
NOT_DEFERRED = {
    "rows overlap": "int row = blockIdx.x, t = threadIdx.x; T sum = 0; for (int c = t; c < n; c += 64)"
    " sum += x[row * (n - 1) + c]; sum = block_sum(sum); if (t == 0) loss[row] = sum - x[abs(label[row]) % n];",
    "labels in a loop": f"{_BLOCK} T part = 0; if (t == 0) {{"
    " for (int k = 0; k < rows; ++k) part += x[k * n + label[k]] * w[k % 4]; loss[row] = log(sum) - part; }",
    "nothing but labels": f"int row = blockIdx.x * blockDim.x + threadIdx.x; if (row < rows) loss[row] = {AT};",
}


def launch_of(body: str) -> tuple[Any, Any]:
    if "threadIdx.y" in body:
        return ROWS // 2, (32, 2)
    if "blockDim.x" in body:
        return 1, 64
    return (ROWS // 2 if "threadIdx.x / 32" in body else ROWS), 64


def compiled(body: str, element: str = "double") -> Any:
    params = "T *loss, const T *x, const int *label, const T *w, int rows, int n"
    pick = "__device__ T pick(const T *p, int i) { return p[i]; }"
    return kg.compile(f"typedef {element} T; {HELPERS} {pick} __global__ void k({params}) {{ {body} }}")["k"]


def arrays(n: int, element: Any = np.float64, far: bool = False) -> list[Any]:
    """`far`: labels that lead to other rows, some of them to the same element."""
    random = np.random.default_rng(n)
    label = random.integers(0, max(n, 1), ROWS).astype(np.int32)
    if far:
        label = (3 - np.arange(ROWS) // 2 * 2) * n + np.arange(ROWS) // 4
        first = np.arange(ROWS) * n
        label = np.clip(label, -first, ROWS * n - 1 - first).astype(np.int32)
    x, w = random.uniform(-2, 2, max(ROWS * n, 1)).astype(element), random.uniform(1, 2, 4).astype(element)
    return [np.zeros(ROWS, element), x, label, w, ROWS, n]
