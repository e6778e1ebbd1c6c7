"""Dynamic shared memory that is declared with a size, which nvcc takes, too."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg


@pytest.mark.parametrize("size", ["[32][32]", "[][32]", "[WIDTH * 2] [32]"])
def test_rows(size: str) -> None:
    text = f"""
        #define WIDTH 16
        __global__ void turned(float *y, const float *x) {{
            extern __shared__ float tile{size};
            int i = threadIdx.x;
            tile[i][1] = x[i] * x[i];
            __syncthreads();
            y[i] = tile[3 - i][1];
        }}
    """
    kernel = kg.compile(text)["turned"]
    x, y, d_x = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    kernel[1, 4, 4096](y, x)
    np.testing.assert_array_equal(y, (x * x)[::-1])
    kg.gradient(kernel, "y, x")[1, 4, 4096](y, x, np.array([1, 2, 3, 4], np.float32), d_x)
    np.testing.assert_array_equal(d_x, 2 * x * np.array([4, 3, 2, 1]))
