"""The design's rules of reversal that concern threads on their own: for each, a kernel that goes wrong without it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg


def kernel(body: str, params: str, before: str = "") -> Any:
    return kg.compile(f"{before}\n__global__ void k({params}) {{\n{body}\n}}", name="rule.cu")["k"]


def agrees(target: Any, listed: str, block: Any, *args: Any, grid: Any = 1) -> None:
    report = kg.check_gradient(target, listed, grid, block, args)
    assert report.ok, report


# ---- 3: "nothing wrote it since" is a question about the grid -------------------------------------------------------


def test_3_another_thread_overwrites_what_was_read() -> None:
    """Thread i reads x[i] and writes x[n + (i + 1) % n]: the analysis must not see only the thread's own element."""
    target = kernel(
        "int i = threadIdx.x; double v = x[i];"
        " for (int j = 0; j < 3; j++) { x[n + (i + 1) % n] = v * v; v = v * x[i]; }"
        " y[i] = v * v;",
        "double *y, double *x, int n",
    )
    agrees(target, "y, x", 4, np.zeros(4), np.linspace(0.5, 1.2, 8), 4)


def test_3_the_value_is_kept_where_another_thread_writes_it() -> None:
    """The write comes after the read in the same thread, and in the reverse sweep before it."""
    target = kernel(
        "int i = threadIdx.x; for (int j = 0; j < 2; j++) { double v = x[i]; x[i] = 0.5 * j; y[i] += v * v; }",
        "double *y, double *x",
    )
    agrees(target, "y, x", 3, np.zeros(3), np.array([1.0, 2.0, 3.0]))


# ---- 4: what is re-executed has no effects --------------------------------------------------------------------------


def test_4_an_atomic_is_not_run_again() -> None:
    """Each thread gets a slot of a list; running the counter again would give another one."""
    target = kernel(
        "int i = threadIdx.x; for (int j = 0; j < 2; j++) {"
        " int p = atomicAdd(count, 1); list[p] = x[i] * x[i] * (j + 1); }",
        "double *list, const double *x, int *count",
    )
    list_, x, count = np.zeros(8), np.arange(1.0, 5.0), np.zeros(1, np.int32)
    d_list, d_x = np.ones(8), np.zeros(4)
    kg.gradient(target, "list, x")[1, 4](list_, x, count, d_list, d_x)
    assert count[0] == 8
    np.testing.assert_allclose(d_x, 2 * x * (1 + 2))
    assert not d_list.any()


_PRINTING = """
int i = threadIdx.x;
double s = x[i];
for (int j = 0; j < n; j++) { s = s * s * 0.5; printf("%d %d\\n", i, j); assert(s < 10.0); }
y[i] = s;
"""


def test_4_printf_runs_once(capfd: pytest.CaptureFixture[str]) -> None:
    target = kernel(_PRINTING, "double *y, const double *x, int n")
    d_x = np.zeros(2)
    kg.gradient(target, "y, x")[1, 2](np.zeros(2), np.ones(2), 3, np.ones(2), d_x)
    ctypes.CDLL(None).fflush(None)
    assert sorted(capfd.readouterr().out.split("\n")[:-1]) == [f"{i} {j}" for i in range(2) for j in range(3)]
    assert d_x.all()


def test_4_volatile_memory_that_is_only_read() -> None:
    """As any other: nobody writes it while the launch runs. Where somebody may, it is refused."""
    target = kernel(
        "int i = threadIdx.x; double s = x[i]; for (int j = 0; j < 3; j++) {"
        " double w = *(volatile const double *)(weights + j); s = s * w * s; } y[i] = s;",
        "double *y, const double *x, const double *weights",
    )
    agrees(target, "y, x", 4, np.zeros(4), np.linspace(0.5, 1.2, 4), np.linspace(0.5, 1.2, 4))


def test_4_loads_stay_behind_their_guard() -> None:
    """Running the load without its guard would read far outside the array."""
    target = kernel(
        "int i = threadIdx.x; double s = 1; for (int j = 0; j < 4; j++) { int at = index[i * 4 + j];"
        " if (at >= 0) s = s * x[at]; } y[i] = s;",
        "double *y, const double *x, const int *index",
    )
    far = -(1 << 30)
    index = np.array([0, far, 1, far, far, far, far, far, 2, 1, far, 0], np.int32)
    args = (np.zeros(3), np.array([2.0, 3.0, 4.0]), index)
    agrees(target, "y, x", 3, *args)
    report = kg.gradient(target, "y, x").check(1, 3, *args, np.ones(3), np.zeros(3))
    assert report.ok, report


