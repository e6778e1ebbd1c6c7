"""Kernels whose threads all read a small input `w` of six numbers, within a larger array: weights, a bias, a table. For
blocks and grids of any shape; `T` is the type of numbers, `S` that of `w`."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgrad as kg

Launch = tuple[Any, Any]
HEAD = "__global__ void k(T *y, const T *x, const S *w, int n, int c)"
INDEX = """int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int threads = blockDim.x * blockDim.y * blockDim.z;
    int i = (blockIdx.y * gridDim.x + blockIdx.x) * threads + t, all = gridDim.x * gridDim.y * threads;"""
BODIES = {
    "columns": "for (; i < n; i += all) y[i] = x[i] * sin(x[i] + w[i % c]);",
    "lookup": "if (i < n) { int k = (int)(x[i] * (c - 1)); y[i] = w[k] * w[k + 1] * x[i]; }",
    "return": "if (i >= n) return; if (x[i] < T(0.5)) { y[i] = 0; return; } y[i] = x[i] * w[(7 * i) % c];",
    "weights": "if (i >= n) return; T s = 0; for (int k = 0; k < c; ++k) s += w[k] * x[i] * T(k); y[i] = s * s;",
    "shuffles": "T v = i < n ? x[i] * w[i % c] : T(0); v += __shfl_xor_sync(__activemask(), v, 0);"
    " if (i < n) y[i] = v * v;",
    # Threads that return before others meet, the first ones among them: what they do at the end must wait for those.
    "early": "__shared__ T s[1024]; if ((t < 3 && threads > 3) || i >= n) return; s[t] = x[i] * w[i % c];"
    " __syncthreads(); y[i] = s[t] * s[t];",
    "early talk": "if (i >= n || t % 64 < 3) return; T v = x[i] * w[i % c];"
    " v += T(0.5) * __shfl_sync(0xffffffff, v, t % 32); y[i] = v * v;",
    "again": "if (i < n) { y[i] = x[i] * w[i % c]; y[i] = y[i] * y[i]; }",
    "walk": "if (i >= n) return; const S *p = w; T s = 0; while (p != w + c) { s += x[i] * *p; ++p; } y[i] = sin(s);",
    "branches": "if (i >= n) return; if (i % 3 == 0) y[i] = w[0] * x[i]; else if (i % 3 == 1) y[i] = w[c] * w[c];"
    " else { T s = 0; for (int k = i % c; k < c; ++k) s += w[k] * w[k]; y[i] = s; }",
    "one": "for (; i < n; i += all) y[i] = sin(x[i] * w[3]);",
    "tile": "__shared__ T s[1024]; s[t] = i < n ? x[i] * w[i % c] : T(0); __syncthreads();"
    " if (i >= n) return; y[i] = s[t] * s[t / 2];",
    "dynamic": "extern __shared__ T s[]; s[t] = i < n ? x[i] * w[i % c] : T(0); __syncthreads();"
    " if (i < n) y[i] = s[t] * s[t / 2];",
    "anywhere": "if (i < n) y[i] = x[i] * w[(int)(x[i] * 9) - 2];",
    "rows": "if (i < n) { T s = 0, v = x[i]; for (int j = 0; j < 2; ++j) { T f = sin(v * T(j + 1)); ROW } y[i] = s; }",
    # Of one remainder, unrolled, one copy is a constant and the other a column.
    "unrolled": "for (; i < n; i += all) { T v = x[i]; for (int k = 0; k < 2; ++k) v = sin(v * w[(i * k) % 4]);"
    " y[i] = v; }",
    "perhaps": "const T *p = nullptr; if (i < n && x[i] > T(0.5)) p = w + 1;"
    " if (i < n) y[i] = p ? x[i] * p[i % c] : x[i];",
    # Beside the six: w is in the middle of more.
    "outside": "if (i < n) y[i] = x[i] * w[i % 10 - 2] * w[(int)(x[i] * 8) - 1];",
    "walk outside": "if (i >= n) return; T v = 0; for (const S *p = w - 3; p < w + 9; p += 1 + i % 2) v += *p * x[i];"
    " y[i] = sin(v);",
}
# Of 1, 33, 96, 1024 threads; with one row and several, a plane and a room; too large and too small for what there is.
LAUNCHES: list[Launch] = [
    (40, 1),
    (9, 33),
    (7, 96),
    (2, 1024),
    (11, (8, 4)),
    ((5, 3), (8, 2, 2)),
    (50, 64),
    (1, 128),
]
BEFORE, CELLS, BEHIND = 3, 6, 5


BODIES["rows"] = BODIES["rows"].replace("ROW", " ".join(f"s += f * w[j * 3 + {k}] * v;" for k in range(8)))


def source(name: str, real: str = "double", small: str | None = None) -> str:
    text = (
        f"{HEAD} {{ {INDEX} {BODIES[name]} }}".replace("w[", "(T)w[")
        if small
        else f"{HEAD} {{ {INDEX} {BODIES[name]} }}"
    )
    for letter, type in (("T", real), ("S", small or real)):
        text = (
            text.replace(f"{letter} ", f"{type} ").replace(f"{letter}(", f"{type}(").replace(f"({letter})", f"({type})")
        )
    return text


def threads_of(launch: Launch) -> int:
    return int(np.prod(launch[0]) * np.prod(launch[1]))


def elements(name: str, launch: Launch) -> int:
    """More than threads where they go in strides; else a few less."""
    threads = threads_of(launch)
    return 3 * threads + 5 if name in ("columns", "one", "unrolled") else max(1, threads - 3)


def arguments(n: int, real: Any, c: int = 5) -> list[Any]:
    """With the adjoints: what the kernel takes, and what is added to. The small ones as views of more."""
    random = np.random.default_rng(1)
    x, y = random.random(max(n, 1)).astype(real), np.zeros(max(n, 1), real)
    w = random.random(BEFORE + CELLS + BEHIND).astype(real)
    seed, d_x = random.standard_normal(x.size).astype(real), np.ones(x.size, real)
    return [y, x, w, n, c, seed, d_x, np.ones(w.size, real)]


def viewed(given: list[Any]) -> list[Any]:
    """As they are passed."""
    return [a[BEFORE : BEFORE + CELLS] if k in (2, 7) else a for k, a in enumerate(given)]


def configuration(name: str, launch: Launch, size: int) -> tuple[Any, ...]:
    return (*launch, int(np.prod(launch[1])) * size) if name == "dynamic" else launch


def run(
    name: str, launch: Launch, n: int, real: Any, xp: Any = np, c: int = 5, view: bool = True, **options: Any
) -> tuple[Any, Any, Any]:
    """The adjoints of x and of all that w is within, and the gradient. `view`: w is passed as a part of more."""
    spelled = {np.float32: "float", np.float64: "double"}[real]
    gradient: Any = kg.gradient(kg.compile(source(name, spelled))["k"], "y, x, w", **options)
    given = [xp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments(n, real, c)]
    gradient[configuration(name, launch, np.dtype(real).itemsize)](*(viewed(given) if view else given))
    return given[6], given[7], gradient


def chosen(gradient: Any) -> set[str]:
    """The inputs of whose adjoints blocks have cells."""
    return {own.name for _, facts in gradient.forms.made for own in facts.cells}
