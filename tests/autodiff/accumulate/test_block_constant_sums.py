"""Few blocks for many, where a gradient only adds to a few elements that are the same in every block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.autodiff.accumulate import fewer_blocks
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.ops import Atomic, For, While
from kernelgrad.ir.traverse import walk
from kernelgrad.launches.choice import choose
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways

HEAD = "__global__ void k(double *y, const double *x, const double *w, const int *at, double a, int n)"
I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"  # noqa: E741
SUMS = {
    "a loop": f"{I} double s = 0; for (int k = 0; k < 5; k++) s += w[k] * x[i + k] * x[i + k]; y[i] = s;",
    "two elements": f"{I} y[i] = w[2] * x[i] + sin(w[0]) * a;",
    "by thread": f"{I} y[i] = x[i] * w[threadIdx.x];",
    "a plane": f"""{I} double s = 0;
        for (int k = 0; k < 3; k++) for (int l = 0; l < 2; l++) s += w[3 * l + k] * x[i + k + l]; y[i] = s;""",
    "behind a test": f"{I} double s = 0; if (x[i] > 0.5) for (int k = 4; k >= 0; k--) s += w[k] * x[i]; y[i] = s + a;",
}
OTHERS = {
    "by block": f"{I} y[i] = w[blockIdx.x % 3] * x[i];",
    "by element": f"{I} y[i] = w[i % 3] * x[i];",
    "by memory": f"{I} y[i] = w[at[i]] * x[i];",
    "too many": f"{I} double s = 0; for (int k = 0; k < 33; k++) s += w[k] * x[i]; y[i] = s;",
    "so many as given": f"{I} double s = 0; for (int k = 0; k < n % 7; k++) s += w[k] * x[i]; y[i] = s;",
    "as long as the data say": f"{I} double s = 0; for (int k = 0; s < 1 && k < 9; k++) s += w[k] * x[i]; y[i] = s;",
    "with a barrier": """__shared__ double s[8]; int i = blockIdx.x * blockDim.x + threadIdx.x;
        s[7 - threadIdx.x] = x[i] * w[0]; __syncthreads(); y[i] = s[threadIdx.x];""",
}
GRID, BLOCK = 301, 8
N = GRID * BLOCK - 3
WEIGHTS = 40


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a small scale."""
    monkeypatch.setattr(fewer_blocks, "_THREADS", 100)
    monkeypatch.setattr(choose, "_MANY_BLOCKS", 100)
    monkeypatch.setattr(choose, "_CROWD", 8)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    x, w = rng.random(N + 40), rng.random(WEIGHTS)
    return np.zeros(GRID * BLOCK), x, w, rng.integers(0, 3, N + 40, dtype=np.int32), 0.7, N


def reverse(body: str, **options: Any) -> Any:
    return kg.gradient(kg.compile(f"{HEAD} {{ {body} }}")["k"], "y, w, a", primal=False, **options)


def is_coarse(gradient: Any) -> bool:
    primal, _ = gradient.kernel.bind(arguments())
    variant = gradient.variant_for(gradient.settings.listed, make_launch(GRID, BLOCK), primal, Ways(on_gpu=True))
    return variant.derivative.coarse is not None


def adjoints(gradient: Any) -> Any:
    seed = np.random.default_rng(5).standard_normal(GRID * BLOCK)
    d_w, d_a = np.full(WEIGHTS, 2.0), np.full(1, 3.0)
    gradient[GRID, BLOCK](*arguments(), seed, d_w, d_a)
    return np.concatenate([d_w, d_a])


@pytest.mark.parametrize("name", [*SUMS, *OTHERS])
def test_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = reverse({**SUMS, **OTHERS}[name], keep="y")
    assert is_coarse(gradient) == (name in SUMS)
    found = adjoints(gradient)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways()))
    expected = adjoints(reverse({**SUMS, **OTHERS}[name], keep="y"))
    assert abs(expected[0] - 2) > 1e-6
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", SUMS)
def test_updates_come_after_the_loop(name: str) -> None:
    gradient = reverse(SUMS[name], keep="y")
    primal, _ = gradient.kernel.bind(arguments())
    launch = make_launch(GRID, BLOCK)
    variant = gradient.variant_for(gradient.settings.listed, launch, primal, Ways(on_gpu=True))
    ops = list(walk(variant.reverse.function.body))
    loops = [op for op in ops if isinstance(op, While | For)]
    assert loops and any(isinstance(op, Atomic) for op in ops)
    assert not any(isinstance(op, Atomic) for loop in loops for op in walk(loop.body))


@pytest.mark.parametrize("name", SUMS)
def test_no_races(name: str) -> None:
    gradient = reverse(SUMS[name], keep="y")
    for order in (None, 1):
        report = gradient.check(
            GRID, BLOCK, *arguments(), np.ones(GRID * BLOCK), np.zeros(WEIGHTS), np.zeros(1), seed=order
        )
        assert report.ok, str(report)


@pytest.mark.parametrize("options", [{}, {"keep": "y", "deterministic": True}])
def test_not_chosen_where_more_is_written(options: dict[str, Any]) -> None:
    """The adjoint of an output that is consumed; and what must be added in order is not added in copies."""
    assert not is_coarse(reverse(SUMS["a loop"], **options))


@pytest.mark.parametrize(("body", "expected"), [(SUMS["a loop"], True), (f"{I} y[i] = w[0] * x[at[i]];", False)])
def test_beside_other_adjoints(body: str, expected: bool) -> None:
    """Those that are gathered have launches of their own."""
    kernel = kg.compile(f"{HEAD} {{ {body} }}")["k"]
    primal, _ = kernel.bind(arguments())
    gradient = kg.gradient(kernel, "y, w, x", primal=False, keep="y")
    variant = gradient.variant_for(gradient.settings.listed, make_launch(GRID, BLOCK), primal, Ways(on_gpu=True))
    assert (variant.derivative.coarse is not None) == expected


def test_is_explained() -> None:
    text = reverse(SUMS["a loop"], keep="y").explain(GRID, BLOCK, *arguments())
    assert "of very many blocks a few thousand are started" in text
