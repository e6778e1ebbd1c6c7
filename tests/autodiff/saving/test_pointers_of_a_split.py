"""Between two launches, a thread's own memory is another and buffers may lie elsewhere: no pointers on that tape."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

N = 64
HEAD = "__global__ void k(double *y, const double *x, const double *w, const double *v) { int i = threadIdx.x; "
TURN = "{ const double *t = p; p = q; q = t; }"
# Which memory is read after all depends on data; none of it has a derivative.
BODIES = {
    "after a loop": "double a[2] = {2, 3}, *p = a, *q = a + 1; for (int j = 0; j < 5; j += q[0] > 1 ? 1 : 2)"
    " if (p[0] * w[i] > 3) { double *t = p; p = q; q = t; p[0] += 0.25; } y[i] = x[i] * x[i] * p[0];",
    "in a loop": "double a[2] = {2, 3}, *p = a, *q = a + 1, s = x[i]; for (int j = 0; j < 4; j++) { s = sin(s) * p[0];"
    " if (p[0] * w[i + j] > 3) { double *t = p; p = q; q = t; p[0] += 0.25; } } y[i] = s * s * p[0];",
    "buffers": "const double *p = w + i, *q = v + i; double s = x[i]; for (int j = 0; j < 4; j++) { s = sin(s) * p[0];"
    f" if (p[0] * w[i + j] > 1) {TURN} }} y[i] = s * s * p[0];",
}


def _inputs() -> list[np.ndarray]:
    return [np.zeros(N), *np.random.default_rng(1).uniform(0.4, 1.6, (3, N + 8))]


@pytest.mark.parametrize("unchanged", ["", "x, w, v"])
@pytest.mark.parametrize("name", BODIES)
def test_what_they_lead_to_is_kept(name: str, unchanged: str) -> None:
    kernel, d_y = kg.compile(HEAD + BODIES[name] + " }")["k"], np.random.default_rng(2).normal(size=N)
    want, found = np.zeros(N + 8), np.zeros(N + 8)
    kg.gradient(kernel, "y, x")[1, N](*_inputs(), d_y.copy(), want)
    forward, reverse = kg.split(kernel, "y, x", unchanged=unchanged)
    arrays = _inputs()
    tape = forward[1, N](*arrays)
    for array in arrays[bool(unchanged) * 4 :]:
        array[:] = np.nan
    reverse[1, N](tape, *arrays, d_y, found)
    np.testing.assert_allclose(found, want, rtol=1e-12)
    assert np.count_nonzero(found) == N
