"""Loops of which it is known how often they run at most, and neighbours that must be counted."""

from __future__ import annotations

from typing import Any

import kernelgrad as kg

GRID, BLOCK = 3, 32
STEP = "v = sin(v * x[i % 7]) + 1; ++c;"
START = "int i = blockIdx.x * blockDim.x + threadIdx.x, c = 0; T v = 1;"
# What does not carry a sum of its number, or ends for other reasons, and how often each thread goes round in a loop.
SIMILAR = {
    "grid strides": "for (; i < n; i += gridDim.x * blockDim.x) { STEP }",
    "up to and with": "for (; i <= n - 2; i += gridDim.x * blockDim.x) { STEP }",
    "unsigned": "for (unsigned k = blockIdx.x; k < n; k += gridDim.x) { STEP }",
    "counted threads": "for (int k = threadIdx.x + 5; k < n; k += 32) { STEP }",
    "from the start on": "for (int k = i; k < n; ++k) { STEP }",
    "in a loop": "for (int k = threadIdx.x; k < n; k += 32) for (int j = 0; j < 3; ++j) { STEP }",
    "a while loop": "int k = i / 2; while (k < n) { STEP k += 7; }",
}
BOUNDED = {
    "it breaks": "for (int k = 0; k < n; ++k) { STEP if (v > 1.9) break; }",
    "and": "for (int k = 0; k < n && v < 1.95; ++k) { STEP }",
    "and, the other way": "int k = 0; while (v < 1.95 && k < n) { STEP k += 3; }",
    "at once": "int k = 3; do { STEP ++k; } while (k < n && v < 1.9);",
    "up to the thread": "for (int k = 0; k <= i; ++k) { STEP }",
    "between threads": "for (int k = threadIdx.x; k < blockIdx.x * 32 + 9; k += 2) { STEP }",
    "the lesser": "for (int k = 0; k < min(n, i); ++k) { STEP }",
    "known at the end": "for (int k = 0; v < 1.99; ++k) { STEP if (k + 2 > n) break; }",
}
COUNTED = {
    "by a value": "while (v < 1.97 && c < 1000) { STEP if (v < x[1]) c += c; }",
    "by memory": "for (int k = 0; k < x[0] * 5; ++k) { STEP }",
    "by halves": "for (int k = n * 40 + i; k > 0; k /= 2) { STEP }",
    "down": "for (int k = i; k > 0; --k) { STEP }",
}


def compiled(body: str) -> Any:
    text = f"typedef double T; __global__ void k(T *y, int *count, const T *x, int n) {{ {START} {body} END }}"
    return kg.compile(
        text.replace("STEP", STEP).replace("END", "i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = v; count[i] = c;")
    )["k"]
