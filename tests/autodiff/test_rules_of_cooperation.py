"""The design's rules of reversal that concern threads together: for each, a kernel that goes wrong without it.

Rules 7, 8 and 18 have files of their own: early returns, tiles, winners.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg


def kernel(body: str, params: str = "double *y, double *x, int n", before: str = "") -> Any:
    return kg.compile(f"{before}\n__global__ void k({params}) {{\n{body}\n}}", name="rule.cu")["k"]


def agrees(target: Any, listed: str, grid: Any, block: Any, *args: Any) -> None:
    """With forward mode and finite differences, and without races in any order of threads and blocks."""
    report = kg.check_gradient(target, listed, grid, block, args)
    assert report.ok and "finite differences agree" in str(report), report
    names = [name.strip() for name in listed.split(",")]
    params = [p.name for p in target.function.params]
    for order in (None, 1, 2):
        given = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
        adjoints = [np.ones_like(np.atleast_1d(args[params.index(name)])) for name in names]
        report = kg.gradient(target, listed).check(grid, block, *given, *adjoints, seed=order)
        assert report.ok, report


def numbers(count: int, seed: int = 5) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.2, count)


# ---- 1 and 2: between blocks ----------------------------------------------------------------------------------------


def test_1_the_reverse_reads_no_sum_that_other_blocks_still_add_to() -> None:
    """The partial derivative of a square needs the number, not the sum it was added to."""
    target = kernel("int i = blockIdx.x * blockDim.x + threadIdx.x; double v = x[i] * x[i]; atomicAdd(y, v * v);")
    agrees(target, "y, x", 3, 8, np.ones(1), numbers(24), 24)


@pytest.mark.parametrize(
    "body",
    [
        "y[blockIdx.x] = x[blockIdx.x]; __threadfence(); if (atomicAdd(count, 1) == 1) y[2] = y[0] * y[1];",
        "if (blockIdx.x == 0) { y[0] = x[0]; __threadfence(); atomicExch(count, 1); }"
        " else { while (atomicAdd(count, 0) == 0); y[1] = y[0] * x[1]; }",
        "while (atomicCAS(count, 0, 1) != 0); y[0] = y[0] * x[blockIdx.x]; atomicExch(count, 0);",
    ],
)
def test_2_values_passed_between_blocks_are_refused(body: str) -> None:
    with pytest.raises(kg.UnsupportedError, match="no gradient"):
        kg.gradient(kernel(body, "double *y, const double *x, int *count"), "y, x")


# ---- 3: "nothing wrote it since" is a question about the grid -------------------------------------------------------


def test_3_another_thread_overwrites_what_was_read() -> None:
    """Loaded again in the reverse sweep, every x[i] would be zero."""
    target = kernel("""
        int i = threadIdx.x;
        for (int k = 0; k < 2; k++) {
          double v = x[i];
          __syncthreads();
          x[(i + 1) % n] = 0;
          y[i] += v * v;
          __syncthreads();
        }""")
    agrees(target, "y, x", 1, 6, np.zeros(6), numbers(6), 6)


def test_3_in_shared_memory() -> None:
    target = kernel("""
        __shared__ double s[8];
        int i = threadIdx.x;
        s[i] = x[i];
        for (int k = 0; k < 2; k++) {
          __syncthreads();
          double v = s[i] * s[(i + 1) % 8];
          __syncthreads();
          s[(i + 3) % 8] = v * v;
        }
        __syncthreads();
        y[i] = s[i];""")
    agrees(target, "y, x", 1, 8, np.zeros(8), numbers(8), 8)


def test_3_through_another_pointer() -> None:
    """The overwriting pointer is another view of the same array."""
    target = kernel("""
        int i = threadIdx.x;
        double *rest = x + n;
        for (int k = 0; k < 2; k++) {
          double v = x[n + i];
          __syncthreads();
          rest[(i + 1) % n] = 0.1 * k;
          __syncthreads();
          y[i] += v * v;
        }""")
    agrees(target, "y, x", 1, 4, np.zeros(4), numbers(8), 4)


# ---- 10: reductions happen where threads meet -----------------------------------------------------------------------

_PARAMS = "double *y, const double *x, double a, int n"
_DIVERGENT = {
    "lanes leave a loop at different times": "for (int k = 0; k <= i % 5; k++) v = v * a + 0.1;",
    "some lanes skip it": "if (i % 3 == 1) v *= a * a;",
    "an early return": "if (i % 4 == 2) return; v = v * a;",
    "a branch in a loop": "for (int k = 0; k < n; k++) if ((i + k) % 3 == 0) v += a * x[i];",
    "a while loop by data": "while (v < 2) v = v * 1.5 + a;",
}


@pytest.mark.parametrize(("grid", "block"), [(1, 7), (1, 40), (2, 33), ((2, 2), (5, 3)), (3, (2, 2, 8))])
@pytest.mark.parametrize("name", _DIVERGENT)
def test_10_a_number_read_by_lanes_that_diverge(name: str, grid: Any, block: Any) -> None:
    """Every lane's part counts once, in full and partial warps, whose lanes go by the linear thread index."""
    target = kernel(
        f"""
        int in_block = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int threads = blockDim.x * blockDim.y * blockDim.z;
        int i = (blockIdx.x + gridDim.x * blockIdx.y) * threads + in_block;
        double v = x[i];
        {_DIVERGENT[name]}
        y[i] = v;""",
        _PARAMS,
    )
    agrees(target, "y, x, a", grid, block, np.zeros(100), numbers(100), 0.7, 4)


