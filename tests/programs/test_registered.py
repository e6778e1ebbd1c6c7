"""Host functions with augmented forward and reverse passes of the program's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from in_source_cases import INLINE, POINTER, iterated, with_passes
from kernelgrad.errors import KernelGradError


def arguments() -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.uniform(0.1, 0.4, 100), np.zeros(100), rng.uniform(0.1, 0.4, 100), np.ones(100)]


@pytest.mark.parametrize(("text", "type"), [(POINTER, "void *"), (INLINE, "float ")])
def test_iterated(text: str, type: str) -> None:
    module = kg.compile(with_passes(text, type))
    src, _, dst, _ = arguments()
    given = [a.astype(np.float32) for a in arguments()]
    module["grad_iter"](4, *given, device="cpu")
    ends = iterated(4, src, dst)
    np.testing.assert_allclose(given[0], ends[0], rtol=1e-4)
    np.testing.assert_allclose(given[1], iterated(4, src + 1e-30j, dst)[1].imag / 1e-30, rtol=1e-3)
    np.testing.assert_allclose(given[3], iterated(4, src, dst + 1e-30j)[1].imag / 1e-30, rtol=1e-3)
    plain = [a.astype(np.float32) for a in (src, dst)]
    module["iter"](4, *plain, device="cpu")
    np.testing.assert_allclose(plain[1], ends[1], rtol=1e-4)


OWN = r"""
template <typename... Args> void __enzyme_autodiff(Args...);
void scale(double *x, int n) { for (int i = 0; i < n; i++) x[i] *= 3; }
void *augmented(double *x, double *dx, int n) { scale(x, n); return nullptr; }
void reverse(double *x, double *dx, int n, void *tape) { for (int i = 0; i < n; i++) dx[i] *= 100; }
void *__enzyme_register_gradient_scale[3] = {(void *)scale, (void *)augmented, (void *)reverse};
void both(double *x, int n) { scale(x, n); for (int i = 0; i < n; i++) x[i] *= x[i]; }
void gradient(double *x, double *dx, int n) { __enzyme_autodiff(both, x, dx, n); }
"""


def test_the_programs_own_reverse_is_what_runs() -> None:
    x, dx = np.array([1.0, 2.0]), np.ones(2)
    kg.compile(OWN)["gradient"](x, dx, 2, device="cpu")
    np.testing.assert_allclose(x, [9.0, 36.0])
    np.testing.assert_allclose(dx, 100 * 2 * np.array([3.0, 6.0]))


@pytest.mark.parametrize(
    ("change", "problem", "line"),
    [
        (("reverse(double *x, double *dx, int n, void *tape)", "reverse(double *x, double *dx, int n)"),
         "'reverse' must take .* and then the tape: 4 parameters, and has 3", 5),
        (("void scale(double *x, int n) {", "void scale(double *x, double n) {"), "must return the adjoints", 5),
        (("void scale(double *x, int n) {", "double scale(double *x, int n) {"), "gives a value", 3),
    ],
)  # fmt: skip
def test_refused_at_the_line(change: tuple[str, str], problem: str, line: int) -> None:
    with pytest.raises(KernelGradError, match=problem) as caught:
        kg.compile(OWN.replace(*change))["gradient"](np.ones(2), np.ones(2), 2, device="cpu")
    assert f":{line}:" in str(caught.value)


NUMBERS = r"""
template <typename... Args> void __enzyme_autodiff(Args...);
struct Two { double a; float b; };
void scale(double *x, double a, int n, float b) { for (int i = 0; i < n; i++) x[i] *= a * b; }
void *augmented(double *x, double *dx, double a, int n, float b) {
    double *kept = new double[n];
    for (int i = 0; i < n; i++) { kept[i] = x[i]; x[i] *= a * b; }
    return kept;
}
Two reverse(double *x, double *dx, double a, int n, float b, void *tape) {
    double sum = 0, *kept = (double *)tape;
    for (int i = 0; i < n; i++) { sum += dx[i] * kept[i]; dx[i] *= a * b; }
    delete[] kept;
    return {sum * b, (float)(sum * a)};
}
void *__enzyme_register_gradient_scale[3] = {(void *)scale, (void *)augmented, (void *)reverse};
void twice(double *x, double *a, int n) { scale(x, *a * *a, n, 2.0f); scale(x, 3, n, (float)a[1]); }
void gradient(double *x, double *dx, double *a, double *da, int n) { __enzyme_autodiff(twice, x, dx, a, da, n); }
"""


def test_passes_with_numbers() -> None:
    x, dx, a, da = np.array([1.0, 2.0]), np.ones(2), np.array([1.5, 0.5]), np.zeros(2)
    kg.compile(NUMBERS)["gradient"](x, dx, a, da, 2, device="cpu")
    np.testing.assert_allclose(x, 1.5**2 * 2 * 3 * 0.5 * np.array([1.0, 2.0]))
    np.testing.assert_allclose(dx, 1.5**2 * 2 * 3 * 0.5 * np.ones(2))
    np.testing.assert_allclose(da, [2 * 1.5 * 2 * 3 * 0.5 * 3, 1.5**2 * 2 * 3 * 3])
