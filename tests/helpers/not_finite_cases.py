"""Kernels in whose derivatives a number that is not finite arises, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg

N = 6
AT = 4  # the element at which it happens


@dataclass(frozen=True)
class Case:
    """`body`: x[AT] is 0, all others 1 to N; the line that is to be named ends with `// here`, unless there is none to
    name. `told`: what the message has besides."""

    body: str
    told: tuple[str, ...] = ()
    by_tangent: bool = True


_LOOP = "in the loop with"
CASES = {
    "root": Case("y[i] = sqrtf(x[i]); // here", ("'sqrt'", "thread (4, 0, 0) of block (0, 0, 0)")),
    "quotient": Case("float q = x[i] * x[i];\n y[i] = a[i] / q; // here\n", ("'/'", "thread (4, 0, 0)"), False),
    "helper": Case("y[i] = f(x[i]) * 2;", ("'log'",)),
    "for": Case(
        "float s = 0; for (int k = 0; k < 3; k++) {\n s += k == 1 ? sqrtf(x[i]) : x[i]; // here\n } y[i] = s;",
        (f"{_LOOP} k = 1 of line",),
    ),
    "two loops": Case(
        "float s = 0; for (int k = 0; k < 2; k++) for (int j = 3; j >= 0; j--)\n"
        " if (k == 1 && j == 2) s += cbrtf(x[i]); // here\n y[i] = s;",
        ("k = 1 of line",),
    ),
    "unrolled": Case(
        "float v[4]; for (int k = 0; k < 2; k++) for (int j = 0; j < 2; j++)\n"
        " v[2 * k + j] = k && !j ? sqrtf(x[i]) : x[i]; // here\n y[i] = v[0] * v[1] + v[2] * a[i] + v[3];",
        ("k = 1 of line", "j = 0 of line"),
    ),
    "unrolled while": Case(
        "float v[3]; int k = 0; while (k < 3) {\n v[k] = k == 2 ? sqrtf(x[i]) : x[i]; // here\n k++; }\n"
        " y[i] = v[0] * v[1] + v[2];",
        (f"{_LOOP} k = 2 of line",),
    ),
    "while": Case(
        "float v = x[i] + 3; int c = 0; while (v > 2.5f) {\n"
        " v = v - 1 - 0.01f * sqrtf(x[i] + c * x[i]); // here\n c++; } y[i] = v * x[i] + v;",
        (),
    ),
    "shared": Case(
        "__shared__ float t[8]; t[i] = rsqrtf(x[i]); // here\n __syncthreads(); y[i] = t[n - 1 - i] * a[i];",
        ("'rsqrt'", "thread (4, 0, 0)"),
    ),
    "warp": Case("float v = logf(x[i]); // here\n v = __shfl_xor_sync(0x3f, v, 1); y[i] = v * a[i];", ("thread (4,",)),
    "struct": Case("V v = {x[i], a[i]}; v.u = sqrtf(v.u); // here\n y[i] = v.u * v.w;"),
    "array": Case("float v[2]; v[0] = sqrtf(x[i]); // here\n v[1] = a[i]; y[i] = v[n % 2] + v[(n + 1) % 2];"),
    "atomic": Case("atomicAdd(&y[0], powf(x[i], 0.5f)); // here", ("'pow'",)),
    "overflow": Case("float b = 1e30f * (i == 4);\n y[i] = x[i] * b * b; // here\n", ("'*'", "inf"), by_tangent=False),
    "sum": Case("float b = 3e38f * (i == 4), v = x[i] * 1.0f; y[i] = v * b\n + v * b; // here", (), by_tangent=False),
    "branch": Case("if (a[i] > 0) y[i] = sqrtf(x[i]); // here\n else y[i] = 0;", ("'sqrt'",)),
    "custom": Case("y[i] = mine(x[i]); // here"),
    "double": Case("double v = x[i]; y[i] = pow(v, 1.0 / 3); // here", ("'pow'",)),
}
_HEAD = (
    "struct V { float u, w; };\n__device__ float f(float v) {\n return logf(v); // helper\n }\n"
    "__device__ float mine(float v) { return v; }\nnamespace kernelgrad { namespace custom_derivatives {\n"
    "__device__ void mine_pullback(float v, float d, float *d_v) { *d_v += d / v; // pullback\n }\n} }\n"
    "__global__ void k(float *y, const float *x, const float *a, int n) {\n int i = threadIdx.x;\n"
)
_MARKS = {"helper": "// helper", "custom": "// pullback", "sum": ""}


def text(name: str) -> str:
    return f"{_HEAD} {CASES[name].body}\n}}\n"


def line(name: str) -> int | None:
    """That is to be named."""
    mark = _MARKS.get(name, "// here")
    return next(k for k, part in enumerate(text(name).splitlines(), 1) if mark in part) if mark else None


def compiled(name: str) -> Any:
    return kg.compile(text(name), name=f"{name}.cu")["k"]


def arguments(good: bool) -> tuple[Any, ...]:
    """`good`: such that there is nothing to find."""
    x = np.arange(1, N + 1, dtype=np.float32)
    x[AT] = x[AT] if good else 0
    return np.zeros(N, np.float32), x, np.full(N, 0.5, np.float32), N
