"""Kernels whose adjoints are sums that many threads have a part in, on data where the order of a sum shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import kernelgrad as kg

Arguments = Callable[[np.random.Generator, int], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """`args`: from random numbers and the number of elements. `logs`: where its updates go, beside plain ones."""

    source: str
    listed: str
    args: Arguments
    block: Any = 64
    logs: tuple[str, ...] = ("f32",)
    per_block: int = 0  # elements; as many as threads

    def compiled(self) -> Any:
        return _module(self.source)["k"]

    def grid(self, n: int) -> int:
        return -(-n // (self.per_block or int(np.prod(self.block))))

    def gradient(self, **options: Any) -> Any:
        return kg.gradient(self.compiled(), self.listed, **options)

    def arguments(self, n: int) -> tuple[Any, ...]:
        return self.args(np.random.default_rng(5), n)

    def adjoints(self, args: tuple[Any, ...]) -> list[Any]:
        """The first listed is the output, whose adjoint is random."""
        names = [p.name for p in self.compiled().function.params]
        random = np.random.default_rng(6)
        given = []
        for name in (part.strip() for part in self.listed.split(",")):
            value = args[names.index(name)] if name in names and names.index(name) < len(args) else np.zeros(8, "f4")
            given.append(np.zeros_like(np.atleast_1d(value)))
        given[0][...] = random.standard_normal(given[0].shape) * 10.0 ** random.integers(-3, 4, given[0].shape)
        return given


@cache
def _module(source: str) -> kg.Module:
    return kg.compile(source, name="deterministic.cu")


def numbers(random: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Of very different sizes: how they are added up decides about the last digits."""
    return (random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape)).astype(np.float32)


def indices(random: np.random.Generator, n: int, below: int) -> np.ndarray[Any, Any]:
    return random.integers(0, below, n).astype(np.int32)


_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_TAPS = np.dtype([("left", "f4"), ("right", "f4"), ("count", "i4")])
_HEAD = "const float *x, const int *at, int n"

