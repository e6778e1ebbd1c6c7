"""Phases in which a range of threads does something (Note [Narrow phases]): those alone run, and nobody is missed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from derived import kernel_of
from kernelgrad.backends.cpu.indexing import Variant
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.native import optimise

WIDTH, HEIGHT = 40, 3
SOURCE = """
__global__ void k(int *y, const int *x, int n, int m, unsigned u) {{
    __shared__ int s[120];
    int t = threadIdx.x, j = threadIdx.y, at = j * blockDim.x + t;
    s[at] = x[at];
    __syncthreads();
    {{ {phase} }}
    __syncthreads();
    y[at] = s[at];
}}
"""
DOES = "{ s[at] += n + 1000; }"

# A phase, and for which threads it adds n + 1000.
PHASES: dict[str, Callable[..., bool]] = {
    f"if (t < n) {DOES}": lambda t, j, n, m, u: t < n,
    f"if (t == n) {DOES}": lambda t, j, n, m, u: t == n,
    f"if (threadIdx.x == u) {DOES}": lambda t, j, n, m, u: t == u,
    f"if (n >= t && t > m) {DOES}": lambda t, j, n, m, u: n >= t > m,
    f"if (!(t + m < n || j == 1)) {DOES}": lambda t, j, n, m, u: t + m >= n and j != 1,
    f"if (threadIdx.x < u && j < 2) {DOES}": lambda t, j, n, m, u: t < u and j < 2,
    f"if (t != n) {DOES}": lambda t, j, n, m, u: t != n,
    f"if (t < n || t == m) {DOES}": lambda t, j, n, m, u: t < n or t == m,
    f"if (t < j) {DOES}": lambda t, j, n, m, u: t < j,
    f"if (j < n) {DOES}": lambda t, j, n, m, u: j < n,
    f"if (t < n) {DOES} else s[at] += 0;": lambda t, j, n, m, u: t < n,
    f"if (t < n) {DOES} s[at] += 0;": lambda t, j, n, m, u: t < n,
    f"if (t < n) {DOES} if (t == m) {{ s[at] += 0; }}": lambda t, j, n, m, u: t < n,
    f"for (int d = n; d > 0; d >>= 1) {{ if (t == d) {DOES} __syncthreads(); }}": (
        lambda t, j, n, m, u: t > 0 and t in [n >> k for k in range(32)]
    ),
    f"if (t < n) {DOES} if (t >= n) return;": lambda t, j, n, m, u: t < n,
}
RETURNS = next(reversed(PHASES))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("n", "m"), [(WIDTH, 0), (7, 3), (0, 0), (-5, 3), (39, -1), (1000, 1), (2**31 - 2000, 0)])
def test_values(phase: str, n: int, m: int) -> None:
    kernel, does = kernel_of(SOURCE.format(phase=phase)), PHASES[phase]
    x, y = 10 * np.arange(HEIGHT * WIDTH, dtype=np.int32), np.zeros(HEIGHT * WIDTH, np.int32)
    u = abs(n)
    kernel[1, (WIDTH, HEIGHT)](y, x, n, m, u)
    threads = [(t, j, n, m, u) for j in range(HEIGHT) for t in range(WIDTH)]
    adds = np.array([does(*thread) for thread in threads])
    expected = np.where(adds, x + n + 1000, x)
    np.testing.assert_array_equal(y, np.where(adds | (phase != RETURNS), expected, 0))


def test_one_thread_is_no_loop() -> None:
    """Copying a cell takes one thread, not 256 tests."""
    source = """__global__ void k(float *y, const float *x) {
        __shared__ float s[256];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) y[blockIdx.x] = s[0] + s[255];
    }"""
    kernel = kernel_of(source)
    text = str(optimise(lower(kernel.module, kernel.name, Variant(block=(256, 1, 1))).text))
    block = text.split("define internal")[1].split("\n}")[0]
    assert block.count("phi ") <= 1 and "masked" not in block


def test_loops_of_all_threads_alike_run_once() -> None:
    """How often a loop with a barrier goes round is a number that all threads know."""
    source = """__global__ void k(float *y, int n) {
        int count = 0;
        for (int d = n; d > 0; d >>= 1) ++count;
        for (int k = 0; k < count; ++k) {
            y[threadIdx.x] += 1.0f;
            __syncthreads();
        }
    }"""
    kernel = kernel_of(source)
    assert lower(kernel.module, kernel.name).slot_bytes == 0
    y = np.zeros(70, np.float32)
    kernel[1, 70](y, 40)
    np.testing.assert_array_equal(y, 6.0)
