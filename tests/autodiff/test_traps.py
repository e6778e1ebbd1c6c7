"""Places where other differentiators are known to give wrong gradients: ours is right, or refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg


def kernel(text: str) -> Any:
    return kg.compile(text, name="trap.cu")["k"]


def agrees(target: Any, listed: str, block: Any, *args: Any, grid: Any = 1) -> None:
    report = kg.check_gradient(target, listed, grid, block, args)
    assert report.ok, report
    watched = kg.gradient(target, listed)
    names = [p.name for p in target.function.params]
    shadows = [np.ones_like(np.atleast_1d(args[names.index(n.strip())])) for n in listed.split(",")]
    found = watched.check(grid, block, *(a.copy() if hasattr(a, "copy") else a for a in args), *shadows, seed=3)
    assert found.ok, found


X = np.array([0.7, 1.3, 0.4, 1.1, 0.9, 0.6])


# ---- control flow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["if (i >= n) return;", "if (i >= n) { return; }"])
def test_early_return_keeps_other_threads_out(guard: str) -> None:
    target = kernel(
        f"__global__ void k(double *y, const double *x, int n) {{ int i = threadIdx.x; {guard} y[i] = x[i] * x[i]; }}"
    )
    y, d_y, d_x = np.zeros(6), np.ones(6), np.zeros(6)
    kg.gradient(target, "y, x")[1, 6](y, X, 4, d_y, d_x)
    np.testing.assert_array_equal(y[4:], 0)
    np.testing.assert_array_equal(d_y, [0, 0, 0, 0, 1, 1])
    np.testing.assert_allclose(d_x, [*(2 * X[:4]), 0, 0])


def test_runtime_bounds_and_nonlinear_use_of_the_result() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = threadIdx.x;
        double before = sin(x[i]), product = 1;
        for (int j = 0; j < n; j++) product *= x[j] + x[i];
        y[i] = before * product * product;
    }""")
    agrees(target, "y, x", 6, np.zeros(6), X, 6)


def test_while_loops() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = threadIdx.x;
        double v = x[i];
        while (v < 10.0) v = v * v * 0.5 + x[0] + 1.0;
        y[i] = exp(-v);
    }""")
    agrees(target, "y, x", 6, np.zeros(6), X, 6)


def test_continue_in_an_arg_max() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = threadIdx.x, at = 0;
        double best = -1;
        for (int j = 0; j < n; j++) {
            if (x[j] * x[i] <= best) continue;
            best = x[j] * x[i];
            at = j;
        }
        y[i] = best * best * x[at];
    }""")
    agrees(target, "y, x", 6, np.zeros(6), X, 6)


@pytest.mark.parametrize("count", [32, 100, 5000])
def test_iteration_limits(count: int) -> None:
    """There are none but memory: the tape's size is known and comes from the launcher."""
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = threadIdx.x;
        double v = x[i];
        for (int j = 0; j < n; j++) v = sin(v) + x[i] * 0.5;
        y[i] = v;
    }""")
    agrees(target, "y, x", 3, np.zeros(3), X[:3], count)


def test_division_in_an_untaken_case() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, const int *kind) {
        int i = threadIdx.x;
        double r;
        switch (kind[i]) {
            case 0: r = x[i] * 2; break;
            case 1: r = 1 / (x[i] - x[i]); break;
            default: r = x[i] * x[i];
        }
        y[i] = r;
    }""")
    d_x = np.zeros(6)
    kg.gradient(target, "y, x")[1, 6](np.zeros(6), X, np.array([0, 2, 0, 2, 2, 0], np.int32), np.ones(6), d_x)
    np.testing.assert_allclose(d_x, [2, 2 * X[1], 2, 2 * X[3], 2 * X[4], 2])


# ---- overwritten values ---------------------------------------------------------------------------------------------


def test_square_in_place() -> None:
    target = kernel("__global__ void k(double *a) { int i = threadIdx.x; a[i] = a[i] * a[i]; }")
    agrees(target, "a", 6, X)


