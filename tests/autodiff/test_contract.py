"""What a user calls: names, order, errors, and what a call computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
__global__ void axpy(double *y, const double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__global__ void square(double *out, const double *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * in[i];
}
__global__ void in_place(double *a, int n) { int i = threadIdx.x; if (i < n) a[i] = a[i] * a[i]; }
__global__ void has_d_x(double *y, const double *x, const double *d_x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i] * d_x[i];
}
__global__ void no_floats(int *p) { p[0] = 1; }
__global__ void partly(double *out, const double *in, int n) { int i = threadIdx.x; if (i < n) out[i] = in[i / 2]; }
__global__ void growing(double *y, const double *x, int n) {
    int i = threadIdx.x;
    double s = x[i];
    for (int j = 0; j < n; j++) s = s * s + x[i];
    y[i] = s;
}
__global__ void to_int(double *y, const double *x) { int i = threadIdx.x; y[i] = x[i] * (int)(x[i] * 3.0); }
__device__ double f(double x, double y) { return x * y * y; }
__device__ void writes(double *p, double x) { p[0] = x * p[0]; }
__device__ int counts(double x) { return (int)x; }
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def ones(count: int) -> Any:
    return np.ones(count)


# ---- names, order, forms of the call --------------------------------------------------------------------------------


def test_signature(module: kg.Module) -> None:
    g = kg.gradient(module["axpy"], "y, x, a")
    expected = "double *y, const double *x, double a, int n, double *d_y, double *d_x, double *d_a"
    assert repr(g) == f"<gradient __global__ void axpy({expected})>"


def test_fresh_names(module: kg.Module) -> None:
    assert repr(kg.gradient(module["has_d_x"], "y, x")).endswith(
        "const double *d_x, int n, double *d_y, double *_d_x)>"
    )
    y, x, d_x, d_y, adjoint = ones(2), ones(2) * 3, ones(2) * 5, ones(2), np.zeros(2)
    kg.gradient(module["has_d_x"], "y, x")[1, 2](y, x, d_x, 2, d_y=d_y, _d_x=adjoint)
    np.testing.assert_array_equal(adjoint, [5, 5])


def test_adjoints_follow_the_order_of_the_list(module: kg.Module) -> None:
    for listed in ("y, x, a", "a, x, y", ["x", "a", "y"]):
        names = listed.split(", ") if isinstance(listed, str) else listed
        given = {"y": np.array([1.0, 2.0]), "x": np.zeros(2), "a": np.zeros(1)}
        kg.gradient(module["axpy"], listed)[1, 2](ones(2), np.array([3.0, 4.0]), 5.0, 2, *(given[n] for n in names))
        np.testing.assert_array_equal(given["y"], [1, 2])
        np.testing.assert_array_equal(given["x"], [5, 10])
        np.testing.assert_array_equal(given["a"], [11])


def test_no_list_means_all_floats(module: kg.Module) -> None:
    assert "double *d_y, double *d_x, double *d_a" in repr(kg.gradient(module["axpy"]))


def test_forms_of_the_call_are_the_same(module: kg.Module) -> None:
    g = kg.gradient(module["square"], "out, in")

    def run(call: Any) -> Any:
        d_in = np.zeros(3)
        call(np.zeros(3), np.array([1.0, 2.0, 3.0]), 3, d_in)
        return d_in

    calls = [
        lambda o, i, n, d: g[1, 4](o, i, n, ones(3), d),
        lambda o, i, n, d: g[1, 4](o, i, n, d_in=d, d_out=ones(3)),
        lambda o, i, n, d: g.execute_kernel(1, 4, o, i, n, ones(3), d),
        lambda o, i, n, d: g.execute_kernel((1, 1, 1), (4, 1, 1), o, i, n, d_out=ones(3), d_in=d),
        lambda o, i, n, d: g.execute_kernel(1, 4, 0, None, o, i, n, ones(3), d),
        lambda o, i, n, d: g.execute_kernel(1, 4, o, i, n, ones(3), d, shared=0, stream=None),
        lambda o, i, n, d: g[1, 4, 0](o, i, n, ones(3), d),
    ]
    for call in calls:
        np.testing.assert_array_equal(run(call), [2, 4, 6])


def test_a_missing_adjoint_is_not_wanted(module: kg.Module) -> None:
    g = kg.gradient(module["axpy"], "y, x, a")
    d_a = np.zeros(1)
    g[1, 2](ones(2), np.array([3.0, 4.0]), 5.0, 2, ones(2), None, d_a)
    assert d_a[0] == 7


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: kg.gradient(m["axpy"], "y, z"), kg.ArgumentError, r"no parameter 'z'\s+__global__ void axpy\("),
        (lambda m: kg.gradient(m["axpy"], "y, n"), kg.ArgumentError, r"'n' \(int\)[^$]*__global__ void axpy\("),
        (lambda m: kg.gradient(m["axpy"], "y, y"), kg.ArgumentError, "listed twice"),
        (lambda m: kg.gradient(m["no_floats"]), kg.ArgumentError, "nothing to differentiate"),
        (lambda m: kg.gradient(m["axpy"]).execute(1), kg.LaunchError, r"is a kernel: use execute_kernel\("),
        (lambda m: kg.gradient(m["f"]).execute_kernel(1, 1), kg.LaunchError, r"not a kernel: use execute\("),
        (lambda m: kg.gradient(m["f"])[1, 1], kg.LaunchError, r"not a kernel: use execute\("),
        (lambda m: kg.gradient(m["axpy"])[1, 1](1, 2), kg.ArgumentError, r"4 arguments and 3 adjoints, got 2\s+__gl"),
        (lambda m: kg.gradient(m["axpy"])[1, 1](1, 2, n=4, d_y=1), kg.ArgumentError, "no argument for a\n  __global__"),
        (lambda m: kg.gradient(m["axpy"])[1, 1](1, 2, 3, 4, n=4, d_y=1), kg.ArgumentError, "'n' is given twice"),
        (lambda m: kg.gradient(m["axpy"])[1, 1](1, 2, 3, n=4), kg.ArgumentError, "4 arguments and 3 adjoints, got 4"),
        (lambda m: kg.gradient(m["axpy"])[1, 1](1, 2, 3, 4, d_q=1), kg.ArgumentError, "adjoints d_y, d_x, d_a by name"),
        (
            lambda m: kg.gradient(m["in_place"]).execute_kernel(1, 1, 0, None, ones(1), 1, ones(1), shared=4),
            kg.ArgumentError,
            "given twice",
        ),
        (
            lambda m: kg.gradient(m["in_place"])[1, 1](ones(1), 1, ones(1).astype("f4")),
            kg.ArgumentError,
            r"'_?d_a'.*float64",
        ),
    ],
)
def test_errors(module: kg.Module, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(module)


# ---- what it computes -----------------------------------------------------------------------------------------------


def test_a_pure_input_accumulates_and_an_output_is_consumed(module: kg.Module) -> None:
    out, d_out, d_in = np.zeros(3), np.array([1.0, 10.0, 100.0]), np.array([5.0, 5.0, 5.0])
    kg.gradient(module["square"], "out, in")[1, 4](out, np.array([1.0, 2.0, 3.0]), 3, d_out, d_in)
    np.testing.assert_array_equal(out, [1, 4, 9])
    np.testing.assert_array_equal(d_in, [7, 45, 605])
    np.testing.assert_array_equal(d_out, [0, 0, 0])


def test_elements_that_are_not_overwritten_keep_their_adjoint(module: kg.Module) -> None:
    d_out = ones(3)
    kg.gradient(module["square"], "out, in")[1, 4](np.zeros(3), ones(3), 2, d_out, np.zeros(3))
    np.testing.assert_array_equal(d_out, [0, 0, 1])


def test_adding_keeps_the_adjoint(module: kg.Module) -> None:
    d_y = np.array([3.0, 4.0])
    kg.gradient(module["axpy"], "y, x")[1, 2](ones(2), ones(2), 2.0, 2, d_y, np.zeros(2))
    np.testing.assert_array_equal(d_y, [3, 4])


def test_in_place(module: kg.Module) -> None:
    a, d_a = np.array([2.0, 3.0]), np.array([1.0, 10.0])
    kg.gradient(module["in_place"], "a")[1, 2](a, 2, d_a)
    np.testing.assert_array_equal(a, [4, 9])
    np.testing.assert_array_equal(d_a, [4, 60])


def test_keep_leaves_the_adjoint_of_an_output(module: kg.Module) -> None:
    d_out, d_in = np.array([1.0, 2.0]), np.zeros(2)
    kg.gradient(module["square"], "out, in", keep="out")[1, 2](np.zeros(2), np.array([3.0, 4.0]), 2, d_out, d_in)
    np.testing.assert_array_equal(d_out, [1, 2])
    np.testing.assert_array_equal(d_in, [6, 16])


def test_assign_writes_the_adjoint_of_an_input(module: kg.Module) -> None:
    """What nobody reads becomes zero."""
    d_in = np.full(4, 99.0)
    kg.gradient(module["partly"], "out, in", assign="in")[1, 4](np.zeros(4), ones(4), 4, ones(4), d_in)
    np.testing.assert_array_equal(d_in, [2, 2, 0, 0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": "y"}, "keep: 'y' is not a pure output"),
        ({"assign": "y"}, "assign: 'y' is not a pure input"),
        ({"keep": "n"}, "'n' is not among the differentiated parameters"),
    ],
)
def test_keep_and_assign_are_checked(module: kg.Module, options: dict[str, str], words: str) -> None:
    with pytest.raises(kg.ArgumentError, match=words):
        kg.gradient(module["axpy"], "y, x", **options)  # type: ignore[arg-type]


def test_without_the_primal(module: kg.Module) -> None:
    """Outputs are neither read nor written."""
    out, d_in = np.full(2, np.nan), np.zeros(2)
    kg.gradient(module["square"], "out, in", primal=False)[1, 2](out, np.array([3.0, 4.0]), 2, ones(2), d_in)
    assert np.isnan(out).all()
    np.testing.assert_array_equal(d_in, [6, 8])


def test_without_the_primal_what_was_overwritten_is_an_error_that_names_split() -> None:
    source = """__global__ void k(double *a, int n) {
        int i = threadIdx.x;
        for (int j = 0; j < n; j++) { a[i] = a[i] * a[i]; __syncthreads(); }
    }"""
    with pytest.raises(kg.UnsupportedError, match=r"primal=False[^$]*split"):
        kg.gradient(kg.compile(source)["k"], "a", primal=False)


# ---- functions ------------------------------------------------------------------------------------------------------


def test_function_of_numbers(module: kg.Module) -> None:
    f = kg.gradient(module["f"], "x, y")
    assert repr(f) == "<gradient __device__ double f(double x, double y, double *d_x, double *d_y)>"
    d_x, d_y = np.zeros(1), np.ones(1)
    assert f.execute(2.0, 3.0, d_x, d_y) == 18
    assert (d_x[0], d_y[0]) == (9, 13)
    f.execute(2.0, 3.0, d_x, None, seed=10.0)
    assert d_x[0] == 99


def test_function_of_pointers(module: kg.Module) -> None:
    p, d_p, d_x = np.array([3.0]), np.array([1.0]), np.zeros(1)
    assert kg.gradient(module["writes"], "p, x").execute(p, 2.0, d_p, d_x) is None
    assert (p[0], d_p[0], d_x[0]) == (6, 2, 3)


# ---- tape and explanation -------------------------------------------------------------------------------------------


def test_tape_bytes(module: kg.Module) -> None:
    g = kg.gradient(module["growing"], "y, x")
    assert g.tape_bytes(1, 4, ones(4), ones(4), 10) == 4 * 10 * 8
    assert kg.gradient(module["square"]).tape_bytes(1, 4, ones(4), ones(4), 4) == 0


def test_a_tape_that_does_not_fit_is_an_error_before_the_launch() -> None:
    """What is in memory when threads meet is not run again."""
    source = """__global__ void k(double *y, const double *x, int n) {
        for (int k = 0; k < n; k++, __syncthreads()) y[threadIdx.x] = exp(-y[threadIdx.x]) * x[threadIdx.x];
    }"""
    y = np.zeros(1024)
    with pytest.raises(kg.LaunchError, match=r"the tape needs [\d,]+ bytes .* are free"):
        kg.gradient(kg.compile(source)["k"])[1, 1024](y, ones(1024), 2**31 - 1, ones(1024), ones(1024))
    assert not y.any()


def test_explain(module: kg.Module) -> None:
    text = kg.gradient(module["axpy"], "y, x, a").explain()
    assert text.startswith("axpy: derivative of y, x, a")
    assert "shadow of x: plain +=: only this thread touches the element" in text
    assert "parameter a: summed in each block, then one atomicAdd" in text
    assert "'x' is updated plainly in launches whose threads touch different elements" in text
    assert "carried from iteration to iteration" in kg.gradient(module["growing"], "y, x").explain()
    assert "converted to an integer, which has derivative zero" in kg.gradient(module["to_int"], "y, x").explain()


def test_the_source_keeps_names_and_says_where_it_comes_from(module: kg.Module) -> None:
    source = kg.gradient(module["square"], "out, in").source
    assert "_d_in" in source and "_d_out" in source and "__global__" in source


# ---- overlap --------------------------------------------------------------------------------------------------------


def test_overlap_is_noticed(module: kg.Module) -> None:
    memory = np.arange(8.0)
    g = kg.gradient(module["square"], "out, in")
    for out, in_, d_out, d_in in [
        (memory[:4], memory[2:6], ones(4), ones(4)),  # two arguments
        (ones(4), memory[:4], memory[:4], ones(4)),  # an argument and an adjoint
        (ones(4), ones(4), memory[:4], memory[3:7]),  # two adjoints
    ]:
        with pytest.raises(kg.ArgumentError, match="share memory"):
            g[1, 4](out, in_, 4, d_out, d_in)


def test_unlisted_pointers_count_for_overlap(module: kg.Module) -> None:
    memory = ones(4)
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.gradient(module["square"], "out, in")[1, 4](memory, memory, 4, None, np.zeros(4))


STORED = """__device__ double held[4];
__global__ void k(double *y, double *z, const double *x) {
    int i = threadIdx.x; double t = x[i]; y[i] = t * t; z[i] = x[i] * x[i] * t; }
