"""Kernels whose loops have independent turns, and neighbours whose do not: two blocks of 16 threads."""

from __future__ import annotations

from typing import Any

import kernelgrad as kg

I = "int i = blockIdx.x * blockDim.x + threadIdx.x"  # noqa: E741
F = "sin(x[i]) * x[i] * w[i]"

# The body of `k(T *y, const T *x, const T *w, int n, int m)`: two blocks of 16 threads.
SPREAD = {
    "grid strides": f"for ({I}; i < n; i += blockDim.x * gridDim.x) y[i] = {F};",
    "while": f"size_t i = blockIdx.x * blockDim.x + threadIdx.x; while (i < n) {{ y[i] = {F}; i += 32; }}",
    "unsigned": f"for (unsigned i = blockIdx.x * 16 + threadIdx.x; i < n; i += gridDim.x * 16) y[i] = {F};",
    "up to and with": f"for ({I}; i <= n - 1; i += blockDim.x * gridDim.x) y[i] = {F};",
    "behind a guard": f"if (m > 1) for ({I}; i < n; i += blockDim.x * gridDim.x) y[i] = {F};",
    "a guard inside": f"for ({I}; i < n; i += blockDim.x * gridDim.x) if (i < n - 5) y[i] = {F};",
    "several a thread": "int first = blockIdx.x * blockDim.x * 8 + threadIdx.x; for (int k = 0; k < 8; ++k) {"
    f" int i = first + k * blockDim.x; if (i < n) y[i] = {F}; }}",
    "a loop in registers": f"for ({I}; i < n; i += blockDim.x * gridDim.x) {{ T p = 0;"
    " for (int k = 0; k < 5; ++k) p = p * x[i] + w[i]; y[i] = p; }",
}
STAYING = {
    "what many add to": f"for ({I}; i < n; i += blockDim.x * gridDim.x) y[i] = x[i % 7] * w[i];",
    "what is carried": f"T s = 0; for ({I}; i < n; i += blockDim.x * gridDim.x) {{ s += x[i]; y[i] = s * w[i]; }}",
    "what the last turn left": f"for ({I}; i < n - 32; i += 32) {{ y[i + 32] = y[i] * x[i]; }}",
    "one element of all turns": f"for ({I}; i < n; i += blockDim.x * gridDim.x) y[threadIdx.x] = {F};",
    "threads in rows": f"for (int i = blockIdx.x * 64 + threadIdx.x * 4, k = 0; k < 4; ++k, ++i) y[i] = {F};",
}
SIZES = (128, 125, 97, 61, 33, 32, 30, 3, 1, 0)


def compiled(body: str, element: str) -> Any:
    return kg.compile(
        f"typedef {element} T; __global__ void k(T *y, const T *x, const T *w, int n, int m) {{ {body} }}"
    )["k"]