def test_launches_that_overwrite_their_buffers() -> None:
    """Two launches, reversed by hand: each needs the contents from before it, which the caller has to keep."""
    target = kernel("__global__ void k(double *a) { int i = threadIdx.x; a[i] = a[i] * a[i] + a[i]; }")
    gradient = kg.gradient(target, "a")
    steps = [X.copy()]
    for _ in range(3):
        following = steps[-1].copy()
        target[1, 6](following)
        steps.append(following)
    adjoint = np.ones(6)
    for before in reversed(steps[:-1]):
        gradient[1, 6](before.copy(), adjoint)
    want = np.prod([2 * s + 1 for s in steps[:-1]], axis=0)
    np.testing.assert_allclose(adjoint, want)


# ---- races in the adjoint -------------------------------------------------------------------------------------------


def test_neighbours_are_read_by_several_threads() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n - 2) y[i] = x[i] * x[i + 1] + x[i + 2];
    }""")
    agrees(target, "y, x", 4, np.zeros(16), np.linspace(0.5, 1, 16), 16, grid=4)
    assert kg.gradient(target, "y, x").explain().count("shadow of x: atomicAdd") == 3


def test_rows_collide_in_a_launch_with_two_dimensions() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[(blockIdx.y * blockDim.y + threadIdx.y) * n + i] = x[i] * x[i];
    }""")
    agrees(target, "y, x", (4, 2), np.zeros(8 * 6), np.linspace(0.5, 1, 8), 8, grid=(2, 3))


def test_struct_members_and_copied_pointers() -> None:
    target = kernel("""struct P { double a, b; };
    __global__ void k(double *y, const P *p, const double *x) {
        int i = threadIdx.x;
        const P *q = p + i / 3;
        const double *moved = x;
        moved += i / 2;
        y[i] = q->a * (*q).b * *(moved + 1) + moved[0];
    }""")
    p = np.array([(0.5, 0.7), (1.1, 0.3)], [("a", "f8"), ("b", "f8")])
    report = kg.check_gradient(target, "y, p, x", 1, 6, (np.zeros(6), p, X))
    assert report.ok, report
    text = kg.gradient(target, "y, p, x").explain()
    assert "plain" not in "\n".join(line for line in text.splitlines() if "shadow of" in line)


