"""Additions that follow the launch, so that all others may be plain."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from deferred_cases import DEFERRED, NOT_DEFERRED, arrays, compiled, launch_of
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from kernelgrad.runtime.launch import LaunchConfig
from some_cases import some

from ..emulation.run_text import run_packed

KEPT: dict[str, Any] = {"primal": False, "keep": "loss", "assign": "x"}


def facts_of(body: str, n: int = 900, **options: Any) -> Any:
    gradient = kg.gradient(compiled(body), "loss, x, w", **options)
    return gradient.planned(make_launch(*launch_of(body)), tuple(arrays(n)), {}, on_gpu=True).plan.variant.options.facts


def gradient_of(kernel: Any, body: str, values: list[Any], **options: Any) -> list[Any]:
    loss, x, w = values[0].copy(), values[1], values[3]
    adjoints = [np.cos(np.arange(a.size)).astype(a.dtype) for a in (loss, x, w)]
    kg.gradient(kernel, "loss, x, w", **options)[launch_of(body)](loss, *values[1:], *adjoints)
    return adjoints[1:]


def expected(kernel: Any, body: str, values: list[Any], assign: bool) -> list[Any]:
    """By forward mode."""
    forward, seed = kg.jvp(kernel, "loss, x, w"), np.cos(np.arange(values[0].size))
    found = []
    for number in (1, 3):
        base = np.zeros(values[number].size) if assign and number == 1 else np.cos(np.arange(values[number].size))
        for at in range(base.size):
            tangents = [np.zeros(values[k].size) for k in (0, 1, 3)]
            tangents[1 if number == 1 else 2][at] = 1
            forward[launch_of(body)](values[0].copy(), *values[1:], *tangents)
            base[at] += (tangents[0] * seed).sum()
        found.append(base)
    return found


@pytest.mark.parametrize("name", some(DEFERRED, 3))
def test_is_deferred(name: str) -> None:
    facts = facts_of(DEFERRED[name], **KEPT)
    assert {own.name for own in facts.deferred} == {"x"} and "x" in facts.private
    assert facts.overwritten | {name for name, _ in facts.read_last} == {"x"}


def test_promises_are_kept() -> None:
    """Also where adjoints are consumed and added to; buffers that may overlap have no owners."""
    body = DEFERRED["two labels"]
    assert facts_of(body).deferred and not facts_of(body, may_alias=True).deferred


@pytest.mark.parametrize("name", NOT_DEFERRED)
def test_is_not_deferred(name: str) -> None:
    assert not facts_of(NOT_DEFERRED[name], **KEPT).deferred


def test_slots() -> None:
    """Threads of which conditions leave one have one slot together."""
    expected = {
        "a block a row": (0, 1, 1),
        "a warp a row": (32, 1, 1),
        "another thread, by blocks of two axes": (0, 1, 1),
        "all threads": (1, 1, 1),
    }
    for name, every in expected.items():
        assert {own.every for own in facts_of(DEFERRED[name], **KEPT).deferred} == {every}


def test_short_rows_are_not_worth_it() -> None:
    assert facts_of(DEFERRED["a thread a row"], 400, **KEPT).deferred
    assert not facts_of(DEFERRED["a thread a row"], 4, **KEPT).deferred


@pytest.mark.parametrize("far", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", some([*DEFERRED, *NOT_DEFERRED], 3))
def test_values(name: str, far: bool) -> None:
    """Labels may lead to other rows, which other blocks write."""
    body = {**DEFERRED, **NOT_DEFERRED}[name]
    kernel, values = compiled(body), arrays(90, far=far)
    want = expected(kernel, body, values, assign=True)
    for got, right in zip(gradient_of(kernel, body, values, **KEPT), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "options", some([{}, {"primal": False}, {"deterministic": True}, {"may_alias": True}], 2), ids=str
)
def test_added_to_what_is_there(options: dict[str, Any]) -> None:
    body = DEFERRED["two labels"]
    kernel, values = compiled(body), arrays(90, far=True)
    want = expected(kernel, body, values, assign=False)
    for got, right in zip(gradient_of(kernel, body, values, **options), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-10)


def test_split() -> None:
    body = DEFERRED["two labels"]
    kernel, values = compiled(body), arrays(90, far=True)
    (forward, reverse), adjoints = (
        kg.split(kernel, "loss, x, w"),
        [np.cos(np.arange(values[k].size)) for k in (0, 1, 3)],
    )
    tape = forward[launch_of(body)](values[0].copy(), *values[1:])
    reverse[launch_of(body)](tape, *values, *adjoints)
    for got, right in zip(adjoints[1:], expected(kernel, body, values, assign=False), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", some(["a maximum before", "a warp a row", "two labels"], 3))
def test_as_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU gets it."""
    body = DEFERRED[name]
    kernel, values = compiled(body), arrays(200, far=True)
    want = gradient_of(kernel, body, values, **KEPT)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    adjoints = [np.cos(np.arange(values[k].size)) for k in (0, 1, 3)]
    gradient: Any = kg.gradient(kernel, "loss, x, w", **KEPT)
    steps, _, own = gradient._prepare(make_launch(*launch_of(body)), (*values, *adjoints), {})
    ((kernel, bound, at, supplied),) = steps
    told = {**own.supplied, **supplied}
    packed = kernel._with_variables(kernel.cuda_module, bound, LaunchConfig(at.grid, at.block), None, told).packed
    offsets, _ = param_layout(kernel.cuda_module.functions[kernel.name])
    assert "_places_d_x" in kernel.source and "atomicAdd(&_d_x" not in kernel.source
    run_packed(kernel.source, kernel_name(kernel.name), at.grid, at.block, packed, offsets)
    own.finish()
    for got, right in zip(adjoints[1:], want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-10)


HALOS = {
    "ifs": "s[t + 1] = i < n ? x[i] : 0; if (t == 0) s[0] = i > 0 && i <= n ? x[i - 1] : 0;"
    " if (t == 63) s[65] = i + 1 < n ? x[i + 1] : 0;",
    "one thread": "s[t + 1] = i < n ? x[i] : 0; if (t == 7) { int b = i - t; s[0] = b > 0 && b <= n ? x[b - 1] : 0;"
    " s[65] = b + 64 < n ? x[b + 64] : 0; }",
}


@pytest.mark.parametrize("name", HALOS)
def test_halos(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What few threads read for their block, elements of other blocks."""
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    body = f"{HALOS[name]} __syncthreads(); if (i < n) y[i] = s[t] + 3 * s[t + 1] * s[t + 2];"
    start = "__shared__ T s[66]; int t = threadIdx.x, i = blockIdx.x * 64 + t;"
    text = f"typedef double T; __global__ void k(T *y, const T *x, int n) {{ {start} {body} }}"
    gradient: Any = kg.gradient(kg.compile(text)["k"], primal=False, keep="y", assign="x")
    for n in (640, 601, 64, 65, 1):
        random = np.random.default_rng(n)
        x, d_y, d_x = random.uniform(-1, 1, n), random.uniform(-1, 1, n), np.full(n, 7.0)
        launch, given = (-(-n // 64), 64), (np.zeros(n), x, n)
        facts = gradient.planned(make_launch(*launch), given, {}, on_gpu=True).plan.variant.options.facts
        assert len(facts.deferred) == 2 or n == 1
        gradient[launch](*given, d_y, d_x)
        above = np.append(x[1:], 0)
        want = 3 * d_y * above + np.append(d_y[1:], 0) + 3 * np.append(0, d_y[:-1] * x[:-1])
        np.testing.assert_allclose(d_x, want, rtol=1e-12, atol=1e-12)
