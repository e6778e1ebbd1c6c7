"""Rows that stay in registers or shared memory between the loops over them: in every spelling of the loops, for every
length."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kept_row_cases import (
    BLOCK,
    HELPERS,
    KEPT,
    KEPT_BY_THREADS,
    NOT_KEPT,
    NOT_KEPT_BY_THREADS,
    ROWS,
    WARP,
    arrays,
    compiled,
    launch_of,
)
from kernelgrad.analysis.tuning import KeptRows
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from kernelgrad.schedule.rows import room
from some_cases import some

from ..emulation.run_text import run_emitted

LENGTHS = (128, 192, 150, 64, 40, 1, 0, 1000)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def rows_of(gradient: Any, body: str, n: int) -> KeptRows | None:
    y, x, w = arrays(n)
    found = gradient.planned(make_launch(*launch_of(body)), (y, x, w, ROWS, n), {}, on_gpu=True)
    rows: KeptRows | None = found.plan.variant.options.facts.rows
    return rows


def compare(
    kernel: Any, body: str, n: int, element: Any = np.float64, tolerance: float = 1e-10, **options: Any
) -> None:
    """With forward mode."""
    y, x, w = arrays(n, element)
    grid, block = launch_of(body)
    d_y, d_x, d_w = (np.cos(np.arange(a.size)).astype(element) for a in (y, x, w))
    before = {"x": d_x.copy(), "w": d_w.copy()}
    gradient = kg.gradient(kernel, "y, x, w", **options)
    seed = d_y.copy()
    gradient[grid, block](y, x, w, ROWS, n, d_y, d_x, d_w)
    forward = kg.jvp(kernel, "y, x, w")
    for name, got, size in (("x", d_x, ROWS * n), ("w", d_w, n)):
        base = 0 if name in options.get("assign", ()) else before[name]
        for at in range(0, size, max(1, size // 7)):
            tangents = {k: np.zeros_like(v) for k, v in (("x", x), ("w", w))}
            tangents[name][at] = 1
            t_y = np.zeros_like(y)
            forward[grid, block](y.copy(), x, w, ROWS, n, t_y, tangents["x"], tangents["w"])
            want = (t_y * seed).sum() + (base if np.isscalar(base) else base[at])
            np.testing.assert_allclose(got[at], want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", some(KEPT, 2))
def test_values(name: str) -> None:
    kernel = compiled(KEPT[name])
    for n in LENGTHS:
        compare(kernel, KEPT[name], n, primal=False, keep="y", assign=["x", "w"])


@pytest.mark.parametrize("name", KEPT)
def test_is_kept(name: str) -> None:
    gradient = kg.gradient(compiled(KEPT[name]), "y, x, w", primal=False, keep="y", assign=["x"])
    assert rows_of(gradient, KEPT[name], 256) is not None
    assert rows_of(gradient, KEPT[name], 250) is not None
    assert rows_of(gradient, KEPT[name], 100_000) is None


@pytest.mark.parametrize("name", KEPT_BY_THREADS)
def test_a_row_a_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.short_loops._LONGEST", 0)  # no constants in place of lengths
    body = KEPT_BY_THREADS[name]
    gradient = kg.gradient(compiled(body), "y, x, w", primal=False, keep="y", assign=["x"])
    assert rows_of(gradient, body, 24) is not None
    for n in (40, 24, 7, 1):
        compare(compiled(body), body, n, primal=False, keep="y", assign=["x", "w"])
        compare(compiled(body), body, n)


@pytest.mark.parametrize("name", NOT_KEPT_BY_THREADS)
def test_rows_of_several_threads(name: str) -> None:
    body = NOT_KEPT_BY_THREADS[name]
    assert rows_of(kg.gradient(compiled(body), "y, x, w", primal=False, keep="y"), body, 24) is None
    compare(compiled(body), body, 24, primal=False, keep="y", assign=["x", "w"])


def test_adjoints_are_loaded_with_the_first_loop() -> None:
    body = KEPT["softmax, a block a row, strides of the block"]
    rows = rows_of(kg.gradient(compiled(body), "y, x, w", primal=False, keep="y", assign=["x"]), body, 256)
    assert rows is not None and rows.early


@pytest.mark.parametrize("name", NOT_KEPT)
def test_is_not_kept(name: str) -> None:
    kernel = compiled(NOT_KEPT[name])
    assert rows_of(kg.gradient(kernel, "y, x, w", primal=False, keep="y"), NOT_KEPT[name], 256) is None
    compare(kernel, NOT_KEPT[name], 150, primal=False, keep="y", assign=["x", "w"])


@pytest.mark.parametrize("options", [{}, {"primal": False}, {"may_alias": True}, {"deterministic": True}], ids=str)
def test_added_to_what_is_there(options: dict[str, Any]) -> None:
    body = KEPT["three sums"]
    for n in (128, 150):
        compare(compiled(body), body, n, **options)


NORM = WARP + (
    "T m = 0, q = 0; for (int c = c0; c < n; c += 32) { T v = x[row * n + c]; m += v; q += v * v; }"
    "m = warp_sum(m) / n; q = rsqrt(warp_sum(q) / n - m * m + (T)0.01);"
    "for (int c = c0; c < n; c += 32) y[row * n + c] = (x[row * n + c] - m) * q * w[c] + b[c];"
)


def test_loops_that_start_at_what_is_known_later() -> None:
    """Shadows of shared memory are zeroed before the kernel has computed where its own loops start."""
    body = BLOCK + (
        "__shared__ T s[96]; int t = threadIdx.x; for (int c = t; c < 96; c += 64) s[c] = x[row * 96 + c] * w[c];"
        "__syncthreads(); for (int c = t; c < 96; c += 64) y[row * 96 + c] = "
        "s[c * c % 96] * x[row * 96 + c] + x[row * 96 + 95 - c];"
    )
    kernel = compiled(body)
    assert rows_of(kg.gradient(kernel, "y, x, w"), body, 96) is not None
    compare(kernel, body, 96)


@pytest.mark.parametrize("n", [64, 50, 96])
def test_sums_over_rows(n: int) -> None:
    """Blocks that have cells for the weights' adjoints: a thread adds to those when all of its rows are done."""
    params, rows, rng = "T *y, const T *x, const T *w, const T *b, int rows, int n", 160, np.random.default_rng(n)
    kernel: Any = kernel_of(f"typedef double T; {HELPERS} __global__ void k({params}) {{ {NORM} }}")
    y, x, w, b, d_y = (rng.uniform(-2, 2, size) for size in (rows * n, rows * n, n, n, rows * n))
    found = []
    for plan in ("in cells of blocks", "one kernel"):
        d_x, d_w, d_b = np.full_like(x, 3.0), np.full_like(w, 5.0), np.full_like(b, 7.0)
        with forced(plan):
            gradient = kg.gradient(kernel, "y, x, w, b", primal=False, keep="y", assign="x")
            gradient[rows // 2, 64](y, x, w, b, rows, n, d_y, d_x, d_w, d_b)
        kept = [v.options.facts.rows for v in gradient.forms.made.values() if v.options.facts.rows is not None]
        found.append((d_x, d_w, d_b))
        assert any(facts.sums for facts in kept) == (plan != "one kernel")
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("n", [64, 150])
@pytest.mark.parametrize("name", ["softmax, a warp a row", "while and pointers"])
def test_as_text(name: str, n: int) -> None:
    """As a GPU gets it, where all lanes are under way at once."""
    kernel, (grid, block), (y, x, w) = compiled(KEPT[name]), launch_of(KEPT[name]), arrays(n)
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x")
    text = gradient.source_for(grid, block, y, x, w, ROWS, n, on_gpu=True)
    assert "registers" in text
    d_y, want, got = np.cos(np.arange(y.size)), np.full_like(x, 3.0), np.zeros_like(x)  # cleared
    gradient[grid, block](y, x, w, ROWS, n, d_y, want)
    run_emitted(text, "k_grad", grid, block, (y, x, w, np.int32(ROWS), np.int32(n), d_y.copy(), got))
    np.testing.assert_allclose(got[: ROWS * n], want[: ROWS * n], rtol=1e-11, atol=1e-12)


@pytest.fixture
def long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few turns are many, and shared memory pays."""
    monkeypatch.setattr(room, "MOST_SHORT", 2)
    monkeypatch.setattr(room.Room, "pays", lambda *_: True)


LONG_LENGTHS = (1000, 150, 64, 40, 1, 0)
WAYS: dict[str, dict[str, Any]] = {
    "R": {"primal": False, "keep": "y", "assign": ["x", "w"]},
    "J": {},
    "added": {"primal": False},
    "may alias": {"may_alias": True},
}


@pytest.mark.usefixtures("long_rows")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", some(KEPT, 2))
def test_values_in_shared_memory(name: str, how: str) -> None:
    kernel = compiled(KEPT[name])
    for n in LONG_LENGTHS:
        compare(kernel, KEPT[name], n, **WAYS[how])


@pytest.mark.usefixtures("long_rows")
@pytest.mark.parametrize("name", KEPT)
def test_is_kept_in_shared_memory(name: str) -> None:
    gradient = kg.gradient(compiled(KEPT[name]), "y, x, w", primal=False, keep="y", assign=["x"])
    rows = rows_of(gradient, KEPT[name], 1000)
    assert rows is not None and rows.block is not None and all(loop.is_long for loop in rows.loops)
    short = rows_of(gradient, KEPT[name], 32 if launch_of(KEPT[name])[1] != 64 else 64)
    assert short is None or short.block is None


def test_only_rows_that_caches_do_not_hold_are_in_shared_memory() -> None:
    """Of few rows, or short ones, the next loop finds what this one read in the cache."""
    params = "T *y, const T *x, int n"
    body = (
        "const T *p = x + (size_t)blockIdx.x * n; T sum = 0;"
        "for (int c = threadIdx.x; c < n; c += 64) sum += p[c] * p[c]; sum = 1 + block_sum(sum);"
        "for (int c = threadIdx.x; c < n; c += 64) y[(size_t)blockIdx.x * n + c] = p[c] / sum;"
    )
    kernel: Any = kernel_of(f"typedef float T; {HELPERS} __global__ void k({params}) {{ {body} }}")
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x")

    def found(grid: int, n: int) -> Any:
        y, x = (np.zeros(grid * n, np.float32) for _ in range(2))
        return gradient.planned(make_launch(grid, 64), (y, x, n), {}, on_gpu=True).plan.variant.options.facts.rows

    shared = [(grid, n) for grid in (100, 4096) for n in (4096, 12_000, 50_000) if found(grid, n) is not None]
    assert shared == [(4096, 4096), (4096, 12_000)]


@pytest.mark.usefixtures("long_rows")
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("n", [64, 150, 500])
@pytest.mark.parametrize("name", ["three sums", "while and pointers", "blocks of two axes"])
def test_as_text_in_shared_memory(name: str, n: int) -> None:
    kernel, (grid, block), (y, x, w) = compiled(KEPT[name]), launch_of(KEPT[name]), arrays(n)
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x")
    text = gradient.source_for(grid, block, y, x, w, ROWS, n, on_gpu=True)
    assert ("in shared memory" in text) == (n > 128 or (n == 150 and block != 64))
    d_y, want, got = np.cos(np.arange(y.size)), np.full_like(x, 3.0), np.zeros_like(x)  # cleared
    gradient[grid, block](y, x, w, ROWS, n, d_y, want)
    run_emitted(text, "k_grad", grid, block, (y, x, w, np.int32(ROWS), np.int32(n), d_y.copy(), got))
    np.testing.assert_allclose(got[: ROWS * n], want[: ROWS * n], rtol=1e-11, atol=1e-12)
