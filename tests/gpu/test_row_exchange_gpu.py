"""Loops that are exchanged for threads, on a GPU, as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from kernelgrad.runtime.config import make_launch
from row_exchange_cases import EXCHANGED, STAYS, Case

cupy = pytest.importorskip("cupy")

CASES = {**EXCHANGED, **{name: Case(source, 0) for name, source in STAYS.items()}}
WAYS: list[dict[str, Any]] = [{}, {"primal": False}, {"primal": False, "keep": ["o"], "assign": ["q", "k", "v"]}]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_as_on_the_cpu(name: str, way: dict[str, Any]) -> None:
    case = CASES[name]
    kernel, args = kg.compile(case.source)["kernel"], case.arguments()
    adjoints = [np.random.default_rng(7 + k).standard_normal(a.size).astype(a.dtype) for k, a in enumerate(args[:4])]
    found = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in (*args, *adjoints)]
    kg.gradient(kernel, "o, q, k, v", **way)[case.grid, case.block](*args, *adjoints)
    with forced("exchanged"):
        made = kg.gradient(kernel, "o, q, k, v", **way)
        made[case.grid, case.block](*found)
        steps = made.planned(make_launch(case.grid, case.block), tuple(found), {}).plan.steps
    assert sum(step.role == "keys" for step in steps) == case.keys
    tolerance = 1e-3 if case.floats else 1e-9
    for got, wanted in zip(found[6:], adjoints, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(got), wanted, rtol=tolerance, atol=tolerance * abs(wanted).max())


ATTENTION = EXCHANGED["floats"].source.replace("#define D 4", "#define D 32")


@pytest.mark.parametrize("shift", [0, 1])
def test_a_large_launch(shift: int) -> None:
    """Chosen by what it costs; loads of sixteen bytes where the buffers allow them."""
    rows, n = 4000, 1500
    rng = np.random.default_rng(1)
    q, k, v, d_o = (rng.standard_normal((count, 32)) for count in (rows, n, n, rows))

    def on_gpu(array: Any) -> Any:
        memory = cupy.zeros(array.size + 4, np.float32)
        memory[shift : shift + array.size] = cupy.asarray(array.ravel(), np.float32)
        return memory[shift : shift + array.size]

    made = kg.gradient(kg.compile(ATTENTION)["kernel"], "o, q, k, v", primal=False, assign=["q", "k", "v"])
    arrays = [on_gpu(a) for a in (0 * q, q * 0.3, k, v)]
    adjoints = [on_gpu(a) for a in (d_o, q, k, v)]
    made[-(-rows // 128), 128](*arrays, n, rows, *adjoints)
    planned = made.planned(make_launch(-(-rows // 128), 128), (*arrays, n, rows, *adjoints), {})
    assert sum(step.role == "keys" for step in planned.plan.steps) == 1
    assert bool(planned.plan.variant.options.facts.aligned) == (shift == 0)
    q = q * 0.3
    scores = q @ k.T
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    d_s = p * (d_o @ v.T - (d_o * (p @ v)).sum(1, keepdims=True))
    for got, wanted in zip(adjoints[1:], (d_s @ k, d_s.T @ q, p.T @ d_o), strict=True):
        difference = cupy.asnumpy(got).reshape(wanted.shape) - wanted
        assert np.linalg.norm(difference) < 1e-4 * np.linalg.norm(wanted)
