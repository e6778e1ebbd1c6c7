"""Threads that return between barriers (Note [Exit] in `ir.ops`): the others meet without them, and a barrier that a
thread misses which is still there is an error all the same."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from early_returns import LENGTHS, SOURCES
from kernelgrad.errors import KernelError

# The same kernels by hand: all threads meet every barrier, `gone` threads do nothing else.
_BY_HAND = {
    "last_in_a_for": """
        bool gone = false;
        s[t] = x[t];
        __syncthreads();
        for (int j = 0; j < n; j++) {
          if (!gone) s[t] = x[t] * (j + 1);
          __syncthreads();
          if (!gone) y[t] += s[t] * s[(t + 1) % 32];
          __syncthreads();
          if (t < j) gone = true;
        }
        if (!gone) y[t] += s[t] * x[0];""",
    "last_in_a_while_by_data": """
        bool gone = false;
        double v = x[t];
        for (int j = 0; j < n; ) {
          if (!gone) s[t] = v * v;
          __syncthreads();
          if (!gone) v = 0.5 * v + 0.4 * s[(t + j) % 32];
          if (!gone) y[t] += v;
          ++j;
          __syncthreads();
          if (x[t] * 30 < j) gone = true;
        }""",
    "last_in_a_do": """
        bool gone = false;
        for (int j = 0; j == 0 || j < n; j++) {
          if (!gone) s[t] = x[t] * x[(t + j) % 32];
          __syncthreads();
          if (!gone) y[t] += s[0] * s[t];
          __syncthreads();
          if (t % 7 == j) gone = true;
        }
        if (!gone) y[t] *= s[t];""",
    "in_nested_loops": """
        bool gone = false;
        double v = x[t];
        for (int j = 0; j < 3; j++) {
          for (int m = 0; m <= n / 12; m++) {
            if (!gone) s[t] = v * (1 + 0.1 * j);
            __syncthreads();
            if (!gone) v = 0.6 * v + 0.3 * s[(t + m) % 32];
            __syncthreads();
            if (t % 8 == 2 * j + m) gone = true;
          }
          if (!gone) y[t] += v * v;
          if (!gone && t == 31 - j) {
            y[t] *= v;
            gone = true;
          }
        }
        if (!gone) y[t] += s[t];""",
    "in_a_switch_in_a_loop": """
        bool gone = false;
        for (int j = 0; j < 4; j++) {
          if (!gone) s[t] = x[t] + j;
          __syncthreads();
          double v = s[(t + 1) % 32];
          __syncthreads();
          int c = (t + j) % 4;
          if (c == 0 && !gone) y[t] += v * v;
          if (c == 1 && t >= n) gone = true;
          if (c == 1 && !gone) y[t] += v;
          if (c == 2 && !gone) y[t] *= v;
          if (c >= 2 && t % 5 == j) gone = true;
        }""",
    "falling_through_to_a_barrier": """
        bool gone = false;
        s[t] = x[t] * x[t];
        __syncthreads();
        if (n == 3) y[t] = s[31 - t];
        if ((n == 3 || n == 20) && t >= n) gone = true;
        if (n == 3 || n == 20 || n == 32) {
          __syncthreads();
          if (!gone) s[t] *= x[t];
          __syncthreads();
        }
        if (!gone) y[t] += s[0] * s[t];
        if (!gone) y[t] += s[t];""",
    "beside_break_and_continue": """
        bool gone = false;
        s[t] = x[t];
        __syncthreads();
        for (int j = 0; j < 6; j++) {
          if (j == 2) continue;
          if (j > n) break;
          if (t == 3 * j) gone = true;
          if (!gone) s[t] = x[t] * (j + 2);
          __syncthreads();
          if (!gone) y[t] += s[(t + 1) % 32] * x[t];
          __syncthreads();
          if (!gone && t == 3 * j + 1) {
            y[t] -= x[t] * x[t];
            gone = true;
          }
        }
        if (!gone) y[t] *= s[t];""",
    "after_work_of_their_own": """
        bool gone = t >= n;
        s[t] = 1;
        __syncthreads();
        if (gone) y[t] = x[t] * x[t] * s[t];
        __syncthreads();
        if (!gone) s[t] = x[t];
        for (int j = 0; j < 4; j++) {
          __syncthreads();
          double v = s[(t + 1) % 32];
          __syncthreads();
          if (!gone) s[t] = v * x[t];
          if (!gone) y[t] += v;
          if (j == t % 4) gone = true;
        }""",
}


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", _BY_HAND)
def test_those_that_stay_meet_without_those_that_returned(name: str, n: int) -> None:
    by_hand = f"""__global__ void k(double* y, const double* x, int n) {{
        __shared__ double s[32]; int t = threadIdx.x; {_BY_HAND[name]} }}"""
    kernel, twin = kernel_of(SOURCES[name]), kernel_of(by_hand)
    rng = np.random.default_rng(n)
    x, y = rng.random(32), rng.random(32)
    want, got = y.copy(), y.copy()
    twin[1, 32](want, x, n)
    kernel[1, 32](got, x, n)
    np.testing.assert_array_equal(got, want)
    for order in (None, 1, 2):
        report = kernel.check(1, 32, y.copy(), x, n, seed=order)
        assert report.ok, str(report)


@pytest.mark.parametrize("name", _BY_HAND)
def test_forward_mode(name: str) -> None:
    kernel = kernel_of(SOURCES[name])
    rng = np.random.default_rng(5)
    x, y, t_x, t_y = rng.random((4, 32))

    def primal(step: float) -> np.ndarray:
        moved = y + step * t_y
        kernel[1, 32](moved, x + step * t_x, 20)
        return moved

    after, tangent = y.copy(), t_y.copy()
    kg.jvp(kernel, "y, x")[1, 32](after, x, 20, tangent, t_x)
    np.testing.assert_allclose(after, primal(0.0), rtol=1e-13)
    np.testing.assert_allclose(tangent, (primal(1e-6) - primal(-1e-6)) / 2e-6, rtol=1e-5, atol=1e-6)


_MISSED = {
    "left the loop only": "for (int j = 0; j < n; j++) { s[t] = j; __syncthreads(); if (t < j) break; }",
    "goes on to the next iteration": "for (int j = 0; j < n; j++) { if (t < j) continue; s[t] = j; __syncthreads(); }",
    "returns later": """
        for (int j = 0; j < n; j++) {
          if (t >= j) __syncthreads();
          s[t] = j;
          if (t < j) return;
        }""",
    "stays where others returned": """
        if (t >= 20) { y[t] = 1; return; }
        if (t < 7) __syncthreads();
        y[t] = 2;""",
}


@pytest.mark.parametrize("name", _MISSED)
def test_a_thread_that_misses_a_barrier_and_has_not_returned_is_an_error(name: str) -> None:
    kernel = kernel_of(
        f"__global__ void k(double* y, int n) {{ __shared__ double s[32]; int t = threadIdx.x; {_MISSED[name]} }}"
    )
    first = 7 if name == "stays where others returned" else 0
    with pytest.raises(KernelError, match=rf"divergent barrier.*thread \({first}, 0, 0\)"):
        kernel[1, 32](np.zeros(32), 5)
