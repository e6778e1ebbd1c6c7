"""Kernels that fill shared memory from arrays: tiles that are copies, and tiles that look like it."""

from __future__ import annotations

from typing import NamedTuple

READS = "if (i < n) y[i] = s[t] * s[t + 1] + s[t + 2];"
OWN = "if (i < n) y[i] = s[t] * (t > 0 ? s[t - 1] : 2.0) + s[31 - t];"  # of cells that one thread each fills


class Case(NamedTuple):
    """The body of a kernel of `y`, `x`, `z`, `p` (which numbers elements) and `n`; `t` and `u` are a thread's indices,
    `b` the first element of the block, `i` its own. Every cell that is read was stored to."""

    body: str
    block: tuple[int, ...] = (32,)
    shared: int = 0
    tolerance: float = 1e-11

    @property
    def source(self) -> str:
        return f"""
        #include <cuda_fp16.h>
        __global__ void k(double *y, double *z, const double *x, const int *p, int n) {{
            int t = threadIdx.x, u = threadIdx.y, b = blockIdx.x * 32, i = b + t;
            {self.body}
        }}"""


def strided(store: str, loop: str = "int j = t; j < 34; j += 32", reads: str = READS) -> str:
    return f"__shared__ double s[100]; for ({loop}) {{ {store} }} __syncthreads(); {reads}"


def a_cell(store: str, reads: str = OWN, declared: str = "__shared__ double s[64];") -> str:
    return f"{declared} {store} __syncthreads(); {reads}"


def rows(cell: str, read: str, guard: str = "") -> str:
    place = "b + u * 8 + t"
    return f"__shared__ double s[64]; {guard}{cell} = x[{place}]; __syncthreads(); y[{place}] = {read};"


