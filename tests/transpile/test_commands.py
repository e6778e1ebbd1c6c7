"""`kernelgrad diff` and `kernelgrad transpile` write files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgrad.cli import main
from transpiled_programs import PROGRAMS

KERNEL = "__global__ void k(float *out, const float *in) { out[threadIdx.x] = in[threadIdx.x] * in[0]; }\n"


def test_diff(tmp_path: Path) -> None:
    source, target = tmp_path / "k.cu", tmp_path / "k_grad.cu"
    source.write_text(KERNEL)
    assert main(["diff", str(source), "k", "--wrt", "out,in", "--host-wrapper", "-o", str(target)]) == 0
    assert "cudaError_t launch_k_grad(\n    dim3 grid," in target.read_text()
    assert main(["diff", str(source), "k", "--grid", "4", "--block", "32,2", "--host-wrapper", "-o", str(target)]) == 0
    assert "const dim3 block(32, 2, 1);" in target.read_text()


def test_half_a_shape_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "k.cu"
    source.write_text(KERNEL)
    assert main(["diff", str(source), "k", "--grid", "4"]) == 1
    assert "--grid and --block go together" in capsys.readouterr().err


def test_transpile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "square.cu"
    source.write_text(PROGRAMS["square"].text)
    assert main(["transpile", str(source)]) == 0
    assert "kg::square_grad(x, y, d_x, d_y);" in capsys.readouterr().out
