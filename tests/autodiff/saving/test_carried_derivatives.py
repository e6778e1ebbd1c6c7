"""Loops that carry derivatives along, for launches whose tape would be large: the same gradient without a tape."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.autodiff.accumulate.choice import USUAL

N = 8

# A loop of `k(double *y, const double *x, double r, int n)` that starts with v and w, listed "y, x, r" or less.
LOOPS = {
    "one number": ("for (int k = 0; k < n; k++) v = 0.9 * v * (1 - v);", "y, x"),
    "a parameter too": ("for (int k = 0; k < n; k++) v = r * v * (1 - v);", "y, x, r"),
    "a parameter in a long body": (
        "for (int k = 0; k < n; k++) { double t = r * v; v = 0.5 * sin(t * t) + 0.1 * r * r * k; }", "y, x, r"
    ),
    "a branch": ("for (int k = 0; k < n; k++) { if (v > 0.4) v = v * v; else v = r * v + 0.3; }", "y, x, r"),
    "a choice": ("for (int k = 0; k < n; k++) v = fmax(v * v, 0.2 * v) + (k % 2 ? 0.1 * v : 0.3);", "y, x"),
    "a loop in a loop": (
        "for (int k = 0; k < n; k++) { for (int j = 0; j < k % 3; j++) v = v * (1.1 - v); v = cos(v); }",
        "y, x",
    ),
    "until it is small": ("while (v > 0.05 && w < 3) { v = 0.8 * v * (1 - 0.1 * v); }", "y, x"),
    "downwards": ("for (int k = n; k > 0; k -= 2) v = 0.9 * v * (1 - 0.3 * v) + 0.01 * k;", "y, x"),
    "memory that is overwritten": (
        "for (int k = 0; k < n; k++) { v = v * v * s[i]; s[i] = 0.5 * s[i] + 0.4; }", "y, x"
    ),
}  # fmt: skip

WIDE = {
    "reads with adjoints": ("for (int k = 0; k < n; k++) v = 0.9 * v * v + 0.1 * x[k];", "y, x"),
    "stores with adjoints": ("for (int k = 0; k < n; k++) { v = 0.9 * v * v; y[i] += v; }", "y, x"),
    "partials without bounds": ("for (int k = 0; k < n; k++) v = 0.3 + sqrt(v);", "y, x"),
    "many": (
        "double p = v, q = v * w, o = w; for (int k = 0; k < n; k++) "
        "{ v = p * q; p = v * w; q = o * p; o = w * 0.5; w = v * o; }",
        "y, x, r",
    ),
    "two, coupled": ("for (int k = 0; k < n; k++) { double t = v - 0.1 * w; w = w + 0.1 * sin(t); v = t; }", "y, x"),
    "two, in an inner loop": (
        "for (int k = 0; k < n; k++) { double q = v; for (int j = 0; j < 3; j++) { v *= q; q *= 0.9 * q; } v += q; }",
        "y, x",
    ),
    "a sum beside it": ("for (int k = 0; k < n; k++) { v = sin(v) + 0.1 * r; w += v * v; }", "y, r"),
    "nothing taped": ("for (int k = 0; k < n; k++) v += 0.5 * r;", "y, x, r"),
}  # fmt: skip


def compiled(loop: str) -> Any:
    source = f"""__global__ void k(double *y, const double *x, double *s, double r, int n) {{
        int i = threadIdx.x;
        double v = x[i] * x[i], w = 0.5 * r;
        {loop}
        y[i] = v * w;
    }}"""
    return kernel_of(source)


@lru_cache(4)
def made(loop: str, listed: str, long: bool) -> tuple[Any, Any]:
    """A gradient that launches one variant, and that variant."""
    gradient = kg.gradient(compiled(loop), listed)
    variant = gradient.variant(tuple(listed.split(", ")), replace(USUAL, strips=long))
    gradient.forms.for_launch = lambda *_: variant
    return gradient, variant


def gradients(loop: str, listed: str, n: int, long: bool) -> tuple[Any, int, str]:
    """The adjoints, the size of the tape, and the gradient's source."""
    rng = np.random.default_rng(n)
    x, seed = rng.random(32) * 0.5 + 0.3, rng.standard_normal(N)
    names = tuple(listed.split(", "))
    gradient, variant = made(loop, listed, long)
    adjoints = {"y": seed.copy(), "x": np.zeros(32), "r": np.zeros(1)}
    own = (np.zeros(N), x, np.full(N, 0.9), 0.7, n)
    gradient[1, N](*own, *(adjoints[name] for name in names))
    report = gradient.check(1, N, *own, *(np.ones_like(adjoints[name]) for name in names), seed=n)
    assert not report.findings
    found = np.concatenate([adjoints[name] for name in names])
    return found, gradient.tape_bytes(1, N, *own), variant.source(0)