HALVES = "if (i < n) y[i] = (double)__half2float(s[t]) * x[i] + __half2float(s[31 - t]);"
NUMBERED = "for (int c = t; c < 40; c += 32)"
COPY = "s[j] = x[b + j];"
COPIES: dict[str, Case] = {
    "strided": Case(strided(COPY)),
    "strided by the block": Case(strided(COPY, "int j = t; j < 34; j += blockDim.x")),
    "unsigned counter": Case(strided(COPY, "unsigned j = threadIdx.x; j < 34u; j += blockDim.x")),
    "size_t counter": Case(strided(COPY, "size_t j = threadIdx.x; j < 34; j += blockDim.x")),
    "int below unsigned": Case(strided(COPY, "int j = t; j < blockDim.x + 2; j += blockDim.x")),
    "at most": Case(strided(COPY, "int j = t; j <= 33; j += blockDim.x")),
    "bound of the launch": Case(strided(COPY, "int j = t; j < n - 36; j += blockDim.x")),
    "starts later": Case(strided(COPY, "int j = t + 3; j < 40; j += 32", READS.replace("s[t", "s[3 + t"))),
    "pointer to the tile": Case(strided("(s + 5)[j] = x[b + j];", reads=READS.replace("s[t", "s[5 + t"))),
    "zero outside": Case(strided("int g = b + j - 1; s[j] = g >= 0 && g < n ? x[g] : 0.0;")),
    "stores in both branches": Case(strided("int g = b + j - 1; if (g >= 0 && g < n) s[j] = x[g]; else s[j] = 1.0;")),
    "clamped": Case(strided("s[j] = x[min(max(b + j - 1, 0), n - 1)];")),
    "periodic": Case(strided("s[j] = x[(b + j - 1 + n) % n];")),
    "periodic by tests": Case(strided("int g = b + j - 1; if (g < 0) g += n; if (g >= n) g -= n; s[j] = x[g];")),
    "computed": Case(strided("s[j] = exp(0.1 * x[b + j]) * j + n;")),
    "indirect": Case(strided("s[j] = x[p[b + j]];")),
    "read in a loop": Case(
        strided(COPY, reads="double a = 0; for (int q = 0; q < 3; ++q) a += s[t + q] * q; y[i] = a * a;")
    ),
    "read by data": Case(strided(COPY, reads="y[i] = s[p[t] % 34] * s[31 - t];")),
    "atomic output": Case(strided(COPY, reads="atomicAdd(&y[i % 5], s[t] * s[t + 1]);")),
    "a cell a thread": Case(a_cell("s[t] = x[i];")),
    "shifted cell": Case(a_cell("s[t + 3] = x[i];", OWN.replace("s[", "s[3 + "))),
    "stored thrice": Case(a_cell("s[t] = 1.0; if (i % 3) s[t] = x[i]; if (i % 5 == 0) s[t] = x[i] * x[i + 1];")),
    "either half": Case(a_cell("if (t < 16) s[t] = x[i]; if (t >= 16) s[t] = x[2 * i];")),
    "the same for all": Case(a_cell("s[0] = x[blockIdx.x];", "y[i] = s[0] * x[i];")),
    "volatile": Case(a_cell("s[t] = x[i];", declared="volatile __shared__ double s[64];")),
    "dynamic": Case(a_cell("s[t] = x[i];", declared="extern __shared__ double s[];"), shared=512),
    "floats": Case(a_cell("s[t] = x[i];", declared="__shared__ float s[64];"), tolerance=1e-5),
    "rows of one": Case(a_cell("s[t][0] = x[i];", "y[i] = s[t][0] * s[31 - t][0];", "__shared__ double s[64][1];")),
    "wraps to its own cell": Case(a_cell("s[threadIdx.x + 4294967295u + 1u] = x[i];")),
    "halves": Case(a_cell("s[t] = __float2half((float)x[i]);", HALVES, "__shared__ __half s[64];"), tolerance=2e-2),
    "integers": Case(a_cell("s[t] = p[i];", "y[i] = x[s[t]] * x[s[31 - t]];", "__shared__ int s[64];")),
    "two tiles": Case(
        "__shared__ double s[40], r[40]; for (int j = t; j < 34; j += 32) { s[j] = x[b + j]; r[j] = x[j] + 1.0; }"
        "__syncthreads(); y[i] = s[t] * s[t + 2] * r[t + 1];"
    ),
    "all rows fill": Case(strided(COPY, reads=f"if (u == 0) {{ {READS} }}"), (32, 2)),
    "rows share the loop": Case(
        strided(COPY, "int j = u * 32 + t; j < 34; j += 64", f"if (u == 0) {{ {READS} }}"), (32, 2)
    ),
    "transposed": Case(
        a_cell(
            "s[t][u] = x[2 * b + u * 8 + t];", "y[2 * b + u * 8 + t] = s[u][t] * s[t][u];", "__shared__ double s[8][9];"
        ),
        (8, 8),
    ),
    "rows in one index": Case(rows("s[u * 8 + t]", "s[t % 4 * 8 + u] * s[u * 8 + 7 - t]"), (8, 4)),
    "padded rows in one index": Case(rows("s[9 * u + 1 + t]", "s[9 * u + 8 - t]"), (8, 4)),
    "shifted rows in one index": Case(rows("s[((u + 2) << 3) + t]", "s[16 + u * 8 + 7 - t]"), (8, 4)),
    "rows of some threads": Case(rows("s[u * 4 + t]", "s[u * 4]", "if (t < 4) "), (8, 4)),
    "one number in two indices": Case(
        f"__shared__ double s[5][9]; {NUMBERED} s[c / 8][c % 8] = x[b + c]; __syncthreads();"
        "y[i] = s[t / 8][t % 8] * s[t % 4][3];"
    ),
}
OTHERS: dict[str, Case] = {
    "two cells in an iteration": Case(
        strided(
            "s[j] = x[j]; s[j + 32] = 2 * x[j];", "int j = t; j < 64; j += 32", "y[i] = s[t] * s[t + 32] + s[t + 64];"
        )
    ),
    "two loops": Case(
        strided(COPY, reads=f"for (int j = t; j < 20; j += 32) s[j] = x[j + 9]; __syncthreads(); {READS}")
    ),
    "two loops before the barrier": Case(
        "__shared__ double s[40]; for (int j = t; j < 34; j += 32) s[j] = x[j];"
        f"for (int j = t; j < 20; j += 32) s[j] = x[j + 9]; __syncthreads(); {READS}"
    ),
    "cleared before": Case(strided("s[j] = 0;", reads=f"s[t + 1] = x[i]; __syncthreads(); {READS}")),
    "short steps": Case(strided("s[j] = x[j];", "int j = t; j < 64; j += 16")),
    "long steps": Case(strided("s[j] = x[j];", "int j = t; j < 128; j += 64", "y[i] = s[t] * s[t + 64 - t];")),
    "start of the block's": Case(
        strided("s[j] = x[j];", "int j = t + (int)blockIdx.x; j < 40; j += 32", "y[i] = s[t + 2];")
    ),
    "starts below zero": Case(
        strided(
            "s[j] = x[j];", "unsigned j = threadIdx.x - 1u; j < 40u; j += 32u", "if (t < 30) y[i] = s[t] * s[t + 1];"
        )
    ),
    "bound of the thread's": Case(strided("s[j] = x[j];", "int j = t; j < 34 + t; j += 32", "y[i] = s[t] * s[t + 2];")),
    "thread in the loop": Case(strided("s[j] = x[i];")),
    "carried": Case(strided("a += x[j]; s[j] = a;").replace("for", "double a = 0; for")),
    "left early": Case(strided("if (j > 40) break; s[j] = x[j];", "int j = t; j < 64; j += 32")),
    "columns first": Case(
        strided("s[j] = x[j];", "int j = t * 2 + u; j < 34; j += 64", f"if (u == 0) {{ {READS} }}"), (32, 2)
    ),
    "rows that begin later": Case(rows("s[u * 8 + t + 4]", "s[u * 8 + 11 - t]"), (8, 4)),
    "rows that wrap": Case(rows("s[(threadIdx.y + 0x20000000u) * 8u + threadIdx.x]", "s[u * 8 + 7 - t]"), (8, 4)),
    "other quotient": Case(
        f"__shared__ double s[5][9]; {NUMBERED} s[c / 8][c % 9] = x[b + c]; __syncthreads(); y[i] = s[t / 8][t % 9];"
    ),
    "pairs": Case(
        a_cell(
            "s[t] = i < n ? make_double2(x[i], x[i + 1]) : make_double2(0.0, 1.0);",
            "y[i] = s[t].x * s[31 - t].y;",
            "__shared__ double2 s[64];",
        )
    ),
    "whole pairs": Case(
        a_cell(
            "s[t] = i < n ? make_double2(x[i], x[i + 1]) : make_double2(0.0, 1.0);",
            "double2 v = s[31 - t]; y[i] = v.x * v.y;",
            "__shared__ double2 s[64];",
        )
    ),
    "reversed": Case(a_cell("s[31 - t] = x[i];")),
    "every other cell": Case(a_cell("s[2 * t] = x[i]; s[2 * t + 1] = 0;")),
    "modulo": Case(a_cell("s[(t + 1) % 32] = x[i];")),
    "cell by data": Case(a_cell("s[(p[0] + t) % 32] = x[i];")),
    "guarded by data": Case(a_cell("s[t] = 1; if (x[i] > 0) s[t] = x[i];")),
    "guarded by indices": Case(a_cell("s[t] = 1; if (p[i] > 100) s[t] = x[i];")),
    "divides in a guard": Case(a_cell("s[t] = 2; if (n > 70) { if (t / (n - 70) < 3) s[t] = x[i]; }")),
    "one thread": Case(a_cell("if (t == 3) s[0] = x[i];", "y[i] = s[0] * x[i];")),
    "one thread and all": Case(a_cell("s[t + 1] = x[i]; if (t == 0) { s[0] = x[i + 99]; s[33] = x[i + 32]; }", READS)),
    "one row": Case(a_cell("if (u == 1) s[t] = x[i + u];", f"if (u == 0) {{ {OWN} }}"), (32, 2)),
    "diagonal": Case(
        a_cell("s[t][t] = x[i];", "y[i] = s[t][t] * s[7 - t][7 - t];", "__shared__ double s[8][8];"), (8,)
    ),
    "next row": Case(
        a_cell(
            "s[u][t] = x[2 * b + u * 8 + t]; if (t == 0) s[u][8] = x[2 * b + u + 100];",
            "y[2 * b + u * 8 + t] = s[u][t + 1] * s[0][u * 9 + t];",
            "__shared__ double s[8][9];",
        ),
        (8, 8),
    ),
    "of a local array": Case(a_cell("double a[4]; for (int q = 0; q < 4; ++q) a[q] = x[i + q]; s[t] = a[n % 4];")),
    "of another tile": Case(
        "__shared__ double s[64], r[64]; r[t] = x[i]; __syncthreads(); s[t] = r[31 - t]; __syncthreads();" + OWN
    ),
    "written source": Case(a_cell("s[t] = z[i];", f"z[i] = x[i]; {OWN}")),
    "filled again": Case(
        a_cell("s[t] = x[i];", f"double a = s[31 - t]; __syncthreads(); s[t] = a; __syncthreads(); {OWN}")
    ),
    "tile after tile": Case(
        "__shared__ double s[32]; double a = 0; for (int q = 0; q < 3; ++q) {"
        "s[t] = x[q * 32 + t]; __syncthreads(); a += s[31 - t] * x[i]; __syncthreads(); } y[i] = a;"
    ),
    "added to": Case(a_cell("s[t] = 0; __syncthreads(); atomicAdd(&s[t / 2], x[i]);")),
    "a sum beside it": Case(
        "__shared__ double s[32], r[32]; s[t] = x[i]; r[t] = x[i]; __syncthreads();"
        "for (int d = 16; d > 0; d /= 2) { if (t < d) r[t] += r[t + d]; __syncthreads(); } y[i] = s[31 - t] * r[0];"
    ),
    "read before": Case(a_cell("s[t] = x[i]; double a = s[t];", f"{OWN} y[i] += a;")),
    "memory ordered": Case(a_cell("s[t] = x[i]; z[i] = 2 * x[i];", "y[i] = s[31 - t] * z[b + 31 - t];")),
    "warps exchange": Case(a_cell("s[t] = x[i];", "y[i] = s[31 - t] * __shfl_xor_sync(0xffffffffu, x[i], 1);")),
    "threads that left": Case(
        "if (i >= n) return;" + a_cell("s[t] = x[i];", "y[i] = s[t] * (i + 1 < n && t < 31 ? s[t + 1] : 2.0);")
    ),
}
CASES = {**COPIES, **OTHERS}
