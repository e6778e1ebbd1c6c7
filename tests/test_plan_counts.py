"""How much is derived and emitted for a first launch: a plan is chosen by costs, and code is emitted for that one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import PLANS, forced
from kernelgrad.kernel import Kernel
from kernelgrad.progress import COUNTS
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways, known_launch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ROWS = 15
MOST_EMITTED = 3  # the chosen form, the pattern of its gathers, one form that the compiler's report decides against
MOST_DERIVED = 10
WAYS = {"cpu": Ways(on_cpu=True), "gpu": Ways(on_gpu=True)}


def emitted_forms(plan: Any) -> int:
    """The two kernels of a launch in two are one form."""
    return COUNTS.emissions - any(takes_adjoints for _, takes_adjoints in plan.then)


def planned(gradient: Any, launch: Any, args: tuple[Any, ...], ways: Ways, spilled: Any = None) -> Any:
    primal, _ = gradient.kernel.bind(args)
    known = known_launch(gradient.kernel.function, gradient.settings.listed, launch, primal, ways)
    return gradient.planner.plan(gradient.forms.with_adjoints(known), spilled)


def problem(monkeypatch: pytest.MonkeyPatch, number: int) -> tuple[Any, Any, tuple[Any, ...], list[str], list[str]]:
    """A row of the benchmarks at its real size, of which no memory is touched."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    rows = importlib.import_module("gradient_rows")
    monkeypatch.setattr(rows, "_gathers", _without_indices(rows))
    row = rows.rows(1.0)[number]
    kernel = kg.load(rows.SOURCE)[row.kernel]
    names = [p.name for p in kernel.function.params if p.variable is None]
    arrays = [np.empty(size, np.float32) for size in (*row.outputs, *row.inputs)]
    outputs = names[: len(row.outputs)]
    listed = list(row.listed or names[: len(arrays)])
    return kernel, make_launch(row.grid, row.block), (*arrays, *row.rest), listed, outputs


def _without_indices(rows: Any) -> Callable[[int], list[Any]]:
    """Rows whose indices are never read."""

    def gathers(n: int) -> list[Any]:
        flat, indices = (n // 256, 256, (n,)), np.empty(n, np.int32)
        return [rows.Row(name, "gather", *flat, (size,), (indices, n)) for name, size in (("a", n), ("b", n // 64))]

    return gathers


# One form more: the joint kernel's code says how wide it is, before a launch is done in two.
LOOKED_AT_BOTH_WAYS = {(8, "J", "gpu"), (9, "J", "gpu")}


@pytest.mark.parametrize("where", WAYS)
@pytest.mark.parametrize("contract", ["J", "R"])
@pytest.mark.parametrize("number", range(ROWS))
def test_benchmarks(number: int, contract: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, launch, args, listed, outputs = problem(monkeypatch, number)
    inputs = [name for name in listed if name not in outputs]
    options: dict[str, Any] = {} if contract == "J" else {"primal": False, "keep": outputs, "assign": inputs}
    COUNTS.reset()
    gradient = kg.gradient(kernel, listed, **options)
    assert COUNTS.emissions == 0  # what cannot be differentiated is known before
    plan = planned(gradient, launch, args, WAYS[where])
    assert emitted_forms(plan) <= MOST_EMITTED - 1 + ((number, contract, where) in LOOKED_AT_BOTH_WAYS)
    assert COUNTS.derivations <= MOST_DERIVED


@pytest.mark.parametrize("number", range(ROWS))
def test_benchmarks_that_spill(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler's report decides, the code of one more form is emitted."""
    kernel, launch, args, listed, _ = problem(monkeypatch, number)
    seen: dict[int, int] = {}

    def spilled(kernel: Kernel) -> int:
        return seen.setdefault(id(kernel), 4 if seen else 400)

    COUNTS.reset()
    plan = planned(kg.gradient(kernel, listed), launch, args, WAYS["gpu"], spilled)
    assert emitted_forms(plan) <= MOST_EMITTED


SUM = """__global__ void k(float *y, const float *x, const float *w, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 0.0f;
    for (int k = 0; k < 5; ++k) s += x[i + k] * w[k];
    y[i] = s * a;
}"""
TAPED = """__global__ void k(float *y, const float *x, const float *w, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < n; ++k) v = v * v * w[k % 5] + a;
    y[i] = v;
}"""
IN_TWO_WITH_A_TAPE = {(TAPED, plan) for plan in ("without copies", "in two on a GPU")}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("source", [SUM, TAPED])
def test_plan_kinds(source: str, plan: str) -> None:
    n = 90
    x, w, y = np.ones(n + 4, np.float32), np.ones(5, np.float32), np.zeros(n, np.float32)
    adjoints = (np.ones(n, np.float32), np.zeros(n + 4, np.float32), np.zeros(5, np.float32), np.zeros(1, np.float32))
    with forced(plan):
        COUNTS.reset()
        gradient = kg.gradient(kg.compile(source)["k"])
        gradient[4, 32](y, x, w, 0.5, n, *adjoints)
        (launched,) = gradient._plans._found.values()
        assert emitted_forms(launched) <= MOST_EMITTED + ((source, plan) in IN_TWO_WITH_A_TAPE)
        COUNTS.reset()
        gradient[4, 32](y, x, w, 0.5, n, *adjoints)
        assert (COUNTS.derivations, COUNTS.emissions, COUNTS.finished) == (0, 0, 0)
