"""Kernels with shared arrays of which threads have cells to themselves, and some with others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`k(T *y, const T *x, const T *z, const int *f, int n, int d)`; `own`: the variables that are no longer shared."""

    body: str
    own: set[str]
    shared: str = "__shared__ double s[64], v[8];"
    block: Any = 8
    nbytes: int = 0
    d: int = 4

    @property
    def source(self) -> str:
        params = "double *y, const double *x, const double *z, const int *f, int n, int d"
        return f"__global__ void k({params}) {{\n    {self.shared}\n{OWN}\n    {self.body}\n}}"


OWN = "    int t = threadIdx.x, B = blockDim.x, i = blockIdx.x * B + t; double a = 0, p = 1;"
SYNC, END = "__syncthreads();", "y[i] = a * p;"
FILL = "for (int c = 0; c < d; ++c) s[t * 8 + c] = x[j + t + c] * z[c];"
USE = "for (int c = 0; c < d; ++c) { p = 0.5 * p + 0.3 * sin(s[t * 8 + c]); a += s[t * 8 + c] * p; }"
TURNS = "for (int j = 0; j < n; j += B)"

CASES = {
    "rows": Case(f"{TURNS} {{ {FILL} {USE} }} {END}", {"s"}),
    "beside a tile": Case(
        f"{TURNS} {{ v[t] = x[j + t]; {SYNC} {FILL} for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(s[t * 8 + c] * v[c]); a += s[t * 8 + c] * p; }} {SYNC} }} {END}",
        {"s"},
    ),
    "arrays of rows": Case(
        f"{TURNS} {{ for (int c = 0; c < d; ++c) r[t][c] = x[j + t + c]; for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(r[t][c] * z[c]); a += r[t][c] * p; }} }} {END}",
        {"r"},
        shared="__shared__ double r[8][5];",
    ),
    "columns": Case(
        f"{TURNS} {{ for (int c = 0; c < d; ++c) s[c * B + t] = x[j + t + c]; for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(s[c * B + t] * z[c]); a += s[c * B + t] * p; }} }} {END}",
        set(),  # of neighbours, cells are side by side
    ),
    "changed in place": Case(
        f"{TURNS} {{ {FILL} for (int c = 0; c < d; ++c) s[t * 8 + c] = exp(s[t * 8 + c] - p); {USE} }} {END}", {"s"}
    ),
    "two rows of threads": Case(
        "int u = threadIdx.y, w = u * 4 + t; for (int j = 0; j < n; j += 8) {"
        " for (int c = 0; c < d; ++c) s[u * 32 + t * 8 + c] = x[j + w + c]; for (int c = 0; c < d; ++c)"
        " { p = 0.5 * p + 0.3 * sin(s[w * 8 + c] * z[c]); a += s[w * 8 + c] * p; } } y[blockIdx.x * 8 + w] = a;",
        {"s"},
        block=(4, 2),
    ),
    "a part of dynamic memory": Case(
        f"double *own = all + t * d, *v = all + B * d; {TURNS} {{ v[t] = x[j + t]; {SYNC}"
        " for (int c = 0; c < d; ++c) own[c] = x[j + t + c] * z[c]; for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(own[c] * v[c]); a += own[c] * p; }} {SYNC} }} {END}",
        {"all_0"},
        shared="extern __shared__ double all[];",
        nbytes=8 * 8 * 5,
    ),
    # What is stored as something else than it is read as; what others read, what overlaps, and what an iteration leaves
    # for the next.
    "stored in pairs": Case(
        f"{TURNS} {{ for (int c = 0; c < 4; ++c) ((double2 *)s)[t * 4 + c] = make_double2(x[j + c], x[j + t]);"
        f" {USE} }} {END}",
        set(),
    ),
    "records and their members": Case(
        f"{TURNS} {{ for (int c = 0; c < d; ++c) r[t * 8 + c] = make_double2(x[j + t + c], z[j + c]);"
        " for (int c = 0; c < d; ++c) { p = 0.5 * p + 0.3 * sin(r[t * 8 + c].x); a += r[t * 8 + c].y * p; }"
        f" }} {END}",
        set(),
        shared="__shared__ double2 r[64];",
    ),
    "read by a neighbour": Case(
        f"{TURNS} {{ {FILL} {SYNC} for (int c = 0; c < d; ++c) {{ p = 0.5 * p + 0.3 * sin(s[(t + 1) % B * 8 + c]);"
        f" a += p; }} {SYNC} }} {END}",
        set(),
    ),
    "overlapping": Case(
        f"{TURNS} {{ for (int c = 0; c < 9; ++c) if (c < 8 || f[t] > 4) s[t * 8 + c] = x[j + c];"
        f" {USE} }} {END}",
        set(),
    ),
    "left for the next": Case(
        f"for (int c = 0; c < d; ++c) s[t * 8 + c] = 1; {TURNS} {{ for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(s[t * 8 + c] * z[c]); a += p; }} {FILL} }} {END}",
        set(),
    ),
    "filled now and then": Case(
        f"for (int c = 0; c < d; ++c) s[t * 8 + c] = 1; {TURNS} {{ if (f[j / 8] != 1) {FILL} {USE} }} {END}", set()
    ),
    "partly filled": Case(
        f"s[t * 8 + d - 1] = 0.3; {TURNS} {{ for (int c = 0; c < d - 1; ++c) s[t * 8 + c] = x[j + c];"
        f" {USE} }} {END}",
        set(),
    ),
    "added to": Case(
        f"for (int c = 0; c < d; ++c) s[t * 8 + c] = 0; {TURNS} for (int c = 0; c < d; ++c)"
        f" {{ s[t * 8 + c] += x[j + t + c]; a += s[t * 8 + c] * s[t * 8 + c]; }} {END}",
        set(),
    ),
    "atomically": Case(f"{TURNS} {{ {FILL} atomicAdd(&s[t * 8], x[j]); {USE} }} {END}", set()),
}  # fmt: skip


