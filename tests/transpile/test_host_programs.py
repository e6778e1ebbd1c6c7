"""Host programs as different people write them: run from Python, transpiled for the emulation, and built by nvcc."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from host_programs import NAMES, TRANSPILED, check, host_program
from kernelgrad.errors import UnsupportedError
from kernelgrad.programs.staging import Staging
from kernelgrad.transpile.program import transpiled

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


def mostly_slow(names: list[str], *quick: str) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", mostly_slow(NAMES, "files"))
def test_from_python(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(host_program(name, tmp_path), name=f"{name}.cu")["main"](device="cpu")
    check(capsys.readouterr().out)


@needs_gxx
@pytest.mark.parametrize("name", mostly_slow(TRANSPILED, "files"))
def test_transpiled(name: str, tmp_path: Path) -> None:
    check(run_program(transpiled(kg.compile(host_program(name, tmp_path), name=f"{name}.cu"))))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSPILED)
def test_nvcc_builds_it(name: str, tmp_path: Path) -> None:
    text = transpiled(kg.compile(host_program(name, tmp_path), name=f"{name}.cu"))
    assert build(text, tmp_path / name, "-arch=sm_90", "-Werror=all-warnings").exists()


def test_kernels_get_twins_of_memory_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a GPU."""
    monkeypatch.setattr(Staging, "concerns", lambda _, found: found.kind == "managed")
    kg.compile(host_program("managed_mixed", tmp_path))["main"](device="cpu")
    check(capsys.readouterr().out)


THRUST = """#include "clad/Differentiator/Differentiator.h"
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
double inside(double *x) { thrust::device_vector<double> a(x, x + 3); return thrust::reduce(a.begin(), a.end()); }
double given(const thrust::device_vector<double> &x) { return thrust::reduce(x.begin(), x.end()); }
"""


@pytest.mark.parametrize(
    "main, line, problem",
    [
        ("double x[3], d[3]; auto g = clad::gradient(inside); g.execute(x, d);", 4, "a kernel of thrust, in a host"),
        (
            "thrust::device_vector<double> x(3), d(3);\nauto g = clad::gradient(given); g.execute(x, &d);",
            7,
            "'x' leads to",
        ),
    ],
)
def test_thrust_is_refused(main: str, line: int, problem: str) -> None:
    with pytest.raises(UnsupportedError, match=f"kernel.cu:{line}:.*{problem}") as told:
        transpiled(kg.compile(f"{THRUST}int main() {{ {main} }}\n"))
    assert "from Python" in str(told.value)


GLOBAL = r"""#include "clad/Differentiator/Differentiator.h"
#include <stdio.h>
#include <stdlib.h>
double *held;
struct Range { int first, count; };
Range range;
__global__ void square(double *x) { x[threadIdx.x] *= x[threadIdx.x]; }
void products(const double *x, double *out, int n) {
    double *d;
    cudaMalloc(&d, n * sizeof(double));
    cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
    square<<<1, n>>>(d);
    held = (double *)malloc(n * sizeof(double));
    range.first = 1;
    range.count = n;
    cudaMemcpy(held, d, n * sizeof(double), cudaMemcpyDeviceToHost);
    for (int i = range.first; i < range.count; i++) held[i] = held[i] * held[i - 1];
    for (int i = 0; i < n; i++) out[i] = held[i];
    cudaFree(d);
    free(held);
}
int main() {
    double x[3] = {1.5, 2, 3}, out[3] = {}, d_x[3] = {}, d_out[3] = {1, 1, 1};
    auto g = clad::gradient(products, "x, out");
    g.execute(x, out, 3, d_x, d_out);
    printf("%g %g %g %g\n", out[2], d_x[0], d_x[1], d_x[2]);
}
"""


@needs_gxx
def test_variables_of_the_host_that_lead_to_memory_or_are_structs() -> None:
    assert run_program(transpiled(kg.compile(GLOBAL))) == "81 123 90 54\n"
