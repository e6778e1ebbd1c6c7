"""Divisions whose operands a row of threads shares, under conditions that the row's first thread does not meet."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

BODIES = {
    "a remainder": "if (x >= 1) s += a[(y + H) % H * W + x - 1];",
    "unsigned": "if (x > 0) s += a[((unsigned)y + (unsigned)H) % (unsigned)H * W + x - 1];",
    "of 64 bits": "if (x > 0) s += a[(y + (long long)H) % H * W + x - 1];",
    "a quotient": "if (x != 0) s += a[(y * W + H - 1) / W * W + x - 1];",
    "in a loop": "for (int k = 0; k < 2; k++) if (x > k) s += a[(y + k * H) % H * W + x - 1 - k];",
}


@pytest.mark.parametrize("name", BODIES)
def test_rows_of_threads(name: str) -> None:
    H, W = 4, 39
    source = f"""__global__ void k(double *out, const double *a, int H, int W) {{
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        if (x >= W || y >= H) return;
        double s = 0; {BODIES[name]} out[y * W + x] = s; }}"""
    a = np.arange(1.0, H * W + 1).reshape(H, W)
    expected = np.zeros((H, W))
    expected[:, 1:] = a[:, :-1]
    if name == "in a loop":
        expected[:, 2:] += a[:, :-2]
    found = np.zeros((H, W))
    kg.compile(source)["k"][(3, 2), (16, 2)](found, a, H, W)
    np.testing.assert_array_equal(found, expected)
