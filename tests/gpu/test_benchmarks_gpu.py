"""The benchmark of gradients runs, and its contenders agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cupy")

ROOT = Path(__file__).parent.parent.parent


def run(*options: str, benchmark: str = "gradients") -> list[str]:
    """The rows it prints."""
    command = [sys.executable, f"benchmarks/{benchmark}.py", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    return done.stdout.splitlines()[2:]


def test_all_rows_agree_with_the_adjoints_by_hand() -> None:
    lines = run("--scale", "0.001", "--repeats", "1", "--registers")
    assert len([line for line in lines if line.startswith("|")]) == 15
    assert all("registers" in line for line in lines if not line.startswith("|"))


def test_host_times() -> None:
    (line,) = run("--host", "--only", "sin(x)")
    name, *times = [cell.strip() for cell in line.strip("|").split("|")]
    assert name == "sin(x) * x" and all(float(t) > 0 for t in times) and len(times) == 4


def test_idioms_agree_with_double_precision() -> None:
    """And with adjoints by hand, where there are any."""
    lines = run("--scale", "0.001", "--repeats", "1", benchmark="idioms")
    assert len(lines) >= 45 and all(line.count("|") == lines[0].count("|") for line in lines)
