"""Programs that ask for derivatives by integers, transpiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from run_host import call_host, dim3, run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.derivative_file import derivative_file
from kernelgrad.transpile.program import transpiled
from programs_to_transpile import INTEGERS

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")
TEXT = r"""
#include "clad/Differentiator/Differentiator.h"
#include <stdio.h>
#define N INTEGER
__global__ void square(N *a) { *a *= *a; }
__global__ void sums(N *out, N *in, int n) {
    int index = threadIdx.x;
    if (index < n) {
        N sum = 0;
        for (int i = index; i < n; i += warpSize) sum += 2 * in[i] - 1;
        out[index] = sum;
    }
}
__global__ void scaled(unsigned *out, unsigned *in) { atomicAdd(out, in[threadIdx.x] * in[0]); }
void by_host(N *out, N *in, int n) {
    N sum = 0;
    for (int i = 0; i < n; i++) sum = sum * in[i] + in[i];
    out[0] += sum;
}
void show(N *values) {
    for (int i = 0; i < 4; i++) printf("%d ", (int)values[i]);
    printf("\n");
}
int blocks = 1;
N other[4];
int main() {
    N *a, *b, *da, *db, host[4], values[4] = {5, 3, 2, 4}, ones[4] = {1, 1, 1, 1};
    for (N **p : {&a, &b, &da, &db}) cudaMalloc(p, sizeof host);
    cudaMemcpy(a, values, sizeof host, cudaMemcpyHostToDevice);
    cudaMemcpy(b, values, sizeof host, cudaMemcpyHostToDevice);
    cudaMemcpy(da, ones, sizeof host, cudaMemcpyHostToDevice);
    cudaMemset(db, 0, sizeof host);
    CALL;
    cudaMemcpy(host, a, sizeof host, cudaMemcpyDeviceToHost);
    show(host);
    cudaMemcpy(host, da, sizeof host, cudaMemcpyDeviceToHost);
    show(host);
    cudaMemcpy(host, db, sizeof host, cudaMemcpyDeviceToHost);
    show(host);
}
"""
CALLS = {
    "square": ("int", "clad::gradient(square).execute_kernel(1, 1, a, da)", "25 3 2 4\n10 1 1 1\n0 0 0 0\n"),
    "sums": ("int", 'clad::gradient(sums, "out, in").execute_kernel(dim3(1), dim3(4), a, b, 4, da, db)',
             "9 5 3 7\n0 0 0 0\n2 2 2 2\n"),
    "any grid": ("long long", 'clad::gradient(sums, "out, in").execute_kernel(blocks, 4, a, b, 4, da, db)',
                 "9 5 3 7\n0 0 0 0\n2 2 2 2\n"),
    "atomics": ("unsigned", 'clad::gradient(scaled, "out, in").execute_kernel(blocks, 4, a, b, da, db)',
                "75 3 2 4\n1 1 1 1\n19 5 5 5\n"),
    "on the host": ("int", 'clad::gradient(by_host, "out, in").execute(values, ones, 3, host, other); show(values);'
                    "show(host); show(other)", "8 3 2 4\n1 0 0 0\n1 2 3 0\n5 3 2 4\n1 1 1 1\n0 0 0 0\n"),
}  # fmt: skip


def program(name: str) -> str:
    type, call, _ = CALLS[name]
    call = call.replace("clad::gradient(by_host", "host[0] = 1; for (int i = 1; i < 4; i++) host[i] = 0;"
                        "clad::gradient(by_host", 1)  # fmt: skip
    return TEXT.replace("INTEGER", type).replace("CALL", call)


def lines(printed: str) -> list[str]:
    return [line.strip() for line in printed.splitlines()]


@needs_gxx
@pytest.mark.parametrize("name", CALLS)
def test_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = CALLS[name][2].splitlines()
    assert lines(run_program(transpiled(kg.compile(program(name), name="integers.cu")))) == wanted
    kg.compile(program(name), name="integers.cu")["main"](device="cpu")
    assert lines(capsys.readouterr().out) == wanted


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("name", CALLS)
def test_nvcc_builds_it(name: str, tmp_path: Path) -> None:
    text = transpiled(kg.compile(program(name), name="integers.cu"))
    assert build(text, tmp_path / "integers", "-arch=sm_90", "-Werror=all-warnings").exists()


@needs_gxx
def test_a_number_that_does_not_fit_ends_the_program() -> None:
    text = transpiled(kg.compile(program("square").replace("{5, 3", "{1 << 17, 3"), name="integers.cu"))
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_program(text)
    assert "past what its type holds" in caught.value.stderr


@needs_gxx
@pytest.mark.parametrize("grid", [1, 3])
def test_a_file_of_its_own(grid: int) -> None:
    """`kernelgrad diff`."""
    source = "__global__ void k(int *y, const int *x) { int i = blockIdx.x * 4 + threadIdx.x; y[i] = x[i] * x[0]; }"
    gradient = kg.gradient(kg.compile(source)["k"], "y, x")
    x = np.arange(2, 2 + 4 * grid, dtype=np.int32)
    y, d_y, d_x = np.zeros_like(x), np.ones_like(x), np.zeros_like(x)
    launch = [dim3(grid, 1, 1), dim3(4, 1, 1), np.uint64(0), np.uint64(0)]
    assert call_host(derivative_file(gradient), "launch_k_grad", [*launch, y, x, d_y, d_x]) == 0
    assert y.tolist() == (x * 2).tolist() and d_y.tolist() == [0] * len(x)
    assert d_x.tolist() == [int(x.sum()) + 2, *[2] * (len(x) - 1)]


REFUSED = {
    "more than added, subtracted and multiplied": "__global__ void k(int *a) { *a /= 2; }",
    "integers of 16 bits": "__global__ void k(short *a) { a[1] = a[0]; }",
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    text = f'#include "clad/Differentiator/Differentiator.h"\n{REFUSED[problem]}\n'
    text += f"int main() {{ {'short' if 'short' in text else 'int'} *a = nullptr;\n"
    text += "clad::gradient(k).execute_kernel(1, 1, a, a + 1); }"
    with pytest.raises(KernelGradError, match=problem) as caught:
        transpiled(kg.compile(text, name="refused.cu"))
    assert "refused.cu:2" in str(caught.value) and "use float" in str(caught.value)


@needs_gxx
@pytest.mark.parametrize("line", ["", "out[2] = 5;", "cudaMemset(b, 0, 4);"])
def test_host_functions_that_launch(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = INTEGERS.replace("LINE", line)
    kg.compile(text, name="integers.cu")["main"](device="cpu")
    wanted = capsys.readouterr().out
    assert run_program(transpiled(kg.compile(text, name="integers.cu"))) == wanted and wanted.count("\n") == 4


@needs_nvcc
@pytest.mark.slow
def test_nvcc_builds_host_functions(tmp_path: Path) -> None:
    text = transpiled(kg.compile(INTEGERS.replace("LINE", ""), name="integers.cu"))
    assert build(text, tmp_path / "integers", "-arch=sm_90", "-Werror=all-warnings").exists()


@needs_gxx
@pytest.mark.parametrize(
    "line",
    [
        "if (in[0] > 1) out[0] = 2;",
        "out[0] = out[1] + in[0];",
        "counted<<<1, 8>>>(a, in[1]);",
        "picked<<<1, 8>>>(b, at, a, n);",
    ],
)
def test_more_than_kernels_do_ends_the_program(line: str) -> None:
    """Told at the line where it happens."""
    source = INTEGERS.replace("LINE", line)
    number = 1 + [text.strip() for text in source.splitlines()].index(line)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_program(transpiled(kg.compile(source, name="integers.cu")))
    assert f"integers.cu:{number}:" in caught.value.stderr and "use float" in caught.value.stderr
