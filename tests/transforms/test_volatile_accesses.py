"""Volatile shared memory of which warps in step access some plainly: the lanes meet there as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

LANES = np.arange(32)
_OTHER = {k: LANES ^ k for k in (1, 2, 8)}


def _squares(x: Any) -> Any:
    return x[_OTHER[1]] ** 2


CASES: dict[str, tuple[str, Any]] = {
    "store": ("double a = v[t ^ 1]; s[t] = a * a; y[t] = v[t ^ 2];", lambda x: _squares(x)[_OTHER[2]]),
    "load": ("double a = s[t ^ 1]; v[t] = a * a; y[t] = s[t ^ 2];", lambda x: _squares(x)[_OTHER[2]]),
    "store of some lanes": (
        "double a = v[t ^ 1]; if (t % 3) s[t] = a * a; y[t] = v[t ^ 2] * v[t ^ 8];",
        lambda x: (lambda s: s[_OTHER[2]] * s[_OTHER[8]])(np.where(LANES % 3, _squares(x), x)),
    ),
    "load of some lanes": (
        "double a = 0; if (t % 3) a = s[t ^ 1]; v[t] = a * a + x[t]; y[t] = v[t ^ 2];",
        lambda x: (np.where(LANES % 3, _squares(x), 0) + x)[_OTHER[2]],
    ),
    "loop": (
        "for (int k = 0; k < 2; ++k) { double a = v[t ^ 1]; s[t] = a * a; } y[t] = v[t ^ 2];",
        lambda x: (x**4)[_OTHER[2]],
    ),
}


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_plain_accesses_take_their_turn(name: str, primal: bool) -> None:
    body, exact = CASES[name]
    source = f"""__global__ void k(double *y, const double *x) {{
        __shared__ double s[32];
        volatile double *v = s;
        int t = threadIdx.x;
        v[t] = x[t];
        {body}
    }}"""
    rng = np.random.default_rng(3)
    x, seed, along = rng.uniform(0.5, 1.5, 32), rng.standard_normal(32), rng.standard_normal(32)
    y, d_x = np.zeros(32), np.zeros(32)
    kg.gradient(kg.compile(source)["k"], "y, x", primal=primal)[1, 32](y, x, seed.copy(), d_x)
    if primal:
        np.testing.assert_allclose(y, exact(x), rtol=1e-12)
    step = 1e-6 * along
    assert d_x @ along == pytest.approx(seed @ (exact(x + step) - exact(x - step)) / 2e-6, rel=1e-6)
