"""The examples run and check themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_quickstart() -> None:
    output = run("examples/quickstart.py", "--cpu", "--size", "40", "--steps", "5", "--small", "20", "--rounds", "3")
    assert "__global__ void heat(float *next, const float *now, float alpha, int width, int height)" in output
    assert "checked   against NumPy" in output
    assert "checked   against the kernel along" in output


def test_heat_in_jax() -> None:
    jax = pytest.importorskip("jax")
    if not hasattr(jax, "shard_map"):
        pytest.skip("jax.shard_map came with JAX 0.6")
    output = run("examples/heat_in_jax.py", "--size", "16", "--steps", "8")
    assert "2 devices, cpu" in output or "gpu" in output
    assert "checked   the gradient by alpha against differences" in output


def test_train_in_torch() -> None:
    pytest.importorskip("torch")
    output = run(
        "examples/train_in_torch.py", "--points", "100", "--width", "32", "--steps", "40", "--backend", "aot_eager"
    )
    assert "checked   both networks end at the same loss" in output


@pytest.mark.slow
def test_the_benchmark_runs() -> None:
    output = run("benchmarks/primal.py", "--scale", "0.0001", "--seconds", "0")
    assert "### cpu, 1 core" in output and "softmax" in output
