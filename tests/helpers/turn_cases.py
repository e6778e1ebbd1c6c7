"""Kernels whose threads take turns in adding to the adjoints of shared cells, and neighbours that do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

START = "__shared__ T s[200]; int t = threadIdx.x, i = blockIdx.x * 64 + t; "
FILL = "s[t + 2] = x[i]; if (t < 4) s[t < 2 ? t : t + 64] = 0; __syncthreads(); "
# The body of `k(T *y, const T *x, int n)`: blocks of 64 threads.
TURNS = {
    "neighbours": FILL + "y[i] = s[t] * s[t + 1] + s[t + 3];",
    "under a guard": FILL + "if (i < n) y[i] = s[t] + 2 * s[t + 4];",
    "on either side": FILL + "y[i] = t % 2 ? s[t] * s[t + 1] : s[t] + s[t + 3];",
    "downwards": FILL + "y[i] = s[67 - t] + s[64 - t] * s[67 - t];",
    "in a loop": ("s[t] = s[t + 64] = 0; s[t] = x[i]; __syncthreads(); T a = 0; for (int j = 0; j < n % 9; ++j) {"
    " a += s[t + j] * s[t + 2 * j]; __syncthreads(); s[t] += 1; __syncthreads(); } y[i] = a;"),
    "a scan": ("int in = 0; s[t] = x[i]; __syncthreads(); for (int d = 1; d < 64; d *= 2) {"
    " s[(1 - in) * 64 + t] = t >= d ? s[in * 64 + t] + s[in * 64 + t - d] : s[in * 64 + t]; in = 1 - in;"
    " __syncthreads(); } y[i] = s[in * 64 + t];"),
}  # fmt: skip
NOT_IN_TURNS = {
    "two threads a cell": FILL + "y[i] = s[t / 2] * s[t / 2 + 1];",
    "all threads one cell, and others": FILL + "y[i] = s[t] * s[3] + s[t + 1];",
    "an index from memory": FILL + "y[i] = s[(int)(x[i] * x[i] * 8)] + s[t];",
    "in a loop without barriers": FILL + "T a = 0; for (int j = 0; j < n % 5; ++j) a += s[t + j] * a + s[t]; y[i] = a;",
    "an index that comes round": FILL + "unsigned q = (t * 65536u + n / 1000) * 65536u; y[i] = s[q] * s[t + 1];",
    "a long one": FILL + "size_t q = t * 4294967296ull + n / 1000; y[i] = s[q * 4294967296ull] * s[t + 1];",
}


def gradient_of(body: str) -> Any:
    text = f"typedef double T; __global__ void k(T *y, const T *x, int n) {{ {START} {body} }}"
    return kg.gradient(kg.compile(text)["k"], "y, x", primal=False)


def arrays(n: int) -> list[Any]:
    random = np.random.default_rng(n)
    return [np.zeros(192), random.uniform(-1, 1, 192), n, random.uniform(-1, 1, 192), random.uniform(-1, 1, 192)]
