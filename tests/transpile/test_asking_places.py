"""Derivatives asked for in members, templates, functions for both sides and macros, transpiled."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from asking_places import HEAD, PLACES, REFUSED
from find_nvcc import build, nvcc
from kernelgrad.transpile.call_text import argument_ranges, launch_text
from kernelgrad.transpile.program import transpiled

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


@cache
def written(name: str) -> str:
    return transpiled(kg.compile(PLACES[name], name="places.cu"))


def compared(printed: str) -> list[tuple[float, float]]:
    return [(float(found), float(wanted)) for found, wanted in map(str.split, printed.splitlines())]


@needs_gxx
@pytest.mark.parametrize("name", PLACES)
def test_prints(name: str) -> None:
    pairs = compared(run_program(written(name)))
    assert len(pairs) == 4
    for found, wanted in pairs:
        assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("name", [n for n in PLACES if n != "functions for both sides"])
def test_prints_the_same_from_python(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(PLACES[name], name="places.cu")["main"](device="cpu")
    for found, wanted in compared(capsys.readouterr().out):
        assert found == pytest.approx(wanted, rel=1e-6)


@needs_nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "functions for both sides" else pytest.mark.slow) for n in PLACES]
)
def test_nvcc_builds_it(name: str, tmp_path: Path) -> None:
    assert build(written(name), tmp_path / "places", "-arch=sm_90", "-Werror=all-warnings").exists()


@pytest.mark.parametrize("problem", REFUSED)
def test_refused(problem: str) -> None:
    with pytest.raises(kg.UnsupportedError, match=re.escape(problem)) as error:
        transpiled(kg.compile(REFUSED[problem], name="refused.cu"))
    assert "refused.cu" in str(error.value)


def test_a_header_that_asks_is_told(tmp_path: Path) -> None:
    """What is in it cannot be replaced, and would not link."""
    asking = "__device__ double asked(double x) {\n  return __enzyme_autodiff<double>((void *)f, enzyme_out, x); }\n"
    (tmp_path / "asks.h").write_text(asking)
    program = HEAD + '#include "asks.h"\n__global__ void k(double *o) { *o = asked(1.0); }\n'
    program += "__global__ void own(double *o) { *o = __enzyme_autodiff<double>((void *)f, enzyme_out, 2.0); }\n"
    (tmp_path / "program.cu").write_text(program)
    with pytest.raises(kg.UnsupportedError, match="in a file that is included, asks for a derivative") as error:
        transpiled(kg.load(str(tmp_path / "program.cu")))
    assert "asks.h:2" in str(error.value)


def test_what_the_preprocessor_leaves_out_stays() -> None:
    asking = "*o = __enzyme_autodiff<double>((void *)f, enzyme_out, 1.0);"
    unused = f"#if 0\n__global__ void unused(double *o) {{ {asking} }}\n#endif\n"
    program = HEAD + f"{unused}__global__ void k(double *o) {{\n#ifdef NOT\n{asking}\n#else\n{asking}\n#endif\n}}\n"
    text = transpiled(kg.compile(program, name="places.cu"))
    assert unused in text and f"#ifdef NOT\n{asking}\n#else\n*o = f_grad(1.0);\n" in text


def test_parts_of_calls_and_launches() -> None:
    call = b"ask<int>((void *)f, x[a, b], g(1, 2) /* , */, M)"
    ranges = argument_ranges(call, 0, len(call))
    assert ranges is not None and [call[a:b] for a, b in ranges] == [b"(void *)f", b"x[a, b]", b"g(1, 2)", b"M"]
    assert argument_ranges(b"none()", 0, 6) == [] and argument_ranges(b"(a) + b", 0, 7) is None
    launch = b"a::k<2><<<dim3(1, 2), N>>>( x, M(1, 2))"
    parts = launch_text(launch, 0, len(launch))
    assert parts is not None and launch[slice(*parts.kernel)] == b"a::k<2>"
    assert [launch[a:b] for a, b in parts.configuration] == [b"dim3(1, 2)", b"N"]
    assert [launch[a:b] for a, b in parts.arguments] == [b"x", b"M(1, 2)"]
    assert launch_text(b"RUN(k, x)", 0, 9) is None
