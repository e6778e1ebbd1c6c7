"""The tape has room for as often as loops run at most: no launch counts before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import forced
from kernelgrad.launches.memory import tape_memory
from turn_bound_cases import BLOCK, BOUNDED, COUNTED, GRID, SIMILAR, compiled


def run(body: str, n: int, how: str) -> tuple[list[np.ndarray], int]:
    """Adjoints, and how often a thread went round at most."""
    rng = np.random.default_rng(3)
    x, d_y = rng.uniform(0.5, 1.5, 7), rng.uniform(-1, 1, GRID * BLOCK)
    y, count, d_x = np.zeros(GRID * BLOCK), np.zeros(GRID * BLOCK, np.int32), np.zeros(7)
    with forced(how):
        kg.gradient(compiled(body), "y, x")[GRID, BLOCK](y, count, x, n, d_y=d_y, d_x=d_x)
    return [y, d_x], int(count.max())


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Launches that count."""
    launches: list[Any] = []
    by_counting = tape_memory.by_counting

    def noted(*args: Any) -> Any:
        launches.append(args)
        return by_counting(*args)

    monkeypatch.setattr(tape_memory, "by_counting", noted)
    return launches


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many elements a thread has room."""
    found: list[int] = []
    by_arithmetic = tape_memory.by_arithmetic

    def noted(*args: Any) -> Any:
        sizes = by_arithmetic(*args)
        found.append(max((int(n.max()) for n in (sizes or {}).values()), default=0))
        return sizes

    monkeypatch.setattr(tape_memory, "by_arithmetic", noted)
    return found


@pytest.mark.parametrize("how", ["as launched", pytest.param("a large tape", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", {**SIMILAR, **BOUNDED})
def test_room(name: str, how: str, counting: list[Any], room: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    body = {**SIMILAR, **BOUNDED}[name]
    for n in (0, 1, 32, 33, 97):
        found, turns = run(body, n, how)
        assert not counting
        if how == "as launched" and name != "in a loop":  # of which the inner one runs again
            assert room[-1] >= turns - (name == "at once")  # of which the first turn is before the loop
        with monkeypatch.context() as plain:
            plain.setattr("kernelgrad.launches.choice.choose._ROOM", -1)
            plain.setattr("kernelgrad.autodiff.saving.tape_capacity.similar_turns", lambda *_: None)
            expected, _ = run(body, n, "as launched")
        counting.clear()
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, 1e-12, 1e-12, err_msg=f"n = {n}")


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted(name: str, counting: list[Any]) -> None:
    run(COUNTED[name], 40, "as launched")
    assert counting


@pytest.mark.parametrize("name", BOUNDED)
def test_much_room_is_counted(name: str, counting: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.choose._ROOM", 100)
    run(BOUNDED[name], 40, "as launched")
    assert counting


def test_a_budget_is_counted(counting: list[Any]) -> None:
    """What is needed may be less than there is room for."""
    n, (x, d_x) = 1 << 20, (np.full(7, 0.9), np.zeros(7))
    y, count = np.zeros(GRID * BLOCK), np.zeros(GRID * BLOCK, np.int32)
    gradient = kg.gradient(compiled(BOUNDED["it breaks"]), "y, x", tape_budget=1 << 16)
    gradient[GRID, BLOCK](y, count, x, n, d_y=np.ones(GRID * BLOCK), d_x=d_x)
    assert counting
