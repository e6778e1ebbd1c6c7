"""Loops in segments: tapes within a budget, and very large ones without being asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.derivatives import tape_budget

N, M = 60, 40

# Loops of `k(const double *x, double *y, int n, int m)` that start with a and b.
LOOPS = {
    "one": "for (int t = 0; t < n; ++t) { double c = sin(a) * b + x[t]; b = 0.9 * cos(b * a); a = c; }",
    "nested": "for (int t = 0; t < n; ++t) { double c = a; for (int k = 0; k < m; ++k) { "
        "double z = sin(c) * b + 0.1 * x[k]; b = 0.9 * cos(b * c); c = z; } a = a * 0.5 + c; }",
    "nested, until": "for (int t = 0; t < n; ++t) { double c = a; int k = 0; while (k < m && c < 40 + b) { "
        "double z = sin(c) * b + 0.1 * x[k]; b = 0.9 * cos(b * c); c = z; ++k; } a = a * 0.5 + c; }",
}  # fmt: skip


def compiled(name: str) -> Any:
    source = f"""__global__ void k(const double *x, double *y, int n, int m) {{
        int i = threadIdx.x; double a = x[i], b = 0.5;
        {LOOPS[name]}
        y[i] = a * b;
    }}"""
    return kg.compile(source)["k"]


def derived(gradient: Any, m: int = M) -> Any:
    x, d_x = np.random.default_rng(1).random(N), np.zeros(N)
    gradient[1, 8](x, np.zeros(8), N, m, d_x, np.linspace(-1, 1, 8))
    return d_x


def tape(gradient: Any) -> int:
    return int(gradient.tape_bytes(1, 8, np.random.default_rng(1).random(N), np.zeros(8), N, M))


@pytest.mark.parametrize("options", ({}, {"primal": False}), ids=str)
@pytest.mark.parametrize("name", LOOPS)
def test_within_a_budget(name: str, options: dict[str, Any]) -> None:
    kernel = compiled(name)
    plain = kg.gradient(kernel, **options)
    budget = tape(plain) // 2
    bounded = kg.gradient(kernel, tape_budget=budget, **options)
    assert tape(bounded) <= budget
    for m in (M, 0):
        assert derived(bounded, m) == pytest.approx(derived(plain, m), rel=1e-12)


@pytest.mark.parametrize("name", ("one", "nested"))
def test_large_tapes_without_a_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = kg.gradient(compiled(name))
    plain, expected = tape(gradient), derived(gradient)
    monkeypatch.setattr(tape_budget, "LARGE_TAPE", plain // 2)
    again = kg.gradient(compiled(name))
    assert 0 < tape(again) <= plain // 2
    assert derived(again) == pytest.approx(expected, rel=1e-12)
    text = again.explain(1, 8, np.zeros(N), np.zeros(8), N, M)
    assert "segments of" in text


def test_what_cannot_be_bounded_is_refused_or_left() -> None:
    source = """__global__ void k(const double *x, double *y, int n, int m) {
        for (int t = 0; t < n; ++t) y[threadIdx.x] = sin(y[threadIdx.x]) * 1.1 + x[t]; }"""
    kernel = kg.compile(source)["k"]
    x, y = np.zeros(N), np.zeros(8)
    with pytest.raises(kg.LaunchError, match="even with its loops checkpointed"):
        kg.gradient(kernel, tape_budget=1000)[1, 8](x, y, N, M, np.zeros(N), np.ones(8))
