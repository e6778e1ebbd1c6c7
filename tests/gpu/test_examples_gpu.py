"""The examples of frameworks, on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_train_in_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no GPU")
    output = run("examples/train_in_torch.py", "--steps", "60", "--backend", "aot_eager")
    assert "checked   both networks end at the same loss, on cuda" in output


def test_heat_in_jax() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    output = run("examples/heat_in_jax.py", "--size", "64", "--steps", "20")
    assert "devices, gpu" in output and "checked   the gradient by alpha against differences" in output
