"""Updates of shared memory that move into the branch they follow."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of

BODIES = {
    "an exchange": "double a = s[t], b = s[u]; if (a > b) { s[t] = b; s[u] = a; }",
    "one way": "double a = s[t], b = s[u]; if (a > b) s[t] = b * a;",
    "on the other side": "double a = s[t], b = s[u]; if (a <= b) {} else { s[u] = a; s[t] = b; }",
    "both sides": "double a = s[t], b = s[u]; if (a > b) { s[t] = b; s[u] = a; } else { s[t] = a * b; }",
    "used besides": "double a = s[t], b = s[u]; if (a > b) { s[t] = b; s[u] = a; } total += a * sin(b);",
    "the same cell": "double a = s[t], b = s[t]; if (a > 0.5) { s[t] = b * a; s[u] = a; }",
    "another array": "double a = s[t], b = r[u]; if (a > b) { s[t] = b; r[u] = a; } else r[u] *= a;",
    "a cell that both are": """int v = k == 2 ? t : u;
        double a = s[t], b = s[v]; if (a > b - 0.1) { s[t] = b; s[v] = a * b; }""",
    "a cell that another branch chooses": """int v; if (x[i] > 0.5) v = t; else v = u;
        double a = s[v], b = s[t]; if (a > b) { s[v] = b * a; s[t] = a; }""",
    "inside of another": "double a = s[t], b = s[u]; if (a > 0.2) { if (a > b) { s[t] = b; s[u] = a; } s[u] *= b; }",
    "read between": """double a = s[t]; double c = r[t]; if (a > c) { s[t] = c; r[t] = s[u] * a; }
        double b = s[u]; total += b;""",
}


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"deterministic": True}], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_gradients(name: str, options: dict) -> None:
    text = f"""__global__ void k(double *y, const double *x, int n) {{
        __shared__ double s[64], r[64];
        int i = blockIdx.x * 32 + threadIdx.x;
        s[threadIdx.x] = x[i]; s[threadIdx.x + 32] = cos(x[i]);
        r[threadIdx.x] = sin(3 * x[i]); r[threadIdx.x + 32] = x[i] * x[i];
        double total = 0;
        __syncthreads();
        for (int k = 0; k < n; ++k) {{
            int t = threadIdx.x, u = 32 + (threadIdx.x ^ (k & 3));
            {BODIES[name]}
            __syncthreads();
        }}
        y[i] = total + s[threadIdx.x] * s[threadIdx.x + 32] + r[threadIdx.x] * r[threadIdx.x + 32];
    }}"""
    kernel, n = kernel_of(text), 64
    x, d_y, way = (np.random.default_rng(seed).random(n) for seed in range(3))
    tangent, d_x = np.zeros(n), np.zeros(n)
    kg.jvp(kernel, "y, x")[2, 32](np.zeros(n), x, 5, tangent, way)
    kg.gradient(kernel, "y, x", **options)[2, 32](np.zeros(n), x, 5, d_y.copy(), d_x)
    np.testing.assert_allclose(d_x @ way, d_y @ tangent, rtol=1e-10)
    assert np.linalg.norm(d_x) > 0.1


def test_threads_that_exchanged_nothing_touch_nothing() -> None:
    text = """__global__ void k(double *y, const double *x) {
        __shared__ double s[64];
        int t = threadIdx.x;
        s[t] = x[t]; s[t + 32] = x[t + 32];
        __syncthreads();
        double a = s[t], b = s[63 - t];
        if (a > b) { s[t] = b; s[63 - t] = a; }
        __syncthreads();
        y[t] = s[t]; y[t + 32] = s[t + 32];
    }"""
    source = kg.gradient(kernel_of(text), "y, x").source
    updated = [line for line in source.splitlines() if line.strip().startswith("_d_s[") and "+=" in line]
    assert len(updated) == 2 and all(line.startswith("        ") for line in updated)
