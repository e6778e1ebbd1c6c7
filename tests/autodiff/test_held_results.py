"""`kg.assume(results="y")`: a reverse alone reads what the kernel stored, where that takes less than to compute it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.frameworks.derived import Derived, Options

I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"  # noqa: E741
# The body of `k(double *y, double *m, double *r, const double *x, int n)`, with n = 6 and rows of 5; what is read of
# the outputs where all three are promised.
CASES: dict[str, tuple[str, set[str]]] = {
    "tanh, whose derivative is exact by its argument alone": (f"{I} y[i] = tanh(x[i]);", set()),
    "exp": (f"{I} double v = exp(x[i] * 0.5); y[i] = v;", {"y"}),
    "root": (f"{I} y[i] = sqrt(x[i] * x[i] + 1.0);", {"y"}),
    "used again": (f"{I} double v = exp(x[i]); y[i] = v; m[i] = v * v * x[i];", {"y"}),
    "norm of rows": (
        f"{I} double s = 0; for (int c = 0; c < 5; ++c) s += x[i * 5 + c] * x[i * 5 + c];"
        " double inv = rsqrt(s / 5 + 0.1); r[i] = inv; for (int c = 0; c < 5; ++c) y[i * 5 + c] = x[i * 5 + c] * inv;",
        {"r"},
    ),
    "mean and deviation": (
        f"{I} double s = 0; for (int c = 0; c < 5; ++c) s += x[i * 5 + c]; double mean = s / 5; m[i] = mean;"
        " double q = 0; for (int c = 0; c < 5; ++c) q += (x[i * 5 + c] - mean) * (x[i * 5 + c] - mean);"
        " double inv = rsqrt(q / 5 + 0.1); r[i] = inv;"
        " for (int c = 0; c < 5; ++c) y[i * 5 + c] = (x[i * 5 + c] - mean) * inv;",
        {"m", "r"},
    ),
    "in a loop": (f"{I} for (int c = 0; c < 5; ++c) y[i * 5 + c] = exp(x[i * 5 + c]) ;", {"y"}),
    "in a branch": (f"{I} if (x[i] > 0.4) y[i] = exp(x[i]); else y[i] = x[i];", {"y"}),
    "before a branch": (f"{I} double v = exp(x[i]); if (x[i] > 0.4) y[i] = v; else y[i] = x[i]; m[i] = v * v;", set()),
    "in one of two branches": (f"{I} if (x[i] > 0.4) y[i] = exp(x[i]); if (x[i] > 0.2) y[i] = x[i];", set()),
    "a quotient": (f"{I} y[i] = x[i] / (x[i] + 2);", set()),
    "cheap": (f"{I} y[i] = x[i] * x[i] + 1;", set()),
    "stored twice": (f"{I} y[i] = sqrt(x[i]); y[i] = exp(x[i]);", set()),
    "stored by two threads": (f"{I} y[i / 2] = exp(x[i / 2]);", set()),
    "stored elsewhere": (f"{I} double v = exp(x[i]); if (i % 2) y[i] = v; m[i] = v * v;", set()),
    "an address that it decides": (f"{I} double v = exp(x[i]); y[(int)(v * 0.0) + i] = v;", set()),
}
N, LENGTH = 6, 30


def kernel_of(body: str) -> Any:
    parameters = "double *y, double *m, double *r, const double *x, int n"
    return kg.compile(f"__global__ void k({parameters}) {{ {body} }}")["k"]


def read(gradient: Any) -> set[str]:
    return set(re.findall(r"is read from '(\w+)', which holds the results", gradient.explain()))


def given(kernel: Any) -> tuple[Any, ...]:
    arrays = tuple(np.zeros(LENGTH) for _ in range(3))
    x = np.random.default_rng(3).random(LENGTH)
    kernel[1, 8](*arrays, x, N)
    return (*arrays, x, N)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("keeps", [False, True])
def test_values(name: str, keeps: bool) -> None:
    body, expected = CASES[name]
    kernel = kernel_of(body)
    outputs = [name for name in ("y", "m", "r") if f"{name}[" in body]
    settings = {"keep": outputs, "assign": "x"} if keeps else {}
    plain = kg.gradient(kernel, [*outputs, "x"], primal=False, **settings)
    made = kg.gradient(kernel, [*outputs, "x"], primal=False, assume=kg.assume(results=outputs), **settings)
    assert read(made) == expected and not read(plain)
    arrays = given(kernel)
    results = []
    for gradient in (plain, made):
        seeds, d_x = [np.random.default_rng(k).random(LENGTH) for k in range(len(outputs))], np.zeros(LENGTH)
        gradient[1, 8](*(a.copy() if isinstance(a, np.ndarray) else a for a in arrays), *seeds, d_x)
        results.append(d_x)
        assert gradient.check(1, 8, *arrays, *seeds, np.zeros(LENGTH)).ok or name == "stored by two threads"
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)
    assert np.any(results[0])


EXP = f"{I} y[i] = exp(x[i]);"


def test_nothing_is_computed_again() -> None:
    made = kg.gradient(kernel_of(EXP), "y, x", primal=False, assume=kg.assume(results="y"))
    assert "exp(" not in made.source.partition("{")[2] and "x[i]" not in made.source.replace("_d_x[i]", "")
    rows = kg.gradient(kernel_of(CASES["mean and deviation"][0]), primal=False, assume=kg.assume(results="m, r"))
    plain = kg.gradient(kernel_of(CASES["mean and deviation"][0]), primal=False)
    assert rows.source.count("for (") < plain.source.count("for (") and "rsqrt" not in rows.source


@pytest.mark.parametrize("settings", [{}, {"primal": False, "may_alias": True}])
def test_other_modes_do_not_read_them(settings: dict[str, Any]) -> None:
    """Where the kernel runs, too, there is nothing to promise."""
    kernel = kernel_of(EXP)
    made = kg.gradient(kernel, "y, x", assume=kg.assume(results="y"), **settings)
    assert not read(made)
    x, d_x = np.random.default_rng(0).random(LENGTH), np.zeros(LENGTH)
    made[1, 8](np.full(LENGTH, 7.0), np.zeros(1), np.zeros(1), x, N, np.ones(LENGTH), d_x)
    np.testing.assert_allclose(d_x[:N], np.exp(x[:N]))


def test_each_launch_is_proved() -> None:
    """With a step of 0 all threads write one element."""
    kernel = kg.compile(
        "__global__ void k(double *y, const double *x, int s) { y[threadIdx.x * s] = exp(x[threadIdx.x * s]); }"
    )
    made = kg.gradient(kernel["k"], "y, x", primal=False, assume=kg.assume(results="y"))
    for step in (1, 2, 0):
        x, d_x = np.random.default_rng(0).random(16), np.zeros(16)
        made[1, 8](np.exp(x), x, step, np.ones(16), d_x)
        expected = np.zeros(16)
        expected[np.arange(8) * step] = np.exp(x)[np.arange(8) * step]
        np.testing.assert_allclose(d_x, expected)
    assert frozenset(("y",)) in {facts.unheld for _, facts in made.forms.made}


def test_tangents_of_such_a_gradient_do_not_take_results_for_constants() -> None:
    gradient = kg.gradient(kernel_of(EXP), "y, x", primal=False, assume=kg.assume(results="y"))
    tangent = kg.jvp(gradient, "x, d_x")
    x, v, t_d_x, none = np.array([0.3, -0.7]), np.array([1.0, 2.0]), np.zeros(2), np.zeros(2)
    tangent[1, 2](np.exp(x), none, none, x, 2, np.ones(2), np.zeros(2), v, t_d_x)
    np.testing.assert_allclose(t_d_x, np.exp(x) * v)


def test_outputs_that_hold_something_else_are_named() -> None:
    made = kg.gradient(kernel_of(EXP), "y, x", primal=False, assume=kg.assume(results="y"))
    y, *rest = given(kernel_of(EXP))
    assert made.check(1, 8, y, *rest, np.ones(LENGTH), np.zeros(LENGTH)).ok
    y[4] += 0.25
    report = made.check(1, 8, y, *rest, np.ones(LENGTH), np.zeros(LENGTH))
    (finding,) = report.findings
    assert finding.kind == "promise" and "'y' does not hold the results: 'y[4]' is" in finding.message
    assert finding.span.line == 1 and finding.count == 1


def test_explain_tells_what_is_of_no_use() -> None:
    text = kg.gradient(kernel_of(CASES["cheap"][0]), "y, x", primal=False, assume=kg.assume(results="y")).explain()
    assert "'y' holds the results, but nothing is had by reading it" in text


def test_inputs_have_no_results() -> None:
    with pytest.raises(kg.ArgumentError, match="results is about outputs that the kernel writes and does not read"):
        kg.gradient(kernel_of(EXP), "y, x", primal=False, assume=kg.assume(results="x"))


def test_operators_are_not_given_their_outputs() -> None:
    options = Options(promises=kg.assume(results="y"))
    with pytest.raises(kg.ArgumentError, match="results is not for operators"):
        Derived(kernel_of(EXP), None, options)  # type: ignore[arg-type]