# ---- 11: proofs that depend on the launch ---------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "block"), [(1, (8, 1)), (1, (8, 3)), (2, (8, 2)), (2, (4, 1, 2))])
def test_11_a_shared_cell_is_a_threads_own_only_in_a_row_of_threads(grid: Any, block: Any) -> None:
    target = kernel("""
        __shared__ double s[8];
        int t = threadIdx.x, turn = threadIdx.y + blockDim.y * threadIdx.z, rows = blockDim.y * blockDim.z;
        for (int k = 0; k < rows; k++) {
          if (turn == k) { s[t] = x[t] * (k + 1); s[t] = s[t] * s[t]; }
          __syncthreads();
        }
        atomicAdd(&y[t], s[t]);""")
    agrees(target, "y, x", grid, block, np.zeros(8), numbers(8), 8)


# ---- 16: warp-synchronous code --------------------------------------------------------------------------------------

_STEP = "s[t] += s[t + {0}];"


def test_16_volatile_steps_of_a_warp() -> None:
    """Lanes are in step: each reads before any writes, and in the reverse too."""
    steps = " ".join(_STEP.format(d) for d in (16, 8, 4, 2, 1))
    target = kernel(
        "volatile __shared__ double s[48]; int t = threadIdx.x; s[t] = x[t]; if (t < 16) s[t + 32] = 1;"
        f" {steps} y[t] = s[t] * s[t];"
    )
    agrees(target, "y, x", 1, 32, np.zeros(32), numbers(32), 32)


def test_16_steps_with_warp_barriers_between() -> None:
    """Each step reads what the one before wrote: the reverse must take them one by one too."""
    step = "v = s[t + {0}]; __syncwarp(); s[t] = s[t] * v; __syncwarp();"
    steps = " ".join(step.format(d) for d in (16, 8, 4, 2, 1))
    target = kernel(
        "__shared__ double s[48]; int t = threadIdx.x; double v; s[t] = x[t]; if (t < 16) s[t + 32] = 1;"
        f" __syncwarp(); {steps} y[t] = s[t];"
    )
    agrees(target, "y, x", 1, 32, np.zeros(32), numbers(32), 32)


# ---- 17: what is exclusive between two barriers ---------------------------------------------------------------------


def test_17_own_cells_are_read_beside_others() -> None:
    """The reads of one's own cell are as contended as the others' reads of it."""
    target = kernel("""
        __shared__ double s[32];
        int t = threadIdx.x;
        s[t] = x[t];
        __syncthreads();
        y[t] = s[t] * s[0] + s[t] * s[(t + 1) % 32];""")
    agrees(target, "y, x", 1, 32, np.zeros(32), numbers(32), 32)


def test_17_clearing_an_adjoint_counts_too() -> None:
    """In the reverse of the middle phase threads clear their cells' adjoints: others must not add to them then."""
    target = kernel("""
        __shared__ double s[32];
        int t = threadIdx.x;
        s[t] = x[t];
        __syncthreads();
        if (t % 2 == 0) s[t] = s[t] * s[t + 1];
        __syncthreads();
        y[t] = s[t ^ 1] * s[t];""")
    agrees(target, "y, x", 1, 32, np.zeros(32), numbers(32), 32)


def test_17_adjoints_are_cleared_before_others_add_to_them() -> None:
    """In a reverse alone no barrier of the kernel's is left between the two."""
    target = kernel("""
        __shared__ double s[48];
        int t = threadIdx.x;
        s[t] = x[t];
        __syncthreads();
        y[t] = 2 * s[(t + 1) % 48] + 3 * s[(t * 5 + 7) % 48];""")
    agrees(target, "y, x", 1, 48, np.zeros(48), numbers(48), 48)
    alone = kg.gradient(target, "y, x", primal=False, keep="y")
    for order in (None, 1, 2):
        report = alone.check(1, 48, np.zeros(48), numbers(48), 48, np.ones(48), np.zeros(48), seed=order)
        assert report.ok, report


def test_17_a_barrier_of_warps_parts_no_phases() -> None:
    """On both sides of it a cell is one thread's; the two are of different warps."""
    target = kernel("""
        __shared__ double s[64];
        int t = threadIdx.x;
        s[t] = x[t];
        __syncthreads();
        double v = s[t] * x[t];
        __syncwarp();
        y[t] = v * s[(t + 32) % 64] * s[(t + 32) % 64];""")
    agrees(target, "y, x", 1, 64, np.zeros(64), numbers(64), 64)


def test_17_cells_that_move_to_other_owners() -> None:
    """Each phase has one owner per cell, but never the same one."""
    target = kernel("""
        __shared__ double s[32];
        int t = threadIdx.x;
        s[t] = x[t];
        for (int k = 1; k < 4; k++) {
          __syncthreads();
          s[(t + k) % 32] *= s[(t + k) % 32] * x[t];
        }
        __syncthreads();
        y[t] = s[t];""")
    agrees(target, "y, x", 1, 32, np.zeros(32), numbers(32), 32)