def arguments(case: Case) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(0.5, 1.5, 160) for _ in range(3)]
    return (*arrays, rng.integers(0, 3, 160).astype(np.int32), 24, case.d)


ATTENTION = """
__global__ void attention(const double *Q, const double *K, const double *V, int N, int d, int tiles, int B,
                          double scale, double *l, double *m, double *O) {
    extern __shared__ double memory[];
    int t = threadIdx.x, first = blockIdx.x * N * d, row = blockIdx.x * N, size = B * d;
    double *q = memory, *k = memory + size, *v = memory + 2 * size, *s = memory + 3 * size;
    for (int j = 0; j < tiles; ++j) {
        for (int c = 0; c < d; ++c) {
            k[t * d + c] = K[first + size * j + t * d + c];
            v[t * d + c] = V[first + size * j + t * d + c];
        }
        __syncthreads();
        for (int i = 0; i < tiles; ++i) {
            for (int c = 0; c < d; ++c) q[t * d + c] = Q[first + size * i + t * d + c];
            double m_before = m[row + B * i + t], l_before = l[row + B * i + t], m_here = -1e30, l_here = 0;
            for (int o = 0; o < B; ++o) {
                double sum = 0;
                for (int c = 0; c < d; ++c) sum += q[t * d + c] * k[o * d + c];
                s[B * t + o] = sum * scale;
                if (sum * scale > m_here) m_here = sum * scale;
            }
            for (int o = 0; o < B; ++o) {
                s[B * t + o] = exp(s[B * t + o] - m_here);
                l_here += s[B * t + o];
            }
            double m_now = fmax(m_before, m_here);
            double before = exp(m_before - m_now), here = exp(m_here - m_now);
            double l_now = before * l_before + here * l_here;
            for (int c = 0; c < d; ++c) {
                double sum = 0;
                for (int o = 0; o < B; ++o) sum += s[B * t + o] * v[o * d + c];
                int at = first + size * i + t * d + c;
                O[at] = (l_before * before * O[at] + here * sum) / l_now;
            }
            m[row + B * i + t] = m_now;
            l[row + B * i + t] = l_now;
        }
        __syncthreads();
    }
}
"""
