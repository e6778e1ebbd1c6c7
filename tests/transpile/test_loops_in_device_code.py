"""Derivatives in device code that keep values of every iteration of a loop, transpiled: launches provide memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.program import transpiled
from programs_to_transpile import LOOPS

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


@needs_gxx
def test_prints_what_python_does(capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(LOOPS, name="loops.cu")["main"](device="cpu")
    wanted = capsys.readouterr().out
    text = transpiled(kg.compile(LOOPS, name="loops.cu"))
    assert "kg::launch_with_stacks(run, 2, 2, 0, nullptr, X, D, W, DW, S, DS, count())" in text
    printed = run_program(text)
    assert printed == wanted and len(printed.splitlines()) == 9 and printed.splitlines()[4].endswith(" 1")


@pytest.mark.slow
@needs_nvcc
def test_nvcc_builds_it(tmp_path: Path) -> None:
    text = transpiled(kg.compile(LOOPS, name="loops.cu"))
    assert build(text, tmp_path / "loops", "-arch=sm_90", "-Werror=all-warnings").exists()


HEAD = """
template <typename... A> __device__ void __enzyme_autodiff(A...);
__device__ void f(double *x, int n) { for (int k = 0; k < n; k++) *x = sin(*x); }
"""
REFUSED = {
    "its launches provide memory: not visible here": "__global__ void k(double *x, double *d, int n) { ASK }",
    "uses the variable 'w'": "__device__ int w; __global__ void k(double *x, double *d, int n) { ASK w = 2; }"
    "int main() { k<<<1, 1>>>(nullptr, nullptr, 1); }",
    "'m' leads to pointers": "__global__ void k(double *x, double *d, int n, int **m) { ASK }"
    "int main() { k<<<1, 1>>>(nullptr, nullptr, 1, nullptr); }",
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    text = HEAD + REFUSED[problem].replace("ASK", "__enzyme_autodiff(f, x, d, n);")
    with pytest.raises(KernelGradError, match=problem) as caught:
        transpiled(kg.compile(text, name="refused.cu"))
    assert "refused.cu" in str(caught.value)
