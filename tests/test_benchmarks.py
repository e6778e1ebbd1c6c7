"""The benchmarks' own adjoints are right: on the CPU, where kernelgrad runs their source, each against the gradient."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kernelgrad as kg

FOLDER = Path(__file__).parent.parent / "benchmarks"
SCALE = 0.0001
ROWS = 15


# Of a script that only has to run, how fast its kernels are does not matter.
UNOPTIMISED = {"PYTHONPATH": str(FOLDER.parent / "src"), "KERNELGRAD_CPU_OPTIMISE": "0"}


@cache
def kernels_of(path: Any) -> Any:
    return kg.load(path)


@pytest.fixture
def contenders(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("contenders")


@pytest.mark.parametrize("number", range(ROWS))
def test_gradients_agree_with_those_by_hand(contenders: Any, number: int) -> None:
    rows = importlib.import_module("gradient_rows")
    found = rows.rows(SCALE)
    assert len(found) == ROWS
    row = found[number]
    problem = contenders.Problem(row, kernels_of(rows.SOURCE)[row.kernel], contenders.OnCpu())
    errors = problem.errors(problem.contenders())
    assert errors.keys() == {"J", "R", "atomics"}
    for name, error in errors.items():
        assert error < 1e-5, f"{row.name}: {name}"


def test_a_wrong_gradient_is_noticed(contenders: Any) -> None:
    rows = importlib.import_module("gradient_rows")
    row = rows.rows(SCALE)[0]
    problem = contenders.Problem(row, kernels_of(rows.SOURCE)[row.kernel], contenders.OnCpu())
    runs = problem.contenders()
    half = problem.adj["x"][::2]

    def halved() -> None:
        runs["by hand"]()
        half[...] *= 0.5

    assert problem.errors({**runs, "R": halved})["R"] > contenders.TOLERANCE["R"]


def test_targets(contenders: Any) -> None:
    rows = importlib.import_module("gradient_rows")
    times = {"primal": 1.0, "J": 2.0, "R": 1.5, "atomics": 6.0}
    targets = {
        rows.Target("R", 1.5): ("R 1.5x", True),
        rows.Target("J", 1.9): ("J 1.9x", False),
        rows.Target("R", 1.4, "ms"): ("R 1.4 ms", False),
        rows.Target("R", 1 / 3, "atomics"): ("R 0.33x atomics", True),
    }
    for target, expected in targets.items():
        assert (str(target), target.is_met(times)) == expected


def test_without_a_gpu_it_says_so() -> None:
    """Where CuPy is not installed; where it is, the driver may be missing, or the GPU tests run it."""
    if importlib.util.find_spec("cupy") is not None:
        pytest.skip("CuPy is installed")
    command = [sys.executable, str(FOLDER / "gradients.py")]
    environment = {**os.environ, **UNOPTIMISED}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "needs an NVIDIA GPU and CuPy" in done.stdout


def test_the_cpu_benchmark_runs() -> None:
    command = [sys.executable, str(FOLDER / "cpu.py"), "--scale=0.001", "--seconds=0", "--cores=1", "--only=block sum"]
    environment = {**os.environ, **UNOPTIMISED}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    heads, _, row = done.stdout.splitlines()
    assert heads.count("|") == row.count("|")
    assert row.startswith("| block sum | ") and "WRONG" not in row


def test_the_host_benchmark_runs() -> None:
    command = [sys.executable, str(FOLDER / "host.py"), "--batches=2", "--bare", "--only=sin"]
    environment = {**os.environ, **UNOPTIMISED}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    heads, _, row = done.stdout.splitlines()
    assert heads.count("|") == row.count("|")
    assert all(float(cell) > 0 for cell in row.split("|")[2:5])


def test_the_benchmark_of_idioms_runs() -> None:
    command = [sys.executable, str(FOLDER / "idioms.py"), "--cpu", "--repeats=1", "--only=softmax"]
    environment = {**os.environ, **UNOPTIMISED}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    heads, _, *rows = done.stdout.splitlines()
    assert len(rows) == 4
    assert all(row.count("|") == heads.count("|") for row in rows)


def test_the_benchmark_of_forms_runs() -> None:
    command = [sys.executable, str(FOLDER / "idiom_ways.py"), "--cpu", "--only=gelu_one,sort_block", "--part=0/2"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **UNOPTIMISED})
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, *rows = (line.split(" | ") for line in done.stdout.splitlines())
    assert [row[1] for row in rows] == ["R", "J", "deterministic", "may_alias", "split", "half", "half R"]
    assert all(len(row) == 8 and float(row[-1].rstrip(" |")) < 5e-3 for row in rows)
