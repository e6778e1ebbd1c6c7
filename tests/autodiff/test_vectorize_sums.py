"""Threads that do several neighbouring elements each, and add to elements that an index picks."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.layout import param_layout
from kernelgrad.launches import vector_width as launcher
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from kernelgrad.runtime.launch import LaunchConfig

from ..emulation.run_text import run_packed

BLOCK, SIZE = 128, 41  # so that whole warps are started; elements of x
# The body of `k(double *y, const double *x, const double *w, const int *c, int n)`.
CHOSEN = {
    "looked up": "if (i < n) y[i] = x[c[i]] * w[i];",
    "twice": "if (i < n) y[i] = x[c[i]] * x[c[i] + 1];",
    "early return": "if (i >= n) return; y[i] = sin(x[c[i]]);",
    "a branch": "if (i < n) y[i] = w[i] > 0 ? x[c[i]] * w[i] : 2;",
    "parts": "if (i < n) y[i] = x[i / 7] * w[i];",
}
NOT_CHOSEN = {
    "its own as well": "if (i < n) y[i] = x[c[i]] * x[i];",
    "neighbours": "if (i < n) y[i] = x[c[i]] * w[i + 1];",
    "a result that is used": "if (i < n) y[i] = x[c[i]] * w[atomicAdd(count, 1) % 2];",
    "stored": "if (i < n) y[c[i]] = x[c[i]] * w[i];",
}
N = (1024, 1021, 3)
INDICES = {
    "ascending": lambda n: np.sort(np.random.default_rng(1).integers(0, SIZE - 1, n)),
    "the same": lambda n: np.full(n, 5),
    "all over": lambda n: np.random.default_rng(1).integers(0, SIZE - 1, n),
}


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a small scale."""
    monkeypatch.setattr(launcher, "_ENOUGH", 1)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def compiled(body: str, count: str = "") -> Any:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    params = f"double *y, const double *x, const double *w, const int *c, int n{count}"
    return kernel_of(f"__global__ void k({params}) {{ {index} {body} }}")


def arguments(n: int, kind: str) -> list[Any]:
    rng = np.random.default_rng(2)
    x, w = rng.uniform(-2, 2, max(SIZE, n // 7 + 1)), rng.uniform(-2, 2, n + 1)
    return [np.zeros(n), x, w, INDICES[kind](n).astype(np.int32), n]


def adjoints_for(args: list[Any]) -> list[Any]:
    return [np.random.default_rng(3).standard_normal(len(args[0])), np.full(len(args[1]), 0.5)]


def is_vectorized(gradient: Any) -> bool:
    return any(v.options.facts.vector is not None for v in gradient.forms.made.values())


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("name", CHOSEN)
def test_values(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As thread by thread; run, and watched."""
    kernel = compiled(CHOSEN[name])
    for n in N:
        found = []
        for ways, order in ((Ways(), None), (Ways(on_gpu=True), None), (Ways(on_gpu=True), 1)):
            monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_, ways=ways: ways))
            gradient, args = kg.gradient(kernel, "y, x"), arguments(n, kind)
            adjoints = adjoints_for(args)
            if order is None:
                gradient[9, BLOCK](*args, *adjoints)
            else:
                report = gradient.check(9, BLOCK, *args, *adjoints, seed=order)
                assert report.ok, report
            assert is_vectorized(gradient) == ways.on_gpu
            found.append([args[0], *adjoints])
        for other in found[1:]:
            for got, wanted in zip(other, found[0], strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CHOSEN)
def test_finite_differences(name: str) -> None:
    report = kg.check_gradient(compiled(CHOSEN[name]), ("y", "x"), 9, BLOCK, tuple(arguments(1021, "ascending")))
    assert report.ok, report


@pytest.mark.parametrize("name", NOT_CHOSEN)
def test_not_chosen(name: str) -> None:
    counted = "count" in NOT_CHOSEN[name]
    kernel = compiled(NOT_CHOSEN[name], ", int *count" if counted else "")
    gradient, args = kg.gradient(kernel, "y, x"), arguments(64, "all over")
    args[1] = np.resize(args[1], 80)
    gradient[1, BLOCK](*args, *([np.zeros(1, np.int32)] if counted else []), *adjoints_for(args))
    assert not is_vectorized(gradient)


@pytest.mark.parametrize("kind", INDICES)
def test_as_text(kind: str) -> None:
    """The CUDA text with its sums of lanes, compiled by g++ against an emulation."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    args = arguments(1021, kind)
    adjoints = adjoints_for(args)
    wanted = adjoints[1].copy()
    np.add.at(wanted, args[3], adjoints[0] * args[2][:-1])
    gradient = kg.gradient(compiled(CHOSEN["looked up"]), "y, x", primal=False)
    ((kernel, bound, started, supplied),), _, _ = gradient._prepare(make_launch(9, BLOCK), (*args, *adjoints), {})
    config = LaunchConfig(started.grid, started.block)
    packed = kernel._with_variables(kernel.cuda_module, bound, config, None, supplied).packed
    offsets, _ = param_layout(kernel.cuda_module.functions[kernel.name])
    assert "warp_add" in kernel.source and "int4" in kernel.source
    run_packed(kernel.source, kernel_name(kernel.name), started.grid, started.block, packed, offsets)
    np.testing.assert_allclose(adjoints[1], wanted, rtol=1e-11, atol=1e-11)
