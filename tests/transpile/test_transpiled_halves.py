"""The two halves of a reverse of host functions that launch and allocate, transpiled."""

from __future__ import annotations

import shutil
from pathlib import Path
from subprocess import CalledProcessError

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.program import transpiled

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")

HALVES = r"""
#include <cstdio>
#include <cstdlib>
int enzyme_dup, enzyme_const, enzyme_out;
template <typename R = void *, typename... A> R __enzyme_augmentfwd(void *, A...);
template <typename R = void, typename... A> R __enzyme_reverse(void *, A...);
__global__ void step(double *y, const double *x, double a) { y[threadIdx.x] = a * x[threadIdx.x] * x[threadIdx.x]; }
double steps(double *x, double a, int n, int times) {
    double *y, sum = 0;
    cudaMalloc(&y, n * sizeof(double));
    for (int t = 0; t < times; t++) {
        step<<<1, n>>>(y, x, a);
        cudaMemcpy(x, y, n * sizeof(double), cudaMemcpyDeviceToDevice);
    }
    cudaMemcpy(&sum, y, sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(y);
    return sum;
}
void scaled(float *out, const float *in, int n) {
    float *a, *b;
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, n * sizeof(float));
    cudaMemcpy(a, in, n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(b, a, n * sizeof(float), cudaMemcpyDeviceToDevice);
    cudaMemcpy(out, b, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(a);
    cudaFree(b);
}
int main() {
    const int n = 2;
    double host[n] = {0.9, 1.1}, shadow[n] = {1.0, 2.0}, *x, *dx;
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&dx, sizeof host);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, shadow, sizeof host, cudaMemcpyHostToDevice);
    void *tape = __enzyme_augmentfwd((void *)steps, enzyme_dup, x, dx, enzyme_out, 1.5, n, 2);
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    printf("%.9g %.9g\n", host[0], host[1]);
    void *other = __enzyme_augmentfwd((void *)steps, enzyme_dup, x, dx, enzyme_out, 1.5, n, 2);
    cudaMemset(x, 0, sizeof host);
    double slope = __enzyme_reverse<double>((void *)steps, enzyme_dup, x, dx, enzyme_out, 1.5, n, 2, 10.0, tape);
    cudaMemcpy(shadow, dx, sizeof host, cudaMemcpyDeviceToHost);
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    printf("%.9g %.9g %.9g %.9g %.9g\n", slope, shadow[0], shadow[1], host[0], host[1]);
    slope = __enzyme_reverse<double>((void *)steps, enzyme_dup, x, dx, enzyme_out, 1.5, n, 2, 0.0, other);
    cudaMemcpy(shadow, dx, sizeof host, cudaMemcpyDeviceToHost);
    printf("%.9g %.9g %.9g\n", slope, shadow[0], shadow[1]);
    float in[3] = {1, 2, 3}, din[3] = {0, 0, 0}, out[3], dout[3] = {3, 4, 5};
    tape = __enzyme_augmentfwd((void *)scaled, out, dout, in, din, 3);
    in[1] = 7;
    __enzyme_reverse((void *)scaled, out, dout, in, din, 3, tape);
    printf("%g %g %g %g %g\n", out[1], in[1], din[0], din[1], dout[2]);
}
"""


@needs_gxx
def test_prints_what_python_does(capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(HALVES, name="halves.cu")["main"](device="cpu")
    wanted = capsys.readouterr().out
    assert run_program(transpiled(kg.compile(HALVES, name="halves.cu"))) == wanted
    assert wanted.splitlines()[1] == "68.480775 108.2565 35.937 0 0"
    assert wanted.splitlines()[3] == "2 7 3 4 0"


@pytest.mark.slow
@needs_nvcc
def test_nvcc_builds_it(tmp_path: Path) -> None:
    text = transpiled(kg.compile(HALVES, name="halves.cu"))
    assert build(text, tmp_path / "halves", "-arch=sm_90", "-Werror=all-warnings").exists()


def test_tapes_in_place_are_refused_at_the_line() -> None:
    text = HALVES.replace("enzyme_out;", "enzyme_out, enzyme_allocated;").replace("typename R = void *", "typename R")
    text = text.replace("tape = __enzyme_augmentfwd((void *)scaled,",
                        "tape = (void *)__enzyme_augmentfwd<long>((void *)scaled, enzyme_allocated, 8,")  # fmt: skip
    text = text.replace("__enzyme_augmentfwd((void *)steps", "__enzyme_augmentfwd<void *>((void *)steps")
    with pytest.raises(KernelGradError, match="enzyme_allocated is not supported") as caught:
        transpiled(kg.compile(text, name="halves.cu"))
    assert "halves.cu:49:" in str(caught.value)


@needs_gxx
def test_memory_that_may_change_unseen_is_an_error_of_the_program() -> None:
    text = HALVES.replace(
        "    float *a, *b;\n", "    float *a, *b; for (int i = 0; i < n; i++) out[i] = in[i] * in[i];\n"
    )
    with pytest.raises(CalledProcessError) as caught:
        run_program(transpiled(kg.compile(text, name="halves.cu")))
    assert "whose size is not known" in caught.value.stderr
