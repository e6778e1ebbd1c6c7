"""Programs that ask for derivatives, transpiled: run on the emulation, and built by nvcc where that is installed."""

from __future__ import annotations

import difflib
import shutil
from functools import cache
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.program import transpiled
from transpiled_programs import PROGRAMS

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


@cache
def written(name: str) -> str:
    return transpiled(kg.compile(PROGRAMS[name].text, name=f"{name}.cu"))


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_prints(name: str) -> None:
    program, text = PROGRAMS[name], written(name)
    printed = [line.strip() for line in run_program(text).splitlines()]
    assert printed == program.prints.splitlines()
    assert all(part in text for part in program.contains)
    assert not any(part in text for part in program.lacks)


BUILT = ("launches",)  # the others with `-m slow`


@needs_nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BUILT else pytest.mark.slow) for name in PROGRAMS]
)
def test_nvcc_builds_it(name: str, tmp_path: Path) -> None:
    assert build(written(name), tmp_path / name, "-arch=sm_90", "-Werror=all-warnings").exists()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_rest_stays(name: str) -> None:
    """Lines go only where a derivative is asked for, or a header of Clad's is."""
    before, after = PROGRAMS[name].text.splitlines(), written(name).splitlines()
    gone = [line[2:] for line in difflib.ndiff(before, after) if line.startswith("- ")]
    asking = (
        "__enzyme_",
        "clad",
        "enzyme_dup,",
        "forward(",
        "forward<<<",
        "made(",
        "OUTER(",
        "CALL(",
        "&y, &d_y",
        "= GRADIENT",
    )
    assert gone and all(any(word in line for word in asking) for line in gone), gone


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_the_same_from_python(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = PROGRAMS[name]
    kg.compile(program.text, name=f"{name}.cu")["main"](device="cpu")
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == program.prints.splitlines()


TEMPLATE = """
template <typename... A> __device__ void __enzyme_autodiff(A...);
__device__ void f(double *x) { *x = *x * *x; }
"""
BEHIND = """
    template <typename... A> __device__ void *__enzyme_augmentfwd(A...);
    __device__ void f(double *x) { double v = *x * *x; *x = sin(v) * x[1]; }
"""
REFUSED = {
    "nothing in it asks": "__global__ void k(double *x) { x[0] = 1; }",
    "no function that the program uses asks": TEMPLATE
    + "template <int n> __global__ void k(double *x, double *d) { __enzyme_autodiff(f, x + n, d); }"
    + "__global__ void g(double *x, double *d) { __enzyme_autodiff(f, x, d); }",
    "makes strings of its arguments": TEMPLATE
    + "#define WANT(x) __enzyme_autodiff(f, x, d, #x)\n__global__ void k(double *x, double *d) { WANT(x); }",
    "use of undeclared identifier 'd_x'": """
        #include "clad/Differentiator/Differentiator.h"
        __device__ double fn(double *a) { return *a * *a; }
        __global__ void compute(double *d_a, double *d_result) {
            auto fn_grad = clad::gradient(fn, "a");
            fn_grad.execute(d_x, d_result);
        }
    """,
    "assigning to 'double' from incompatible type 'void": BEHIND
    + "__global__ void k(double *x, double *d, double *t) { *t = ASK; }",
    "gradients alone can be transpiled": """
        template <typename... A> double __enzyme_fwddiff(A...);
        __global__ void k(double *x) { x[0] *= x[0]; }
        double run(double v) { double *x; cudaMalloc(&x, 8); k<<<1, 1>>>(x); return v; }
        int main() { return __enzyme_fwddiff(run, 1.0, 1.0); }
    """,
    "a static variable of a function": """
        template <typename... A> void __enzyme_autodiff(A...);
        double start() { return 2; }
        void run(double *x) { static double w = start(); double *m; cudaMalloc(&m, 8); w += *x; *x = w; cudaFree(m); }
        int main() { double *x = nullptr, *d = nullptr; __enzyme_autodiff(run, x, d); }
    """,
    "a variable without derivatives that a kernel writes": """
        template <typename... A> void __enzyme_autodiff(A...);
        __device__ int n;
        __global__ void k(double *x) { n = 2; x[0] *= x[0]; }
        void run(double *x) { k<<<1, 1>>>(x); }
        int main() { double *x = nullptr, *d = nullptr; __enzyme_autodiff(run, x, d); }
    """,
    "it uses what an atomic returns": """
        template <typename... A> void __enzyme_autodiff(A...);
        int enzyme_const;
        __global__ void k(double *y, const double *x, int *slots) { y[atomicAdd(slots, 1)] = x[threadIdx.x]; }
        void run(double *y, double *x, int *slots) { k<<<1, 32>>>(y, x, slots); }
        int main() { double *x = nullptr; int *s = nullptr; __enzyme_autodiff(run, x, x, x, x, enzyme_const, s); }
    """,
    "'cudaMemGetInfo' in a host function": """
        template <typename... A> void __enzyme_autodiff(A...);
        void run(double *x, double *y) {
            size_t unused, all;
            cudaMemGetInfo(&unused, &all);
            *y = *x * (all > 0);
        }
        int main() { double *x = nullptr; __enzyme_autodiff(run, x, x, x, x); }
    """,
    "needs 16 bytes, and has 8": """
        template <typename... A> __device__ double __enzyme_augmentfwd(A...);
        __device__ int enzyme_allocated;
        __device__ void f(double *x) { double v = *x * *x; *x = sin(v) * x[1]; }
        __global__ void k(double *x, double *d, double *t) {
            *t = __enzyme_augmentfwd(f, enzyme_allocated, sizeof(double), x, d);
        }
    """,
    "none of them is visible here": BEHIND + "__global__ void k(double *x, double *d, void **t) { *t = ASK; }",
    "what is launched by this is not visible": BEHIND
    + """
        __global__ void k(double *x, double *d, void **t) { *t = ASK; }
        int main() { k<<<1, 1>>>(nullptr, nullptr, nullptr); cudaLaunchKernel(k, 1, 1, nullptr, 0, 0); }
    """,
    "whose size is not known": """
        #include "clad/Differentiator/Differentiator.h"
        __global__ void k(double *y, const double *x, double *tmp, int n) {
            tmp[0] = x[0] * x[0]; tmp[n] = 1; y[0] = tmp[0] * 2;
        }
        int main() {
            double *m = nullptr;
            auto g = clad::gradient(k, "y, x");
            g.execute_kernel(dim3(1), dim3(1), m, m + 1, m + 2, 1, m + 4, m + 5);
        }
    """,
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    with pytest.raises(KernelGradError, match=problem) as error:
        transpiled(kg.compile(REFUSED[problem].replace("ASK;", "__enzyme_augmentfwd(f, x, d);"), name="refused.cu"))
    assert "refused.cu" in str(error.value)


def test_spaces_of_web_pages_become_plain_ones() -> None:
    """clang takes them for spaces, nvcc for letters; what is quoted stays."""
    text = TEMPLATE + "__global__ void k(double *x, double *d) {\N{NO-BREAK SPACE}__enzyme_autodiff(f, x, d); }\n"
    text += 'const char *name = "a\N{NO-BREAK SPACE}b";\n'
    written = transpiled(kg.compile(text, name="page.cu"))
    assert "(double *x, double *d) { " in written and '"a\N{NO-BREAK SPACE}b"' in written


MACROS = r"""
#include <cstdio>
#define R 2
#define T 3
#define N 4
#define check(e) (e)
template <typename... A> void __enzyme_autodiff(A...);
extern int enzyme_const;
__global__ void powers(double *x, int n) {
    int i = threadIdx.x;
    double s = x[i % N];
    for (int k = 0; k < n; k++) s *= x[i];
    if (i < N) x[i] = s * R;
}
void run(double *x, int n) {
    double *d;
    check(cudaMalloc(&d, N * sizeof(double)));
    check(cudaMemcpy(d, x, N * sizeof(double), cudaMemcpyHostToDevice));
    for (int t = 0; t < T; t++) powers<<<1, N>>>(d, n);
    check(cudaMemcpy(x, d, N * sizeof(double), cudaMemcpyDeviceToHost));
    cudaFree(d);
}
int main() {
    double x[N] = {0.1, 0.2, 0.3, 0.4}, dx[N] = {1, 1, 1, R};
    __enzyme_autodiff((void *)run, x, dx, enzyme_const, 1);
    for (int i = 0; i < N; i++) printf("%g %g\n", x[i], dx[i]);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_macros_that_are_called_as_what_is_generated(capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(MACROS)["main"](device="cpu")
    assert run_program(transpiled(kg.compile(MACROS))) == capsys.readouterr().out
