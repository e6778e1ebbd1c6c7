"""Binomial checkpoints: as few steps run again as Griewank's formula says."""

from __future__ import annotations

from math import comb

import pytest

from kernelgrad.host.revolve import next_checkpoint, steps_run


def fewest(steps: int, checkpoints: int) -> int:
    """r * n - C(c + r, r - 1), with the smallest r for which C(c + r, c) reaches n; the step itself not counted."""
    repeats = 0
    while comb(checkpoints + repeats, checkpoints) < steps:
        repeats += 1
    return repeats * steps - comb(checkpoints + repeats, repeats - 1) if repeats else 0


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 4, 7, 20, 100])
def test_no_more_steps_than_needed(checkpoints: int) -> None:
    for steps in (1, 2, 3, 5, 10, 21, 56, 100, 333):
        assert steps_run(steps, checkpoints) == fewest(steps, checkpoints)


def test_it_advances_and_leaves_a_step() -> None:
    for steps in range(2, 40):
        for checkpoints in range(1, 10):
            assert 1 <= next_checkpoint(steps, checkpoints) < steps
