"""Kernels with tiles that loops fill behind guards: which are filled again in the reverse, and which are not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`k(T *y, const T *x, const T *z, const int *f, int n)`; `again`: the tiles that are filled again by what earlier
    iterations left."""

    body: str
    again: set[str]
    launch: tuple[Any, Any, int] = (3, 8, 0)
    n: int = 29
    shared: str = "__shared__ double s[8];"
    head: str = ""

    @property
    def source(self) -> str:
        params = "double *y, const double *x, const double *z, const int *f, int n"
        return f"{self.head}\n__global__ void k({params}) {{\n    {self.shared}\n{OWN}\n    {self.body}\n}}"

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(self.n)
        return [rng.uniform(0.5, 1.5, (4 * self.n + 128)) for _ in range(3)]

    def flags(self) -> np.ndarray[Any, Any]:
        return np.random.default_rng(7).integers(0, 3, 4 * self.n + 128).astype(np.int32)


OWN = "    int t = threadIdx.x, B = blockDim.x, i = blockIdx.x * B + t; double a = 0, p = 1;"
USE = "for (int q = 0; q < min(B, n - j); ++q) { p *= 1 + 0.1 * s[q] * z[i]; a += s[q] * p; }"
USE_ALL = "for (int q = 0; q < B; ++q) { p = 0.5 * p + 0.3 * sin(s[q] * z[i]); a += s[q] * p; }"
SYNC = "__syncthreads();"
END = "y[i] = a * p;"

USE_BOTH = "for (int q = 0; q < B; ++q) { p = 0.5 * p + 0.3 * sin(s[q] * r[q]); a += s[q] * p; }"
TURNS, STEPS = "for (int j = 0; j < n; j += B)", "for (int j = 0; j < n; ++j)"

# Cells that guards leave out hold what earlier iterations left: all are stored in the first one, and all are read.
STALE = f"if (j == 0 || f[j + t] == 0) s[t] = x[j + t]; {SYNC} {USE_ALL} {SYNC}"

