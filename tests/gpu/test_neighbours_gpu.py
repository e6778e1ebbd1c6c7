"""Atomic additions to neighbouring floats, made together on a GPU: at addresses that allow it and others."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

N = 10_000
ROWS = {
    4: "p[0] * p[1] + p[2] * p[3]",
    2: "p[0] * p[1] + p[1]",
    3: "p[0] * p[1] * p[2]",
    5: "p[0] * p[1] + p[4] * p[3]",
}


@pytest.mark.parametrize("alike", [1, 32, 50])
@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("width", ROWS)
def test_values(width: int, start: int, alike: int) -> None:
    kernel = kg.compile(f"""__global__ void k(float *y, const float *x, const int *j, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ const float *p = x + {width} * j[i]; y[i] = {ROWS[width]}; }}
    }}""")["k"]
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y")
    rng = np.random.default_rng(3)
    x, d_y = rng.uniform(-1, 1, width * 300).astype(np.float32), rng.uniform(-1, 1, N).astype(np.float32)
    j = rng.integers(0, 300, N).repeat(alike)[:N].astype(np.int32)
    expected = np.zeros_like(x)
    gradient[-(-N // 128), 128](np.zeros(N, np.float32), x, j, N, d_y, expected)

    y, gpu_x, gpu_j, gpu_d_y = map(cupy.asarray, (np.zeros(N, np.float32), x, j, d_y))
    d_x = cupy.zeros(len(x) + start, np.float32)[start:]
    gradient[-(-N // 128), 128](y, gpu_x, gpu_j, N, gpu_d_y, d_x)
    np.testing.assert_allclose(d_x.get(), expected, rtol=1e-4, atol=1e-4)