def test_a_number_shared_by_all_threads() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, double a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i] * a;
    }""")
    x = np.linspace(0, 1, 1000)
    gradient = kg.gradient(target, "y, x, a")
    for seed in range(3):
        d_a = np.zeros(1)
        report = gradient.check(8, 128, np.zeros(1000), x, 3.0, 1000, np.ones(1000), np.zeros(1000), d_a, seed=seed)
        assert report.ok, report
        np.testing.assert_allclose(d_a, 2 * 3 * x.sum())


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_names_of_parameters_do_not_matter_and_both_uses_count() -> None:
    target = kernel("""__device__ double add(double left, double right) { return left + right * right; }
    __device__ void store(double *where, double what) { where[threadIdx.x] = what; }
    __global__ void k(double *y, const double *x) { double a = x[threadIdx.x]; store(y, add(a, a)); }""")
    d_x = np.zeros(6)
    kg.gradient(target, "y, x")[1, 6](np.zeros(6), X, np.ones(6), d_x)
    np.testing.assert_allclose(d_x, 1 + 2 * X)


def test_a_function_without_a_body_is_an_error() -> None:
    with pytest.raises(kg.KernelGradError, match="external"):
        kernel("""__device__ double external(double);
        __global__ void k(double *y, const double *x) { y[0] = external(x[0]); }""")


@pytest.mark.parametrize(
    ("expression", "derivative"),
    [
        ("__ldg(&x[i]) * x[i]", lambda x: 2 * x),
        ("table[1] * x[i] * x[i]", lambda x: 5 * x),
        ("__sinf(x[i])", np.cos),
        ("__expf(x[i])", np.exp),
        ("__logf(x[i])", lambda x: 1 / x),
        ("rsqrtf(x[i])", lambda x: -0.5 * x**-1.5),
        ("__fdividef(1.f, x[i])", lambda x: -1 / x**2),
        ("__powf(x[i], 3.f)", lambda x: 3 * x**2),
    ],
)
def test_intrinsics(expression: str, derivative: Any) -> None:
    target = kernel(f"""__constant__ float table[2] = {{1.5f, 2.5f}};
    __global__ void k(float *y, const float *x) {{ int i = threadIdx.x; y[i] = {expression}; }}""")
    x, d_x = X.astype("f4"), np.zeros(6, "f4")
    kg.gradient(target, "y, x")[1, 6](np.zeros(6, "f4"), x, np.ones(6, "f4"), d_x)
    np.testing.assert_allclose(d_x, derivative(x.astype("f8")), rtol=2e-5)


# ---- threads that cooperate: refused for now ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "__shared__ float s[32]; s[i] = x[i]; __syncthreads(); y[i] = s[31 - i] * s[i];",
        "extern __shared__ float d[]; d[i] = x[i]; __syncthreads(); y[i] = d[i] * d[0];",
        "y[i] = x[i] * x[i]; __syncthreads(); y[i] *= x[0];",
        "y[i] = __shfl_down_sync(0xffffffffu, x[i] * x[i], 1);",
    ],
)
def test_cooperation_is_right_or_refused(body: str) -> None:
    target = kernel(f"__global__ void k(float *y, const float *x) {{ int i = threadIdx.x; {body} }}")
    try:
        kg.gradient(target, "y, x")
    except kg.UnsupportedError as error:
        assert error.span.line == 1 and "^" in str(error)
        return
    x = np.linspace(0.5, 1.5, 32).astype("f4")
    assert kg.check_gradient(target, "y, x", 1, 32, (np.zeros(32, "f4"), x), shared=128).ok


def test_atomic_add_in_the_primal() -> None:
    target = kernel(
        "__global__ void k(double *sum, const double *x) { atomicAdd(sum, x[threadIdx.x] * x[threadIdx.x]); }"
    )
    sum_, d_sum, d_x = np.zeros(1), np.array([2.0]), np.zeros(6)
    kg.gradient(target, "sum, x")[1, 6](sum_, X, d_sum, d_x)
    np.testing.assert_allclose(sum_, (X * X).sum())
    np.testing.assert_allclose(d_x, 4 * X)
    assert d_sum[0] == 2


# ---- waste ----------------------------------------------------------------------------------------------------------


def test_integer_arithmetic_gets_no_code() -> None:
    target = kernel("""__device__ void where(size_t &at, const size_t *sizes, int i) {
        size_t a = i / sizes[1], b = i % sizes[1];
        at = (a * sizes[0] + b * 7 + a * b) % (sizes[0] * sizes[1]);
    }
    __global__ void k(double *y, const double *x, const size_t *sizes) {
        int i = threadIdx.x;
        size_t at;
        where(at, sizes, i);
        y[i] = 2 * x[at];
    }""")
    gradient = kg.gradient(target, "y, x")
    derivative, original = (text[text.index('extern "C"') :] for text in (gradient.source, target.source))
    divisions, primal = (len(re.findall(r"[/%]", re.sub(r"//.*", "", text))) for text in (derivative, original))
    assert divisions == primal
    assert len(derivative.splitlines()) <= 2 * len(original.splitlines())


def test_a_scalar_parameter_costs_one_update_per_thread() -> None:
    target = kernel("""__global__ void k(double *y, const double *x, double a, int n) {
        int i = threadIdx.x;
        double s = 0;
        for (int j = 0; j < n; j++) s += a * x[i] * a * j;
        y[i] = s * a;
    }""")
    source = kg.gradient(target, "y, x, a").source
    assert source.count("atomicAdd(_d_a") == 1
    assert source.index("atomicAdd(_d_a") > source.rindex("for (")


def test_linear_accumulation_needs_no_tape() -> None:
    target = kernel("""__global__ void k(double *y, const double *a, const double *b, int n) {
        int i = threadIdx.x;
        double s = 0;
        for (int j = 0; j < n; j++) s += a[j] * b[i];
        y[i] = s;
    }""")
    assert kg.gradient(target, "y, a, b").tape_bytes(1, 6, np.zeros(6), X, X, 6) == 0
