"""The reverse alone of kernels that write what they read in nested loops: where iterations go to other elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

HEAD = "__global__ void k(double *p, const double *g, int w, int h, int pitch)"
XY = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"
DOWN = "for (int j = y; j < h; j += gridDim.y * blockDim.y)"
ACROSS = "for (int i = x; i < w; i += gridDim.x * blockDim.x)"
COLUMN = "if (x < w && y == 0)"
W, H, PITCH = 5, 7, 8
LAUNCHES = [(1, 1), ((2, 2), (2, 3)), ((1, 1), (8, 8))]

IN_ROWS = {
    "column": f"{HEAD} {{ {XY} {COLUMN} for (int j = 0; j < h; j++) p[j * pitch + x] *= p[j * pitch + x]; }}",
    "nested": f"{HEAD} {{ {XY} {DOWN} {ACROSS} {{ double v = p[j * pitch + i]; p[j * pitch + i] = v * v * g[i]; }} }}",
    "tiles": f"""{HEAD} {{ {XY} for (int b = 0; b < 4; b++) for (int a = 0; a < 4; a++) {{
        int i = 4 * x + a, j = 4 * y + b; if (i < w && j < h) p[j * pitch + i] *= p[j * pitch + i] * g[i]; }} }}""",
    "row pointer": f"{HEAD} {{ {XY} {DOWN} {{ double *r = p + (size_t)j * pitch; {ACROSS} r[i] *= r[i] * g[i]; }} }}",
    "bytes": f"""{HEAD} {{ {XY} {DOWN} {{
        double *r = (double *)((char *)p + (size_t)j * (8 * pitch)); {ACROSS} r[i] *= r[i] * g[i]; }} }}""",
    "helper": f"""__device__ double &at(double *p, int y, int x, int pitch) {{ return p[y * pitch + x]; }}
        {HEAD} {{ {XY} {DOWN} {ACROSS} at(p, j, i, pitch) *= at(p, j, i, pitch) * g[i]; }}""",
    "unsigned": """__global__ void k(double *p, const double *g, unsigned w, unsigned h, unsigned pitch) {
        unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        for (unsigned j = y; j < h; j += gridDim.y * blockDim.y)
        for (unsigned i = x; i < w; i += gridDim.x * blockDim.x)
            p[j * pitch + i] *= p[j * pitch + i] * g[i]; }""",
    "downwards": f"{HEAD} {{ {XY} {COLUMN} for (int j = h - 1; j >= 0; j--) p[j * pitch + x] *= p[j * pitch + x]; }}",
    "two rows at once": f"""{HEAD} {{ {XY} {COLUMN} for (int j = 0; j + 1 < h; j += 2) {{
        double a = p[j * pitch + x], b = p[(j + 1) * pitch + x];
        p[j * pitch + x] = a * b; p[(j + 1) * pitch + x] = a - b * b; }} }}""",
    "one row after the other": f"""{HEAD} {{ {XY} {COLUMN} for (int j = 0; j + 1 < h; j += 2) {{
        p[j * pitch + x] *= p[j * pitch + x]; p[(j + 1) * pitch + x] *= p[(j + 1) * pitch + x] * g[x]; }} }}""",
    "while it goes on": f"""{HEAD} {{ {XY} if (x || y) return; int at = 0;
        for (int j = 0; j < h; j++) {{ for (int i = 0; i < w; i++) p[at + i] *= p[at + i] * g[i]; at += pitch; }} }}""",
}


def adjoints(gradient: Any, launch: Any, pitch: int = PITCH, w: int = W) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    p, g, d_p, d_g = (rng.random(H * PITCH) + 0.5 for _ in range(4))
    gradient[launch](p, g, w, H, pitch, d_p, d_g)
    return d_p, d_g, p


@pytest.mark.parametrize("name", IN_ROWS)
def test_rows_of_any_length(name: str) -> None:
    kernel = kg.compile(IN_ROWS[name])["k"]
    alone, both = kg.gradient(kernel, "p, g", primal=False), kg.gradient(kernel, "p, g")
    for launch in LAUNCHES:
        *found, kept = adjoints(alone, launch)
        np.testing.assert_array_equal(kept, np.random.default_rng(0).random(H * PITCH) + 0.5)
        for one, other in zip(found, adjoints(both, launch), strict=False):
            np.testing.assert_allclose(one, other, rtol=1e-13)
    args = (np.linspace(0.5, 1.5, H * PITCH), np.linspace(1, 2, H * PITCH), W, H, PITCH)
    kg.check_gradient(kernel, "p, g", *LAUNCHES[1], args)


@pytest.mark.parametrize("name", ["nested", "row pointer", "bytes", "unsigned", "while it goes on"])
def test_rows_that_overlap_are_an_error_of_the_launch(name: str) -> None:
    """One thread, so that nothing races: what a row wrote, the next one reads."""
    kernel = kg.compile(IN_ROWS[name])["k"]
    alone = kg.gradient(kernel, "p, g", primal=False)
    adjoints(alone, (1, 1))
    with pytest.raises(kg.UnsupportedError, match=r"rows may overlap[^$]*split") as error:
        adjoints(alone, (1, 1), pitch=W - 1)
    assert "kernel.cu:" in str(error.value)
    adjoints(alone, (1, 1), pitch=W)
    assert "// For launches in which no thread reads what it wrote before" in alone.source


def test_a_step_that_may_be_zero_is_a_question_of_the_launch() -> None:
    source = """__global__ void k(double *p, int n) { int s = n / 100, j = threadIdx.x;
        for (int c = 0; c < 3; c++, j += s) p[j] = p[j] * p[j]; }"""
    kernel = kg.compile(source)["k"]
    alone, both = kg.gradient(kernel, "p", primal=False), kg.gradient(kernel, "p")
    found = [np.linspace(1.0, 2.0, 20) for _ in range(2)]
    for gradient, d_p in zip((alone, both), found, strict=True):
        gradient[1, 4](np.linspace(0.5, 1.5, 20), 400, d_p)
    np.testing.assert_allclose(*found, rtol=1e-13)
    with pytest.raises(kg.UnsupportedError, match=r"kernel.cu:2:[^$]*rows may overlap or repeat[^$]*split"):
        alone[1, 4](np.linspace(0.5, 1.5, 20), 20, np.ones(20))


FREE = "__global__ void k(double *p, const int *r, int m, int n, int a, int b, int c, int d)"
STEP = "{ double v = p[a * i + b * j + c]; p[a * i + b * j + d] = v * v * 0.7 + v; }"
ANYWHERE = {
    "counted": f"{FREE} {{ for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {STEP} }}",
    "by their ends": f"{FREE} {{ for (int i = 0; i <= m; i += 2) for (int j = 1; j <= n; j += 2) {STEP} }}",
    "triangle": f"{FREE} {{ for (int i = 0; i < m; i++) for (int j = i; j < n; j++) {STEP} }}",
    "at least once": f"{FREE} {{ int i = 0; do {{ int j = 0; do {STEP} while (++j < n); }} while (++i < m); }}",
    "from a number that is read": f"""{FREE} {{ int at = r[0];
        for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {{
        double v = p[at + a * i + b * j + c]; p[at + a * i + b * j + d] = v * v * 0.7 + v; }} }}""",
    "from the end": f"""{FREE} {{ for (int i = 0; i < m; i++) {{ double v = p[a * i + c], u = p[d - b * i];
        p[a * i + c] = u * u + v; p[d - b * i] = v * u; }} }}""",
}


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_has_a_reverse_is_right_whatever_the_numbers_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these launches read what they wrote, and are refused; numbers of the launch decide from the start."""
    from kernelgrad.analysis.ownership import loads_before_stores as analysis

    kernel = kg.compile(ANYWHERE[name])["k"]
    both, rng, right = kg.gradient(kernel, "p"), np.random.default_rng(1), 0
    for _ in range(24):
        m, n = (int(v) for v in rng.integers(1, 5, 2))
        a, b = [(n, 1), (1, m), (8, 1), (6, 2), (1, 1), (3, 2)][int(rng.integers(6))]
        numbers = {"m": m, "n": n, "a": a, "b": b, "c": 30, "d": 30 + int(rng.choice([0, 0, 1, -1, a, 20, -20]))}

        def of_launch(function: Any, numbers: dict[str, int] = numbers) -> Any:
            known = {p.value: numbers.get(p.name) for p in function.params}
            yield analysis.Numbers(analysis.typical_shape(function), known.get)

        monkeypatch.setattr(analysis, "_typical_numbers", of_launch)
        try:
            alone = kg.gradient(kernel, "p", primal=False)
        except kg.UnsupportedError:
            continue
        found = [np.linspace(0.1, 1.0, 100) for _ in range(2)]
        for gradient, d_p in zip((alone, both), found, strict=True):
            gradient[1, 1](np.linspace(0.5, 0.9, 100), np.full(1, 2, "i4"), *numbers.values(), d_p)
        np.testing.assert_allclose(*found, rtol=1e-12)
        right += 1
    assert right >= 3


