"""Indices of which a conversion takes bits away: they are not the sums that they are of."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced

LONG = "size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n)"
SHARED = {
    "the lower word": "int i = blockIdx.x * blockDim.x + threadIdx.x; unsigned long long key ="
    " ((unsigned long long)i << 32) + i % 7; if (i < n) y[i] = x[(unsigned)key] * i;",
    "the lower word, signed": "int i = blockIdx.x * blockDim.x + threadIdx.x; unsigned long long key ="
    " ((unsigned long long)i << 32) + i % 7; if (i < n) y[i] = x[(int)key] * i;",
}
OWN = {
    "a word more": f"{LONG} y[i] = x[(unsigned)(i + 4294967296ull)] * x[i + 1];",
    "a word more, signed": f"{LONG} y[i] = x[(int)(i + 4294967296ull)] * x[i + 1];",
    "many words more": f"{LONG} y[i] = x[(int)(i * 4294967297ull)] * x[i + 1];",
    "twice converted": f"{LONG} y[i] = x[(int)(unsigned)(i * 4294967296ull + i)] * x[i + 1];",
    "none is lost": f"{LONG} y[i] = x[(size_t)(unsigned)i] * x[i + 1];",
    "a short": "unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)"
    " y[i] = x[(unsigned short)(i + 65536u)] * x[i + 1];",
}


@pytest.mark.parametrize("plan", ["as launched", "gathered", "gathered as on a GPU", "as on a GPU"])
@pytest.mark.parametrize("name", [*SHARED, *OWN])
def test_values(name: str, plan: str) -> None:
    body = {**SHARED, **OWN}[name]
    kernel = kg.compile(f"__global__ void k(double *y, const double *x, int n) {{ {body} }}")["k"]
    rng = np.random.default_rng(1)
    x, tangent, seed, moved, d_x = *rng.uniform(-1, 1, (2, 64)), rng.uniform(-1, 1, 60), np.zeros(60), np.zeros(64)
    with forced(plan):
        kg.gradient(kernel, "y, x", primal=False, keep="y")[3, 20](np.zeros(60), x, 50, seed, d_x)
    kg.jvp(kernel, "y, x")[3, 20](np.zeros(60), x, 50, moved, tangent)
    np.testing.assert_allclose(d_x @ tangent, seed[:50] @ moved[:50], rtol=1e-12)


@pytest.mark.parametrize("name", SHARED)
def test_elements_of_several_threads(name: str) -> None:
    kernel = kg.compile(f"__global__ void k(double *y, const double *x, int n) {{ {SHARED[name]} }}")["k"]
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y")
    text = gradient.source_for(3, 20, np.zeros(60), np.zeros(64), 50, on_gpu=True)
    assert "atomic" in text and "only this thread" not in text