CASES = {
    "number": Case(
        f"__global__ void k(float *y, const float *x, float a, int n) {{ {_I} if (i < n) y[i] = a * x[i]; }}",
        "y, x, a",
        lambda r, n: (numbers(r, n), numbers(r, n), np.float32(1.5), n),
        logs=(),
    ),
    "struct_by_value": Case(
        f"""struct Taps {{ float left, right; int count; }};
        __global__ void k(float *y, const float *x, Taps taps, int n) {{
            {_I} if (i < n) y[i] = taps.left * x[i] + sinf(taps.right) * x[(i + taps.count) % n];
        }}""",
        "y, x, taps",
        lambda r, n: (numbers(r, n), numbers(r, n), np.array((0.5, 0.25, 3), _TAPS)[()], n),
    ),
    "gather": Case(
        f"__global__ void k(float *y, {_HEAD}) {{ {_I} if (i < n) y[i] = x[at[i]] * x[at[n - 1 - i]]; }}",
        "y, x",
        lambda r, n: (numbers(r, n), numbers(r, n), indices(r, n, 37), n),
    ),
    "stencil": Case(
        f"""__global__ void k(float *y, const float *x, const float *w, int n) {{
            {_I} if (i == 0 || i >= n - 1) return;
            y[i] = w[0] * x[i - 1] + w[1] * x[i] + w[2] * x[i + 1];
        }}""",
        "y, x, w",
        lambda r, n: (numbers(r, n), numbers(r, n), numbers(r, 3), n),
    ),
    "histogram": Case(
        f"""__global__ void k(float *y, const float *x, const float *w, const int *bin, int n) {{
            {_I} if (i < n) atomicAdd(&y[bin[i]], x[i] * w[bin[i]]);
        }}""",
        "y, x, w",
        lambda r, n: (numbers(r, 19), numbers(r, n), numbers(r, 19), indices(r, n, 19), n),
    ),
    "tree_reduction": Case(
        f"""__global__ void k(float *y, {_HEAD}) {{
            __shared__ float s[64];
            {_I} int t = threadIdx.x;
            s[t] = i < n ? x[at[i]] * x[at[i]] : 0.0f;
            __syncthreads();
            for (int d = blockDim.x / 2; d > 0; d /= 2) {{ if (t < d) s[t] += s[t + d]; __syncthreads(); }}
            if (t == 0) y[blockIdx.x] = s[0];
        }}""",
        "y, x",
        lambda r, n: (numbers(r, n), numbers(r, n), indices(r, n, 37), n),
    ),
    "tiled_product": Case(
        """__global__ void k(float *c, const float *a, const float *b, int n) {
            __shared__ float left[8][8], right[8][8];
            int x = threadIdx.x, y = threadIdx.y, row = blockIdx.x * 8 + y;
            float sum = 0.0f;
            for (int tile = 0; tile < 2; ++tile) {
                left[y][x] = a[row * 16 + tile * 8 + x];
                right[y][x] = b[(tile * 8 + y) * 8 + x];
                __syncthreads();
                for (int k = 0; k < 8; ++k) sum += left[y][k] * right[k][x];
                __syncthreads();
            }
            c[row * 8 + x] = sum;
        }""",
        "c, a, b",
        lambda r, n: (numbers(r, n + 7, 8), numbers(r, n + 7, 16), numbers(r, 16, 8), n),
        block=(8, 8),
        logs=("f32", "left_f32", "right_f32"),
        per_block=8,
    ),
    "loop_of_runtime_length": Case(
        f"""__global__ void k(float *y, const float *x, const float *table, int n, int m) {{
            {_I} if (i >= n) return;
            float sum = 0.0f;
            for (int j = 0; j < m; ++j) sum += table[j] * sinf(x[i] * table[(i + j) % m]);
            y[i] = sum;
        }}""",
        "y, x, table",
        lambda r, n: (numbers(r, n), numbers(r, n), numbers(r, 11), n, 11),
    ),
    "rows_of_a_sparse_matrix": Case(
        f"""__global__ void k(float *y, const float *x, const float *v, const int *row, const int *col, int n) {{
            {_I} if (i >= n) return;
            float sum = 0.0f;
            for (int j = row[i]; j < row[i + 1]; ++j) sum += v[j] * x[col[j]];
            y[i] = sum * sum;
        }}""",
        "y, x, v",
        lambda r, n: _sparse(r, n),
    ),
    "while_a_value_is_large": Case(
        f"""__global__ void k(float *y, {_HEAD}) {{
            {_I} if (i >= n) return;
            float v = 1.0f;
            int steps = 0;
            while (v < 50.0f && steps < 20) {{ v *= 1.0f + fabsf(x[(at[i] + steps) % 37]); ++steps; }}
            y[i] = v;
        }}""",
        "y, x",
        lambda r, n: (numbers(r, n), numbers(r, n), indices(r, n, 37), n),
    ),
    "vectors": Case(
        f"""__global__ void k(float *y, const float4 *x, const int *at, int n) {{
            {_I} if (i >= n) return;
            float4 v = x[at[i]];
            y[i] = v.x * v.y + v.z * v.w;
        }}""",
        "y, x",
        lambda r, n: (numbers(r, n), numbers(r, 37, 4), indices(r, n, 37), n),
    ),
    "pointers_in_a_struct": Case(
        f"""struct Pair {{ const float *a; const float *b; }};
        __global__ void k(float *y, const float *x, const float *w, const int *at, int n) {{
            {_I} Pair p; p.a = x; p.b = w;
            if (i < n) y[i] = p.a[at[i]] * p.b[at[i]];
        }}""",
        "y, x, w",
        lambda r, n: (numbers(r, n), numbers(r, 37), numbers(r, 37), indices(r, n, 37), n),
    ),
    "module_variable": Case(
        f"""__constant__ float W[8];
        __global__ void k(float *y, const float *x, int n) {{ {_I} if (i < n) y[i] = (W[i % 8] + 1.0f) * x[i]; }}""",
        "y, x, W",
        lambda r, n: (numbers(r, n), numbers(r, n), n),
    ),
    "cells_chosen_by_data": Case(
        f"""__global__ void k(float *y, {_HEAD}) {{
            __shared__ float s[64];
            {_I} if (i >= n) return;
            s[threadIdx.x] = x[i];
            __syncthreads();
            float v = s[at[i]];
            __syncthreads();
            s[threadIdx.x] = v * v;
            __syncthreads();
            y[i] = s[at[n - 1 - i]] * v;
        }}""",
        "y, x",
        lambda r, n: (numbers(r, n), numbers(r, n), indices(r, n, 16), n),
        logs=("s_f32",),
    ),
    "return_after_a_barrier": Case(
        f"""__global__ void k(float *y, {_HEAD}) {{
            __shared__ float s[64];
            {_I} s[threadIdx.x] = i < n ? x[i] : 0.0f;
            __syncthreads();
            if (i >= n - 5) return;
            y[i] = s[at[i]] * s[at[i + 1]];
        }}""",
        "y, x",
        lambda r, n: (numbers(r, n), numbers(r, n), indices(r, n, 16), n),
        logs=("s_f32",),
    ),
    "doubles_beside_floats": Case(
        f"""__global__ void k(float *y, const float *x, const double *w, const int *at, int n) {{
            {_I} if (i < n) y[i] = x[at[i]] * (float)w[at[i] / 2];
        }}""",
        "y, x, w",
        lambda r, n: (numbers(r, n), numbers(r, 37), numbers(r, 37).astype("f8"), indices(r, n, 37), n),
        logs=("f32", "f64"),
    ),
}


def _sparse(random: np.random.Generator, n: int) -> tuple[Any, ...]:
    starts = np.concatenate([[0], np.cumsum(random.integers(0, 9, n))]).astype(np.int32)
    entries = int(starts[-1])
    return numbers(random, n), numbers(random, 37), numbers(random, entries), starts, indices(random, entries, 37), n