# ---- 5: counting on a snapshot --------------------------------------------------------------------------------------


def test_5_counting_leaves_no_trace() -> None:
    target = kernel("int i = threadIdx.x; while (a[i] > 0.1) a[i] = a[i] * a[i] * 0.5 + 0.02;", "double *a")
    start = np.array([0.9, 0.05, 1.2, 0.5])
    want = start.copy()
    target[1, 4](want)
    a, d_a = start.copy(), np.ones(4)
    gradient = kg.gradient(target, "a")
    assert gradient.tape_bytes(1, 4, a) > 0
    np.testing.assert_array_equal(a, start)
    gradient[1, 4](a, d_a)
    np.testing.assert_allclose(a, want)
    agrees(target, "a", 4, start)


def test_5_counting_copies_buffers_alone() -> None:
    """Numbers are no addresses, though an empty tensor's address is 0 as they are."""
    torch = pytest.importorskip("torch")
    target = kernel(
        "int i = threadIdx.x; while (a[i] > 0.1) a[i] = a[i] * a[i] * 0.5 + 0.02; if (more) a[i] += b[0];",
        "double *a, const double *b, long long more",
    )
    start = np.array([0.9, 0.05, 1.2, 0.5])
    d_a, d_b = np.ones(4), torch.ones(4, dtype=torch.float64)
    gradient = kg.gradient(target, "a")
    gradient[1, 4](start.copy(), np.zeros(1), 0, d_a)
    gradient[1, 4](torch.tensor(start), torch.empty(0, dtype=torch.float64), 0, d_b)
    np.testing.assert_allclose(d_a, d_b.numpy())


# ---- 6: primal=False ------------------------------------------------------------------------------------------------


def test_6_buffers_hold_what_they_held_before() -> None:
    target = kernel("int i = threadIdx.x; out[i] = in[i] * in[i] * in[0];", "double *out, const double *in")
    out, x, d_in = np.full(3, np.nan), np.array([2.0, 3.0, 4.0]), np.zeros(3)
    kg.gradient(target, "out, in", primal=False)[1, 3](out, x, np.ones(3), d_in)
    assert np.isnan(out).all()
    np.testing.assert_allclose(d_in, 2 * x * x[0] + np.array([(x * x).sum(), 0, 0]))


def test_6_overwritten_contents_are_an_error_at_the_store() -> None:
    """Where threads meet in the loop: else a register holds them."""
    source = """__global__ void k(double *a, double *y, int n) {
    int i = threadIdx.x;
    for (int j = 0; j < n; j++) {
        double v = a[i];
        a[i] = v * v;
        y[i] += v * v * v;
        __syncthreads();
    }
}"""
    with pytest.raises(kg.UnsupportedError, match="split") as caught:
        kg.gradient(kg.compile(source)["k"], "a, y", primal=False)
    assert caught.value.span.line in (4, 5)


# ---- 11: proofs that depend on the launch ---------------------------------------------------------------------------

_SQUARE = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(&y[i], x[i] * x[i] * (1 + threadIdx.y));"


@pytest.mark.parametrize(
    ("grid", "block", "rows"), [((2, 1, 1), (4, 1, 1), 1), ((2, 1, 1), (4, 3, 1), 6), ((2, 5, 1), (4, 1, 1), 5)]
)
def test_11_an_index_is_private_only_if_other_extents_are_one(grid: Any, block: Any, rows: int) -> None:
    """The check mode reports the race that plain updates would be."""
    target = kernel(_SQUARE, "double *y, const double *x, int n")
    x, d_x = np.linspace(1, 2, 8), np.zeros(8)
    gradient = kg.gradient(target, "y, x")
    report = gradient.check(grid, block, np.zeros(8), x, 8, np.ones(8), d_x, seed=1)
    assert report.ok, report
    np.testing.assert_allclose(d_x, 2 * x * rows)