def test_one_kernel_does_both_where_rows_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large launches are in two, the reverse alone and then the kernel, but not where the reverse needs the kernel."""
    from kernelgrad.autodiff.costs.work import Work
    from kernelgrad.launches.choice import split_launch

    source = f"""{HEAD} {{ if (threadIdx.x) return; for (int j = 0; j < h; j++) for (int i = 0; i < w; i++) {{
        double v = p[j * pitch + i], s = 1; for (int t = 0; t < 9; t++) s = s * v + g[t];
        p[j * pitch + i] = s * 1e-3; }} }}"""
    kernel = kg.compile(source)["k"]
    monkeypatch.setattr(split_launch, "ENOUGH", Work(moved=1, operations=1))
    monkeypatch.setattr(split_launch, "DENSE", 0)
    monkeypatch.setattr(split_launch, "MORE", 100)
    gradient = kg.gradient(kernel, "p, g")
    forward, reverse = kg.split(kernel, "p, g")
    for pitch in (PITCH, W - 1, W):
        rng = np.random.default_rng(0)
        p, g, d_p, d_g = (rng.random(H * PITCH) + 0.5 for _ in range(4))
        says = gradient.explain(1, 1, p, g, W, H, pitch)
        assert ("two launches, the reverse alone" in says) == (pitch >= W)
        wanted = [array.copy() for array in (p, g, d_p, d_g)]
        gradient[1, 1](p, g, W, H, pitch, d_p, d_g)
        tape = forward[1, 1](*wanted[:2], W, H, pitch)
        reverse[1, 1](tape, *wanted[:2], W, H, pitch, *wanted[2:])
        for one, other in zip((p, d_p, d_g), (wanted[0], *wanted[2:]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
