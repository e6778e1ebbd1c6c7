"""Kernels whose reverses add to several adjoints at the same places, each with the groups that lie side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import kernelgrad as kg

NAMES = "abcde"
SIZE = 41


class Case(NamedTuple):
    """`body`: of `k(T *y, const T *a, ..., const T *e, const int *list, int n)`, for thread i < n."""

    body: str
    groups: tuple[str, ...]
    lengths: tuple[int, ...] = (SIZE,) * 5


AT = "int j = list[i];"
CASES = {
    "two": Case(f"{AT} y[i] = a[j] * b[j];", ("ab",)),
    "three": Case(f"{AT} y[i] = a[j] * b[j] + c[j] * c[j] * a[j];", ("abc",)),
    "four": Case(f"{AT} y[i] = a[j] * b[j] * c[j] * d[j];", ("abcd",)),
    "five": Case(f"{AT} y[i] = a[j] * b[j] * c[j] * d[j] * e[j];", ("abcd",)),
    "loop": Case(
        "T s = 0; for (int k = 0; k < 5; ++k) { int j = list[(i + 7 * k) % n], m = i % 41;"
        " T u = a[j] - a[m], v = b[j] - b[m]; s += u * v * v; } y[i] = s;",
        ("ab",),
    ),
    "guard in a loop": Case(
        "T s = 0; for (int k = 0; k < 5; ++k) { int j = list[(i + k) % n]; T r = a[j] * b[j] + c[j];"
        " if (r > 0.1) s += r * r; } y[i] = s;",
        ("abc",),
    ),
    "two kinds": Case(f"{AT} int m = list[n - 1 - i]; y[i] = a[j] * b[j] + c[m] * d[m] * a[j];", ("cd", "ab")),
    "ends": Case(f"{AT} int m = list[n - 1 - i]; y[i] = (a[j] - a[m]) * (b[j] - b[m]);", ("ab",)),
    "neighbours": Case(f"{AT} j = min(j, {SIZE - 2}); y[i] = a[j] * b[j + 1] + a[j + 1] * b[j];", ("ab",)),
    "one is longer": Case(f"{AT} y[i] = a[j] * b[j] + b[j + 4];", ("ab",), (SIZE, SIZE + 4, SIZE, SIZE, SIZE)),
    "overlapping": Case(f"{AT} int m = list[n - 1 - i]; y[i] = a[j] * b[j] + b[m] * c[m] * b[m];", ("bc",)),
    "long indices": Case("long long j = list[i]; y[i] = a[j] * b[j];", ("ab",)),
    "unsigned": Case("unsigned j = list[i]; y[i] = a[j] * b[j];", ("ab",)),
}
APART = {
    "one array": Case(f"{AT} y[i] = a[j] * a[j];", ()),
    "other places": Case(f"{AT} y[i] = a[j] * b[(j + 1) % {SIZE}];", ()),
    "own elements": Case("y[i] = a[i] * b[i] * c[i];", (), (300,) * 5),
    "branches": Case(f"{AT} if (i % 2) y[i] = a[j] * a[j]; else y[i] = b[j] * b[j];", ()),
}


def compiled(case: Case, element: str = "float") -> Any:
    inputs = ", ".join(f"const T *{name}" for name in NAMES)
    head = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    text = f"__global__ void k(T *y, {inputs}, const int *list, int n) {{ {head} {case.body} }}"
    return kg.compile(f"typedef {element} T; {text}")["k"]


def numbers(case: Case, n: int, dtype: Any = np.float32) -> tuple[Any, ...]:
    """The arguments, and adjoints that are not zero."""
    rng = np.random.default_rng(n)
    inputs = [rng.uniform(0.2, 1.2, size).astype(dtype) for size in case.lengths]
    adjoints = [rng.uniform(-1, 1, size).astype(dtype) for size in (n, *case.lengths)]
    listed = rng.integers(0, SIZE, n).astype(np.int32)
    return np.zeros(n, dtype), *inputs, listed, n, *adjoints
