"""Kernels whose threads, rows, all run over the same elements, keys: as different people write them, and some whose
loops must stay what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

D, ROWS, KEYS = 4, 70, 45
PARAMS = "double *o, const double *q, const double *k, const double *v, int n, int rows"
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= rows) return; "
OWN = "double own[D], acc[D]; for (int d = 0; d < D; ++d) { own[d] = q[i * D + d]; acc[d] = 0; } "
DOT = "double s = 0; for (int d = 0; d < D; ++d) s += own[d] * k[j * D + d]; "
ONLINE = (
    "double top = fmax(m, s), c = exp(m - top), p = exp(s - top); l = l * c + p; "
    "for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * v[j * D + d]; m = top; "
)
BRANCH = (
    "if (s > m) { double c = exp(m - s); l *= c; for (int d = 0; d < D; ++d) acc[d] *= c; m = s; } "
    "double p = exp(s - m); l += p; for (int d = 0; d < D; ++d) acc[d] += p * v[j * D + d]; "
)
OUT = "for (int d = 0; d < D; ++d) o[i * D + d] = acc[d] / l; "
STATE = "double m = -1e30, l = 0; "
WEIGHTED = "for (int d = 0; d < D; ++d) acc[d] += w * v[j * D + d]; l += w; "
DISTANCE = "double r = 0; for (int d = 0; d < D; ++d) { double x = own[d] - k[j * D + d]; r += x * x; } "


def over(step: str, loop: str = "for (int j = 0; j < n; ++j)") -> str:
    return f"{loop} {{ {step}}} "


def kernel(body: str, before: str = "", params: str = PARAMS) -> str:
    return f"#define D {D}\n{before}\n__global__ void kernel({params}) {{ {body} }}"


@dataclass(frozen=True)
class Case:
    """`keys`: how many launches sum up over the threads."""

    source: str
    keys: int
    grid: Any = 3
    block: Any = 32
    heads: int = 1
    n: int = KEYS
    floats: bool = False

    def arguments(self, seed: int = 0) -> list[Any]:
        rng, real = np.random.default_rng(seed), np.float32 if self.floats else np.float64
        shapes = [(self.heads * count * D,) for count in (ROWS, ROWS, KEYS, KEYS)]
        return [*(rng.standard_normal(shape).astype(real) for shape in shapes), self.n, ROWS]


PLAIN = HEAD + OWN + STATE + over(DOT + ONLINE) + OUT
TWICE = HEAD + OWN + STATE + over(DOT + "m = fmax(m, s); ") + over(DOT + "double w = exp(s - m); " + WEIGHTED) + OUT
HELPERS = """
template <int N> __device__ double dot(const double *a, const double *b) {
  double s = 0; for (int d = 0; d < N; ++d) s += a[d] * b[d]; return s; }
struct Softmax { double m, l; __device__ double add(double s) {
  double top = fmax(m, s), c = exp(m - top); l = l * c + exp(s - top); m = top; return c; } };