def test_11_thread_index_alone_needs_one_block() -> None:
    target = kernel("int i = threadIdx.x; y[blockIdx.x * blockDim.x + i] = x[i] * x[i];", "double *y, const double *x")
    for blocks in (1, 3):
        d_x = np.zeros(4)
        report = kg.gradient(target, "y, x").check(blocks, 4, np.zeros(12), np.arange(4.0), np.ones(12), d_x, seed=1)
        assert report.ok, report
        np.testing.assert_allclose(d_x, 2 * np.arange(4.0) * blocks)


def test_11_shared_elements_are_never_plain() -> None:
    target = kernel("int i = threadIdx.x; y[i] = x[i] * x[i + 1] * x[i + 2];", "double *y, const double *x")
    text = kg.gradient(target, "y, x").explain()
    assert text.count("shadow of x: atomicAdd") == 3


def test_11_an_index_that_wraps_is_not_private() -> None:
    """With more threads than the index has values, two of them meet."""
    target = kernel("unsigned char i = threadIdx.x; y[threadIdx.x] = x[i] * x[i];", "double *y, const double *x")
    d_x = np.zeros(256)
    report = kg.gradient(target, "y, x").check(1, 512, np.zeros(512), np.ones(256), np.ones(512), d_x, seed=1)
    assert report.ok, report
    np.testing.assert_array_equal(d_x, 4)


# ---- 12: overlap ----------------------------------------------------------------------------------------------------


def test_12_overlap_of_any_pointer_is_an_error() -> None:
    """Also of a pointer that is not listed."""
    target = kernel(
        "int i = threadIdx.x; scratch[i] = x[i] * x[i]; y[i] = scratch[i] * x[i];",
        "double *y, const double *x, double *scratch",
    )
    x = np.ones(6)
    with pytest.raises(kg.ArgumentError, match="'x' and 'scratch' share memory"):
        kg.gradient(target, "y, x")[1, 3](np.zeros(3), x[:3], x[2:5], np.ones(3), np.zeros(3))


def test_12_may_alias_gives_the_right_answer() -> None:
    target = kernel(
        "int i = threadIdx.x; for (int j = 0; j < 3; j++) { y[i] = x[i] * x[i]; }", "double *y, const double *x"
    )
    both, adjoint = np.array([0.5, 0.9]), np.array([1.0, 1.0])
    kg.gradient(target, "y, x", may_alias=True)[1, 2](both, both, adjoint, adjoint)
    np.testing.assert_allclose(both, np.array([0.5, 0.9]) ** 8)
    np.testing.assert_allclose(adjoint, 8 * np.array([0.5, 0.9]) ** 7)


# ---- 13: unlisted does not mean dead --------------------------------------------------------------------------------


def test_13_derivatives_flow_through_an_unlisted_buffer() -> None:
    target = kernel(
        "int i = threadIdx.x; tmp[i] = x[i] * x[i]; y[i] = sin(tmp[i]) * tmp[i];",
        "double *y, const double *x, double *tmp",
    )
    x, d_x = np.array([0.3, 0.8]), np.zeros(2)
    kg.gradient(target, "y, x")[1, 2](np.zeros(2), x, np.ones(2), np.ones(2), d_x)
    np.testing.assert_allclose(d_x, (np.cos(x**2) * x**2 + np.sin(x**2)) * 2 * x)


def test_13_unlisted_starts_constant_and_ends_unseeded() -> None:
    """What was in the buffer before does not count, nor what is left in it."""
    target = kernel(
        "int i = threadIdx.x; y[i] = x[i] * tmp[i]; tmp[i] = x[i] * 100.0;",
        "double *y, const double *x, double *tmp",
    )
    d_x = np.zeros(2)
    kg.gradient(target, "y, x")[1, 2](np.zeros(2), np.ones(2), np.full(2, 7.0), np.ones(2), d_x)
    np.testing.assert_array_equal(d_x, [7, 7])


def test_13_a_device_variable_is_differentiated_through_or_refused() -> None:
    target = kernel(
        "state = x[0] * x[0]; y[0] = state * x[0];", "double *y, const double *x", "__device__ double state;"
    )
    try:
        gradient = kg.gradient(target, "y, x")
    except kg.UnsupportedError as error:
        assert "state" in str(error)
        return
    d_x = np.zeros(1)
    gradient[1, 1](np.zeros(1), np.array([2.0]), np.ones(1), d_x)
    assert d_x[0] == 12


