"""`kg.assume(disjoint=...)`: updates in segments that do not overlap are plain where the code stays in its segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime.config import make_launch

S = "int s = blockIdx.x * blockDim.x + threadIdx.x; if (s >= n) return;"
WARP = "int s = (blockIdx.x * blockDim.x + threadIdx.x) / 4, lane = threadIdx.x % 4; if (s >= n) return;"
BLOCK = "int s = blockIdx.x;"
SUM = "a += x[k] * x[k];"
# The body of `k(double *y, const double *x, const int *row, const int *offset, const int *count, int n)`, the block,
# and what is updated plainly there. There are n = 6 segments, x has two elements for each place.
CASES: dict[str, tuple[str, int, set[str]]] = {
    "rows, a thread each": (
        f"{S} double a = 0; for (int k = row[s]; k < row[s + 1]; ++k) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, named ends": (
        f"{S} double a = 0; int b = row[s], e = row[s + 1]; for (int k = b; k < e; k++) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, a length": (
        f"{S} double a = 0; int m = row[s + 1] - row[s]; for (int j = 0; j < m; j++) a += x[row[s] + j] * 2; y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, a warp each": (
        f"{WARP} double a = 0; for (int k = row[s] + lane; k < row[s + 1]; k += 4) {SUM} atomicAdd(&y[s], a);",
        8,
        {"x"},
    ),
    "rows, a block each": (
        f"{BLOCK} double a = 0; for (int k = row[s] + threadIdx.x; k < row[s + 1]; k += blockDim.x) {SUM}"
        " atomicAdd(&y[s], a);",
        4,
        {"x"},
    ),
    "rows, all threads of a block": (
        f"{BLOCK} double a = 0; for (int k = row[s]; k < row[s + 1]; k++) {SUM} y[s * blockDim.x + threadIdx.x] = a;",
        4,
        {"y"},
    ),
    "rows, a pointer": (
        f"{S} double a = 0; for (const double *p = x + row[s]; p < x + row[s + 1]; ++p) a += *p * *p; y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, while": (
        f"{S} double a = 0; int k = row[s]; while (k < row[s + 1]) {{ {SUM} ++k; }} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, backwards": (
        f"{S} double a = 0; for (int k = row[s + 1] - 1; k >= row[s]; --k) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, twice": (
        f"{S} double a = 0, b = 0; for (int k = row[s]; k < row[s + 1]; ++k) {SUM}"
        " for (int k = row[s]; k < row[s + 1]; ++k) b += a * x[k]; y[s] = b;",
        8,
        {"y", "x"},
    ),
    "rows, two numbers a place": (
        f"{S} double a = 0; for (int k = row[s]; k < row[s + 1]; ++k) for (int d = 0; d < 2; ++d)"
        " a += x[2 * k + d] * d; y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, three numbers of two": (
        f"{S} double a = 0; for (int k = row[s]; k < row[s + 1]; ++k) for (int d = 0; d < 3; ++d)"
        " a += x[2 * k + d] * d; y[s] = a;",
        8,
        {"y"},
    ),
    "rows, in size_t": (
        f"{S} double a = 0; for (size_t k = row[s]; k < (size_t)row[s + 1]; ++k) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, one too far": (f"{S} double a = 0; for (int k = row[s]; k <= row[s + 1]; ++k) {SUM} y[s] = a;", 8, {"y"}),
    "rows, one too early": (
        f"{S} double a = 0; for (int k = row[s]; k < row[s + 1]; ++k) a += x[k + 1] * x[k]; y[s] = a;",
        8,
        {"y"},
    ),
    "rows, without an end": (f"{S} y[s] = x[row[s]] * 3;", 8, {"y"}),
    "rows, the next one's": (
        f"{S} double a = 0; for (int k = row[s + 1]; k < row[s + 2]; ++k) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "rows, two at once": (f"{S} double a = 0; for (int k = row[s]; k < row[s + 2]; ++k) {SUM} y[s] = a;", 8, {"y"}),
    "rows, one element besides": (
        f"{S} double a = x[0]; for (int k = row[s]; k < row[s + 1]; ++k) {SUM} y[s] = a;",
        8,
        {"y"},
    ),
    "rows, stored": (
        f"{S} for (int k = row[s]; k < row[s + 1]; ++k) y[k] = x[k] * x[k] * s;",
        8,
        {"y", "x"},
    ),
    "rows, where a value allows it": (
        f"{S} double a = 0; for (int k = row[s]; k < row[s + 1]; ++k) if (count[s] > 1) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "offsets, an index": (
        f"{S} double a = 0; for (int j = 0; j < count[s]; ++j) a += x[offset[s] + j] * x[offset[s] + j]; y[s] = a;",
        8,
        {"y", "x"},
    ),
    "offsets, from there": (
        f"{S} double a = 0; for (int k = offset[s]; k < offset[s] + count[s]; ++k) {SUM} y[s] = a;",
        8,
        {"y", "x"},
    ),
    "offsets, a block each": (
        f"{BLOCK} double a = 0; for (int j = threadIdx.x; j < count[s]; j += blockDim.x) a += x[offset[s] + j];"
        " atomicAdd(&y[s], a * a);",
        4,
        {"x"},
    ),
    "offsets, one a thread": (
        f"{BLOCK} int j = threadIdx.x; if (j < count[s]) y[offset[s] + j] = x[offset[s] + j] * x[offset[s] + j];",
        8,
        {"y", "x"},
    ),
    "offsets, an early return": (
        f"{BLOCK} int j = threadIdx.x; if (!(count[s] > j)) return; int k = offset[s] + j; y[k] = x[k] * x[k];",
        8,
        {"y", "x"},
    ),
    "offsets, the wrong count": (
        f"{S} double a = 0; for (int j = 0; j < count[s + 1]; ++j) a += x[offset[s] + j]; y[s] = a;",
        8,
        {"y"},
    ),
    "offsets, negative": (
        f"{BLOCK} int j = (int)threadIdx.x - 1; if (j < count[s]) y[s * 8 + j + 1] = x[offset[s] + j + 1] * 2;",
        8,
        {"y"},
    ),
    "offsets, rows of two": (
        f"{S} double a = 0; for (int j = 0; j < count[s]; ++j) a += x[(offset[s] + j) * 2]"
        " * x[(offset[s] + j) * 2 + 1]; y[s] = a;",
        8,
        {"y", "x"},
    ),
    "offsets, two threads each": (
        f"{S} int t = s / 2; double a = 0; for (int j = 0; j < count[t]; ++j) a += x[offset[t] + j]; y[s] = a;",
        8,
        {"y"},
    ),
}
N = 6
ROW = np.array([0, 3, 3, 7, 8, 12, 14, 15], np.int32)
OFFSET, COUNT = np.array([9, 0, 4, 20, 13, 30, 40], np.int32), np.array([3, 4, 5, 0, 7, 2, 1], np.int32)
PROMISES = kg.assume(disjoint=["row", ("offset", "count")])


def kernel_of(body: str) -> Any:
    parameters = "double *y, const double *x, const int *row, const int *offset, const int *count, int n"
    return kg.compile(f"__global__ void k({parameters}) {{ {body} }}")["k"]


@pytest.mark.parametrize("name", CASES)
def test_plain_where_segments_tell_threads_apart(name: str) -> None:
    body, block, expected = CASES[name]
    kernel, grid = kernel_of(body), 6
    gradient = kg.gradient(kernel, "y, x", assume=PROMISES)
    rng = np.random.default_rng(1)
    x, seed, rest = rng.random(96), rng.standard_normal(96), (ROW, OFFSET, COUNT, N)
    primal, _ = kernel.bind((np.zeros(96), x, *rest))
    variant = gradient.variant_for(("y", "x"), make_launch(grid, block), primal)
    assert variant.derivative.prepared.accumulation.private == expected
    d_x = np.zeros(96)
    gradient[grid, block](np.zeros(96), x, *rest, seed.copy(), d_x)

    def run(x: Any) -> Any:
        out = np.zeros(96)
        kernel[grid, block](out, x, *rest)
        return out

    v, step = rng.standard_normal(96), 1e-6
    change = run(x + step * v) - run(x - step * v)
    assert d_x @ v == pytest.approx(change @ seed / (2 * step), rel=1e-5, abs=1e-7)
    for order in (None, 1):
        report = gradient.check(grid, block, np.zeros(96), x, *rest, seed.copy(), np.zeros(96), seed=order)
        assert report.ok, str(report)


RAGGED = CASES["offsets, an index"][0]
CSR = CASES["rows, a thread each"][0]


def test_without_the_promise_updates_are_atomic() -> None:
    for promises in (None, kg.assume(disjoint="offset"), kg.assume(disjoint=("offset", "row"))):
        made = kg.gradient(kernel_of(RAGGED), "y, x", assume=promises)
        assert made.variant().derivative.prepared.accumulation.private == {"y"}
    may_alias = kg.gradient(kernel_of(RAGGED), "y, x", may_alias=True, assume=PROMISES)
    assert may_alias.variant().derivative.prepared.accumulation.private == set()


def test_the_code_and_explain_name_the_promise() -> None:
    gradient = kg.gradient(kernel_of(RAGGED), "y, x", assume=PROMISES)
    told = "the segments offset[s] .. offset[s] + count[s] do not overlap"
    assert f"// _d_x is among them since {told}, as promised." in gradient.source
    assert "atomicAdd" not in gradient.source
    assert f"only this thread touches the element, since {told}, as promised" in gradient.explain()
    idle = "the segments row[s] .. row[s + 1] do not overlap, but no update becomes plain by that"
    assert idle in gradient.explain()


def test_other_forms_honour_it_too() -> None:
    _, reverse = kg.split(kernel_of(CSR), "y, x", assume=PROMISES)
    assert "atomicAdd" not in reverse.source
    assert not kg.gradient(kernel_of(CSR), "y, x", deterministic=True, assume=PROMISES).variant().logged


@pytest.mark.parametrize("assume", [None, PROMISES])
def test_kept_outputs_may_be_stored_in_segments(assume: Any) -> None:
    """Without the promise, the adjoint is taken from a copy."""
    gradient = kg.gradient(kernel_of(CASES["rows, stored"][0]), "y, x", primal=False, keep="y", assume=assume)
    seed, x, d_x = np.arange(1.0, 25.0), np.arange(24.0), np.zeros(24)
    gradient[1, 8](np.zeros(24), x, ROW, OFFSET, COUNT, N, seed, d_x)
    of = np.repeat(np.arange(N), np.diff(ROW[: N + 1]))
    np.testing.assert_allclose(d_x, [*(2 * x[: ROW[N]] * seed[: ROW[N]] * of), *np.zeros(24 - ROW[N])])
    np.testing.assert_array_equal(seed, np.arange(1.0, 25.0))
    unkept = {facts.unkept for _, facts in gradient.forms.made}
    assert (frozenset(("y",)) in unkept) == (assume is None)


# ---- broken promises ------------------------------------------------------------------------------------------------


def checked(body: str, row: Any, offset: Any, count: Any, promises: Any = PROMISES) -> Any:
    gradient = kg.gradient(kernel_of(body), "y, x", assume=promises)
    arrays = [np.asarray(a, np.int32) for a in (row, offset, count)]
    return gradient.check(6, 8, np.zeros(96), np.ones(96), *arrays, N, np.ones(96), np.zeros(96))


def test_overlapping_segments_are_named() -> None:
    report = checked(RAGGED, ROW, [9, 0, 4, 20, 11, 30, 40], COUNT)
    first, *others = report.findings
    shown = "the segments offset[s] .. offset[s] + count[s] overlap: of s = 0, 9 .. 12, and of s = 4, 11 .. 18"
    assert first.kind == "promise" and shown in first.message and first.act.place == "'offset[0]'"
    assert first.act.who == "thread (0, 0, 0) of block (0, 0, 0)"
    assert [finding.kind for finding in others] == ["race"]
    report = checked(CSR, [0, 5, 3, 7, 8, 12, 14, 15], OFFSET, COUNT)
    assert "row[s] .. row[s + 1] overlap: of s = 0, 0 .. 5, and of s = 2, 3 .. 7" in report.findings[0].message
    with pytest.raises(kg.KernelError, match="a promise is broken: the segments"):
        report.raise_if_failed()


def test_empty_segments_and_unread_ones_may_lie_anywhere() -> None:
    assert checked(RAGGED, ROW, [9, 0, 4, 10, 13, 30, 13], COUNT).ok
    assert checked(CSR, [*ROW[:7], 0], OFFSET, COUNT).ok


# ---- divisors and ranges --------------------------------------------------------------------------------------------

I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"  # noqa: E741
# Without and with `multiple={"offset": 4}, within={"offset": (0, 1000)}`, besides unique="offset".
NUMBERS = {
    "rows of four": (
        f"{I} double a = 0; for (int c = 0; c < 4; ++c) a += x[offset[i] + c] * x[offset[i] + c]; y[i] = a;",
        True,
    ),
    "rows of five": (f"{I} double a = 0; for (int c = 0; c < 5; ++c) a += x[offset[i] + c]; y[i] = a;", False),
    "unsigned products": (f"{I} unsigned j = offset[i] * 2u; y[i] = x[j] * x[j + 1];", True),
    "products that still wrap": (f"{I} unsigned j = offset[i] * 5000000u; y[i] = x[j % 96u];", False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_divisors_and_ranges_of_indices(name: str) -> None:
    body, helps = NUMBERS[name]
    kernel, offset = kernel_of(body), np.array([8, 0, 40, 12, 24, 4], np.int32)
    numbers = {"multiple": {"offset": 4}, "within": {"offset": (0, 1000)}}
    for promises, plain in ((kg.assume(unique="offset"), False), (kg.assume(unique="offset", **numbers), helps)):
        gradient = kg.gradient(kernel, "y, x", assume=promises)
        rest, x, d_x = (ROW, offset, COUNT, N), np.random.default_rng(0).random(96), np.zeros(96)
        variant = gradient.variant_for(("y", "x"), make_launch(1, 8), kernel.bind((np.zeros(96), x, *rest))[0])
        assert ("x" in variant.derivative.prepared.accumulation.private) == plain
        gradient[1, 8](np.zeros(96), x, *rest, np.ones(96), d_x)
        wanted, h = np.zeros(96), 1e-6
        for k in range(96):
            ends = []
            for sign in (1, -1):
                y, moved = np.zeros(96), x.copy()
                moved[k] += sign * h
                kernel[1, 8](y, moved, *rest)
                ends.append(y.sum())
            wanted[k] = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(d_x, wanted, atol=1e-7)
        assert gradient.check(1, 8, np.zeros(96), x, *rest, np.ones(96), np.zeros(96)).ok


@pytest.mark.parametrize(
    ("promises", "message"),
    [
        ({"multiple": {"offset": 4}}, "'offset[2]' is 6, which is no multiple of 4"),
        ({"within": {"offset": (0, 20)}}, "'offset[3]' is 32, which is not within 0 .. 20"),
        ({"multiple": {"n": 4}}, "'n' is 6, which is no multiple of 4"),
        ({"within": {"n": (8, 100)}}, "'n' is 6, which is not within 8 .. 100"),
    ],
)
def test_broken_divisors_and_ranges_are_named(promises: Any, message: str) -> None:
    body = NUMBERS["rows of four"][0]
    report = checked(body, ROW, [0, 12, 6, 32, 24, 16, 7], COUNT, kg.assume(**promises))
    assert [finding.message for finding in report.findings] == [f"a promise is broken: {message}"]


def test_the_usual_code_is_for_numbers_that_keep_the_promise() -> None:
    """Without a launch nothing is known of n: rows of 4,099 threads, or of a multiple of the block's 32."""
    body = "for (int c = 0; c < 2; ++c) { int i = blockIdx.x * n + c * 32 + threadIdx.x; y[i] = x[i]; }"
    kernel = kg.compile(f"__global__ void k(float *y, const float *x, int n) {{ {body} }}")["k"]
    for promises, plain in (
        (None, True),
        (kg.assume(within={"n": (1, 40)}), False),
        (kg.assume(multiple={"n": 64}), True),
    ):
        made = kg.gradient(kernel, "y, x", assume=promises)
        assert ("x" in made.variant().derivative.prepared.accumulation.private) == plain


@pytest.mark.parametrize(
    ("promises", "message"),
    [
        ({"disjoint": "x"}, "disjoint is about buffers of integers, and 'x' is const double *"),
        ({"disjoint": ("row", "n")}, "disjoint is about buffers of integers, and 'n' is int"),
        ({"disjoint": ("row", "offset", "count")}, 'wants a buffer, as in "row", or two'),
        ({"disjoint": "nobody"}, "k has no parameter 'nobody'"),
        ({"multiple": {"n": 0}}, "multiple: wants positive integers"),
        ({"multiple": 4}, 'wants a dict, as in {"n": 32}'),
        ({"within": {"n": 4}}, "wants the least and the greatest"),
        ({"within": {"n": (4, 3)}}, "wants the least and the greatest"),
        ({"within": {"x": (0, 1)}}, "within is about buffers of integers, and 'x' is const double *"),
        ({"results": "x"}, "results is about outputs that the kernel writes and does not read, and 'x' is none"),
    ],
)
def test_promises_about_the_wrong_thing(promises: Any, message: str) -> None:
    with pytest.raises(kg.ArgumentError) as error:
        kg.gradient(kernel_of(CSR), "y, x", assume=kg.assume(**promises))
    assert message in str(error.value)