"""
HELD = HEAD + OWN + "Softmax soft = {-1e30, 0}; " + over(
    "double s = 0.5 * dot<D>(own, k + j * D), c = soft.add(s), p = exp(s - soft.m); "
    "for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * v[j * D + d]; "
) + "for (int d = 0; d < D; ++d) o[i * D + d] = acc[d] / soft.l; "  # fmt: skip
ARRAYS = PLAIN.replace("q[i * D + d]", "q[i][d]").replace("k[j * D + d]", "k[j][d]").replace("v[j * D + d]", "v[j][d]")
ROWS_OF = "double *o, const double (*q)[D], const double (*k)[D], const double (*v)[D], int n, int rows"
WALKING = HEAD + OWN + STATE + "const double *a = k, *b = v; " + over(
    "double s = 0; for (int d = 0; d < D; ++d) s += own[d] * a[d]; " + ONLINE.replace("v[j * D + d]", "b[d]")
    + "a += D; b += D; "
) + OUT  # fmt: skip
VECTORS = HEAD + "float4 a = ((const float4 *)q)[i], sum = make_float4(0, 0, 0, 0); float m = -1e30f, l = 0; " + over(
    "float4 b = ((const float4 *)k)[j], c = ((const float4 *)v)[j]; "
    "float s = a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w, top = fmaxf(m, s), e = expf(m - top), p = expf(s - top); "
    "l = l * e + p; sum.x = sum.x * e + p * c.x; sum.y = sum.y * e + p * c.y; sum.z = sum.z * e + p * c.z; "
    "sum.w = sum.w * e + p * c.w; m = top; "
) + "((float4 *)o)[i] = make_float4(sum.x / l, sum.y / l, sum.z / l, sum.w / l); "  # fmt: skip
HEADS = (
    PLAIN.replace("q[i * D + d]", "q[(h * rows + i) * D + d]").replace("o[i * D + d]", "o[(h * rows + i) * D + d]")
).replace("[j * D + d]", "[(h * n + j) * D + d]")
IN_LOOP = PLAIN.replace("own[d] * k", "q[i * D + d] * k")

BY_POINTER = HEAD + "const double *mine = q + i * D; double acc[D] = {}; " + STATE + (
    over(DOT + "m = fmax(m, s); ") + over(DOT + "double w = exp(s - m); " + WEIGHTED) + OUT
).replace("own[d]", "mine[d]")  # fmt: skip

EXCHANGED = {
    "online": Case(kernel(PLAIN), 1),
    "small blocks": Case(kernel(PLAIN), 1, 10, 7),
    "branches": Case(kernel(HEAD + OWN + STATE + over(DOT + BRANCH) + OUT), 1),
    "two passes": Case(kernel(TWICE), 2),
    "helpers, a scale": Case(kernel(HELD, HELPERS), 1),
    "rows of arrays": Case(kernel(ARRAYS, params=ROWS_OF), 1),
    "pointers that walk": Case(kernel(WALKING), 1),
    "float4": Case(kernel(VECTORS, params=PARAMS.replace("double", "float")), 1, floats=True),
    "floats": Case(kernel(PLAIN).replace("double", "float"), 1, floats=True),
    "causal, as long as the memory says": Case(
        kernel(HEAD + OWN + STATE + over(DOT + ONLINE, "for (int j = 0; j <= i && j < n; ++j)") + OUT), 0
    ),
    "causal, n rows": Case(
        kernel(HEAD + "if (i >= n) return; " + OWN + STATE + over(DOT + ONLINE, "for (int j = 0; j <= i; ++j)") + OUT),
        1,
    ),
    "causal by a test": Case(kernel(HEAD + OWN + STATE + over("if (j > i) continue; " + DOT + ONLINE) + OUT), 1),
    "a window": Case(
        kernel(
            HEAD
            + "int a = max(0, i - 5), b = min(n, i + 6); "
            + OWN
            + STATE
            + over(DOT + ONLINE, "for (int j = a; j < b; ++j)")
            + "if (l > 0) "
            + OUT
        ),
        1,
    ),
    "backwards": Case(kernel(HEAD + OWN + STATE + over(DOT + ONLINE, "for (int j = n - 1; j >= 0; --j)") + OUT), 1),
    "every third": Case(kernel(HEAD + OWN + STATE + over(DOT + ONLINE, "for (int j = 1; j < n; j += 3)") + OUT), 1),
    "size_t": Case(kernel(HEAD + OWN + STATE + over(DOT + ONLINE, "for (size_t j = 0; j < n; ++j)") + OUT), 1),
    "rows read in the loop": Case(kernel(IN_LOOP), 1),
    "two passes by a pointer": Case(kernel(BY_POINTER), 2),
    "heads": Case(kernel("int h = blockIdx.y; " + HEADS), 1, (3, 2), 32, 2),
    "heads first": Case(
        kernel("int h = blockIdx.x; " + HEADS.replace("blockIdx.x * blockDim.x", "blockIdx.y * blockDim.x")),
        1,
        (2, 3),
        32,
        2,
    ),
    "2-D blocks": Case(
        kernel(PLAIN.replace("threadIdx.x", "threadIdx.y * 8 + threadIdx.x").replace("blockDim.x", "32")), 1, 3, (8, 4)
    ),
    "kernel regression": Case(
        kernel(HEAD + OWN + "double l = 1e-3; " + over(DISTANCE + "double w = exp(-0.5 * r); " + WEIGHTED) + OUT), 1
    ),
    "Cauchy weights": Case(
        kernel(HEAD + OWN + "double l = 0; " + over(DISTANCE + "double w = 1 / (1 + r); " + WEIGHTED) + OUT), 1
    ),
    "a sum of pairs": Case(
        kernel(HEAD + OWN + "double e = 0; " + over(DISTANCE + "e += sqrt(1 + r) * v[j]; ") + "o[i * D] = e; "), 1
    ),
    "soft k-means": Case(
        kernel(
            HEAD
            + OWN
            + STATE
            + "double e = 0; "
            + over(DISTANCE + "m = fmax(m, -r); ")
            + over(DISTANCE + "l += exp(-r - m); ")
            + over(DISTANCE + "e += exp(-r - m) / l * r * v[j]; ")
            + "o[i * D] = e; "
        ),
        3,
    ),
    "some keys": Case(kernel(HEAD + OWN + STATE + over("if (v[j * D] < 0.3) { " + DOT + ONLINE + "} ") + OUT), 1),
    # Where no row gets to, there may be no memory: behind a guard, and between two windows.
    "more iterations than keys": Case(
        kernel(
            HEAD + OWN + STATE + over("if (j < n) { " + DOT + ONLINE + "} ", "for (int j = 0; j < n + 99; ++j)") + OUT
        ),
        1,
    ),
    "two windows of a counter that comes round": Case(
        kernel(
            HEAD
            + "double e = 0; int a = i < 9 ? 0 : 256, b = a + (i < 9 ? 4 : 40); "
            + over("e += sin(q[i] * v[(unsigned char)j]); ", "for (int j = a; j < b; ++j)")
            + "o[i] = e; "
        ),
        1,
    ),
    "a window of keys that others name": Case(
        kernel(
            HEAD
            + OWN
            + STATE
            + "int a = max(0, i - 5), b = min(n, i + 6); "
            + over(DOT + ONLINE, "for (int u = a; u < b; ++u)").replace(
                "{ double s", "{ int j = v[u] > 0 ? u : n - 1 - u; double s"
            )
            + "if (l > 0) "
            + OUT
        ),
        1,
    ),
    "keys behind a place that memory names": Case(
        kernel(
            HEAD
            + OWN
            + STATE
            + "const double *w = v + (v[0] > 0 ? 8 : 4); "
            + over(DOT + ONLINE, "for (int j = 0; j < n - 2; ++j)").replace("v[j * D + d]", "w[j * D + d]")
            + OUT
        ),
        1,
    ),
    "no keys": Case(kernel(HEAD + OWN + STATE + "l = 1; " + over(DOT + ONLINE) + OUT), 0, n=0),
}
STAYS = {
    "a recurrence": kernel(HEAD + OWN + over(DOT + "acc[0] = 0.5 * acc[0] * s + v[j * D]; ") + "o[i * D] = acc[0]; "),
    "a state that keys change": kernel(
        HEAD + OWN + over(DOT + "for (int d = 0; d < D; ++d) own[d] = sin(own[d] + 0.1 * s); ") + "o[i * D] = own[0]; "
    ),
    "a break": kernel(HEAD + OWN + STATE + over(DOT + "if (l > 30) break; " + ONLINE) + OUT),
    "keys of its own": kernel(HEAD + OWN + STATE + over(DOT + ONLINE).replace("k[j * D", "k[(j + i) % n * D")
                              .replace("v[j * D", "v[(j * 2 + i) % n * D") + OUT),
}  # fmt: skip