# ---- 14: nothing is speculated --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "x[i] > 0 ? sqrt(x[i]) : 0.0",
        "x[i] > 0 ? log(x[i]) : x[i] * 0.0",
        "x[i] > 0 ? 1.0 / x[i] : 0.0",
        "x[i] > 0 ? pow(x[i], 0.5) : 0.0",
        "x[i] != 0 && x[i] > 0 ? atan2(x[i], x[i] * x[i]) / x[i] : 0.0",
    ],
)
def test_14_an_untaken_side_contributes_exactly_zero(expression: str) -> None:
    target = kernel(f"int i = threadIdx.x; y[i] = {expression};", "double *y, const double *x")
    d_x = np.zeros(2)
    kg.gradient(target, "y, x")[1, 2](np.zeros(2), np.array([0.0, 2.0]), np.ones(2), d_x)
    assert d_x[0] == 0 and np.isfinite(d_x[1]) and d_x[1] != 0


def test_14_in_loops_and_branches() -> None:
    target = kernel(
        "int i = threadIdx.x; double s = 0; for (int j = 0; j < 2; j++) { if (x[j] > 0) s += sqrt(x[j]) * x[i]; }"
        " y[i] = s;",
        "double *y, const double *x",
    )
    d_x = np.zeros(2)
    kg.gradient(target, "y, x")[1, 2](np.zeros(2), np.array([0.0, 4.0]), np.ones(2), d_x)
    np.testing.assert_allclose(d_x, [2, 4 / 4 + 2])


# ---- 15: integers and bits ------------------------------------------------------------------------------------------


def test_15_conversion_to_an_integer_has_derivative_zero_and_says_so() -> None:
    target = kernel("int i = threadIdx.x; y[i] = x[i] * (int)(x[i] * 4);", "double *y, const double *x")
    d_x = np.zeros(2)
    gradient = kg.gradient(target, "y, x")
    gradient[1, 2](np.zeros(2), np.array([0.6, 1.1]), np.ones(2), d_x)
    np.testing.assert_array_equal(d_x, [2, 4])
    assert "converted to an integer, which has derivative zero" in gradient.explain()


@pytest.mark.parametrize(
    "expression",
    [
        "__int_as_float(__float_as_int(x[0]) & 0x7fffffff)",
        "__int_as_float(__float_as_int(x[0]) + 1)",
        "(float)__float_as_int(x[0])",
    ],
)
def test_15_bits_of_an_active_value_are_refused(expression: str) -> None:
    target = kernel(f"y[0] = {expression};", "float *y, const float *x")
    with pytest.raises(kg.UnsupportedError, match="bits"):
        kg.gradient(target, "y, x")


def test_15_a_round_trip_is_right_or_refused() -> None:
    target = kernel("y[0] = x[0] * __int_as_float(__float_as_int(x[0]));", "float *y, const float *x")
    try:
        gradient = kg.gradient(target, "y, x")
    except kg.UnsupportedError as error:
        assert "bits" in str(error)
        return
    d_x = np.zeros(1, np.float32)
    gradient[1, 1](np.zeros(1, np.float32), np.full(1, 3, np.float32), np.ones(1, np.float32), d_x)
    assert d_x[0] == 6


def test_15_bits_read_through_a_pointer_are_refused() -> None:
    target = kernel("const int *bits = (const int *)x; y[0] = x[0] * (bits[0] >> 23);", "float *y, const float *x")
    with pytest.raises(kg.UnsupportedError):
        gradient = kg.gradient(target, "y, x")
        d_x = np.zeros(1, np.float32)
        gradient[1, 1](np.zeros(1, np.float32), np.full(1, 3, np.float32), np.ones(1, np.float32), d_x)


def test_15_bits_written_through_a_pointer_are_refused() -> None:
    target = kernel(
        "float v = x[0] * x[0]; int *bits = (int *)&v; *bits ^= 0x80000000; y[0] = v;", "float *y, const float *x"
    )
    with pytest.raises(kg.UnsupportedError):
        kg.gradient(target, "y, x")
