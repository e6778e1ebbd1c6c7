"""Loops of which one iteration does something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

LOOP = "for (int k = 0; k < n; ++k) "
# Bodies of `k(T *y, const T *x, T d, int at, int n)`, for one thread.
ALONE = {
    "added": LOOP + "y[k] += k == at ? d : (T)-0.0;",
    "handed on": LOOP + "{ bool is = at == k; y[k] = y[k] + (is ? d : (T)-0.0); d = is ? (T)-0.0 : d; } y[n] += d;",
    "atomic": LOOP + "atomicAdd(&y[k], k == at ? d * x[k] : (T)-0.0);",
    "in a branch": LOOP + "if (k == at) y[k] = d * x[k];",
    "downwards": "for (int k = n - 1; k >= 0; --k) y[k] += k == at ? d : (T)-0.0;",
    "in a loop": "for (int j = 0; j < 3; ++j) { int e = at + j; " + LOOP + "y[k] += k == e ? d : (T)-0.0; }",
}
NOT_ALONE = {
    "zero is a number": LOOP + "y[k] += k == at ? d : (T)0.0;",
    "another element": LOOP + "y[k] = y[k + 1] + (k == at ? d : (T)-0.0);",
    "several iterations": LOOP + "y[k] += k / 2 == at ? d : (T)-0.0;",
    "it comes round": LOOP + "y[k] += (signed char)(k * 64) == at ? d : (T)-0.0;",
    "the wanted moves": LOOP + "{ y[k] += k == at ? d : (T)-0.0; at += k == 3; }",
    "something else": LOOP + "{ y[k] += k == at ? d : (T)-0.0; y[n] += x[k]; }",
    "a sum": "T s = 0; " + LOOP + "{ y[k] += k == at ? d : (T)-0.0; s += x[k]; } y[n] = s;",
}


def run(body: str, at: int, n: int) -> tuple[Any, str]:
    kernel: Any = kg.compile(f"typedef double T; __global__ void k(T *y, const T *x, T d, int at, int n) {{ {body} }}")[
        "k"
    ]
    y = np.arange(24.0)
    y[5] = -0.0
    kernel[1, 1](y, np.arange(2.0, 26.0), 0.5, at, n)
    return y, kernel.source


def expected(body: str, at: int, n: int) -> Any:
    """The same where the compiler does not see that it is one loop."""
    hidden = body.replace("k < n; ++k", "k < n; k += x[0] > 0 ? 1 : 2").replace("k >= 0; --k", "k >= 0; k -= x[0] > 0")
    return run(hidden, at, n)[0]


@pytest.mark.parametrize("name", [*ALONE, *NOT_ALONE])
def test_values(name: str) -> None:
    body = {**ALONE, **NOT_ALONE}[name]
    for at, n in ((3, 20), (0, 20), (19, 20), (20, 20), (-1, 20), (5, 20), (0, 0), (0, 1)):
        got, want = run(body, at, n)[0], expected(body, at, n)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("name", [*ALONE, *NOT_ALONE])
def test_loop_is_gone(name: str) -> None:
    text = run({**ALONE, **NOT_ALONE}[name], 3, 20)[1]
    assert text.count("for (") == (name in NOT_ALONE or name == "in a loop")


STRIDED = "T top = -1e30; int t = threadIdx.x; for ({0} c = t; c < n; c += {1}) top = max(top, x[c]); y[t] = top * d;"


@pytest.mark.parametrize("index", ["int", "unsigned"])
@pytest.mark.parametrize("step", ["32", "blockDim.x"])
def test_strided(index: str, step: str) -> None:
    """The reverse of a running maximum goes to the last element that was taken."""
    body = STRIDED.format(index, step)
    kernel: Any = kg.compile(f"typedef double T; __global__ void k(T *y, const T *x, T d, int n) {{ {body} }}")["k"]
    gradient = kg.gradient(kernel, "y, x")
    for n in (0, 1, 31, 32, 33, 300):
        x = np.random.default_rng(n).permutation(1.0 * np.arange(max(n, 1)))
        y, d_y, d_x = np.zeros(32), np.arange(1.0, 33.0), np.ones_like(x)
        gradient[1, 32](y, x, 2.0, n, d_y, d_x)
        want = np.ones_like(x)
        for t in range(min(n, 32)):
            want[t + 32 * np.argmax(x[t:n:32])] += 2.0 * (t + 1)
        np.testing.assert_array_equal(d_x, want)
    text = gradient.source_for(1, 32, y, x, 2.0, 300, on_gpu=True)
    assert text.count("for (") == 1