@pytest.mark.parametrize("n", (0, 1, 13))
@pytest.mark.parametrize("name", LOOPS)
def test_same_without_a_tape(name: str, n: int) -> None:
    loop, listed = LOOPS[name]
    want, taped, _ = gradients(loop, listed, n, False)
    got, tape, source = gradients(loop, listed, n, True)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
    assert taped or n == 0
    assert not tape
    assert "_slope" in source
    assert "along(" not in source and "detach(" not in source


@pytest.mark.parametrize("name", WIDE)
def test_not_chosen(name: str) -> None:
    loop, listed = WIDE[name]
    want, _, _ = gradients(loop, listed, 13, False)
    got, _, source = gradients(loop, listed, 13, True)
    assert "_slope" not in source
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)


def test_an_adjoint_of_zero_stays_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the slope is beyond what a float can hold: 0 times infinity is no number."""
    source = """__global__ void k(float *y, const float *x, int n) {
        int i = threadIdx.x;
        float v = x[i];
        for (int k = 0; k < n; k++) v = 4.0f * v * (1.0f - v) + 0.5f * v;
        y[i] = v;
    }"""
    gradient = kg.gradient(kernel_of(source))
    variant = gradient.variant(("y", "x"), replace(USUAL, strips=True))
    monkeypatch.setattr(gradient.forms, "for_launch", lambda *_: variant)
    d_x = np.zeros(4, "f4")
    gradient[1, 4](np.zeros(4, "f4"), np.full(4, 2.0, "f4"), 9, np.zeros(4, "f4"), d_x)
    np.testing.assert_array_equal(d_x, 0)


def test_one_loop_in_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is narrow where it is given constants, and not where it is given what is read."""
    source = """
    __device__ double go(double v, const double *c, int n) {
        for (int k = 0; k < n; k++) v = 0.9 * v * v + 0.1 * c[k];
        return v;
    }
    __global__ void k(double *y, const double *x, const double *c, int n) {
        int i = threadIdx.x;
        y[i] = go(x[i], c, n) + go(0.5 * x[i], x, n);
    }"""
    results = []
    for long in (False, True):
        gradient = kg.gradient(kernel_of(source), "y, x")
        variant = gradient.variant(("y", "x"), replace(USUAL, strips=long))
        monkeypatch.setattr(gradient.forms, "for_launch", lambda *_, variant=variant: variant)
        x = np.linspace(0.1, 0.6, 16)
        d_x = np.zeros(16)
        gradient[1, N](np.zeros(N), x, x[::-1].copy(), 13, np.ones(N), d_x)
        results.append(d_x)
        assert ("_slope" in variant.source(0)) == long
    np.testing.assert_allclose(*results, rtol=1e-12)


def test_nothing_is_counted() -> None:
    """Where a launch would have to count how long the tape is, small ones carry derivatives along too."""
    gradient = kg.gradient(compiled(LOOPS["until it is small"][0]), "y, x")
    own = (np.zeros(N), np.linspace(0.3, 0.9, N), np.zeros(N), 0.7, 0)
    assert "_segments" in gradient.source
    assert "its derivative is carried along" in gradient.explain(1, N, *own)
    assert gradient.tape_bytes(1, N, *own) == 0


def test_large_launches_choose_it() -> None:
    kernel = compiled(LOOPS["one number"][0])
    gradient = kg.gradient(kernel, "y, x")
    text = gradient.explain(1024, 1024, np.zeros(1024), np.ones(1024), np.ones(1024), 0.7, 100)
    assert "its derivative is carried along" in text
    assert "its derivative is carried along" not in gradient.explain()


