"""Sums of very many floats: what each of them adds must not get lost in what is there already."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

N = 1 << 22
EXPRESSIONS = {"few elements": "i % 4", "one of them": "row[i]", "a slice": "row[i] + (i & 1)"}


@pytest.mark.parametrize("settings", ({}, {"primal": False}))
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_small_buffers(name: str, settings: dict[str, bool]) -> None:
    kernel = kg.compile(f"""__global__ void k(float *y, const float *x, const float *w, const int *row, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * w[{EXPRESSIONS[name]}];
    }}""")["k"]
    x, row, index = np.full(N, 0.1, np.float32), np.zeros(N, np.int32), np.arange(N)
    d_w = np.zeros(4, np.float32)
    out, w, d_y = np.zeros(N, np.float32), np.ones(4, np.float32), np.ones(N, np.float32)
    kg.gradient(kernel, "y, w", **settings)[N // 256, 256](out, x, w, row, N, d_y, d_w)
    places = {"few elements": index % 4, "one of them": row, "a slice": index & 1}[name]
    np.testing.assert_allclose(d_w, np.bincount(places, minlength=4) * float(x[0]), rtol=1e-5)


@pytest.mark.parametrize("read", ("w[0]", "a", "w[blockIdx.y]"))
def test_many_sums_of_registers(read: str) -> None:
    """The loop over threads adds up in a register, of which there are very many in a large launch."""
    kernel = kg.compile(f"""__global__ void k(float *y, const float *w, float a) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[blockIdx.y * (gridDim.x * blockDim.x) + i] = {read} * 1.1f;
    }}""")["k"]
    n, d = 1 << 24, np.zeros(1 if read == "a" else 2, np.float32)
    out, w, d_y = np.zeros(n, np.float32), np.ones(2, np.float32), np.ones(n, np.float32)
    kg.gradient(kernel, f"y, {read[0]}")[(n // 2 // 256, 2), 256](out, w, 0.5, d_y, d)
    each = float(np.float32(1.1)) * n
    want = [each / 2, each / 2] if "y" in read else [each, 0][: d.size]
    np.testing.assert_allclose(d, want, rtol=4e-6)
