"""Rule 8: a tile is filled again in the reverse, not taped, but only if the fill writes every cell that is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.block_interpreter.threads import Threads
from kernelgrad.analysis.structure import analyse
from kernelgrad.ir.ops import Store
from kernelgrad.ir.traverse import walk

HEAD = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"

# Each `k(double *y, const double *x, int n)` with blocks of 8 threads; whether its tiles can be filled again.
KERNELS = {
    "nbody": (
        True,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double mine = i < n ? x[i] : 0, sum = 0;
          for (int first = 0; first < n; first += 8) {{
            s[t] = first + t < n ? x[first + t] : 0.0;
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += mine * s[j] / (1 + (mine - s[j]) * (mine - s[j]));
            __syncthreads();
          }}
          if (i < n) y[i] = sum;
        }}""",
    ),
    "a_barrier_before_the_fill": (
        True,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double mine = i < n ? x[i] : 0, sum = 0;
          for (int first = 0; first < n; first += 8) {{
            __syncthreads();
            s[t] = first + t < n ? x[first + t] : 0.0;
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += mine * s[j] / (1 + (mine - s[j]) * (mine - s[j]));
          }}
          if (i < n) y[i] = sum;
        }}""",
    ),
    "if_and_else": (
        True,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double sum = 0;
          for (int first = 0; first < n; first += 8) {{
            if (first + t < n) s[t] = x[first + t] * x[i]; else s[t] = 0;
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += s[j] * s[j];
            __syncthreads();
          }}
          if (i < n) y[i] = sum;
        }}""",
    ),
    "halo": (
        True,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[12]; {HEAD}
          for (int rounds = 0; rounds < n / 6; rounds++) {{
            int at = i + 24 * rounds;
            s[t + 2] = x[at % n];
            if (t < 2) {{ s[t] = x[(at + n - 2) % n]; s[t + 10] = x[(at + 8) % n]; }}
            __syncthreads();
            double v = 0;
            for (int j = 0; j < 5; j++) v += s[t + j] * s[t + j] * x[j];
            y[at] = v;
            __syncthreads();
          }}
        }}""",
    ),
    "padded_transpose": (
        True,
        """
        __global__ void k(double* y, const double* x, int n) {
          __shared__ double s[4][5];
          int t = threadIdx.x;
          for (int r = 0; r < n / 8; r++) {
            for (int e = t; e < 16; e += blockDim.x) s[e / 4][e % 4] = x[(16 * r + e) % n];
            __syncthreads();
            for (int e = t; e < 16; e += blockDim.x) y[32 * blockIdx.x + 16 * r + e] = s[e % 4][e / 4] * s[e % 4][0];
            __syncthreads();
          }
        }""",
    ),
    # The last tile is filled in part and read as a whole: stale cells of the tile before take part.
    "stale_tail": (
        False,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          s[t] = 1;
          double sum = 0;
          for (int first = 0; first < n; first += 8) {{
            if (first + t < n) s[t] = x[first + t];
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += s[j] * s[j];
            __syncthreads();
          }}
          if (i < n) y[i] = sum * x[i];
        }}""",
    ),
    "first_iteration_only": (
        True,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double sum = 0;
          for (int r = 0; r < n / 4; r++) {{
            if (r == 0) s[t] = x[t];
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[r];
            __syncthreads();
          }}
          y[i] = sum;
        }}""",
    ),
    "fewer_threads_than_cells": (
        False,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[16]; {HEAD}
          double sum = 0;
          for (int r = 0; r < n / 4; r++) {{
            s[8 * (r % 2) + t] = x[(8 * r + t) % n];
            if (r == 0) s[t + 8] = 0.5;
            __syncthreads();
            for (int j = 0; j < 16; j++) sum += s[j] * s[j];
            __syncthreads();
          }}
          y[i] = sum;
        }}""",
    ),
    "ring_buffer": (
        False,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[3][8]; {HEAD}
          s[0][t] = x[t];
          s[1][t] = x[t + 8];
          double sum = 0;
          for (int r = 2; r < min(n, 8); r++) {{
            s[r % 3][t] = x[8 * r + t];
            __syncthreads();
            sum += s[(r + 1) % 3][(t + 1) % 8] * s[(r + 2) % 3][t] * s[r % 3][7 - t];
            __syncthreads();
          }}
          y[i] = sum;
        }}""",
    ),
    "double_buffered": (
        False,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[2][8]; {HEAD}
          double sum = 0;
          s[0][t] = x[t];
          __syncthreads();
          for (int r = 0; r < 6; r++) {{
            if (r < 5) s[(r + 1) % 2][t] = x[8 * r + 8 + t];
            for (int j = 0; j < 8; j++) sum += s[r % 2][j] * s[r % 2][7 - j];
            __syncthreads();
          }}
          y[i] = sum;
        }}""",
    ),
    # In some rounds the fill does not happen, and what is read is from an earlier one.
    "filled_as_often_as_data_say": (
        False,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double sum = 0;
          s[t] = x[t];
          __syncthreads();
          for (int r = 0; r < 6; r++) {{
            for (int k = 0; k < (int)(2 * x[40 + r]) % 2; k++) s[t] = x[8 * r + t] * (r + 1);
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[i];
            __syncthreads();
          }}
          y[i] = sum;
        }}""",
    ),
    # The same, where all fills are in the round: whether they cover what is read is up to the data.
    "filled_in_the_round_as_often_as_data_say": (
        False,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double sum = 0;
          for (int r = 0; r < 6; r++) {{
            int often = r == 0 ? 1 : (int)(2 * x[40 + r]) % 2;
            for (int k = 0; k < often; k++) s[t] = x[8 * r + t] * (r + 1);
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[i];
            __syncthreads();
          }}
          y[i] = sum;
        }}""",
    ),
    # What fills the tile is overwritten: the stored values are kept, not read again.
    "filled_from_what_changes": (
        True,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          double sum = 0;
          for (int r = 0; r < n / 5; r++) {{
            s[t] = y[i] * x[r];
            __syncthreads();
            for (int j = 0; j < 8; j++) sum += s[j] * s[j];
            __syncthreads();
            y[i] = sum;
          }}
        }}""",
    ),
}
# Filled in several phases, each over what the last one left; how many numbers a thread keeps.
PHASES = {
    "two_phases": (
        0,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          s[t] = x[i]; __syncthreads(); s[t] = exp(s[t]); __syncthreads();
          double sum = 0;
          for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[i];
          y[i] = sum;
        }}""",
    ),
    "phases_in_strides": (
        1,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          for (int j = t; j < 8; j += blockDim.x) s[j] = x[blockIdx.x * 8 + j];
          for (int j = t; j < 8; j += blockDim.x) s[j] = sin(s[j]);
          __syncthreads();
          for (int d = t; d < 16; d += 8) {{
            double sum = 0;
            for (int j = 0; j < n % 8; j++) sum += s[j] * x[d + j];
            y[blockIdx.x * 16 + d] = sum;
          }}
        }}""",
    ),
    "without_a_barrier_of_the_block": (
        0,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          s[t] = x[i]; s[t] = s[t] * s[t]; __syncwarp();
          double sum = 0;
          for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[i];
          y[i] = sum;
        }}""",
    ),
    "read_before_the_last_phase_too": (
        8,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          s[t] = x[i] * x[i]; __syncthreads();
          double sum = 0;
          for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[i];
          __syncthreads(); s[(t + 1) % 8] = sum; __syncthreads();
          for (int j = 0; j < 8; j++) sum += s[j] * s[j] * x[i];
          y[i] = sum;
        }}""",
    ),
    "in_a_branch_of_all": (
        0,
        f"""
        __global__ void k(double* y, const double* x, int n) {{
          __shared__ double s[8]; {HEAD}
          if (n > 5) {{
            s[t] = x[i]; __syncthreads(); if (t < 4) s[t] = s[t + 4] * x[i]; __syncthreads();
            double sum = 0;
            for (int j = 0; j < 4; j++) sum += s[j] * s[j];
            y[i] = sum;
          }}
        }}""",
    ),
}
LAUNCH = (3, 8)
N = 19


def arguments(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random(96), rng.random(96) + 0.2, rng.standard_normal(96)


@pytest.mark.parametrize("name", [*KERNELS, *PHASES])
def test_gradient(name: str) -> None:
    kernel = kg.compile({**KERNELS, **PHASES}[name][1])["k"]
    gradient = kg.gradient(kernel)
    y, x, seed = arguments(1)

    def primal(y: Any, x: Any) -> Any:
        y = y.copy()
        kernel[LAUNCH](y, x, N)
        return y

    d_y, d_x = seed.copy(), np.zeros(96)
    gradient[LAUNCH](y.copy(), x, N, d_y, d_x)
    rng = np.random.default_rng(2)
    for _ in range(4):
        v_y, v_x, step = rng.standard_normal(96), rng.standard_normal(96), 1e-5
        change = primal(y + step * v_y, x + step * v_x) - primal(y - step * v_y, x - step * v_x)
        assert d_x @ v_x + d_y @ v_y == pytest.approx(change @ seed / (2 * step), rel=1e-6)
    for order in (None, 1, 2):
        report = gradient.check(*LAUNCH, y.copy(), x, N, seed.copy(), np.zeros(96), seed=order)
        assert report.ok, str(report)
    forward, reverse = kg.split(kernel)
    after, s_y, s_x = y.copy(), seed.copy(), np.zeros(96)
    reverse[LAUNCH](forward[LAUNCH](after, x, N), after, x, N, s_y, s_x)
    np.testing.assert_allclose(s_y, d_y, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(s_x, d_x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", KERNELS)
def test_tape_or_refill(name: str) -> None:
    """A tile that can be filled again puts at most what it is filled with on the tape: one number a round."""
    refilled, source = KERNELS[name]
    gradient = kg.gradient(kg.compile(source)["k"])
    y, x, _ = arguments(1)
    per_thread = gradient.tape_bytes(*LAUNCH, y, x, N) / (8 * 24)
    assert per_thread <= 3 if refilled else per_thread > 3
    assert ("is filled again" in gradient.explain()) or not refilled


@pytest.mark.parametrize("name", PHASES)
def test_what_the_last_phase_left_is_still_there(name: str) -> None:
    kept, source = PHASES[name]
    y, x, _ = arguments(1)
    assert kg.gradient(kg.compile(source)["k"]).tape_bytes(*LAUNCH, y, x, N) <= kept * 8 * 24


def test_the_launch_decides() -> None:
    """With a block smaller than the tile, the fill leaves cells that are read: nothing is filled again then."""
    kernel = kg.compile(KERNELS["nbody"][1].replace("double s[8]", "double s[16]"))["k"]
    assert kg.gradient(kernel).tape_bytes(3, 8, *arguments(1)[:2], 19) == 0
    small = kg.compile(KERNELS["nbody"][1].replace("s[t] = first", "if (t < 4) s[2 * t] = s[2 * t + 1] = first"))["k"]
    assert kg.gradient(small).tape_bytes(3, 8, *arguments(1)[:2], 19) == 0
    assert kg.gradient(small).tape_bytes(6, 3, *arguments(1)[:2], 19) > 0


def test_primal_is_not_needed_for_tiles() -> None:
    kernel = kg.compile(KERNELS["nbody"][1])["k"]
    y, x, seed = arguments(1)
    expected = np.zeros(96)
    kg.gradient(kernel)[LAUNCH](y.copy(), x, N, seed.copy(), expected)
    found, kept = np.zeros(96), seed.copy()
    kg.gradient(kernel, primal=False, keep="y")[LAUNCH](np.full(96, np.nan), x, N, kept, found)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(kept, seed)


@pytest.mark.parametrize("first", [0, -4])
@pytest.mark.parametrize("operator", ["/", "%"])
def test_integers_of_threads_are_divided_as_in_c(operator: str, first: int) -> None:
    """Towards zero; what is negative is not evaluated."""
    source = f"__global__ void k(int *y) {{ int t = threadIdx.x; y[t] = (t + {first}) {operator} 3; }}"
    kernel = kg.compile(source)["k"]
    (store,) = (op for op in walk(kernel.function.body) if isinstance(op, Store))
    found = Threads((8, 1, 1), analyse(kernel.function, apart=False), lambda _: None).value(store.value)
    y = np.zeros(8, np.int32)
    kernel[1, 8](y)
    assert found is None if first < 0 else np.array_equal(found, y)