__global__ void by_variable(double *z, const double *x) {
    int i = threadIdx.x; double t = x[i]; held[i] = t * t; z[i] = x[i] * x[i] * t; }"""


@pytest.mark.parametrize("listed", ["y, z, x", "z, x"])
def test_overlap_of_what_only_the_kernel_writes(listed: str) -> None:
    """A reverse alone writes no output, but the kernel does, and reads it as another argument."""
    kernel = kg.compile(STORED)["k"]
    x, d_x = np.arange(4) + 1.0, np.zeros(4)
    g = kg.gradient(kernel, listed, primal=False)
    seeds = [np.zeros(4), ones(4)][listed == "z, x" :]
    with pytest.raises(kg.ArgumentError, match="'y' and 'x' share memory and one of them is written"):
        g[1, 4](x, np.zeros(4), x, *seeds, d_x)
    g[1, 4](None, None, x, *seeds, d_x)
    np.testing.assert_array_equal(d_x, 3 * x**2)


def test_overlap_with_variables() -> None:
    module = kg.compile(STORED)
    kernel = module["by_variable"]
    x = module.variable("held")[...]
    x[...] = 0.5
    shared = pytest.raises(kg.ArgumentError, match="'x' and 'held' share memory and one of them is written")
    for options in ({}, {"primal": False}, {"may_alias": True}):
        with shared:
            kg.gradient(kernel, "z, x", **options)[1, 4](np.zeros(4), x, ones(4), np.zeros(4))  # type: ignore[call-overload]
    with shared:
        kg.split(kernel, "z, x")[0][1, 4](np.zeros(4), x)
    with shared:
        kg.jvp(kernel, "z, x")[1, 4](np.zeros(4), x, np.zeros(4), ones(4))
    with shared:
        kg.gradient(kg.gradient(kernel, "z, x"))[1, 4](np.zeros(4), x, *(ones(4) for _ in range(6)))


def test_arguments_that_are_only_read_may_be_the_same(module: kg.Module) -> None:
    x, d_x = np.array([2.0, 3.0]), np.zeros(2)
    kg.gradient(module["has_d_x"], "y, x")[1, 2](np.zeros(2), x, x, 2, ones(2), d_x)
    np.testing.assert_array_equal(d_x, [2, 3])


def test_may_alias(module: kg.Module) -> None:
    """`out` and `in` are one buffer, and so are their adjoints: an update in place."""
    memory, adjoint = np.array([2.0, 3.0]), np.array([1.0, 10.0])
    kg.gradient(module["square"], "out, in", may_alias=True)[1, 2](memory, memory, 2, adjoint, adjoint)
    np.testing.assert_array_equal(memory, [4, 9])
    np.testing.assert_array_equal(adjoint, [4, 60])


OVERWRITTEN = """__global__ void k(double *y, const double *x, double *z, double *w) {
    int i = threadIdx.x; y[i] = x[i] * x[i]; w[i] = 3.0 * i; z[i] = y[i] * y[i] * x[i]; }"""


@pytest.mark.parametrize("listed", ["y, x, z", "x, z", "y, x, z, w"])
def test_what_shares_memory_shares_adjoints(listed: str) -> None:
    """Else what is stored through one name leaves the adjoint of the other as it is."""
    kernel = kg.compile(OVERWRITTEN)["k"]
    y, x, z = np.zeros(4), np.arange(4) + 1.0, np.zeros(4)
    adjoints = {"d_y": np.zeros(4), "d_x": np.zeros(4), "d_z": ones(4), "d_w": np.zeros(4)}
    given = {name: a for name, a in adjoints.items() if name[2:] in listed}
    gradient = kg.gradient(kernel, listed, may_alias=True)
    for _ in range(3):  # also where the launch comes again
        gradient[1, 4](y, x, z, np.zeros(4), **given)
    with pytest.raises(
        kg.ArgumentError, match="'y' and 'w' share memory and one of them is written, but not their adj"
    ):
        gradient[1, 4](y, x, z, y, **given)
    forward, reverse = kg.split(kernel, listed, may_alias=True)
    tape = forward[1, 4](y, x, z, y)
    with pytest.raises(kg.ArgumentError, match="but not their adjoints"):
        reverse[1, 4](tape, y, x, z, y, **given)


@pytest.mark.parametrize("shift", [0, 1])
def test_adjoints_are_as_far_apart_as_what_they_belong_to(shift: int) -> None:
    kernel = kg.compile(OVERWRITTEN)["k"]
    memory, d_memory = np.zeros(5), np.zeros(5)
    x, d_x, d_z = np.arange(4) + 1.0, np.zeros(4), ones(4)
    gradient = kg.gradient(kernel, may_alias=True)
    args = memory[:4], x, np.zeros(4), memory[shift : 4 + shift]
    with pytest.raises(kg.ArgumentError, match="but not their adjoints"):
        gradient[1, 4](*args, d_memory[:4], d_x, d_z, d_memory[1 - shift : 5 - shift])
    if not shift:
        gradient[1, 4](*args, d_memory[:4], d_x, d_z, d_memory[:4])
        np.testing.assert_array_equal(d_x, (3.0 * np.arange(4)) ** 2)


def test_adjoints_share_memory_with_nothing_else(module: kg.Module) -> None:
    x = np.array([2.0, 3.0])
    with pytest.raises(kg.ArgumentError, match="'in' and 'd_out' share memory; pass separate buffers"):
        kg.gradient(module["square"], "out, in", may_alias=True)[1, 2](np.zeros(2), x, 2, x, np.zeros(2))


def test_assign_where_arguments_may_alias(module: kg.Module) -> None:
    """Updates are atomic then, and what they are added to must be cleared."""
    d_in = np.full(2, 7.0)
    gradient = kg.gradient(module["square"], "out, in", assign="in", may_alias=True)
    gradient[1, 2](np.zeros(2), np.array([2.0, 3.0]), 2, ones(2), d_in)
    np.testing.assert_array_equal(d_in, [4, 6])


def test_assign_clears_what_no_derivative_reaches() -> None:
    """Every element is read, but none has an adjoint that would be written."""
    source = "__global__ void k(double *y, const double *x) { int i = threadIdx.x; y[i] = x[i] > 0.5 ? 1.0 : 2.0; }"
    d_x = np.full(32, 7.0)
    with pytest.warns(UserWarning, match="every adjoint becomes zero"):
        gradient = kg.gradient(kg.compile(source)["k"], "y, x", primal=False, keep="y", assign="x")
    gradient[1, 32](np.zeros(32), ones(32), ones(32), d_x)
    assert not d_x.any()


def test_an_assigned_adjoint_is_zero_where_a_guard_keeps_the_rows_from_being_read() -> None:
    """The launch reaches all of the buffer, its threads' guards only five rows of it."""
    source = """__global__ void k(double *y, const double *x, int w, int h) {
        int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
        if (row >= h || col >= w) return;
        y[row * w + col] = 2 * x[row * w + col];
    }"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x", primal=False, keep="y", assign="x")
    d_x = np.full(64, np.nan)
    gradient[(2, 2), (4, 4)](np.zeros(64), np.ones(64), 8, 5, np.ones(64), d_x)
    np.testing.assert_array_equal(d_x, [2.0] * 40 + [0.0] * 24)


def test_functions_whose_tape_is_counted() -> None:
    """The launch that counts has a place for the function's value, too."""
    text = "__device__ double f(double x) { while (x > 1) x = x * 0.5 + sin(x) * 0.1; return x * x; }"
    f, d_x, h = kg.compile(text)["f"], np.zeros(1), 1e-6
    kg.gradient(f).execute(7.0, d_x)
    np.testing.assert_allclose(d_x[0], (f.execute(7 + h) - f.execute(7 - h)) / (2 * h), rtol=1e-6)
