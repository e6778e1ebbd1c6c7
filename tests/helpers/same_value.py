"""Kernels in which several threads store the same value in one element, as CUDA allows: `k(y, x, n)`, 96 elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIZE = 96


@dataclass(frozen=True)
class SameValue:
    body: str
    grid: Any = 2
    block: Any = 32
    before: str = ""

    @property
    def source(self) -> str:
        return (
            f"{self.before}\n__global__ void k(double *y, const double *x, int n) {{\n"
            f"int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n{self.body}\n}}"
        )


_WARP_SUM = "for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);"

CASES = {
    "sum_of_a_warp_by_all_its_lanes": SameValue(
        f"""
        __shared__ double s[4];
        double v = x[i] * x[i];
        {_WARP_SUM}
        s[t / 32] = v;
        __syncthreads();
        y[i] = s[0] * s[1] * x[i];
        """,
        1,
        64,
    ),
    "result_of_a_block_by_all_its_threads": SameValue(f"""
        double v = x[i] * x[i];
        {_WARP_SUM}
        y[blockIdx.x] = v * v;
        """),
    "structs": SameValue(
        f"""
        __shared__ Pair s;
        double v = x[i] * x[i];
        {_WARP_SUM}
        Pair both = {{v, 2, v * v}};
        s = both;
        __syncthreads();
        y[i] = s.sum * x[i] + s.square * s.count;
        """,
        before="struct Pair { double sum; int count; double square; };",
    ),
    "cells_of_neighbours_in_turn": SameValue("""
        __shared__ double s[32];
        double v = x[blockIdx.x] * x[blockIdx.x];
        for (int k = 0; k < 3; k++) s[(t + k) % 32] = v;
        __syncthreads();
        y[i] = s[t] * x[i];
        """),
    "rows_of_threads_that_do_the_same": SameValue("y[i] = x[i] * x[i];", 3, (16, 4)),
    "element_by_data": SameValue("int k = (int)x[i / 8 * 8] & 3; y[k] = 2 * x[i / 8 * 8] * n;", 1, 8),
}
