"""Loops in strips, for launches whose tape would be large: the same gradient from a smaller tape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.autodiff.accumulate.choice import USUAL

LOOPS = {
    "up": "for (int k = 0; k < n; k++) v = r * v * (1 - v) + 0.1 * x[k];",
    "down": "for (int k = n; k > 0; k--) v = sin(v) + r * x[k];",
    "by three": "for (int k = 1; k < n; k += 3) { v = v * v * r + x[k]; w = w * v; }",
}


@pytest.mark.parametrize("n", (0, 1, 7, 8, 9, 24, 29))
@pytest.mark.parametrize("name", LOOPS)
def test_strips(name: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"""__global__ void k(double *y, const double *x, double r, int n) {{
        int i = threadIdx.x;
        double v = x[i], w = 1;
        {LOOPS[name]}
        y[i] = v * w;
    }}"""
    rng = np.random.default_rng(n)
    x, seed = rng.random(32) * 0.5, rng.standard_normal(8)
    results: list[Any] = []
    tapes = []
    for strips in (False, True):
        gradient = kg.gradient(kernel_of(source), "y, x, r")
        variant = gradient.variant(("y", "x", "r"), replace(USUAL, strips=strips))
        monkeypatch.setattr(gradient.forms, "for_launch", lambda *_, variant=variant: variant)
        d_x, d_r = np.zeros(32), np.zeros(1)
        gradient[1, 8](np.zeros(8), x, 0.7, n, seed.copy(), d_x, d_r)
        results.append(np.concatenate([d_x, d_r]))
        tapes.append(gradient.tape_bytes(1, 8, np.zeros(8), x, 0.7, n))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12, atol=1e-15)
    assert tapes[1] < tapes[0] or n < 16 or name == "by three"
