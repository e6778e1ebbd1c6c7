"""What a derivative costs grows with the length of a program, and no faster: calls are counted, not seconds."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from counted_calls import counted_calls

FILE = Path(__file__).parent.parent / "benchmarks" / "derivation.py"
TOLERANCE = 1.25  # a quadratic part doubles the marginal cost from one pair of lengths to the next


@pytest.fixture(scope="module")
def programs() -> Any:
    spec = importlib.util.spec_from_file_location("derivation", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _source(kernel: Any) -> None:
    assert "k_grad" in kg.gradient(kernel, "y, x").source


def _launch(kernel: Any) -> None:
    y, x, d_x = np.zeros(512), np.linspace(0.1, 0.9, 128), np.zeros(128)
    kg.gradient(kernel, "y, x")[1, 4](y, x, 4, np.ones_like(y), d_x)
    assert np.any(d_x)


def _calls(text: str, use: Callable[[Any], None]) -> int:
    return counted_calls(use, kg.compile(text)["k"])[0]


def _is_flat(calls: list[int]) -> bool:
    """Of lengths n, 2 n and 4 n: whether each statement costs the same."""
    short, double, long = calls
    return (long - double) / 2 <= TOLERANCE * (double - short)


@pytest.mark.parametrize("kind", ["statements", "loads", "branches", "else ifs", "cases", "terms", "callees", "loops"])
def test_derivation(kind: str, programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path))
    _, *calls = [_calls(programs.source(kind, n), _source) for n in (3, 10, 20, 40)]  # the first also imports
    assert _is_flat(calls), calls


@pytest.mark.parametrize("kind", ["different loads", "stores"])
def test_first_launch(kind: str, programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path))
    _, *calls = [_calls(programs.source(kind, n), _launch) for n in (2, 8, 16, 32)]
    assert _is_flat(calls), calls


def test_a_quadratic_part_is_noticed() -> None:
    assert _is_flat([1_000 + 100 * n for n in (10, 20, 40)])
    assert not _is_flat([1_000 + 100 * n + 5 * n * n for n in (10, 20, 40)])
