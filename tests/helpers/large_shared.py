"""Kernels whose shared arrays exceed 48 KB, most of them with their shadows only: `k(double *y, const double *x)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BLOCK, GRID = 128, 2
SIZE = BLOCK * GRID


@dataclass(frozen=True)
class Large:
    body: str
    shared: int = 0
    before: str = ""

    @property
    def source(self) -> str:
        return (
            f"{self.before}\n__global__ void k(double *y, const double *x) {{\n"
            f"int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n{self.body}\n}}"
        )

    @property
    def launch(self) -> tuple[Any, ...]:
        return (GRID, BLOCK, self.shared, None)


CASES = {
    "arrays": Large("""
        __shared__ double s[40][128], last;
        __shared__ int order[127];
        if (t < 127) order[t] = (t * 5 + 1) % 128;
        for (int r = 0; r < 40; r++) s[r][t] = x[i] * (r + 1);
        if (t == 3) last = x[i];
        __syncthreads();
        double v = last;
        for (int r = 0; r < 40; r++) v += s[r][order[t % 127]] * s[39 - r][t];
        y[i] = v;
        """),
    "arrays_and_dynamic": Large(
        """
        __shared__ double s[26][128];
        __shared__ Pair p[128];
        extern __shared__ double d[];
        d[t] = x[i] * x[i];
        p[t].a = x[i];
        p[t].b = 2;
        for (int r = 0; r < 26; r++) s[r][t] = x[i] * (r + 1);
        __syncthreads();
        double v = d[(t + 1) % 128] * p[(t + 2) % 128].a;
        for (int r = 0; r < 26; r++) v += s[r][(t + 1) % 128] * s[25 - r][t];
        y[i] = v;
        """,
        shared=8 * BLOCK,
        before="struct Pair { double a; int b; };",
    ),
    "beyond_it_without_a_gradient": Large("""
        __shared__ double s[60][128];
        for (int r = 0; r < 60; r++) s[r][t] = x[i] * (r + 1);
        __syncthreads();
        double v = 0;
        for (int r = 0; r < 60; r++) v += s[r][(t + r) % 128] * s[59 - r][t];
        y[i] = v;
        """),
}