# Loops of `k(T *y, const T *x, const T *s, T r, int n)` that start with v = 0.5, whose slopes leave the range
# of floats while no adjoint does: what is listed, the adjoint of y, r and n.
RANGES = {
    "grows": ("for (int k = 0; k < n; k++) v = v * v * r;", "y, x", 1e-20, 2, 150),
    "shrinks": ("for (int k = 0; k < n; k++) v = v * (r + v * T(1e-3));", "y, x", 1e30, 0.25, 100),
    "shrinks, then grows": (
        "for (int k = 0; k < n; k++) v = v * (k < 70 ? T(0.25) : T(4)) * (1 + v * r);", "y, x", 1, 0.01, 140
    ),
    "by what is read": (
        "for (int k = 0; k < n; k++) v = T(0.5) + (v - T(0.5)) * s[k] * (v + T(0.5));", "y, x", 1, 0, 200
    ),
    "within its body": (
        "for (int k = 0; k < n; k++) v = v * T(1e-20) * r * (T(1e-20) + T(1e-25) * v) * T(1e20) * T(1e20);",
        "y, x", 1, 0.9, 5
    ),
    "a parameter": ("for (int k = 0; k < n; k++) v = v * v * r;", "y, x, r", 1e-20, 2, 150),
    "in a branch": ("for (int k = 0; k < n; k++) { if (v < 1) v = v * v * r; }", "y, x", 1e-20, 2, 150),
    "until it is large": ("while (v < T(1e35)) v = r * v * (1 + v * T(1e-36));", "y, x", 1e-3, 2.5, 0),
    "a loop in a loop": (
        "for (int k = 0; k < n; k++) for (int j = 0; j < 10; j++) v = v * v * r;", "y, x, r", 1e-20, 2, 15
    ),
}  # fmt: skip


def along_a_loop(name: str, type: str, long: bool, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """The adjoints of the inputs."""
    loop, listed, seed, r, n = RANGES[name]
    dtype, names = "f4" if type == "float" else "f8", tuple(listed.split(", "))
    source = f"""typedef {type} T;
    __global__ void k(T *y, const T *x, const T *s, T r, int n) {{
        int i = threadIdx.x;
        T v = x[i];
        {loop}
        y[i] = v;
    }}"""
    gradient = kg.gradient(kernel_of(source), listed, **settings)
    variant = gradient.variant(names, replace(USUAL, strips=long))
    monkeypatch.setattr(gradient.forms, "for_launch", lambda *_: variant)
    assert ("_slope" in variant.source(0)) == long
    adjoints = {"y": np.full(4, seed, dtype), "x": np.zeros(4, dtype), "r": np.zeros(1, dtype)}
    scales = np.where((np.arange(n) < n // 4) | (np.arange(n) >= 3 * n // 4), 4.0, 0.25).astype(dtype)
    gradient[1, 4](np.zeros(4, dtype), np.full(4, 0.5, dtype), scales, r, n, *(adjoints[name] for name in names))
    return np.concatenate([adjoints[name] for name in names[1:]])


@pytest.mark.parametrize("type", ("float", "double"))
@pytest.mark.parametrize("name", RANGES)
def test_slopes_out_of_range(name: str, type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want = along_a_loop(name, "double", False, monkeypatch)
    got = along_a_loop(name, type, True, monkeypatch)
    assert np.all(want != 0) and np.all(np.abs(want) < 3e38)
    np.testing.assert_allclose(got, want, rtol=1e-12 if type == "double" else 1e-4)


@pytest.mark.parametrize("settings", ({"deterministic": True}, {"tape_budget": 64}))
def test_slopes_out_of_range_settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    want = along_a_loop("a parameter", "double", False, monkeypatch)
    got = along_a_loop("a parameter", "float", True, monkeypatch, **settings)
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_a_zero_slope_stays_zero() -> None:
    loop = "for (int k = 0; k < n; k++) v = (v - x[i]) * (v - x[i]) * r;"
    got, _, source = gradients(loop, "y, r", 13, True)
    want, _, _ = gradients(loop, "y, r", 13, False)
    assert "_slope" in source
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_select_drops_what_was_infinite_before() -> None:
    source = """__global__ void k(double *y, const double *x, int n) { int i = threadIdx.x; double v = x[i] + 2;
        for (int k = 0; k < n; k++) v = k == n - 1 ? 1.0 : v * v; y[i] = v * x[i]; }"""
    for plan in ("one kernel", "a large tape"):
        with forced(plan):
            d_x = np.zeros(N)
            kg.gradient(kernel_of(source), "y, x")[1, N](np.zeros(N), np.arange(1.0, 9), 30, np.ones(N), d_x)
        np.testing.assert_array_equal(d_x, np.ones(N))
