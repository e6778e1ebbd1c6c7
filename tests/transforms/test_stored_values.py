"""Loads of what the thread stored before are computed again: where they can be, and with the same gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.roots import analyse
from kernelgrad.errors import KernelGradError
from kernelgrad.ir.ops import Module
from kernelgrad.transforms import stored_values
from stored_value_cases import FORMS, LOOP, NOT_TAKEN, TAKEN, arguments_of, kernel_of


def _reads_results(function: Any) -> bool:
    memory, (y, *_) = analyse(function), function.params
    return any(y.value in memory.of(op.ptr) for op in memory.loads)


@pytest.mark.parametrize("name", [*TAKEN, *NOT_TAKEN])
def test_gradients(name: str) -> None:
    kernel = kernel_of({**TAKEN, **NOT_TAKEN}[name])
    assert _reads_results(kernel.function)
    assert _reads_results(stored_values.run(kernel.function, Module())) is (name in NOT_TAKEN)
    kg.check_gradient(kernel, "y, x, z", 4, 4, arguments_of())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TAKEN)
def test_forms(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the gradient that loads what was stored; results are those of the kernel."""
    kernel, found = kernel_of(TAKEN[name]), []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr("kernelgrad.transforms.stored_values.run", lambda function, module: function)
        arguments, g = arguments_of(), np.random.default_rng(1).standard_normal(45)
        d_y, d_x, d_z = g.copy(), np.full(45, 3.0 if "assign" in FORMS[form] and not plain else 0.0), np.zeros(45)
        gradient = kg.gradient(kernel, "y, x, z", **({} if plain else FORMS[form]))
        gradient[4, 4](*arguments, d_y, d_x, d_z)
        if "keep" in FORMS[form] and not plain:
            np.testing.assert_array_equal(d_y, g)
        found.append((d_x, arguments[0]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
    expected = arguments_of()
    kernel[4, 4](*expected)
    if form != "reverse":
        np.testing.assert_array_equal(found[0][1], expected[0])


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_read_is_not_kept(name: str) -> None:
    with pytest.raises(KernelGradError, match="not a pure output"):
        kg.gradient(kernel_of(NOT_TAKEN[name]), "y, x, z", keep="y")


@pytest.mark.parametrize("name", TAKEN)
def test_split(name: str) -> None:
    """Between its launches anything may change: loads stay loads there."""
    kernel, arguments = kernel_of(TAKEN[name]), arguments_of()
    g = np.random.default_rng(1).standard_normal(45)
    d_y, d_x, d_z = g.copy(), np.zeros(45), np.zeros(45)
    forward, reverse = kg.split(kernel, "y, x, z")
    tape = forward[4, 4](*arguments)
    for buffer in arguments[:3]:
        buffer[:] = np.nan
    reverse[4, 4](tape, *arguments, d_y, d_x, d_z)
    expected, d_w, d_u = g.copy(), np.zeros(45), np.zeros(45)
    kg.gradient(kernel, "y, x, z")[4, 4](*arguments_of(), expected, d_w, d_u)
    np.testing.assert_allclose(d_x, d_w, rtol=1e-12, atol=1e-12)


def test_pointers_that_come_from_memory() -> None:
    """They may lead to what was stored."""
    store, load = f"{LOOP} y[c] = x[c] * x[c];", f"{LOOP} z[c] = y[c] * y[c];"
    for between, taken in (("", True), (f"{LOOP} at[0][c] = 3;", False), (f"{LOOP} z[c] = at[0][c];", True)):
        params = "double *y, const double *x, double *z, double **at, int n"
        text = f"__global__ void k({params}) {{ {store} {between} {load} }}"
        function = kg.compile(text)["k"].function
        assert _reads_results(stored_values.run(function, Module())) is not taken
