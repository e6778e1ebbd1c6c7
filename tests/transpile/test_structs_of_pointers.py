"""Host functions that pass structs of pointers to kernels, transpiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.errors import KernelGradError
from kernelgrad.transpile.program import transpiled
from programs_to_transpile import SHARED, STRUCTS

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@needs_gxx
def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(STRUCTS, name="structs.cu")["main"](device="cpu")
    wanted = capsys.readouterr().out
    assert run_program(transpiled(kg.compile(STRUCTS, name="structs.cu"))) == wanted
    assert [line.split()[1] for line in wanted.splitlines()] == ["0"] * 4


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize("program", [STRUCTS, SHARED])
def test_nvcc_builds_it(program: str, tmp_path: Path) -> None:
    text = transpiled(kg.compile(program, name="structs.cu"))
    assert build(text, tmp_path / "structs", "-arch=sm_90", "-Werror=all-warnings").exists()


@needs_gxx
def test_each_launch_is_told_by_its_line() -> None:
    """Also where the same kernel is launched before."""
    source = STRUCTS.replace(
        "    double moved[5];", "    f.of.v = f.of.u;\n    step<<<1, 4>>>(f, 0.5);\n    double moved[5];"
    )
    line = next(k for k, text in enumerate(source.splitlines(), 1) if "(f, 0.5)" in text)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_program(transpiled(kg.compile(source, name="structs.cu")))
    assert f"structs.cu:{line}:5: arguments share memory that is written" in caught.value.stderr


def test_what_a_library_launches_is_refused_at_its_line() -> None:
    text = """
    #include <thrust/device_vector.h>
    #include <thrust/reduce.h>
    template <typename... A> void __enzyme_autodiff(A...);
    void run(double *out, double *x, int n) {
        thrust::device_vector<double> v(x, x + n);
        out[0] = thrust::reduce(v.begin(), v.end());
    }
    int main() { double x[2] = {}, d[2] = {}; __enzyme_autodiff(run, x, d, x, d, 2); }
    """
    with pytest.raises(KernelGradError, match="cannot be transpiled") as caught:
        transpiled(kg.compile(text, name="thrust.cu"))
    assert "thrust.cu:" in str(caught.value)


@needs_gxx
def test_arguments_that_are_the_same_memory() -> None:
    printed = run_program(transpiled(kg.compile(SHARED, name="shared.cu")))
    wanted = [(x**32, 0, 32 * x**31 * seed) for x, seed in ((1.5, 1), (-1, 2), (1.25, -1))]
    assert printed.splitlines() == [" ".join(f"{v:.10g}" for v in line) for line in wanted]