AGAIN = {
    "a tail": Case(f"{TURNS} {{ if (j + t < n) s[t] = x[j + t]; {SYNC} {USE} {SYNC} }} {END}", {"s"}),
    "data": Case(f"{TURNS} {{ {STALE} }} {END}", {"s"}),
    "every step": Case(f"{STEPS} {{ {STALE} }} {END}", {"s"}),
    "down": Case(
        f"for (int j = n - 1; j >= 0; j -= 3) {{ if (j == n - 1 || f[j + t] == 1) s[t] = x[j + t] * z[j];"
        f" {SYNC} {USE_ALL} {SYNC} }} {END}",
        {"s"},
    ),
    "doubled": Case(
        f"for (int d = 1; d < n; d <<= 1) {{ if (d == 1 || (t & d)) s[t] = x[d + t]; {SYNC} {USE_ALL} {SYNC} }} {END}",
        {"s"},
    ),
    "the other side": Case(
        f"{TURNS} {{ if (j && f[j + t]) {{ a += 0.1; }} else s[t] = x[j + t]; {SYNC} {USE_ALL}"
        f" {SYNC} }} {END}",
        {"s"},
    ),
    "strides": Case(
        f"{TURNS} {{ for (int k = t; k < 12; k += B) if (!j || f[j + k]) s[k] = x[j + k] * 2; {SYNC}"
        f" for (int q = 0; q < 12; ++q) {{ p = 0.5 * p + 0.3 * sin(s[q] * z[i]); a += s[q] * p; }} {SYNC} }} {END}",
        {"s"},
        shared="__shared__ double s[12];",
    ),
    "rows of a cell": Case(
        f"{TURNS} {{ if (!j || f[j + t]) for (int c = 0; c < 3; ++c) s[3 * t + c] = x[3 * (j + t) + c];"
        f" {SYNC} for (int q = 0; q < 3 * B; ++q) {{ p = 0.5 * p + 0.3 * sin(s[q] * z[i]); a += s[q] * p; }}"
        f" {SYNC} }} {END}",
        {"s"},
        shared="__shared__ double s[24];",
    ),
    "two tiles": Case(
        f"{TURNS} {{ if (!j || f[j + t]) {{ s[t] = x[j + t]; r[t] = z[j + t]; }} {SYNC}"
        f" {USE_BOTH} {SYNC} }} {END}",
        {"r", "s"},
        shared="__shared__ double s[8], r[8];",
    ),
    "two guards": Case(
        f"{TURNS} {{ if (!j || f[j + t]) s[t] = x[j + t]; if (!j || f[j + t] == 1) r[t] = z[j + t]; {SYNC}"
        f" {USE_BOTH} {SYNC} }} {END}",
        {"r", "s"},
        shared="__shared__ double s[8], r[8];",
    ),
    "one is filled whole": Case(
        f"{TURNS} {{ if (!j || f[j + t]) s[t] = x[j + t]; r[t] = z[j + t]; {SYNC}"
        f" {USE_BOTH} {SYNC} }} {END}",
        {"s"},
        shared="__shared__ double s[8], r[8];",
    ),
    "parts of one array": Case(
        f"double *r = s + B; {TURNS} {{ if (!j || f[j + t]) {{ s[t] = x[j + t]; r[t] = z[j + t]; }} {SYNC}"
        f" {USE_BOTH} {SYNC} }} {END}",
        {"s_0", "s_1"},
        (3, 8, 128),
        shared="extern __shared__ double s[];",
    ),
    "integers beside": Case(
        f"{TURNS} {{ if (!j || f[j + t]) {{ s[t] = x[j + t]; at[t] = j + t; }} {SYNC}"
        f" for (int q = 0; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(s[q] * z[at[q]]); a += s[q] * p; }} {SYNC} }} {END}",
        {"at", "s"},
        shared="__shared__ double s[8]; __shared__ int at[8];",
    ),
    "records": Case(
        f"{TURNS} {{ if (!j || f[j + t]) {{ P c = {{x[j + t], z[j + t] * x[j]}}; s[t] = c; }} {SYNC}"
        f" for (int q = 0; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(s[q].u); a += s[q].v * p; }} {SYNC} }} {END}",
        {"s"},
        shared="__shared__ P s[8];",
        head="struct P { double u, v; };",
    ),
    "a break": Case(
        f"{TURNS} {{ if (__syncthreads_count(a > 2.5) == B) break; {STALE} }} {END}", {"s"}
    ),
    "a break behind": Case(
        f"{TURNS} {{ {STALE} if (f[j] == 2) break; }} {END}",
        {"s"},
    ),
    "while": Case(
        f"int j = 0; while (j < n && f[j / 8] < 2) {{ {STALE} j += B; }} {END}",
        {"s"},
    ),
    "some iterations": Case(
        f"{STEPS} {{ if (j % 3 != 1) {{ {STALE} }} a += 0.01; }} {END}",
        {"s"},
    ),
    "some iterations, by data": Case(
        f"{STEPS} {{ if (j == 0 || f[j] == 1) {{ {STALE} }} }} {END}",
        {"s"},
    ),
    "unsigned ranges": Case(
        "unsigned from = f[0], to = from + n; int todo = to - from;"
        " for (int r = 0; r < (n + B - 1) / B; ++r, todo -= B) {"
        f" int g = r * B + t; if (from + g < to) s[t] = x[from + g]; {SYNC}"
        f" for (int q = 0; q < min(B, todo); ++q) {{ p *= 1 + 0.1 * s[q] * z[i]; a += s[q] * p; }} {SYNC} }} {END}",
        {"s"},
    ),
    "products": Case(
        "int u = threadIdx.y, row = blockIdx.x * 4 + u; for (int k = 0; k < n; k += 4) {"
        " if (row < 11 && k + t < n) s[u][t] = x[row * n + k + t];"
        " if (k + u < n && t < 3) r[u][t] = z[(k + u) * 3 + t];"
        f" {SYNC} for (int q = 0; q < min(4, n - k); ++q) if (row < 11 && t < 3) a += sin(s[u][q] * r[q][t]); {SYNC} }}"
        " if (row < 11 && t < 3) y[row * 3 + t] = a * a;",
        {"r", "s"},
        (3, (4, 4), 0),
        10,
        shared="__shared__ double s[4][4], r[4][5];",
    ),
    "in a branch": Case(
        f"if (n > 5) {{ {TURNS} {{ {STALE} }} }} else {{ a = x[i]; }} {END}",
        {"s"},
    ),
}  # fmt: skip

