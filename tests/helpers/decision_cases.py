"""Kernels whose decisions lie on rounding boundaries: x * a is a whole number k if the product is rounded, and a little
more or less if it is fused with what follows. `PLAIN` computes its decisions, `RECORD` also tells them, and `REPLAY` is
told: its gradient is what the other two must give, whoever computes a decision again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg

N, STEPS, BLOCK = 96, 6, 32
GRID = N // BLOCK
TABLE = 1024
STEPS_OF = {"float": "0.01f", "double": "0.01"}

_HEADER = """
#if defined(REPLAY)
#define PICK(slot, expression) (at[slot])
#elif defined(RECORD)
#define PICK(slot, expression) (at[slot] = (int)(expression))
#else
#define PICK(slot, expression) ((int)(expression))
#endif
#ifdef RECORD
#define TELL(slot, value) at[slot] = value
#else
#define TELL(slot, value)
#endif
struct Line { T slope, offset; };
__device__ T line(Line l, T x) { return x * l.slope - l.offset; }
__global__ void k(T *y, T *x, T *w, const T *whole, int *at, T a, T b, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
"""

# x: N * STEPS nodes; whole: x * a, as whole numbers; w: a table; at: N * STEPS decisions. In most, the forward sweep
# needs the product for something else too and the reverse does not: a compiler fuses it there alone.
BODIES = {
    "lookup": """if (i >= n) return;
        T s = x[i] * a, p = s - b;
        int c = PICK(i, floor(p));
        T f = p - c;
        y[i] = w[c] * (1 - f) + w[c + 1] * f * f + s;""",
    "lookup by a helper": """Line l; l.slope = a; l.offset = b;
        if (i < n) { int c = PICK(i, line(l, x[i])); y[i] = w[c] * x[i] * line(l, x[i]) + l.slope * x[i]; }""",
    "lookups in a loop": """if (i >= n) return;
        T sum = 1;
        for (int k = 0; k < m; k++) {
            T s = x[i * m + k] * a, p = s - b;
            int c = PICK(i * m + k, floor(p));
            T f = p - c;
            sum += sum * (w[c] * (1 - f) + w[c + 1] * f) + w[c] + s;
        }
        y[i] = sum;""",
    "branch": """if (i < n) {
            T s = x[i] * a;
            if (PICK(i, s - whole[i] > 0)) y[i] = w[i] * w[i] * x[i] + s;
            else y[i] = 3 * w[i] + s;
        }""",
    "ternaries in a loop": """if (i >= n) return;
        T v = x[i];
        for (int k = 0; k < m; k++) {
            T u = v * w[k] + 2, s = a * x[i * m + k];
            v = (PICK(i * m + k, whole[i * m + k] - s < 0) ? u * v : u + w[k] * 3 * v) + s;
        }
        y[i] = v;""",
    "while": """if (i >= n) return;
        int c = 0;
        T p = w[0], q = 0;
#ifdef REPLAY
        while (c < at[i]) {
#else
        while ((T)c * 0.1f * a - whole[i] < b) {
#endif
            T s = (T)c * 0.1f * a;
            p = p * w[c + 1] * 0.75f + x[i];
            q += s;
            c++;
        }
        TELL(i, c);
        y[i] = p + q;""",
    "march": """if (i >= n) return;
        T p = x[i] * a - b, sum = 0;
        for (int k = 0; k < m; k++) {
            int c = PICK(i * m + k, p);
            T s = x[i * m + k] * a;
            sum = sum * w[c] + w[c + 1] + s;
            p = p * 0.5f + s - (int)(p * 0.5f);
            if (p > 500) p = 1;
        }
        y[i] = sum;""",
    "argmax": """if (i >= n) return;
        T best = -1e30f, sum = 0;
        int c = 0;
        for (int k = 0; k < m; k++) {
            T s = x[i * m + k] * a, v = s - whole[i * m + k];
            if (v > best) { best = v; c = k; }
            sum += s;
        }
        c = PICK(i, c);
        y[i] = w[c] * x[i * m + c] + sum;""",
    "maximum": """if (i >= n) return;
        T most = -1e30f, sum = 0;
        int c = 0;
        for (int k = 0; k < m; k++) {
            T s = x[i * m + k] * a, v = s - whole[i * m + k];
            if (v > most) c = k;
            most = fmax(most, v);
            sum += s * w[k] + s;
        }
        c = PICK(i, c);
#ifdef REPLAY
        y[i] = w[i] + x[i * m + c] * a - whole[i * m + c] + sum;
#else
        y[i] = w[i] + most + sum;
#endif""",
    "bins": """if (i < n) {
            T s = x[i] * a;
            int c = PICK(i, s - b);
            atomicAdd(&y[c % n], w[i] * w[c] + s);
        }""",
    "tiles": """__shared__ T tile[BLOCK], other[BLOCK];
        T sum = 0;
        for (int k = 0; k < m; k++) {
            int j = (i * m + k) % (n * m);
            T s = x[j] * a;
            tile[t] = s - whole[j];
            other[t] = s;
            __syncthreads();
            T v = tile[t ^ 1];
            if (PICK(j, v > 0)) sum += w[k] * w[t] * (v + 1); else sum = sum * w[t] + v + w[k];
            sum += other[t ^ 1];
            __syncthreads();
        }
        if (i < n) y[i] = sum;""",
    "local array": """if (i >= n) return;
        T v[4], sum = 1;
        for (int k = 0; k < m; k++) {
            T s = x[i * m + k] * a;
            v[k % 4] = s - b;
            int c = PICK(i * m + k, v[(k + (int)whole[0] % 2) % 4]);
            sum = sum * w[c] + w[c + 1] + s;
        }
        y[i] = sum;""",
    "shuffled": """T s = x[i] * a, v = s - whole[i];
        T other = __shfl_xor_sync(0xffffffffu, v, 1);
        y[i] = (PICK(i, other > 0) ? w[i] * x[i] : w[i] * w[i] * x[i]) + s;""",
    "gathered": """if (i + 2 >= n) return;
        T s = whole[i] * (T)STEP * a;
        y[i] = (PICK(i, s - whole[i] > 0) ? x[i] * 2 + x[i + 1] : w[i] * x[i + 2]) + s;""",
    "in place": """if (i >= n) return;
        for (int k = 0; k < m; k++) {
            T s = x[i * m + k] * a;
            int c = PICK(i * m + k, s - b);
            y[i] = y[i] * w[c] + s;
        }""",
    "rounded": """if (i >= n) return;
        T s = x[i] * a, p = s - b;
        T f = p - floor(p), r = fmod(p * 2, (T)1), q = trunc(p);
        int c = PICK(i, floor(p));
#ifdef REPLAY
        f = p - c; r = 2 * p - 2 * c; q = c;
#endif
        y[i] = w[c] * exp(f) + w[c + 1] * r + w[2] * q + s;""",
}

LISTED = "y, x, w"


@dataclass(frozen=True)
class Data:
    """One launch: its arguments, and adjoints."""

    args: list[Any]
    seed: Any

    def copies(self) -> list[Any]:
        return [a.copy() if isinstance(a, np.ndarray) else a for a in self.args]


def source(name: str, type: str, form: str) -> str:
    given = {form: "", "T": type, "BLOCK": BLOCK, "STEP": STEPS_OF[type]}
    lines = "".join(f"#define {key} {value}\n" for key, value in given.items())
    return f"{lines}{_HEADER}{BODIES[name]}\n}}\n"


def kernel(name: str, type: str, form: str) -> Any:
    return kg.compile(source(name, type, form))["k"]


def data(type: str) -> Data:
    dtype = np.dtype({"float": np.float32, "double": np.float64}[type])
    rng = np.random.default_rng(11)
    step = dtype.type(0.01)
    a, nodes = dtype.type(1) / step, np.arange(20, 400).astype(dtype)
    nodes = nodes[nodes * step * a == nodes]  # where the product is rounded to a whole number: the boundary
    whole = rng.choice(nodes, N * STEPS)
    x = whole * step
    w = rng.uniform(0.5, 1.0, TABLE).astype(dtype)
    y = np.full(N, 0.5, dtype)
    seed = rng.uniform(0.5, 1, N).astype(dtype)
    return Data([y, x, w, whole, np.zeros(N * STEPS, np.int32), a, dtype.type(2), N, STEPS], seed)


def recorded(name: str, type: str) -> Data:
    """Arguments with the kernel's own decisions in them."""
    found = data(type)
    told = found.copies()
    kernel(name, type, "RECORD")[GRID, BLOCK](*told)
    found.args[4][...] = told[4]
    return found


def adjoints(gradient: Any, given: Data) -> list[Any]:
    """Those of x and w, by a gradient or the two functions of a split."""
    args, seed = given.copies(), given.seed.copy()
    found = [np.zeros_like(args[1]), np.zeros_like(args[2])]
    if isinstance(gradient, tuple):
        forward, reverse = gradient
        reverse[GRID, BLOCK](forward[GRID, BLOCK](*args), *args, seed, *found)
    else:
        gradient[GRID, BLOCK](*args, seed, *found)
    return found


def expected(name: str, type: str, given: Data) -> list[Any]:
    return adjoints(kg.gradient(kernel(name, type, "REPLAY"), LISTED), given)


# `f = p - c` of a node up to 400 may have a unit in the last place of p: what only REPLAY does not decide by is
# fused there.
_TOLERANCES = {"float": 5e-5, "double": 1e-13}


def assert_same(found: list[Any], wanted: list[Any], type: str) -> None:
    for one, other in zip(found, wanted, strict=True):
        limit = _TOLERANCES[type] * np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=limit)
