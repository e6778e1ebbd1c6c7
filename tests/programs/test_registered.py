"""Host functions with augmented forward and reverse passes of the program's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from in_source_cases import INLINE, POINTER, iterated, with_passes
from kernelgrad.errors import KernelGradError
from recorded_memory import MEMORY


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


def test_structs_in_memory_that_is_freed_by_then(capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(MEMORY["behind pointers to structs"])["main"](device="cpu")
    for found, wanted in map(str.split, capsys.readouterr().out.split("\n")[1:3]):
        assert float(found) == pytest.approx(float(wanted), rel=1e-6)


DECAYS = r"""
__global__ void square(double *y, const double *x) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }
__global__ void decay(double *x) { x[threadIdx.x] = exp(-x[threadIdx.x]); }
__global__ void back(const double *x, double *d) { d[threadIdx.x] *= -x[threadIdx.x]; }
void decays(double *x) { decay<<<1, 4>>>(x); }
void *forward(double *x, double *) { decay<<<1, 4>>>(x); return nullptr; }
void reverse(double *x, double *d, void *) { back<<<1, 4>>>(x, d); }
void *__enzyme_register_gradient_decays[3] = {(void *)decays, (void *)forward, (void *)reverse};
void run(double *out, double *in, int n) {
    double *x, *y;
    cudaMalloc(&x, 32); cudaMalloc(&y, 32);
    cudaMemcpy(x, in, 32, cudaMemcpyHostToDevice);
    for (int k = 0; k < n; k++) {
        if (k % 3) decays(x);
        square<<<1, 4>>>(y, x);
        if (k % 2) decays(y);
        square<<<1, 4>>>(x, y);
        decays(x);
    }
    cudaMemcpy(out, x, 32, cudaMemcpyDeviceToHost);
    cudaFree(x); cudaFree(y);
}
"""


@pytest.mark.parametrize("budget", [None, 520, 700])
def test_the_reverse_gets_memory_as_the_augmented_pass_left_it(budget: int | None) -> None:
    """Whoever else reads it, or overwrites it."""

    def gradient(text: str, budget: int | None) -> Any:
        d_in = np.zeros(4)
        g = kg.gradient(kg.compile(text)["run"], "out, in", tape_budget=budget)
        g.execute(np.zeros(4), np.linspace(0.1, 1.3, 4), 5, np.ones(4), d_in, device="cpu")
        return d_in

    plain = "\n".join(line for line in DECAYS.splitlines() if "register" not in line)
    np.testing.assert_allclose(gradient(DECAYS, budget), gradient(plain, None), rtol=1e-12)


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
