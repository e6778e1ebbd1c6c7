"""Cells of shared memory that two threads touch between two barriers, though it takes a second look: their shadows are
updated atomically (rule 17), which the check mode sees."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

CONTENDED = {
    # What an iteration reads behind its barrier it reads beside what the next one reads in front of it.
    "in the next iteration": """__shared__ double s[8]; s[t] = x[i]; __syncthreads();
        double v = 1;
        for (int k = 0; k < count[0]; k++) { v += s[t] * s[t]; __syncthreads(); v *= s[(t + 1) % 8]; }
        y[i] = v;""",
    "in the next iteration, or after all": """__shared__ double s[8]; s[t] = x[i]; __syncthreads();
        double v = s[t] * x[i];
        for (int k = 0; k < count[1]; k++) { __syncthreads(); v *= s[(t + 1) % 8]; }
        y[i] = v * s[(t + 3) % 8];""",
    # Of two that overlap in part, neither begins where the other does.
    "by half": """__shared__ double s[18]; s[t] = x[i]; s[t + 8] = x[i] * x[i];
        if (t < 2) s[t + 16] = x[t];
        __syncthreads();
        Pair p = *(Pair *)(s + 2 * t), q = *(Pair *)(s + 2 * t + 1);
        y[i] = p.a * p.b + q.a * q.b * q.b;""",
}


@pytest.mark.parametrize("name", CONTENDED)
def test_contended(name: str) -> None:
    source = f"""struct Pair {{ double a, b; }};
    __global__ void k(double *y, const double *x, const int *count) {{
        int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; {CONTENDED[name]} }}"""
    kernel, count = kg.compile(source)["k"], np.array([3, 0], np.int32)
    y, x = np.random.default_rng(3).uniform(0.5, 1.2, (2, 16))
    report = kg.check_gradient(kernel, "y, x", 2, 8, (y, x, count))
    assert report.ok and "finite differences agree" in str(report), report
    for options in ({}, {"primal": False}):
        for order in (None, 1):
            adjoints = np.ones(16), np.zeros(16)
            found = kg.gradient(kernel, "y, x", **options).check(2, 8, y.copy(), x, count, *adjoints, seed=order)
            assert found.ok, str(found)


def test_branches_one_after_another_are_played_in_linear_time() -> None:
    """What was touched before a branch with barriers is not there once for each way through all of them."""
    turns = "if (u[j]) { __syncthreads(); s[t] += x[t + j]; __syncthreads(); }"
    loops = " ".join(f"for (int j = {k}; j < n; ++j) {{ {turns} }}" for k in range(16))
    params = "double *y, const double *x, const int *u, int n"
    source = f"__global__ void k({params}) {{ __shared__ double s[8]; int t = threadIdx.x; {loops} y[t] = s[t]; }}"
    assert kg.gradient(kg.compile(source)["k"], "y, x").source
