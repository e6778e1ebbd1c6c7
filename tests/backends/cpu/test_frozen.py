"""Note [Blended loads]: what a branch reads before it writes is what was there before."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg


@pytest.mark.parametrize("type_", ["double", "float", "int", "Pair"])
@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_read_then_written_in_a_branch(type_: str, width: int) -> None:
    kernel = kg.compile(f"""struct Pair {{
        float a, b;
        __device__ Pair(float v = 0) : a(v), b(v) {{}}
    }};
    __global__ void k({type_} *c, {type_} *y, int n) {{
        int i = threadIdx.x;
        {type_} d = 3;
        if (i < n) {{ d = c[i]; c[i] = 0; }}
        __syncthreads();
        y[i] = d;
    }}""")["k"]
    dtype = {"double": "f8", "float": "f4", "int": "i4", "Pair": "f4"}[type_]
    each = 2 if type_ == "Pair" else 1
    c, y = np.arange(width * each).astype(dtype) + 10, np.zeros(width * each, dtype)
    before, inside = c.copy(), (width - 1) * each
    kernel[1, width](c, y, width - 1)
    np.testing.assert_array_equal(y[:inside], before[:inside])
    np.testing.assert_array_equal(y[inside:], 3)
    assert not c[:inside].any()


def test_nested_branches() -> None:
    kernel = kg.compile("""__global__ void k(double *c, double *y, int n) {
        int i = threadIdx.x;
        double d = 1;
        if (i < n) { if (i % 2) { d = c[i]; c[i] = 0; } else { d = c[i + 32]; c[i + 32] = d + 1; } }
        __syncthreads();
        y[i] = d;
    }""")["k"]
    c, y = np.arange(64.0) + 10, np.zeros(32)
    before = c.copy()
    kernel[1, 32](c, y, 30)
    odd = np.arange(32) % 2 == 1
    want = np.where(odd, before[:32], before[32:])
    want[30:] = 1
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("cell", ["bins[1]", "bins[i % 2]"])
def test_a_loop_that_runs_once_at_most(cell: str) -> None:
    """The reverse of the first loop reads and clears the cells of its thread: none, or one."""
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, double a, int n) {{
        __shared__ double bins[2];
        int i = threadIdx.x;
        for (int j = i; j < 2; j += 32) bins[j] = a;
        __syncthreads();
        y[i] = {cell} * x[i];
    }}""")["k"]
    x, d_a = np.random.default_rng(1).random(32), np.zeros(1)
    kg.gradient(kernel, "y, a")[1, 32](np.zeros(32), x, 0.7, 32, np.ones(32), d_a)
    np.testing.assert_allclose(d_a[0], x.sum(), rtol=1e-13)
