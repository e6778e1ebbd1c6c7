"""`kernelgrad diff` and `kernelgrad transpile` write files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import kernelgrad as kg
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


def test_transpile_keeps_line_breaks(tmp_path: Path) -> None:
    source, target = tmp_path / "square.cu", tmp_path / "square_ad.cu"
    source.write_bytes(PROGRAMS["square"].text.replace("\n", "\r\n").encode())
    assert main(["transpile", str(source), "-o", str(target)]) == 0
    written = target.read_bytes()
    assert b"kg::square_grad(x, y, d_x, d_y);" in written and written.count(b"\n") == written.count(b"\r\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("list", "missing.cu"), "cannot read missing.cu: No such file"),
        (("list", "."), "cannot read .: Is a directory"),
        (("diff", "k.cu", "k", "-o", "nowhere/k.cu"), "cannot write nowhere/k.cu: No such file"),
        (("diff", "k.cu", "k", "-o", "."), "cannot write .: Is a directory"),
        (("diff", "k.cu", "k", "-o", "k.cu"), "would overwrite what it is made from"),
        (("diff", "k.cu", "k", "--grid", "1", "--block", "2048"), "at most 1024"),
        (("diff", "k.cu", "k", "--tape-budget", "much"), "wants a number of bytes"),
        (("diff", "k.cu", "twice"), "`kernelgrad gradient` prints a function's gradient"),
        (("diff", "k.cu", "launches"), "use `kernelgrad transpile`"),
        (("diff", "k.cu", "other"), "no function 'other' in k.cu"),
        (("gradient", "k.cu", "k", ""), "no parameter is named"),
        (("dump", "k.cu"), "dump wants the name of a function"),
        (("transpile", "k.cu"), "nothing in it asks for a derivative"),
        (("transpile", "broken.cu"), "broken.cu:1:32: error: use of undeclared identifier 'y'"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_errors_are_told(
    arguments: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    more = "__device__ float twice(float x) { return 2 * x; }\nvoid launches(float *x) { k<<<1, 1>>>(x, x); }\n"
    Path("k.cu").write_text(KERNEL + more)
    Path("broken.cu").write_text("__global__ void k(double *x) { y[0] = 1; }\n")
    assert main(list(arguments)) == 1
    assert told in capsys.readouterr().err
    assert Path("k.cu").read_text() == KERNEL + more


@pytest.mark.parametrize("grid", ["0", "a", "1,2,3,4", "-1"])
def test_extents_are_checked(grid: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diff", "k.cu", "k", f"--grid={grid}", "--block=1"])
    assert ended.value.code == 2 and "wants one to three positive integers" in capsys.readouterr().err


def test_what_comes_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(KERNEL))
    assert main(["list", "-"]) == 0
    assert capsys.readouterr().out == "__global__ void k(float * out, const float * in)\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("int x;"))
    assert main(["list", "-"]) == 0
    found = capsys.readouterr()
    assert found.out == "" and "no functions in it" in found.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"kernelgrad {kg.__version__}\n"
