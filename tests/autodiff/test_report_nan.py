"""`report_nan=True` names the line at which a derivative stopped being finite."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.nvrtc import compile_only
from not_finite_cases import AT, CASES, N, arguments, compiled, line

FORMS: dict[str, dict[str, Any]] = {
    "J": {},
    "R": {"primal": False, "keep": "y", "assign": "x"},
    "deterministic": {"deterministic": True},
}


def launch(target: Any, args: tuple[Any, ...], seed: Any) -> Any:
    d_x = np.zeros(N, np.float32)
    target[1, N](*args, seed.copy(), d_x)
    return d_x


def check(name: str, error: kg.NotFiniteError) -> None:
    text = str(error)
    assert line(name) is None or error.span.line == line(name), text
    assert all(part in text for part in CASES[name].told), text
    assert f"thread ({AT}, 0, 0) of block (0, 0, 0)" in text and "help: " in text


@pytest.mark.parametrize("name", CASES)
def test_the_line(name: str) -> None:
    kernel, seed = compiled(name), np.ones(N, np.float32)
    forms = FORMS if name not in ("atomic", "while") else {"J": {}}
    for options in forms.values():
        g = kg.gradient(kernel, "y, x", report_nan=True, **options)
        with pytest.raises(kg.NotFiniteError) as caught:
            launch(g, arguments(name == "overflow" or name == "sum"), seed)
        check(name, caught.value)
    if name in ("overflow", "sum"):
        return
    plain = launch(kg.gradient(kernel, "y, x"), arguments(True), seed)
    np.testing.assert_array_equal(launch(kg.gradient(kernel, "y, x", report_nan=True), arguments(True), seed), plain)
    assert np.isfinite(plain).all()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.by_tangent and name != "custom"])
def test_forward_mode(name: str) -> None:
    t = kg.jvp(compiled(name), "y, x", report_nan=True)
    with pytest.raises(kg.NotFiniteError) as caught:
        t[1, N](*arguments(False), np.zeros(N, np.float32), np.ones(N, np.float32))
    assert caught.value.span.line == line(name), str(caught.value)
    t[1, N](*arguments(True), np.zeros(N, np.float32), np.ones(N, np.float32))


def test_nothing_is_said_of_what_is_masked() -> None:
    """Infinities that a branch or a seed of zero drops, in both modes."""
    source = "__global__ void k(float *y, const float *x) { int i = threadIdx.x; float v = sqrtf(x[i]); y[i] = %s; }"
    x, ones = np.array([0, 4], np.float32), np.ones(2, np.float32)
    chosen = kg.compile(source % "x[i] > 0 ? v : 0")["k"]
    plain = kg.compile(source % "v")["k"]
    for kernel, seed in ((chosen, ones), (plain, np.array([0, 1], np.float32))):
        d_x = np.zeros_like(x)
        kg.gradient(kernel, report_nan=True)[1, 2](np.zeros_like(x), x, seed.copy(), d_x)
        np.testing.assert_array_equal(d_x, [0, 0.25])
        t_y = np.zeros_like(x)
        kg.jvp(kernel, report_nan=True)[1, 2](np.zeros_like(x), x, t_y, seed)
        np.testing.assert_array_equal(t_y, [0, 0.25])


def test_seeds() -> None:
    seed = np.ones(N, np.float32)
    seed[2] = np.inf
    g = kg.gradient(compiled("root"), "y, x", report_nan=True)
    with pytest.raises(kg.NotFiniteError, match=r"what is written here is inf; thread \(2, 0, 0\)(.|\n)*seeds"):
        launch(g, arguments(True), seed)


def test_blocks_threads_and_budgets() -> None:
    """In a loop of checkpoints, in the third block, in a thread of two dimensions."""
    kernel = kg.compile(r"""
        __global__ void k(float *y, const float *x, int n, int steps) {
            int i = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
            if (i >= n) return;
            float v = x[i];
            for (int t = 0; t < steps; t++)
                v = t == 700 ? (v + 1) * sqrtf(x[i]) + v : v + 0.001f * sinf(v);
            y[i] = v;
        }""")["k"]
    x = np.linspace(0.1, 0.5, 45, dtype=np.float32)
    x[41] = 0
    for options in ({}, {"tape_budget": 20_000}):
        g = kg.gradient(kernel, "y, x", report_nan=True, **options)
        with pytest.raises(kg.NotFiniteError, match=r"thread \(1, 1, 0\) of block \(2, 0, 0\), in the loop") as caught:
            g[3, (8, 2)](np.zeros_like(x), x, 45, 1000, np.ones_like(x), np.zeros_like(x))
        assert caught.value.span.line == 7
        if not options:
            assert "t = 700 of line 6" in str(caught.value)


def test_many_threads_tell_of_one() -> None:
    """More than there are records for."""
    source = "__global__ void k(float *y, const float *x, int n) { int i = blockIdx.x * 256 + threadIdx.x;" + (
        " if (i < n) y[i] = logf(x[i]); }"
    )
    n = 20_000
    x, d_x = np.ones(n, np.float32), np.zeros(n, np.float32)
    x[n - 9 :] = 0
    g = kg.gradient(kg.compile(source)["k"], "y, x", report_nan=True)
    with pytest.raises(kg.NotFiniteError, match=rf"thread \({(n - 9) % 256}, 0, 0\) of block \({(n - 9) // 256}, 0, 0"):
        g[-(-n // 256), 256](np.zeros(n, np.float32), x, n, np.ones(n, np.float32), d_x)
    assert np.isinf(d_x[n - 9 :]).all() and (d_x[: n - 9] == 1).all()


def test_functions_and_winners() -> None:
    module = kg.compile(r"""
        __device__ float f(float x, float y) { return sqrtf(x) * y; }
        __global__ void top(float *m, const float *x) { atomicMax((int *)m, __float_as_int(sqrtf(x[threadIdx.x]))); }
        """)
    d_x, d_y = np.zeros(1, np.float32), np.zeros(1, np.float32)
    with pytest.raises(kg.NotFiniteError, match="'sqrt'"):
        kg.gradient(module["f"], report_nan=True).execute(0.0, 2.0, d_x, d_y)
    assert kg.gradient(module["f"], report_nan=True).execute(4.0, 3.0, d_x, d_y) == 6
    with pytest.raises(kg.NotFiniteError, match="'sqrt'"):
        kg.jvp(module["f"], report_nan=True).execute(0.0, 2.0, np.ones(1, np.float32), None)
    g = kg.gradient(module["top"], report_nan=True)
    zero, ones = np.zeros(1, np.float32), np.ones(1, np.float32)
    with pytest.raises(kg.NotFiniteError, match="'sqrt'"):
        g[1, 2](zero - 1, np.zeros(2, np.float32), ones, np.zeros(2, np.float32))


def test_launches_that_come_again() -> None:
    """Whatever is remembered of launches that found nothing."""
    kernel = compiled("root")
    g, t = kg.gradient(kernel, "y, x", report_nan=True), kg.jvp(kernel, "y, x", report_nan=True)
    for good in (True, True, True, False, True, False):
        for target, given in ((g, (1.0, 0.0)), (t, (0.0, 1.0))):
            with nullcontext() if good else pytest.raises(kg.NotFiniteError, match="'sqrt'"):
                target[1, N](*arguments(good), *[np.full(N, v, np.float32) for v in given])


def test_halves_and_recordings() -> None:
    kernel = kg.compile(
        "#include <cuda_fp16.h>\n__global__ void k(__half *y, const __half *x) {"
        " y[threadIdx.x] = __float2half(sqrtf(__half2float(x[threadIdx.x]))); }"
    )["k"]
    g = kg.gradient(kernel, report_nan=True)
    x, seed = np.array([4, 0], np.float16), np.ones(2, np.float16)
    d_x = np.zeros_like(x)
    with pytest.raises(kg.NotFiniteError, match=r"'sqrt'(.|\n)*thread \(1, 0, 0\)"):
        g[1, 2](np.zeros_like(x), x, seed.copy(), d_x)
    np.testing.assert_array_equal(d_x, np.array([0.25, np.inf], np.float16))  # it has run to its end
    y, x, a, n = arguments(False)
    with kg.record(), pytest.raises(kg.NotFiniteError, match="'sqrt'"):
        kg.gradient(compiled("root"), "y, x", report_nan=True)[1, N](y, x, a, n, np.ones_like(x), np.zeros_like(x))


def test_refused() -> None:
    kernel = compiled("root")
    g = kg.gradient(kernel, "y, x", report_nan=True)
    assert "report_nan=True" in repr(g)
    with pytest.raises(kg.ArgumentError, match="report_nan"):
        kg.gradient(g)
    with pytest.raises(kg.ArgumentError, match="report_nan"):
        kg.jvp(g)
    with pytest.raises(kg.ArgumentError, match="report_nan: wants True or False"):
        kg.gradient(kernel, "y, x", report_nan=1)


@pytest.mark.parametrize("name", ["two loops", "shared", "double"])
def test_text_compiles(name: str) -> None:
    g, t = kg.gradient(compiled(name), "y, x", report_nan=True), kg.jvp(compiled(name), "y, x", report_nan=True)
    assert "_not_finite" in g.source and "isfinite" in g.source
    for source in (g.source, g.source_for(1, N, *arguments(True), on_gpu=True), t.source):
        assert compile_only(source, "sm_90")
    assert "_not_finite" not in kg.gradient(compiled(name), "y, x").source
