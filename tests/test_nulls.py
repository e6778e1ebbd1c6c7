"""None for an array: right where the kernel asks or does not get there, else an error that names the parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
PLAIN = f"__global__ void k(float *y, const float *x, int n) {{ {INDEX} if (i < n) y[i] = x[i]; }}"
FLAG = f"__global__ void k(float *y, const float *x, int use) {{ {INDEX} float v = 2; if (use) v += x[i]; y[i] = v; }}"
ASKED = f"__global__ void k(float *y, const float *x) {{ {INDEX} y[i] = x ? x[i] : 3.0f; }}"
BY_DATA = f"__global__ void k(float *y, const float *x, const int *f) {{ {INDEX} y[i] = f[i] ? x[i] : 4.0f; }}"
CHOSEN = f"""__global__ void k(float *y, const float *x, const float *z, const int *f) {{
    {INDEX} const float *p = f[0] ? x : z; for (int j = 0; j < f[1]; j++) y[i] += p[j]; }}"""
MEMBER = """struct S { float *p; const float *q; int n; };
__global__ void k(S s) { int i = threadIdx.x; if (i < s.n) s.p[i] = s.q[i]; }"""
WALKING = "__global__ void k(float *y, const float *x, int n) { while (n--) y[0] += *x++; }"


def arrays() -> tuple[Any, Any, Any]:
    return np.zeros(16, np.float32), np.ones(16, np.float32), np.zeros(16, np.int32)


def run(text: str, *args: Any) -> None:
    kg.compile(text)["k"][2, 8](*args)


@pytest.mark.parametrize(
    ("text", "args", "value"),
    [(PLAIN, (None, 0), 0), (FLAG, (None, 0), 2), (ASKED, (None,), 3), (BY_DATA, (None, np.zeros(16, np.int32)), 4)],
)
def test_what_is_not_used_may_be_missing(text: str, args: tuple[Any, ...], value: float) -> None:
    y, _, _ = arrays()
    run(text, y, *args)
    assert (y == value).all()


@pytest.mark.parametrize(("text", "args"), [(PLAIN, (None, 16)), (FLAG, (None, 1)), (WALKING, (None, 3))])
def test_a_use_that_is_certain_is_an_error_before_the_launch(text: str, args: tuple[Any, ...]) -> None:
    y, _, _ = arrays()
    with pytest.raises(
        kg.ArgumentError, match=r"k: parameter 'x' \(const float \*\) is used at kernel.cu:1:\d+, and None"
    ):
        run(text, y, *args)
    assert not y.any()


def test_an_output_is_an_array_too() -> None:
    with pytest.raises(kg.ArgumentError, match="parameter 'y'"):
        run(PLAIN, None, arrays()[1], 16)


def test_threads_that_are_not_the_first_count() -> None:
    inner = f"__global__ void k(float *y, const float *x, int n) {{ {INDEX} if (i > 0 && i < n - 1) y[i] = x[i - 1]; }}"
    with pytest.raises(kg.ArgumentError, match="parameter 'x'"):
        run(inner, arrays()[0], None, 16)


def test_a_use_that_depends_on_data_is_an_error_at_its_line() -> None:
    y, x, f = arrays()
    f[5] = 1
    with pytest.raises(kg.KernelError, match=r"parameter 'x'.*is used here, and None.*thread \(5, 0, 0\)") as error:
        run(BY_DATA, y, None, f)
    assert error.value.span.line == 1
    run(BY_DATA, y, x, f)
    assert y.tolist() == [1.0 if k == 5 else 4.0 for k in range(16)]


def test_pointers_that_are_chosen_at_run_time() -> None:
    y, x, f = arrays()
    f[:2] = 1, 3
    with pytest.raises(kg.KernelError, match="parameter 'x'"):
        run(CHOSEN, y, None, x, f)
    f[0] = 0
    y[:] = 0
    run(CHOSEN, y, None, x, f)
    assert (y == 3).all()


def test_members_of_structs() -> None:
    y, _, _ = arrays()
    with pytest.raises(kg.KernelError, match=r"parameter 's\.q' is used here"):
        run(MEMBER, {"p": y, "q": None, "n": 8})
    run(MEMBER, {"p": None, "q": None, "n": 0})


GRADIENT = f"""__global__ void k(float *y, const float *x, const float *w, int n) {{
    {INDEX} if (i < n) y[i] = x[i] * x[i] * (w ? w[i] : 1.0f); }}"""
DERIVATIVES: list[Callable[[Any, Any, Any], Any]] = [
    lambda k, args, shadows: kg.gradient(k, "y, x")[2, 8](*args, *shadows),
    lambda k, args, shadows: kg.jvp(k, "y, x")[2, 8](*args, *shadows),
    lambda k, args, shadows: kg.split(k, "y, x")[0][2, 8](*args),
]


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives(derivative: Callable[[Any, Any, Any], Any]) -> None:
    kernel, (y, x, _) = kg.compile(GRADIENT)["k"], arrays()
    shadows = np.ones(16, np.float32), np.zeros(16, np.float32)
    derivative(kernel, (y, x, None, 16), shadows)
    assert (y == 1).all()
    with pytest.raises(kg.ArgumentError, match="parameter 'x'"):
        derivative(kernel, (y, None, None, 16), shadows)


def test_what_the_reverse_does_not_read_may_be_missing() -> None:
    kernel, (_, x, _) = kg.compile(GRADIENT)["k"], arrays()
    d_y, d_x = np.ones(16, np.float32), np.zeros(16, np.float32)
    kg.gradient(kernel, "y, x", primal=False)[2, 8](None, x, None, 16, d_y, d_x)
    assert (d_x == 2).all()


def test_device_functions() -> None:
    f = kg.compile("__device__ float f(const float *x, int n) { return n > 0 ? x[n] : 1.0f; }")["f"]
    assert f.execute(None, 0) == 1
    with pytest.raises(kg.ArgumentError, match="parameter 'x'"):
        f.execute(None, 1)
