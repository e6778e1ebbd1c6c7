"""Loops that add to more elements, which all threads share, than strips have registers for."""

from __future__ import annotations

from typing import Any

from derived import kernel_of

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
# With `y`, `x`, `w` of 128 numbers and `n` of 64 ints between 3 and 20: how many packs there are of eight, two and one.
MANY = {
    "six": ((0, 1, 0), "int r = 9 * k % 60; s += w[r] * w[r + 1] * w[r + 2] * x[r] * x[r + 5] * x[r + 9] * i;"),
    "five": ((0, 0, 1), "s += w[k] * w[k + 60] * x[k] * x[k + 33] * x[k + 55] * i;"),
    "seven": (
        (1, 0, 0),
        "int r = 3 * k; s += (w[r] * i + w[r + 1]) * (x[r] - i) * w[r + 2];"
        " s += sin(x[r + 1] * i) * (x[r + 2] + w[r + 3]);",
    ),
    "thirteen, some in branches": (
        (1, 0, 1),
        "int r = 2 * k; s += x[r] * i; if ((i + k) % 3) { s += w[r] * x[r + 1] * w[r + 1]; s += i * sin(x[r + 3]); }"
        " else s -= w[r + 4] * x[r + 5]; s += w[r + 6] * w[r + 7] * (x[r + 8] + x[r + 9] * i) * w[r + 9] * w[r + 8];",
    ),
    "others beside": (
        (0, 1, 0),
        "int r = 2 * k; s += w[r] * w[r + 1] * w[r + 2] * x[r] * x[r + 5] * x[r + 9] * x[i + n[i]] * w[n[k] + i];",
    ),
}


def many(name: str, element: str = "double", loop: str = "for (int k = 0; k < 10 + n[0]; ++k)") -> Any:
    params = f"{element} *y, const {element} *x, const {element} *w, const int *n"
    return kernel_of(
        f"__global__ void k({params}) {{ {HEAD} {element} s = 0; {loop} {{ {MANY[name][1]} }} y[i] = s; }}"
    )