# The same cell from several threads or places, addresses that move, or what cannot be had again.
NOT = {
    "lanes that meet in a branch": Case(
        f"{STEPS} {{ double v = 0; if (n > 0) v = __shfl_xor_sync(~0u, x[j + t], 1); if (!j || f[j + t]) s[t] = v;"
        f" {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "lanes that meet in a loop": Case(
        f"{STEPS} {{ int c = 0; for (int q = 0; q < 2; ++q) c += __shfl_xor_sync(~0u, f[j + t], 1 + q);"
        f" if (!j || c) s[t] = x[j + t]; {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "two threads": Case(
        f"{STEPS} {{ if (!j ? t < 4 : t / 4 == j % 2) s[t % 4] = x[j + t]; {SYNC}"
        f" for (int q = 0; q < 4; ++q) {{ p = 0.5 * p + 0.3 * sin(s[q] * z[i]); a += s[q] * p; }} {SYNC} }} {END}",
        set(),
    ),
    "two places": Case(
        f"{STEPS} {{ if (!j || f[j] == 1) s[t] = x[j + t]; if (f[j] == 2) s[t] = z[j + t]; {SYNC} {USE_ALL}"
        f" {SYNC} }} {END}",
        set(),
    ),
    "two sides": Case(
        f"{STEPS} {{ if (!j || f[j + t] == 1) s[t] = x[j + t]; else if (f[j + t]) s[t] = z[j + t]; {SYNC} {USE_ALL}"
        f" {SYNC} }} {END}",
        set(),
    ),
    "another cell each time": Case(
        f"{STEPS} {{ if (!j || f[j + t]) s[(t + j) % B] = x[j + t]; {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "a loop around": Case(
        f"for (int o = 0; o < 3; ++o) {{ {STEPS} {{ if ((!j && !o) || f[j + t + o]) s[t] = x[j + t + o]; {SYNC}"
        f" {USE_ALL} {SYNC} }} }} {END}",
        set(),
    ),
    "carried": Case(
        f"{STEPS} {{ if (!j || f[j + t]) s[t] = x[j + t] + p; {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "carried in the guard": Case(
        f"{STEPS} {{ if (!j || a < 3) s[t] = x[j + t]; {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "from another tile": Case(
        f"{STEPS} {{ r[t] = z[j + t]; {SYNC} if (!j || f[j + t]) s[t] = x[j + t] * r[B - 1 - t]; {SYNC}"
        f" {USE_ALL} {SYNC} }} {END}",
        set(),
        shared="__shared__ double s[8], r[8];",
    ),
    "filled before, too": Case(
        f"s[t] = x[t]; {SYNC} {STEPS} {{ if (f[j + t]) s[t] = x[j + t]; {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "read before it is filled": Case(
        f"{STEPS} {{ if (j) a += s[t]; {SYNC} if (!j || f[j + t]) s[t] = x[j + t]; {SYNC} {USE_ALL} {SYNC} }} {END}",
        set(),
    ),
    "guards in guards": Case(
        f"{STEPS} {{ if (!j || f[j + t]) {{ s[t] = x[j + t]; if (f[j + t] == 2) r[t] = z[j]; }}"
        f" {SYNC} {USE_ALL} if (f[t] == 2) a += r[t] * p; {SYNC} }} {END}",
        set(),
        shared="__shared__ double s[8], r[8];",
    ),
    "counted by what decides": Case(
        f"int c = 0; {STEPS} {{ if (!c || f[c + t]) s[t] = x[c + t]; {SYNC} {USE_ALL} {SYNC}"
        f" if (f[j]) ++c; }} {END}",
        set(),
    ),
}  # fmt: skip
