"""Augmented passes whose tapes have no constant size or number, transpiled: in an arena that launches provide; on the
host, in memory that grows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.program import transpiled

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")

CHAIN = r"""
#include <cstdio>
#include <cmath>
extern int enzyme_const;
template <typename... Args> __device__ void *__enzyme_augmentfwd(Args...);
template <typename... Args> __device__ double __enzyme_reverse(Args...);
__device__ double chain(double x, const double *w, int n) {
    for (int k = 0; k < n; k++) x = sin(x) * w[0];
    return x;
}
__device__ double square(double x, const double *w, int n) { return n * w[0] * sin(x) * exp(x * x); }
__device__ void *made(double x, double *w, double *dw, int n) { return __enzyme_augmentfwd(chain, x, w, dw, n); }
__global__ void forward(const double *x, double *w, double *dw, void **tape, const int *n) {
    int i = threadIdx.x;
    tape[i] = made(x[i], w, dw, n[i]);
}
__global__ void backward(const double *x, double *w, double *dw, void **tape, const int *n, double *dx, double seed) {
    int i = threadIdx.x;
    dx[i] = __enzyme_reverse(chain, x[i], w, dw, n[i], seed, tape[i]);
}
__global__ void both(const double *x, double *w, double *dw, void **tape, int n, double *dx, int *visits) {
    int i = threadIdx.x;
    atomicAdd(visits, 1);
    for (int k = 0; k < n; k++) tape[i * n + k] = made(x[i] + k, w, dw, k);
    for (int k = 0; k < n; k++) dx[i] += __enzyme_reverse(chain, x[i] + k, w, dw, k, 1.0, tape[i * n + k]);
    for (int k = 0; k < n; k++) tape[i * n + k] = __enzyme_augmentfwd(square, x[i], w, dw, k);
    for (int k = 0; k < n; k++) dx[i] += __enzyme_reverse(square, x[i], w, dw, k, 1.0, tape[i * n + k]);
}
int main() {
    const int count = 4, steps = 40;
    double *x, *w, *dw, *dx;
    void **tape;
    int *n;
    cudaMallocManaged(&x, count * sizeof(double));
    cudaMallocManaged(&dx, count * sizeof(double));
    cudaMallocManaged(&w, sizeof(double));
    cudaMallocManaged(&dw, sizeof(double));
    cudaMallocManaged(&tape, count * steps * sizeof(void *));
    cudaMallocManaged(&n, count * sizeof(int));
    w[0] = 1.2;
    dw[0] = 0;
    int lengths[count] = {0, 3, 7, 300};
    for (int i = 0; i < count; i++) { x[i] = 0.1 + 0.25 * i; n[i] = lengths[i]; dx[i] = 0; }
    forward<<<1, count>>>(x, w, dw, tape, n);
    cudaDeviceSynchronize();
    w[0] = 50;
    backward<<<1, count>>>(x, w, dw, tape, n, dx, 2.0);
    cudaDeviceSynchronize();
    for (int i = 0; i < count; i++) { printf("%.9g ", dx[i]); dx[i] = 0; }
    printf("%.9g\n", dw[0]);
    w[0] = 1.2;
    dw[0] = 0;
    n[0] = 3, n[1] = 5, n[2] = 0, n[3] = 0;
    forward<<<1, 2>>>(x, w, dw, tape, n);
    for (int k = 0; k < 3; k++) backward<<<1, 1>>>(x, w, dw, tape, n, dx, 1.0);
    backward<<<1, 1>>>(x + 1, w, dw, tape + 1, n + 1, dx + 1, 1.0);
    cudaDeviceSynchronize();
    printf("%.9g %.9g %.9g\n", dx[0], dx[1], dw[0]);
    dx[0] = dx[1] = dw[0] = 0;
    n[0] = 0;
    both<<<1, count>>>(x, w, dw, tape, steps, dx, n);
    cudaDeviceSynchronize();
    for (int i = 0; i < count; i++) printf("%.9g ", dx[i]);
    printf("%.9g %d\n", dw[0], n[0]);
}
"""
HOST = r"""
#include <cstdio>
#include <cmath>
template <typename... Args> void *__enzyme_augmentfwd(Args...);
template <typename... Args> double __enzyme_reverse(Args...);
double chain(double x, const double *w, int n) {
    for (int k = 0; k < n; k++) x = k % 3 == 2 ? sin(x) * w[0] : x + 0.1f * x * x;
    return x;
}
int main() {
    double w = 1.2, dw = 0;
    void *tapes[5];
    for (int k = 0; k < 5; k++) tapes[k] = __enzyme_augmentfwd(chain, 0.3 * k, &w, &dw, 40 * k);
    w = 70;
    for (int k = 0; k < 5; k++) {
        double dx = __enzyme_reverse(chain, 0.3 * k, &w, &dw, 40 * k, 2.0, tapes[k]);
        printf("%.9g %.9g\n", dx, dw);
    }
}
"""


@needs_gxx
@pytest.mark.parametrize(("text", "lines"), [(CHAIN, 3), (HOST, 5)], ids=["kernels", "host"])
def test_prints_what_python_does(text: str, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(text, name="tapes.cu")["main"](device="cpu")
    wanted = capsys.readouterr().out
    assert run_program(transpiled(kg.compile(text, name="tapes.cu"))) == wanted
    assert len(wanted.splitlines()) == lines


def test_launches_pass_the_arena_on() -> None:
    text = transpiled(kg.compile(CHAIN, name="tapes.cu"))
    assert "kg::launch_with_tapes(forward, 1, count, 0, nullptr, 0, x, w, dw, tape, n);" in text
    assert "backward<<<1, count>>>(x, w, dw, tape, n, dx, 2.0);" in text


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("text", [CHAIN, HOST], ids=["kernels", "host"])
def test_nvcc_builds_it(text: str, tmp_path: Path) -> None:
    text = transpiled(kg.compile(text, name="tapes.cu"))
    assert build(text, tmp_path / "tapes", "-arch=sm_90", "-Werror=all-warnings").exists()


REFUSED = {
    "not visible": ("forward<<<1, count>>>(x, w, dw, tape, n);", "auto kernel = forward;", 44),
    "'forward' casts const away": ("tape[i] = made(", "*(double *)x += 1; tape[i] = made(", 44),
    "uses the variable 'seen'": ("tape[i] = made(", "seen = i; tape[i] = made(", 44),
}


HIDDEN = {
    "method": ("struct B { int n; __device__ void visit() { seen = n; } };", "B b; b.visit();"),
    "constructor": ("struct B { __device__ B(int n) { seen = n; } };", "B b(i);"),
    "destructor of a part": ("struct A { int n; __device__ ~A() { seen = n; } }; struct B { A a; };", "B b{i};"),
    "template": (
        "template <typename T> struct B { __device__ void visit(T n) { seen = n; } };",
        "B<int> b; b.visit(i);",
    ),
    "static": ("__device__ void visit(int n) { static int seen; seen = n; }", "visit(i);"),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_variables_are_found_where_they_are_used(how: str) -> None:
    defined, used = HIDDEN[how]
    text = CHAIN.replace("extern int enzyme_const;", f"__device__ int seen; {defined}")
    text = text.replace("    tape[i] = made(", f"    {used} tape[i] = made(")
    with pytest.raises(KernelGradError, match="uses the variable 'seen'") as caught:
        transpiled(kg.compile(text, name="tapes.cu"))
    assert "tapes.cu:44:" in str(caught.value)


@pytest.mark.parametrize("problem", REFUSED)
def test_refused_at_the_line(problem: str) -> None:
    old, new, line = REFUSED[problem]
    text = CHAIN.replace(old, new).replace("extern int enzyme_const;", "__device__ int seen;")
    with pytest.raises(KernelGradError, match=problem) as caught:
        transpiled(kg.compile(text, name="tapes.cu"))
    assert f"tapes.cu:{line}:" in str(caught.value)
