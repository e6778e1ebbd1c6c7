"""Host functions that are recorded: memory of the caller's, rows, streams of C++, events."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.transpile.program import transpiled
from recorded_memory import MEMORY

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


@cache
def written(name: str) -> str:
    return transpiled(kg.compile(MEMORY[name], name="memory.cu"))


@needs_gxx
@pytest.mark.parametrize("name", MEMORY)
def test_prints(name: str) -> None:
    pairs = [line.split() for line in run_program(written(name)).splitlines() if line]
    assert len(pairs) == 2
    for found, wanted in pairs:
        assert float(found) == pytest.approx(float(wanted), rel=1e-6)


@needs_nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "printed and timed" else pytest.mark.slow) for n in MEMORY]
)
def test_nvcc_builds_it(name: str, tmp_path: Path) -> None:
    assert build(written(name), tmp_path / "memory", "-arch=sm_90", "-Werror=all-warnings").exists()


@needs_gxx
def test_memory_without_an_adjoint_that_is_written_and_read_is_told() -> None:
    program = MEMORY["of the caller's, in place"].replace("const double *w", "double *w")
    program = program.replace("sum += x[0]", "for (int i = 0; i < n; i++) w[i] = x[i] * w[i];\n        sum += x[0]")
    program = program.replace("return sum;", "for (int i = 0; i < n; i++) sum += w[i];\n    return sum;", 1)
    with pytest.raises(subprocess.CalledProcessError) as error:
        run_program(transpiled(kg.compile(program, name="memory.cu")))
    assert "has no adjoint" in error.value.stderr and "memory.cu:" in error.value.stderr


REFUSED = {
    "the host cannot use a device variable": "__device__ double v;\ndouble run(double *x) { double *m;"
    " cudaMalloc(&m, 8);\n v = *x;  // here\n return *x * *x; }",
    "a stream that writes to a string in a host function": "#include <sstream>\ndouble run(double *x) { double *m;"
    " cudaMalloc(&m, 8);\n std::ostringstream s;  // here\n s << *x; return *x; }",
    "std::function is not supported: use auto": "#include <functional>\ndouble run(double *x) { double *m;"
    " cudaMalloc(&m, 8);\n std::function<double(double)> f = [](double v) { return v; };  // here\n return f(*x); }",
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused_at_its_line(problem: str) -> None:
    source = "template <typename... A> double __enzyme_autodiff(A...);\n" + REFUSED[problem]
    source += "\nint main() { double x = 1, d = 0; __enzyme_autodiff((void *)run, &x, &d); }\n"
    line = next(k for k, text in enumerate(source.splitlines(), 1) if text.endswith("// here"))
    with pytest.raises(kg.UnsupportedError, match=problem) as error:
        transpiled(kg.compile(source, name="refused.cu"))
    assert error.value.span.line == line


TWO = r"""
#include "clad/Differentiator/Differentiator.h"
#include <cstdio>
__global__ void f(double *y, const double *x, double a, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
double run(const double *x, double a, int n) {
    double *d, *e, h[2], s = 0;
    cudaMalloc(&d, n * 8); cudaMalloc(&e, n * 8);
    cudaMemcpy(d, x, n * 8, cudaMemcpyHostToDevice);
    f<<<1, 32>>>(e, d, a * a, n);
    cudaMemcpy(h, e, n * 8, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) s += h[i] * h[i];
    cudaFree(d); cudaFree(e);
    return s;
}
int main() {
    double x[2] = {2, 3}, dx[2] = {}, da = 0, again = 0;
    auto both = clad::gradient(run, "x, a");
    both.execute(x, 0.5, 2, dx, &da);
    auto one = clad::gradient(run, "a");
    one.execute(x, 0.5, 2, &again);
    printf("%g %g %g %g\n", dx[0], dx[1], da, again);
}
"""


@needs_gxx
def test_two_gradients_of_one_host_function() -> None:
    assert run_program(transpiled(kg.compile(TWO, name="two.cu"))) == "0.25 0.375 6.5 6.5\n"


@needs_gxx
def test_what_a_loop_writes_first_and_a_copy_last_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """The loop runs again in the reverse, over memory whose size nobody knows."""
    text = r"""
    #include <cstdio>
    template <typename... A> void __enzyme_autodiff(A...);
    extern int enzyme_const;
    __global__ void squares(double *x, int n) {
        int i = threadIdx.x;
        if (i < n) x[i] += x[i] * x[i];
    }
    void run(double *x, double *to, int n) {
        for (int i = 0; i < n; i++) to[i] = i * x[i];
        double *d;
        cudaMalloc(&d, n * sizeof(double));
        cudaMemcpy(d, to, n * sizeof(double), cudaMemcpyHostToDevice);
        squares<<<1, 32>>>(d, n);
        cudaMemcpy(to + 1, d + 1, (n - 2) * sizeof(double), cudaMemcpyDeviceToHost);
        cudaFree(d);
    }
    int main() {
        double x[4] = {1, 2, 3, 4}, dx[4] = {}, to[4], dto[4] = {1, 1, 1, 1};
        __enzyme_autodiff((void *)run, x, dx, to, dto, enzyme_const, 4);
        for (int i = 0; i < 4; i++) printf("%g %g %g ", dx[i], to[i], dto[i]);
    }
    """
    kg.compile(text, name="memory.cu")["main"](device="cpu")
    told = capsys.readouterr().out
    assert told == "0 0 0 5 6 0 26 42 0 3 12 0 "
    assert run_program(transpiled(kg.compile(text, name="memory.cu"))) == told
