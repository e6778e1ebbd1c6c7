"""Variables of the program that start by code, in host functions that are differentiated, transpiled."""

from __future__ import annotations

import shutil
from subprocess import CalledProcessError

import pytest
from run_host import run_program

import kernelgrad as kg
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.program import transpiled

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

STARTED = r"""
#include <cstdio>
#include <vector>
#include <cstdlib>
template <typename... A> void __enzyme_autodiff(A...);
static float *make_table() {
    float *t = (float *)malloc(4 * sizeof(float));
    for (int i = 0; i < 4; i++) t[i] = 1.0f + i;
    return t;
}
static float *table = make_table();
std::vector<float> w(4, 2.f);
static float scale = table[2] * 2;
static int count = 2 + 2;
__global__ void k(float *y, const float *x, const float *t, float s) {
    int i = threadIdx.x;
    y[i] = s * t[i] * x[i] * x[i];
}
void f(float *y, const float *x, int n) {
    float *t;
    cudaMalloc(&t, n * sizeof(float));
    float sums[4];
    for (int i = 0; i < n; i++) sums[i] = table[i] + w[i];
    cudaMemcpy(t, sums, n * sizeof(float), cudaMemcpyHostToDevice);
    k<<<1, n>>>(y, x, t, scale);
    cudaFree(t);
}
int main() {
    float *x, *y, *dx, *dy;
    cudaMallocManaged(&x, 16); cudaMallocManaged(&y, 16); cudaMallocManaged(&dx, 16); cudaMallocManaged(&dy, 16);
    for (int i = 0; i < 4; i++) x[i] = i + 1, dx[i] = 0, dy[i] = 1;
    __enzyme_autodiff(f, y, dy, x, dx, count);
    cudaDeviceSynchronize();
    for (int i = 0; i < 4; i++) printf("%g %g\n", y[i], dx[i]);
}
"""


@needs_gxx
def test_they_have_their_first_values_once() -> None:
    printed = run_program(transpiled(kg.compile(STARTED, name="started.cu")))
    scale = 6.0
    table = [1.0 + i + 2.0 for i in range(4)]
    wanted = [(scale * t * x * x, 2 * scale * t * x) for t, x in zip(table, (1, 2, 3, 4), strict=True)]
    assert printed == "".join(f"{y:g} {d:g}\n" for y, d in wanted)


@needs_gxx
def test_a_vector_that_gets_another_size_is_an_error_of_the_program() -> None:
    text = STARTED.replace("    float *t;\n    cudaMalloc", "    float *t; w.push_back(1.f);\n    cudaMalloc")
    with pytest.raises(CalledProcessError) as caught:
        run_program(transpiled(kg.compile(text, name="started.cu")))
    assert "gives a vector of the program another size" in caught.value.stderr


@needs_gxx
def test_memory_of_the_host_behind_variables_is_not_written() -> None:
    text = STARTED.replace("sums[i] = table[i]", "sums[i] = table[i] = table[i]")
    with pytest.raises(CalledProcessError) as caught:
        run_program(transpiled(kg.compile(text, name="started.cu")))
    assert "values go through memory of the host that has no adjoint" in caught.value.stderr


@needs_gxx
def test_memory_of_the_device_behind_variables() -> None:
    text = STARTED.replace(
        "static float *table = make_table();", "static float *table = make_table(), *buffer, *other;"
    )
    text = text.replace("    cudaMalloc(&t, n * sizeof(float));", "    t = buffer;").replace("    cudaFree(t);\n", "")
    text = text.replace("int main() {", "int main() {\n    cudaMalloc(&buffer, 16);")
    assert run_program(transpiled(kg.compile(text, name="started.cu"))).splitlines()[0] == "18 36"


def test_classes_of_the_library_that_are_others_are_refused_at_the_line() -> None:
    text = STARTED.replace(
        "std::vector<float> w(4, 2.f);", "std::vector<std::vector<float>> w(4, std::vector<float>(1));"
    )
    text = text.replace("+ w[i];", "+ w[i][0];")
    with pytest.raises(KernelGradError, match="'w', a variable of type std::vector<") as caught:
        transpiled(kg.compile(text, name="started.cu"))
    assert "started.cu:23:" in str(caught.value)
