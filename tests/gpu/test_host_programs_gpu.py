"""Host programs as different people write them, on a GPU: from Python, and transpiled and built by nvcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kernelgrad as kg
from find_nvcc import build, nvcc
from host_programs import NAMES, TRANSPILED, check, host_program
from kernelgrad.errors import UnsupportedError
from kernelgrad.transpile.program import transpiled


@pytest.mark.parametrize("name", [name for name in NAMES if name != "managed_variable"])
def test_from_python(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(host_program(name, tmp_path), name=f"{name}.cu")["main"](device="cuda")
    check(capsys.readouterr().out)


def test_managed_variables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'weights' is __managed__, and the host uses it") as told:
        kg.compile(host_program("managed_variable", tmp_path))["main"](device="cuda")
    assert "cudaMemcpyToSymbol" in str(told.value)


@pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", TRANSPILED)
def test_transpiled(name: str, tmp_path: Path) -> None:
    text = transpiled(kg.compile(host_program(name, tmp_path), name=f"{name}.cu"))
    built = build(text, tmp_path / name, "-arch=native")
    check(subprocess.run([built], capture_output=True, text=True, check=True, timeout=60).stdout)
