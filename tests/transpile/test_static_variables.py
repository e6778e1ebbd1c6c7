"""Static variables of functions that are differentiated, transpiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_host import run_program

import kernelgrad as kg
from find_nvcc import build, nvcc
from kernelgrad.transpile.program import transpiled
from programs_to_transpile import STATICS

# First with weights 1 and 1/2, then with 1 and 1/2 again after 1/4 was asked for.
PRINTS = ["13.5 90 45 28.5 0.25", "13.5 144 45 42 0.25"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = transpiled(kg.compile(STATICS, name="statics.cu"))
    assert "static double run_total[2] = {3};" in text and "static auto &total = run_total;" in text
    assert run_program(text).splitlines() == PRINTS
    kg.compile(STATICS, name="statics.cu")["main"](device="cpu")
    assert capsys.readouterr().out.splitlines() == PRINTS


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")
def test_nvcc_builds_it(tmp_path: Path) -> None:
    text = transpiled(kg.compile(STATICS, name="statics.cu"))
    assert build(text, tmp_path / "statics", "-arch=sm_90", "-Werror=all-warnings").exists()
