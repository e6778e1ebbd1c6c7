"""Random programs of launches, copies and fills, over views of one allocation, within budgets."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import kernelgrad as kg
from kernelgrad.host import launch_tapes
from recorded_programs import N, check

FEW = 12 * 8 * N  # bytes: twelve vectors


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad: this memory was written before")
        yield


@pytest.mark.parametrize("seed", range(12))
def test_programs(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(100, 112))
def test_programs_within_a_budget(seed: int) -> None:
    tape = check(seed, 30 * 8 * N)
    assert tape.store.peak <= 30 * 8 * N


@pytest.mark.parametrize("seed", range(200, 206))
def test_programs_with_next_to_nothing(seed: int) -> None:
    try:
        check(seed, FEW)
    except kg.TapeError as error:
        assert "too few" in str(error)


@pytest.mark.parametrize("seed", range(400, 406))
def test_programs_with_tapes_of_launches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_tapes, "WORTH", 0)
    monkeypatch.setattr(launch_tapes, "_SHARE", 100)
    check(seed)


@pytest.mark.parametrize("seed", range(300, 303))
def test_programs_on_tensors(seed: int) -> None:
    torch = pytest.importorskip("torch")
    check(seed, 40 * 8 * N, torch.from_numpy)


def test_chaos_is_no_error() -> None:
    """sin of ten millions: the last bits of its argument are all that counts, and NumPy rounds them otherwise."""
    check(50896)
