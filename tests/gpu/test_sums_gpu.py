"""Updates that leave their loops, on a GPU against the CPU backend's gradient."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

BODIES = {
    "one for all": "for (int k = 0; k < n; k++) s = sin(s) * x[0] + w[1];",
    "a row from memory": "for (int k = i % 7; k < n; k++) s = sin(s) * x[row[i]] + x[row[i] + 1];",
    "in a branch": "for (int k = 0; k < n; k++) if ((k + i) % 3) s += sin(s) * x[i / 64]; else s *= w[2];",
    "where the loop does not run": "int r = i < 64 ? i : 1 << 28; for (int k = i; k < 64; k++) s = sin(s) * x[row[r]];",
    "own element, two loops": "for (int k = 0; k < n; k++) for (int j = 0; j < k; j++) s = sin(s) + x[i] * w[j];",
}
THREADS = 4096


@pytest.mark.parametrize("name", BODIES)
def test_gpu_gives_what_the_cpu_gives(name: str) -> None:
    text = f"""__global__ void k(double *y, const double *x, const double *w, const int *row, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        double s = 1;
        {BODIES[name]}
        y[i] = s;
    }}"""
    gradient = kg.gradient(kg.compile(text)["k"], "y, x, w")
    random = np.random.default_rng(6)
    row = random.integers(0, THREADS - 1, THREADS).astype(np.int32)
    host = [np.zeros(THREADS), random.random(THREADS), random.random(16), row]
    host += [random.standard_normal(THREADS), np.zeros(THREADS), np.zeros(16)]
    device = [cupy.asarray(a) for a in host]
    for y, x, w, row, d_y, d_x, d_w in (host, device):
        gradient[THREADS // 128, 128](y, x, w, row, 9, d_y, d_x, d_w)
    for want, got in zip(host, device, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-9, atol=1e-11)
    assert abs(host[5]).sum() > 0
