"""`assign=`: adjoints that held something else, under every plan."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import PLANS, forced
from kernelgrad.explain.counted import counts
from kernelgrad.runtime.config import make_launch

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
    arguments = [np.zeros(1024), np.zeros(1024 * 99), np.zeros(2), 1024, 99]
    with forced("a large tape"):
        gradient = kg.gradient(kg.compile(text)["k"], "y, x, p", primal=False, keep="y", assign="x, p")
        found = gradient.source_for(32, 32, *arguments, on_gpu=True)
    assert "strip" in found and "atomicAdd(&_d_x" not in found and "warp_add(&_d_x" not in found
    assert ("of _d_x are zeroed" in found) == (name == "read twice")


READ_AGAIN = {
    "after a store": "a[i] = sinf(x[i]); b[i] = cosf(x[i]);",
    "in branches": "float v = x[i]; a[i] = sinf(v); if (v > 0) b[i] = cosf(x[i]); else b[i] = x[i] * v;",
    "what was stored": "a[i] = sinf(x[i]); b[i] = a[i] * x[i];",
}


@pytest.mark.parametrize("loop", ["if (i < n)", "for (; i < n; i += gridDim.x * blockDim.x)"])
@pytest.mark.parametrize("name", READ_AGAIN)
def test_elements_that_are_read_again_are_read_once(name: str, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments lie apart: a store to one leaves what was read of another as it is."""
    monkeypatch.setattr("kernelgrad.schedule.order.batched_loads._MOST_LOADS", -1)  # of four turns, there is one
    text = f"""__global__ void k(float *a, float *b, const float *x, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        {loop} {{ {READ_AGAIN[name]} }}
    }}"""
    arrays = [np.zeros(1 << 12, np.float32) for _ in range(3)]
    gradient = kg.gradient(kg.compile(text)["k"], "a, b, x", primal=False, keep="a, b", assign="x")
    planned = gradient.planned(make_launch(16, 256), (*arrays, 1 << 12), {}, on_gpu=True)
    assert counts(planned).moved == 4 * arrays[0].nbytes  # x and three adjoints
