"""Splits whose buffers and variables change before the reverse runs, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from saving_cases import CASES, VARIABLES, arguments, seeds
from scrambling import WAYS, force, scramble

cupy = pytest.importorskip("cupy")


def on_gpu(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: on_gpu(part) for name, part in value.items()}
    if isinstance(value, list):
        return [on_gpu(part) for part in value]
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_inputs_may_change(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, way)
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    want = seeds(case)
    kg.gradient(kernel, case.listed)[case.launch](*arguments(case), *want)
    forward, reverse = kg.split(kernel, case.listed)
    given, found = on_gpu(arguments(case)), on_gpu(seeds(case))
    tape = forward[case.launch](*given)
    scramble(given)
    reverse[case.launch](tape, *given, *found)
    for one, other in zip(want, found, strict=True):
        np.testing.assert_allclose(other.get(), one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("listed", ["y, x", "y, x, W"])
def test_variables_may_change(listed: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also `__constant__` ones, which the reverse has as they were, and the next launch as they are."""
    force(monkeypatch, way)
    module = kg.compile(VARIABLES)
    w, c, x = np.arange(1.0, 5), np.arange(2.0, 6), np.arange(8.0)
    i = np.arange(8)
    forward, reverse = kg.split(module["k"], listed)
    for by in (1, 2):
        module.variable("W")[...], module.variable("C")[...], module.variable("first")[...] = w, by * c, 1
        y = cupy.zeros(8)
        tape = forward[1, 8](y, cupy.asarray(x))
        np.testing.assert_allclose(y.get(), x * x * w[i % 4] * by * c[(i + 1) % 4])
        module["set"][1, 1](float("nan"))
        module.variable("C")[...] = np.nan
        d_y, d_x, d_w = cupy.ones(8), cupy.zeros(8), cupy.zeros(4)
        reverse[1, 8](tape, y, cupy.full(8, np.nan), *(d_y, d_x, d_w)[: listed.count(",") + 1])
        np.testing.assert_allclose(d_x.get(), 2 * x * w[i % 4] * by * c[(i + 1) % 4])
        if "W" in listed:
            np.testing.assert_allclose(d_w.get(), (x * x * by * c[(i + 1) % 4]).reshape(2, 4).sum(axis=0))


def test_numbers_beside_pointers_in_structs() -> None:
    source = """struct V { double *y; const double *x; double scale; };
        __global__ void k(V v, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v.y[i] = v.x[i] * v.scale * v.scale; }"""
    n = 1 << 20
    v = {"y": cupy.zeros(n), "x": cupy.arange(n) / n, "scale": 3.0}
    d_v = {"y": cupy.ones(n), "x": cupy.zeros(n), "scale": cupy.ones(1)}
    kg.gradient(kg.compile(source)["k"], "v")[n // 256, 256](v, n, d_v)
    np.testing.assert_allclose(d_v["scale"].get(), 1 + 6 * (np.arange(n) / n).sum(), rtol=1e-12)
    np.testing.assert_array_equal(d_v["x"].get(), np.full(n, 9.0))
