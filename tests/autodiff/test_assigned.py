"""`assign=`: adjoints that held something else, under every plan."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import PLANS, forced

BODIES = {
    "a loop": "double s = p[0]; for (int k = 0; k < m; ++k) s *= 1 + 0.1 * p[1] * x[k * n + i] * s; y[i] = s;",
    "a loop, one element at its end": """double s = x[i];
        for (int k = 0; k < m; ++k) s *= 1 + 0.1 * p[1] * s;
        y[i] = s * x[n + i] + p[0];""",
    "read twice": """double s = p[0] * x[i];
        for (int k = 1; k < m; ++k) s *= 1 + 0.1 * p[1] * x[k * n + i] * s;
        y[i] = s * x[i];""",
    "neighbours": "y[i] = p[0] * x[i] * x[i + 1] + p[1];",
}


@pytest.mark.parametrize("name", BODIES)
def test_every_plan_starts_from_zero(name: str) -> None:
    text = f"""__global__ void k(double *y, const double *x, const double *p, int n, int m) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {BODIES[name]} }}
    }}"""
    kernel, n, m = kg.compile(text)["k"], 40, 19
    x, p = np.random.default_rng(0).random(n * m), np.array([0.5, 0.3])
    expected = [np.zeros(n * m), np.zeros(2)]
    kg.gradient(kernel, "y, x, p")[2, 32](np.zeros(n), x, p, n, m, np.ones(n), *expected)
    for plan in PLANS:
        with forced(plan):
            gradient = kg.gradient(kernel, "y, x, p", primal=False, keep="y", assign="x, p")
            found = [np.full(n * m, 7.0), np.full(2, 7.0)]
            gradient[2, 32](np.zeros(n), x, p, n, m, np.ones(n), *found)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12, err_msg=plan)


@pytest.mark.parametrize("name", ["a loop", "read twice"])
def test_strips_know_whose_elements_are(name: str) -> None:
    """What was found of the loop holds for its strips: no atomics, and nothing is cleared that is written."""
    text = f"""__global__ void k(double *y, const double *x, const double *p, int n, int m) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {BODIES[name]} }}
    }}"""
    arguments = [np.zeros(1024), np.zeros(1024 * 19), np.zeros(2), 1024, 19]
    with forced("a large tape"):
        gradient = kg.gradient(kg.compile(text)["k"], "y, x, p", primal=False, keep="y", assign="x, p")
        found = gradient.source_for(32, 32, *arguments, on_gpu=True)
    assert "strip" in found and "atomicAdd(&_d_x" not in found and "warp_add(&_d_x" not in found
    assert ("of _d_x are zeroed" in found) == (name == "read twice")
