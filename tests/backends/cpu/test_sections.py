"""Rows in sections (Note [Sections]): right wherever a row's bounds lie, and vectorised between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from derived import kernel_of
from kernelgrad.backends.cpu.indexing import Variant
from kernelgrad.backends.cpu.kernel import lower
from kernelgrad.backends.cpu.loops import row_indices
from kernelgrad.backends.cpu.native import optimise
from kernelgrad.backends.cpu.sections import find_bounds

THREADS = 4 * 40
SOURCE = """
__global__ void k(int *y, const int *x, int n, int m, long long far, unsigned u) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if ({guard}) y[j * gridDim.x * blockDim.x + i] = x[i] + 1; else y[j * gridDim.x * blockDim.x + i] = -x[i];
}}
"""

# The guard, what it means, and how many bounds it has on i.
GUARDS: dict[str, tuple[Callable[..., bool], int]] = {
    "i < n": (lambda i, j, n, m, far, u: i < n, 1),
    "n > i": (lambda i, j, n, m, far, u: n > i, 1),
    "!(i < 1 || j < 1 || i >= n - 1)": (lambda i, j, n, m, far, u: 1 <= i < n - 1 and j >= 1, 2),
    "!(i - 3 < m || i + 2 > n)": (lambda i, j, n, m, far, u: i - 3 >= m and i + 2 <= n, 2),
    "i > m && m + i < n - m && j < 3": (lambda i, j, n, m, far, u: i > m and m + i < n - m and j < 3, 2),
    "!(n <= i)": (lambda i, j, n, m, far, u: i < n, 1),
    "i < far": (lambda i, j, n, m, far, u: i < far, 1),
    "i - far <= 9223372036854775807LL": (lambda i, j, n, m, far, u: True, 1),
    "blockIdx.x * blockDim.x + threadIdx.x < u": (lambda i, j, n, m, far, u: i < u, 1),
    "(unsigned)(i - 5) < u": (lambda i, j, n, m, far, u: (i - 5) % 2**32 < u, 0),
    "i < n || i > m": (lambda i, j, n, m, far, u: i < n or i > m, 0),
    "i != n": (lambda i, j, n, m, far, u: i != n, 0),
    "i * m < n": (lambda i, j, n, m, far, u: i * m < n, 0),
    "i % 2 < 1": (lambda i, j, n, m, far, u: i % 2 < 1, 0),
    "x[i] < n": (lambda i, j, n, m, far, u: 10 * i < n, 0),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_finds_bounds(guard: str) -> None:
    function = kernel_of(SOURCE.format(guard=guard)).function
    assert len(find_bounds(function, row_indices(function, 40))) == GUARDS[guard][1]


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(
    ("n", "m"), [(THREADS, 0), (100, 7), (0, 0), (-5, 3), (1, -1), (1000, 1), (2**31 - 1, 0), (60, 59)]
)
def test_values(guard: str, n: int, m: int) -> None:
    kernel, holds = kernel_of(SOURCE.format(guard=guard)), GUARDS[guard][0]
    if n > 10_000 and ("n - 1" not in guard and "i < n" not in guard and "n > i" not in guard):
        pytest.skip("overflows")
    x, y = 10 * np.arange(THREADS, dtype=np.int32), np.zeros((4, THREADS), np.int32)
    far, u = n + 3, abs(n)
    kernel[(4, 2), (40, 2)](y, x, n, m, far, u)
    expected = [[x[i] + 1 if holds(i, j, n, m, far, u) else -x[i] for i in range(THREADS)] for j in range(4)]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("far", [-(2**63), -(2**63) + 1, 0, 2**63 - 1])
def test_limits_that_no_index_reaches(far: int) -> None:
    kernel = kernel_of(SOURCE.format(guard="i <= far"))
    x, y = np.arange(THREADS, dtype=np.int32), np.zeros((4, THREADS), np.int32)
    kernel[(4, 2), (40, 2)](y, x, 0, 0, far, 0)
    expected = np.where(x <= far, x + 1, -x)
    np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))


@pytest.mark.parametrize(("guard", "far"), [("(int)(i + far) < n", -(2**32)), ("(int)(i + far) >= n", 2**32)])
def test_sums_that_wrap_when_they_are_cut(guard: str, far: int) -> None:
    kernel = kernel_of(SOURCE.format(guard=guard))
    assert not find_bounds(kernel.function, row_indices(kernel.function, 40))
    x, y = np.arange(THREADS, dtype=np.int32), np.zeros((4, THREADS), np.int32)
    kernel[(4, 2), (40, 2)](y, x, 70, 0, far, 0)
    expected = np.where((x < 70) == ("<" in guard), x + 1, -x)
    np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))


CONVOLUTION = """
__global__ void k(float *__restrict__ y, const float *__restrict__ x, const float *__restrict__ w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 31; ++k) sum += w[k] * x[i + k];
    y[i] = sum;
}
"""


def test_a_loop_in_a_guarded_thread_is_vectorised() -> None:
    """Unrolled, over the threads."""
    kernel = kernel_of(CONVOLUTION)
    text = str(optimise(lower(kernel.module, "k", Variant(True, (256, 1, 1))).text))
    assert " x float>" in text
    n, random = 1000, np.random.default_rng(0)
    x, w, y = random.random(n + 31, np.float32), random.random(31, np.float32), np.zeros(1100, np.float32)
    kernel[5, 220](y, x, w, n)
    np.testing.assert_allclose(y[:n], np.correlate(x, w)[:n], rtol=1e-5)
    assert not y[n:].any()
