"""Online softmax that rescales in branches, or guards maxima of nothing, on a GPU: as on the CPU, without a tape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

cupy = pytest.importorskip("cupy")

SOURCE = """
__global__ void attention(float *o, const float *q, const float *k, const float *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float qi[8], acc[8], m = -INFINITY, l = 0;
    for (int d = 0; d < 8; ++d) { qi[d] = q[i * 8 + d]; acc[d] = 0; }
    for (int j = 0; j < n; ++j) {
        float s = 0;
        for (int d = 0; d < 8; ++d) s += qi[d] * k[j * 8 + d];
        STEP
    }
    for (int d = 0; d < 8; ++d) o[i * 8 + d] = l == 0 ? 0 : acc[d] / l;
}
"""
ADD = "float p = expf(s - m); l += p; for (int d = 0; d < 8; ++d) acc[d] += p * v[j * 8 + d];"
BOTH = "l = l * c + p; for (int d = 0; d < 8; ++d) acc[d] = acc[d] * c + p * v[j * 8 + d]; m = mn;"
STEPS = {
    "branch": f"if (s > m) {{ float c = expf(m - s); l *= c; for (int d = 0; d < 8; ++d) acc[d] *= c; m = s; }} {ADD}",
    "guards": "if (j > i) s = -INFINITY; float mn = fmaxf(m, s), c = mn == -INFINITY ? 1 : expf(m - mn),"
    f" p = mn == -INFINITY ? 0 : expf(s - mn); {BOTH}",
    "safe": "if ((i + j) % 3 == 0) s = -INFINITY; float mn = fmaxf(m, s), safe = mn == -INFINITY ? 0 : mn,"
    f" c = expf(m - safe), p = expf(s - safe); {BOTH}",
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("settings", [{}, {"primal": False}])
def test_gpu_gives_what_the_cpu_gives(name: str, settings: dict[str, Any]) -> None:
    gradient = kg.gradient(kg.compile(SOURCE.replace("STEP", STEPS[name]))["attention"], **settings)
    assert "\ntape:" not in gradient.explain()
    n, random = 300, np.random.default_rng(4)
    inputs = [random.standard_normal(n * 8).astype(np.float32) for _ in range(3)]
    seed, results = random.standard_normal(n * 8).astype(np.float32), []
    for array in (np.array, cupy.asarray):
        adjoints = [array(seed), *(array(np.zeros(n * 8, np.float32)) for _ in range(3))]
        gradient[-(-n // 64), 64](array(np.zeros(n * 8, np.float32)), *map(array, inputs), n, *adjoints)
        results.append([cupy.asnumpy(a) for a in adjoints[1:]])
    for cpu, gpu in zip(*results, strict=True):
        assert np.abs(cpu).max() > 0.01
        np.testing.assert_allclose(gpu, cpu, rtol=2e-3, atol=2e-4)
