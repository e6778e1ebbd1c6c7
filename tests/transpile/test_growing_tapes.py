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
from programs_to_transpile import HOST_TAPES, TAPES

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")


@needs_gxx
@pytest.mark.parametrize(("text", "lines"), [(TAPES, 3), (HOST_TAPES, 5)], ids=["kernels", "host"])
def test_prints_what_python_does(text: str, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(text, name="tapes.cu")["main"](device="cpu")
    wanted = capsys.readouterr().out
    assert run_program(transpiled(kg.compile(text, name="tapes.cu"))) == wanted
    assert len(wanted.splitlines()) == lines


@needs_gxx
def test_structs_that_hold_tapes(capsys: pytest.CaptureFixture[str]) -> None:
    text = TAPES.replace("extern int enzyme_const;", "struct Kept { int n; void *of[2]; };")
    text = text.replace("void **tape, const int *n", "Kept *tape, const int *n")
    text = text.replace("tape[i] = made(", "tape[i].of[1] = made(").replace(", tape[i]);", ", tape[i].of[1]);")
    text = text.replace("(x, w, dw, tape, n", "(x, w, dw, (Kept *)tape, n").replace(
        "dw, tape + 1, n", "dw, (Kept *)tape + 1, n"
    )
    kg.compile(text, name="tapes.cu")["main"](device="cpu")
    assert run_program(transpiled(kg.compile(text, name="tapes.cu"))) == capsys.readouterr().out


def test_launches_pass_the_arena_on() -> None:
    text = transpiled(kg.compile(TAPES, name="tapes.cu"))
    assert "kg::launch_with_tapes(forward, 1, count, 0, nullptr, 0, x, w, dw, tape, n);" in text
    assert "backward<<<1, count>>>(x, w, dw, tape, n, dx, 2.0);" in text


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("text", [TAPES, HOST_TAPES], ids=["kernels", "host"])
def test_nvcc_builds_it(text: str, tmp_path: Path) -> None:
    text = transpiled(kg.compile(text, name="tapes.cu"))
    assert build(text, tmp_path / "tapes", "-arch=sm_90", "-Werror=all-warnings").exists()


REFUSED = {
    "not visible": ("forward<<<1, count>>>(x, w, dw, tape, n);", "auto kernel = forward;", 44),
    "'forward' casts const away": ("tape[i] = made(", "*(double *)x += 1; tape[i] = made(", 44),
    "casts a 'void": ("tape[i] = made(", "if (!n) *(double *)tape[i] = 1; tape[i] = made(", 44),
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
    text = TAPES.replace("extern int enzyme_const;", f"__device__ int seen; {defined}")
    text = text.replace("    tape[i] = made(", f"    {used} tape[i] = made(")
    with pytest.raises(KernelGradError, match="uses the variable 'seen'") as caught:
        transpiled(kg.compile(text, name="tapes.cu"))
    assert "tapes.cu:44:" in str(caught.value)


@pytest.mark.parametrize("problem", REFUSED)
def test_refused_at_the_line(problem: str) -> None:
    old, new, line = REFUSED[problem]
    text = TAPES.replace(old, new).replace("extern int enzyme_const;", "__device__ int seen;")
    with pytest.raises(KernelGradError, match=problem) as caught:
        transpiled(kg.compile(text, name="tapes.cu"))
    assert f"tapes.cu:{line}:" in str(caught.value)
