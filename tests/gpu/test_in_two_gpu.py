"""On a GPU: value and gradient in two launches, sums over few elements in registers, windows, zeros that wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.autodiff.costs.work import Work
from kernelgrad.launches.choice import split_launch

cupy = pytest.importorskip("cupy")
CONVOLUTION = """__global__ void k(T *y, const T *x, const T *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T s = 0;
    for (int k = 0; k < 5; k++) s += w[k] * x[i + k];
    y[i] = s;
}"""
N = (1 << 23) - 3
LAUNCH = ((N + 255) // 256, 256)


def expected(x: Any, w: Any, d_y: Any, start: float) -> tuple[Any, Any, Any]:
    y = sum(w[k] * x[k : k + N] for k in range(5))
    d_x = np.full(N + 4, start)
    for k in range(5):
        d_x[k : k + N] += w[k] * d_y
    return y, d_x, np.array([start + d_y @ x[k : k + N] for k in range(5)])


@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize("form", ["J", "R", "one kernel", "deterministic"])
@pytest.mark.parametrize("first", [0, 1])
def test_convolution(type: str, form: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`first`: buffers that begin there are not aligned."""
    monkeypatch.setattr(split_launch, "DENSE", 0)
    if form == "one kernel":
        monkeypatch.setattr(split_launch, "ENOUGH", Work(1e99, 1e99))
    dtype = {"float": np.float32, "double": np.float64}[type]
    kernel = kg.compile(f"typedef {type} T;\n{CONVOLUTION}")["k"]
    options: dict[str, Any] = {"primal": False, "keep": "y", "assign": "x, w"} if form == "R" else {}
    options |= {"deterministic": True} if form == "deterministic" else {}
    gradient = kg.gradient(kernel, "y, x, w", **options)
    random, start = np.random.default_rng(3), 0.0 if form == "R" else 1.0
    values = [random.random(size) for size in (N, N + 4, 5, N)]
    x, w, seed = (v.astype(dtype).astype(float) for v in values[1:])
    y, d_x, d_w = expected(x, w, seed, start)

    def placed(v: Any) -> Any:
        return cupy.concatenate([cupy.zeros(first, dtype), cupy.asarray(v, dtype)])[first:]

    given = [placed(np.full(N, 7.0)), placed(x), placed(w), N]
    adjoints = [placed(seed), placed(np.full(N + 4, start)), placed(np.full(5, start))]
    for name, adjoint in zip("yxw", adjoints, strict=True):
        if form == "R" and name != "y":
            adjoint.fill(np.nan)
    gradient[LAUNCH](*given, *adjoints)
    (plan,) = gradient._plans._found.values()
    assert form not in ("J", "deterministic") or plan.then or len(plan.steps) > 2  # a launch for each input
    found = [cupy.asnumpy(v) for v in (given[0], *adjoints)]
    tolerance = 1e-12 if type == "double" else 1e-4
    np.testing.assert_allclose(found[0], np.full(N, 7.0) if form == "R" else y, rtol=tolerance)
    np.testing.assert_array_equal(found[1], seed.astype(dtype) if form == "R" else np.zeros(N))
    np.testing.assert_allclose(found[2], d_x, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[3], d_w, rtol=max(tolerance, 1e-9) * 10)
