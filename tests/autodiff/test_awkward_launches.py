"""Launches of awkward shapes on the CPU: a few, always the same, of those that a GPU is compared in. What is compared
with is right itself: the kernels have no races, and reverse agrees with forward mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from awkward_kernels import KERNELS
from awkward_launches import (
    LAUNCHES,
    MODES,
    VARIANTS,
    Guarded,
    Launch,
    along_tangents,
    checked,
    differences,
    gradient_of,
    reference,
    run,
    wanted,
)


def sample(name: str) -> Launch:
    """In double, of several elements, with a block less than needed or one of an odd shape."""
    chosen = [one for one in LAUNCHES if one.name == name and one.real == "double" and one.block != (1024,)]
    return chosen[(5 * len(name)) % len(chosen)]


@pytest.mark.parametrize("name", KERNELS)
def test_reverse_is_forward_mode_transposed(name: str) -> None:
    launch = sample(name)
    assert checked(launch).ok
    expected = reference(launch)
    reverse, forward = along_tangents(launch, expected)
    assert reverse == pytest.approx(forward, rel=1e-9, abs=1e-9)
    found = run(launch, gradient_of(name, launch.real, "reverse"), "reverse")
    assert not differences(launch, "reverse", found, expected)


def test_the_launches_are_as_awkward_as_they_should_be() -> None:
    assert 2500 <= len(LAUNCHES) <= 4000 and len(VARIANTS) <= 260
    assert {len(one.grid) for one in LAUNCHES} == {1, 2, 3}
    assert {one.block for one in LAUNCHES} >= {(1,), (33,), (96,), (1024,), (5, 7), (4, 3, 2), (1, 32)}
    for name in KERNELS:
        assert any(0 in one.numbers for one in LAUNCHES if one.name == name)
        assert len({one.aligned for one in LAUNCHES if one.name == name}) == 2


@pytest.mark.parametrize("mode", MODES)
def test_differences_are_found(mode: str) -> None:
    """A wrong element of any array, and one that was written beside it."""
    launch = next(one for one in LAUNCHES if one.name == "elementwise" and one.numbers[0] > 30)
    expected = reference(launch)
    right: dict[str, Any] = wanted(launch, mode, expected)
    assert not differences(launch, mode, right, expected)
    for name in ("y", "x", "d_y", "d_x", "d_w", "d_a"):
        for wrong in (np.nan, right[name][-1] + 0.01):
            found = right | {name: np.append(right[name][:-1], wrong)}
            assert len(differences(launch, mode, found, expected)) == 1
    assert differences(launch, mode, right | {"outside": ["d_x"]}, expected)


@pytest.mark.parametrize("values", [np.ones(3), np.ones(0, np.float32), np.ones(3, np.int32)])
def test_what_is_written_around_an_array_is_seen(values: Any) -> None:
    placed = Guarded.around(values, 3, np)
    assert placed.read()[1] and np.array_equal(placed.array, values)
    placed.whole[placed.inside.stop] = 0
    assert not placed.read()[1]


def test_a_kernel_that_writes_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = next(one for one in LAUNCHES if one.name == "elementwise" and one.numbers == (32,) and one.grid > (1,))
    kernel = replace(KERNELS["elementwise"], body="if (i <= n) y[i] = a * x[i] * w[i];")
    monkeypatch.setitem(KERNELS, "elementwise", kernel)
    gradient = kg.gradient(kg.compile(kernel.text(launch.real))["k"], "y, x, w, a")
    assert run(launch, gradient, "all")["outside"]
