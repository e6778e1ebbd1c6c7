"""Gradients of atomic maxima, minima and exchanges: who put the final value there gets its adjoint (rule 18)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from scrambling import scramble
from some_cases import some
from winner_cases import CASES, FUNCTIONS, Case


def buffers(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random(96) * 0.8 - 0.2, rng.random(96) + 0.2, rng.standard_normal(96)


def joint(case: Case, y: Any, x: Any, seed: Any) -> tuple[Any, Any, Any]:
    y, d_y, d_x = y.copy(), seed.copy(), np.zeros_like(x)
    gradient_of(kernel_of(case.source))[case.grid, case.block](y, x, case.n, d_y, d_x)
    return y, d_y, d_x


@pytest.mark.parametrize("name", CASES, scope="module")
def test_finite_differences(name: str) -> None:
    case = CASES[name]
    kernel = kernel_of(case.source)
    y, x, seed = buffers(3)
    rng = np.random.default_rng(5)

    def primal(x: Any, y: Any) -> Any:
        y = y.copy()
        kernel[case.grid, case.block](y, x, case.n)
        return y

    after, d_y, d_x = joint(case, y, x, seed)
    np.testing.assert_array_equal(after, primal(x, y))
    assert np.count_nonzero(d_x) > 0
    step = 1e-7
    for _ in range(6):
        v_x, v_y = rng.standard_normal(96), rng.standard_normal(96)
        change = primal(x + step * v_x, y + step * v_y) - primal(x - step * v_x, y - step * v_y)
        assert d_x @ v_x + d_y @ v_y == pytest.approx(change @ seed / (2 * step), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", some(CASES, 2), scope="module")
def test_split(name: str) -> None:
    case = CASES[name]
    y, x, seed = buffers(4)
    _, d_y, d_x = joint(case, y, x, seed)
    forward, reverse = kg.split(kernel_of(case.source))
    buffer, s_y, s_x = y.copy(), seed.copy(), np.zeros_like(x)
    tape = forward[case.grid, case.block](buffer, x, case.n)
    scramble((buffer, x))  # the tape knows who won
    reverse[case.grid, case.block](tape, buffer, x, case.n, s_y, s_x)
    np.testing.assert_array_equal(s_y, d_y)
    np.testing.assert_allclose(s_x, d_x, rtol=1e-14)


def places(finding: Any) -> set[tuple[int, int]]:
    return {(act.span.line, act.span.column) for act in (finding.act, finding.other) if act is not None}


@pytest.mark.parametrize("name", some(CASES, 2, 1), scope="module")
def test_any_order(name: str) -> None:
    """Nothing of ours races; the loops' own first look at the cell is the source's."""
    case = CASES[name]
    kernel = kernel_of(case.source)
    gradient = gradient_of(kernel)
    y, x, seed = buffers(6)
    own = kernel.check(case.grid, case.block, y.copy(), x, case.n)
    known = {place for f in own.findings for place in places(f)}
    _, want_y, want_x = joint(case, y, x, seed)
    for order in (None, 1, 2):
        d_y, d_x = seed.copy(), np.zeros_like(x)
        report = gradient.check(case.grid, case.block, y.copy(), x, case.n, d_y, d_x, seed=order)
        assert all(places(f) & known for f in report.findings), str(report)
        np.testing.assert_array_equal(d_y, want_y)
        np.testing.assert_allclose(d_x, want_x, rtol=1e-14)


@pytest.mark.parametrize("name", CASES, scope="module")
def test_compiles_for_gpus(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(gradient_of(kernel_of(CASES[name].source)).source, "sm_90")


# ---- ties ---------------------------------------------------------------------------------------------------------


def pick(update: str, y: Any, x: Any, grid: int = 2, block: Any = 4) -> tuple[Any, Any, Any]:
    """Every thread updates y[0] with its x."""
    threads = "int t = threadIdx.x + blockDim.x * threadIdx.y; int i = blockIdx.x * blockDim.x * blockDim.y + t;"
    source = FUNCTIONS + f"__global__ void k(double* y, const double* x) {{ {threads} {update}(y, x[i]); }}"
    y, x = np.array(y, float), np.array(x, float)
    d_y, d_x = np.array([5.0]), np.zeros_like(x)
    kg.gradient(kg.compile(source)["k"])[grid, block](y, x, d_y, d_x)
    return y, d_y, d_x


@pytest.mark.parametrize("block", [4, (2, 2)])
@pytest.mark.parametrize("update", ["max_do", "max_while", "max_select", "max_bits"])
def test_ties_go_to_the_lowest_thread(update: str, block: Any) -> None:
    y, d_y, d_x = pick(update, [0], [1, 2, 7, 3, 7, 7, 2, 7], block=block)
    assert y[0] == 7 and d_y[0] == 0
    assert list(d_x) == [0, 0, 5, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("update", ["max_do", "max_while", "max_select", "max_bits"])
@pytest.mark.parametrize("initial", [7, 8])
def test_the_initial_contents_win(update: str, initial: float) -> None:
    y, d_y, d_x = pick(update, [initial], [1, 2, 7, 3, 7, 7, 2, 7])
    assert y[0] == initial and d_y[0] == 5
    assert not d_x.any()


def test_an_exchange_wins_over_the_initial_contents() -> None:
    y, d_y, d_x = pick("exchange", [7], [7] * 8)
    assert y[0] == 7 and d_y[0] == 0
    assert list(d_x) == [5, 0, 0, 0, 0, 0, 0, 0]


def test_zeros_of_either_sign() -> None:
    """What the code does with -0.0 decides, not what a maximum would: `max_bits` leaves a negative number there."""
    y, d_y, d_x = pick("max_bits", [-1], [-0.0] * 8)
    assert y[0] == -1 and d_y[0] == 5 and not d_x.any()
    y, d_y, d_x = pick("max_do", [-1], [-0.0] * 8)
    assert y[0] == 0 and d_y[0] == 0 and d_x[0] == 5


def test_one_thread_updates_a_cell_twice() -> None:
    source = (
        FUNCTIONS + "__global__ void k(double* y, const double* x) { for (int j = 0; j < 4; j++) max_do(y, x[j]); }"
    )
    y, x, d_y, d_x = np.zeros(1), np.array([1.0, 3, 2, 3]), np.ones(1), np.zeros(4)
    kg.gradient(kg.compile(source)["k"])[1, 1](y, x, d_y, d_x)
    assert y[0] == 3 and d_y[0] == 0
    assert sorted(d_x) == [0, 0, 0, 1] and d_x[[1, 3]].sum() == 1


def test_a_constant_wins() -> None:
    source = "__global__ void k(float* y, const float* x) { atomicMax((int*)&y[0], 0); y[1 + threadIdx.x] = x[0]; }"
    with pytest.raises(kg.UnsupportedError, match="'y' is written otherwise"):
        kg.gradient(kg.compile(source)["k"])
    source = "__global__ void k(float* y, const float* x) { atomicMax((int*)&y[threadIdx.x], 0); }"
    y, x, d_y = np.array([-1, 2], np.float32), np.zeros(1, np.float32), np.array([3, 4], np.float32)
    kg.gradient(kg.compile(source)["k"], "y")[1, 2](y, x, d_y)
    assert list(y) == [0, 2] and list(d_y) == [0, 4]


# ---- forms --------------------------------------------------------------------------------------------------------


def test_float_exchange() -> None:
    source = """__global__ void k(float* y, const float* x) {
      int i = threadIdx.x; atomicExch(&y[i / 4], x[i] * x[i]);
    }"""
    x = np.arange(1, 9, dtype=np.float32)
    y, d_y, d_x = np.zeros(2, np.float32), np.array([1, 10], np.float32), np.zeros(8, np.float32)
    kg.gradient(kg.compile(source)["k"])[1, 8](y, x, d_y, d_x)
    for cell, seed in enumerate((1, 10)):
        (winner,) = np.nonzero(d_x[cell * 4 : cell * 4 + 4])[0]
        assert y[cell] == x[cell * 4 + winner] ** 2
        assert d_x[cell * 4 + winner] == seed * 2 * x[cell * 4 + winner]
    assert not d_y.any()


def test_one_sided_maximum_of_bits() -> None:
    """Right for non-negative numbers only as a maximum; as what it does, always."""
    source = "__global__ void k(float* y, const float* x) { atomicMax((int*)y, __float_as_int(x[threadIdx.x])); }"
    kernel = kg.compile(source)["k"]
    for x in ([0.5, 2.0, 1.5], [-3.0, -1.0, -2.0]):
        y, values = np.array([-9.0], np.float32), np.array(x, np.float32)
        d_y, d_x = np.ones(1, np.float32), np.zeros(3, np.float32)
        kg.gradient(kernel)[1, 3](y, values, d_y, d_x)
        expected = [float(v == y[0]) for v in x]
        assert list(d_x) == expected and d_y[0] == (1 if y[0] == -9 else 0)


def test_members_of_records() -> None:
    source = (
        FUNCTIONS
        + """
    struct Box { double low, high; int count; };
    __global__ void k(Box* boxes, const double* x) {
      int i = threadIdx.x;
      min_bits(&boxes[i % 2].low, x[i]); max_bits(&boxes[i % 2].high, x[i]); atomicAdd(&boxes[i % 2].count, 1);
    }"""
    )
    type = np.dtype([("low", "f8"), ("high", "f8"), ("count", "i4")], align=True)
    boxes, d_boxes = np.zeros(2, type), np.zeros(2, type)
    boxes["low"], boxes["high"] = 9, -9
    d_boxes["low"], d_boxes["high"] = [1, 2], [3, 4]
    x, d_x = np.array([4.0, 1, 3, 7, 5, 2]), np.zeros(6)
    kg.gradient(kg.compile(source)["k"])[1, 6](boxes, x, d_boxes, d_x)
    assert list(d_x) == [0, 2, 1, 4, 3, 0]
    assert not d_boxes["low"].any() and not d_boxes["high"].any()
    assert list(boxes["count"]) == [3, 3]


def test_module_variable() -> None:
    source = (
        FUNCTIONS
        + """
    __device__ double best;
    __global__ void k(const double* x) { max_do(&best, x[threadIdx.x] * 2); }"""
    )
    module = kg.compile(source)
    module.variable("best")[()] = 0.5
    x, d_x, d_best = np.array([1.0, 4, 3]), np.zeros(3), np.array([1.0])
    kg.gradient(module["k"], "x, best")[1, 3](x, d_x, d_best)
    assert list(d_x) == [0, 2, 0] and d_best[0] == 0


def test_only_some_adjoints() -> None:
    kernel = kg.compile(CASES["max, do-while"].source)["k"]
    y, x, seed = buffers(3)
    d_y = seed.copy()
    kg.gradient(kernel)[3, 32](y.copy(), x, 96, d_y, None)
    _, want, _ = joint(CASES["max, do-while"], y, x, seed)
    np.testing.assert_array_equal(d_y, want)


def test_explain_and_source() -> None:
    gradient = kg.gradient(kg.compile(CASES["max, do-while"].source)["k"])
    assert "whose value is in 'y' at the end" in gradient.explain()
    for name in ("k_forward", "k_claim", "k_reverse"):
        assert f"void {name}(" in gradient.source


REFUSED = {
    "'y' is read in the kernel": "max_do(&y[0], x[i]); y2[i] = y[1];",
    "'y' is written otherwise": "max_do(&y[0], x[i]); atomicAdd(&y[1], x[i]);",
    "on memory that is not one buffer": "max_do(i % 2 ? &y[0] : &y2[0], x[i]);",
    "an atomic operation on floats returned is used": "y2[i] = max_while(&y[0], x[i]);",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    head = "__global__ void k(double* y, double* y2, const double* x) { int i = threadIdx.x; "
    with pytest.raises(kg.UnsupportedError, match=reason):
        kg.gradient(kg.compile(FUNCTIONS + head + REFUSED[reason] + "}")["k"])


@pytest.mark.parametrize("options", [{"primal": False}, {"may_alias": True}])
def test_refused_options(options: Any) -> None:
    with pytest.raises(kg.UnsupportedError, match="maximum, minimum or exchange"):
        kg.gradient(kg.compile(CASES["max, do-while"].source)["k"], **options)


def test_forward_mode_refuses() -> None:
    kernel = kg.compile(CASES["max, do-while"].source)["k"]
    with pytest.raises(kg.UnsupportedError, match="maximum, minimum or exchange"):
        kg.jvp(kernel)
    with pytest.raises(kg.UnsupportedError, match="no second derivative"):
        kg.jvp(kg.gradient(kernel))


# ---- shared memory ------------------------------------------------------------------------------------------------


def in_shared(update: str, initial: float, x: Any, block: Any = 8) -> tuple[Any, Any, Any]:
    """Every thread updates a shared cell, which starts as y[0] and ends up there."""
    source = (
        FUNCTIONS
        + f"""__global__ void k(double* y, const double* x) {{
      __shared__ double m[3]; int t = threadIdx.x + blockDim.x * threadIdx.y;
      if (t == 0) m[1] = y[0];
      __syncthreads(); {update}(&m[1], x[t]); __syncthreads();
      if (t == 0) y[0] = m[1];
    }}"""
    )
    y, x = np.array([initial], float), np.array(x, float)
    d_y, d_x = np.array([5.0]), np.zeros_like(x)
    kg.gradient(kg.compile(source)["k"])[1, block](y, x, d_y, d_x)
    return y, d_y, d_x


@pytest.mark.parametrize("block", [8, (2, 4)])
@pytest.mark.parametrize("update", ["max_do", "max_while", "max_select", "max_bits"])
def test_shared_ties(update: str, block: Any) -> None:
    y, d_y, d_x = in_shared(update, 0, [1, 2, 7, 3, 7, 7, 2, 7], block)
    assert y[0] == 7 and d_y[0] == 0
    assert list(d_x) == [0, 0, 5, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("initial", [7, 8])
@pytest.mark.parametrize("update", ["max_do", "max_while", "max_select", "max_bits"])
def test_shared_initial_contents_win(update: str, initial: float) -> None:
    y, d_y, d_x = in_shared(update, initial, [1, 2, 7, 3, 7, 7, 2, 7])
    assert y[0] == initial and d_y[0] == 5
    assert not d_x.any()


def test_a_shared_exchange_wins_over_the_initial_contents() -> None:
    _, d_y, d_x = in_shared("exchange", 7, [7] * 8)
    assert d_y[0] == 0
    assert list(d_x) == [5, 0, 0, 0, 0, 0, 0, 0]


def test_two_updates_between_barriers() -> None:
    """One cell, two places in the code: still one winner, the lowest thread of both."""
    source = (
        FUNCTIONS
        + """__global__ void k(double* y, const double* x) {
      __shared__ double m; int t = threadIdx.x;
      if (t == 0) m = 0;
      __syncthreads();
      if (t < 4) max_do(&m, x[t]); else max_bits(&m, x[t]);
      __syncthreads();
      y[t] = m;
    }"""
    )
    for x, winner in (([1, 2, 7, 3, 7, 7, 2, 7], 2), ([1, 2, 6, 3, 7, 7, 2, 7], 4)):
        values, d_y, d_x = np.array(x, float), np.ones(8), np.zeros(8)
        gradient = kg.gradient(kg.compile(source)["k"])
        gradient[1, 8](np.zeros(8), values, d_y, d_x)
        assert list(d_x) == [8.0 * (t == winner) for t in range(8)]


@pytest.mark.parametrize("update", ["max_bits", "exchange"])
def test_shared_bids_are_read_before_they_are_cleared(update: str) -> None:
    """Several rounds in the same cells, with ties; by atomics alone, without a look at the cell before."""
    source = (
        FUNCTIONS
        + f"""__global__ void k(double* y, const double* x) {{
      __shared__ double m[2]; int t = threadIdx.x; double sum = 0;
      for (int r = 0; r < 3; r++) {{
        if (t < 2) m[t] = 0;
        __syncthreads();
        if (x[8 * r + t] > 0) {update}(&m[t % 2], x[8 * r + t]);
        __syncthreads();
        sum += m[0] * m[1] * (t + 1);
        __syncthreads();
      }}
      y[t] = sum;
    }}"""
    )
    x = np.array([1, 2, 7, 3, 7, 7, 2, 7, 5, 5, 5, 5, 5, 5, 5, 5, 0, 4, 3, 4, 3, 4, 3, 2], float)
    gradient = kg.gradient(kg.compile(source)["k"])
    found = []
    for order in (None, None, 1):
        y, d_y, d_x = np.zeros(8), np.ones(8), np.zeros(24)
        if len(found) == 0:
            gradient[1, 8](y, x, d_y, d_x)
        else:
            report = gradient.check(1, 8, y, x, d_y, d_x, seed=order)
            assert report.ok, str(report)
        found.append(d_x)
    if update != "exchange":  # of which the last one wins, in any order
        want = np.zeros(24)
        want[[2, 5, 8, 9, 18, 17]] = 36 * np.array([7, 7, 5, 5, 4, 3])
        assert [list(d_x) for d_x in found] == [list(want)] * 3


def test_shared_memory_that_is_read_beside_its_updates_is_refused() -> None:
    source = (
        FUNCTIONS
        + """__global__ void k(double* y, const double* x) {
      __shared__ double m[16]; int t = threadIdx.x;
      m[t] = x[t]; m[t + 8] = 0;
      __syncthreads();
      max_do(&m[8 + t % 2], x[t]);
      double v = m[7 - t];
      __syncthreads();
      y[t] = m[8] * v;
    }"""
    )
    with pytest.raises(kg.UnsupportedError, match="is read between the barriers"):
        kg.gradient(kg.compile(source)["k"])


def test_shared_explain() -> None:
    gradient = kg.gradient(kg.compile(CASES["shared max"].source)["k"])
    assert "found at the next barrier" in gradient.explain()
    assert "k_claim" not in gradient.source
