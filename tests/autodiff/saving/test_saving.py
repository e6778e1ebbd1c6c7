"""Splits whose buffers hold something else when the reverse runs (rule 25), and what that costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from saving_cases import CASES, VARIABLES, arguments, seeds
from scrambling import WAYS, force, scramble


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_inputs_may_change(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, way)
    case = CASES[name]
    kernel = kg.compile(case.source)["k"]
    want, args = seeds(case), arguments(case)
    kg.gradient(kernel, case.listed)[case.launch](*args, *want)
    forward, reverse = kg.split(kernel, case.listed)
    found, given = seeds(case), arguments(case)
    tape = forward[case.launch](*given)
    np.testing.assert_allclose(given[0], args[0], rtol=1e-13)
    scramble(given)
    reverse[case.launch](tape, *given, *found)
    for one, other in zip(want, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("listed", ["y, x", "y, x, W"])
def test_variables_may_change(listed: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, way)
    module = kg.compile(VARIABLES)
    w, c, x = np.arange(1.0, 5), np.arange(2.0, 6), np.arange(8.0)
    module.variable("W")[...], module.variable("C")[...], module.variable("first")[...] = w, c, 1
    forward, reverse = kg.split(module["k"], listed)
    tape = forward[1, 8](np.zeros(8), x.copy())
    module["set"][1, 1](np.nan)
    module.variable("C")[...] = np.nan
    d_y, d_x, d_w = np.ones(8), np.zeros(8), np.zeros(4)
    reverse[1, 8](tape, np.zeros(8), np.full(8, np.nan), *(d_y, d_x, d_w)[: listed.count(",") + 1])
    i = np.arange(8)
    np.testing.assert_allclose(d_x, 2 * x * w[i % 4] * c[(i + 1) % 4])
    if "W" in listed:
        np.testing.assert_allclose(d_w, (x * x * c[(i + 1) % 4]).reshape(2, 4).sum(axis=0))
    assert np.isnan(module.variable("C")[0]) and np.isnan(module.variable("W")[0])


def test_behind_an_array_of_addresses() -> None:
    """Nobody knows how large that memory is: its values are taped."""
    source = """__global__ void k(double *y, const double *x, const double **p, int n) {
        int i = threadIdx.x; if (i < n) y[i] = x[i] * p[0][i] * p[1][i]; }"""
    forward, reverse = kg.split(kg.compile(source)["k"], "y, x")
    one, other, x = np.arange(8.0), np.arange(8.0) + 2, np.ones(8)
    addresses = np.array([one.ctypes.data, other.ctypes.data], np.uint64)
    tape = forward[1, 8](np.zeros(8), x, addresses, 8)
    one[:], other[:] = np.nan, np.nan
    d_x = np.zeros(8)
    reverse[1, 8](tape, np.zeros(8), x, addresses, 8, np.ones(8), d_x)
    np.testing.assert_array_equal(d_x, np.arange(8.0) * (np.arange(8.0) + 2))


# ---- bytes ----------------------------------------------------------------------------------------------------------

TABLE = """__global__ void k(double *y, const double *t, const int *at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { double v = t[at[i]]; y[i] = v * v; } }"""


@pytest.mark.parametrize(("size", "threads", "kept"), [(64, 4096, 64 * 8), (1 << 16, 64, 64 * (8 + 8))])
def test_the_smaller_of_copy_and_tape(size: int, threads: int, kept: int) -> None:
    """A small table that many read is copied; of a large one the values are taped. The indices are copied."""
    forward, _ = kg.split(kg.compile(TABLE)["k"], "y, t")
    tape = forward[threads // 32, 32](np.zeros(threads), np.ones(size), np.zeros(threads, "i4"), threads)
    assert tape.nbytes == kept + 4 * threads


@pytest.mark.parametrize(("unchanged", "kept"), [("t, at", 0), ("t", 4 * 64), (["at"], 8 * 64), (None, 12 * 64)])
def test_a_promise_saves_bytes(unchanged: Any, kept: int) -> None:
    forward, _ = kg.split(kg.compile(TABLE)["k"], "y, t", unchanged=unchanged)
    assert forward[2, 32](np.zeros(64), np.ones(64), np.zeros(64, "i4"), 64).nbytes == kept


def test_what_is_linear_needs_nothing() -> None:
    forward, _ = kg.split(kg.compile(CASES["linear"].source)["k"], "y, x")
    assert forward[2, 16](*arguments(CASES["linear"])).nbytes == 0


def test_a_large_buffer_with_few_readers_is_not_copied_where_loops_depend_on_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """__global__ void k(double *y, const double *t, const int *n) {
        double s = 1; for (int j = 0; j < n[0]; j++) s *= t[j * 1000]; *y = s; }"""
    monkeypatch.setattr("kernelgrad.launches.memory.saved_buffers._WORTH_COUNTING", 1 << 16)
    forward, reverse = kg.split(kg.compile(source)["k"], "y, t")
    table, d_t = np.full(100_000, 2.0), np.zeros(100_000)
    tape = forward[1, 1](np.zeros(1), table, np.array([5], "i4"))
    assert tape.nbytes < 1000
    reverse[1, 1](tape, np.zeros(1), np.full(100_000, np.nan), np.zeros(1, "i4"), np.ones(1), d_t)
    np.testing.assert_array_equal(d_t[:5000:1000], np.full(5, 16.0))


def test_explained() -> None:
    forward, _ = kg.split(kg.compile(TABLE)["k"], "y, t", unchanged="at")
    text = forward.explain()
    assert "'t' may change: kept is a copy of it, or on the tape" in text and "'at' may change" not in text


def test_a_gradients_own_two_launches_save_nothing() -> None:
    gradient = kg.gradient(kg.compile(CASES["winner"].source)["k"], "y, x")
    assert len(gradient.variant().kernels) == 3 and not gradient.variant().options.changing


# ---- promises -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "words"),
    [("n", "has no buffer 'n'"), ("z", "has no buffer 'z'"), ("y", "the kernel itself writes 'y'")],
)
def test_promises_must_make_sense(names: str, words: str) -> None:
    with pytest.raises(kg.ArgumentError, match=words):
        kg.split(kg.compile(TABLE)["k"], "y, t", unchanged=names)


def test_a_broken_promise_is_found() -> None:
    forward, reverse = kg.split(kg.compile(TABLE)["k"], "y, t", unchanged="t, at")
    t, at = np.arange(8.0), np.arange(8, dtype="i4")
    args, adjoints = (np.zeros(8), t, at, 8), (np.ones(8), np.zeros(8))
    tape = forward.check(1, 8, *args)
    assert tape.report.ok and reverse.check(1, 8, tape, *args, *adjoints).ok
    np.testing.assert_array_equal(adjoints[1], 2 * t)
    tape = forward.check(1, 8, *args)
    t[3] = 0
    report = reverse.check(1, 8, tape, *args, *adjoints)
    assert "'t' was to be unchanged, and 't[3]' is not what it was" in str(report)
    assert [f.kind for f in report.findings] == ["promise"]


def test_findings_of_both_launches_are_reported() -> None:
    forward, reverse = kg.split(kg.compile(TABLE)["k"], "y, t")
    args = (np.zeros(8), np.arange(8.0), np.full(8, 8, "i4"), 8)
    tape = forward.check(1, 8, *args)
    assert "out-of-bounds read of 't[8]'" in str(reverse.check(1, 8, tape, *args, np.ones(8), np.zeros(8)))


# ---- whose tape it is -----------------------------------------------------------------------------------------------


def test_a_tape_fits_its_kernel_and_its_numbers_only() -> None:
    source = """struct P { double a; int k; };
    __global__ void k(double *y, const double *x, int n, double b, P p) {
        int i = threadIdx.x; if (i < n) y[i] = x[i] * x[i] * b * p.a * p.k; }"""
    pairs = [kg.split(kg.compile(text)["k"], "y, x") for text in (source, source.replace("* b", "+ b"), source)]
    (forward, reverse), (_, other), (_, same) = pairs
    numbers = (4, 2.0, {"a": 3.0, "k": 5})
    d_y, d_x = np.ones(4), np.zeros(4)
    tape = forward[1, 4](np.zeros(4), np.ones(4), *numbers)
    with pytest.raises(kg.LaunchError, match="belongs to another kernel of that name"):
        other[1, 4](tape, np.zeros(4), np.ones(4), *numbers, d_y, d_x)
    for changed, name in (
        ((3, *numbers[1:]), "n"),
        ((4, 2.5, numbers[2]), "b"),
        ((4, 2.0, {"a": 3.0, "k": 6}), r"p\.k"),
    ):
        with pytest.raises(kg.LaunchError, match=f"'{name}' is not what it was"):
            reverse[1, 4](tape, np.zeros(4), np.ones(4), *changed, d_y, d_x)
    assert d_y.all() and not d_x.any()
    same[1, 4](tape, np.zeros(4), np.ones(4), *numbers, d_y, d_x)
    np.testing.assert_array_equal(d_x, np.full(4, 60.0))
    with pytest.raises(kg.LaunchError, match="used already"):
        reverse[1, 4](tape, np.zeros(4), np.ones(4), *numbers, d_y, d_x)
