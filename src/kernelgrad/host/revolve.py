"""Binomial checkpoints (revolve, of Griewank and Walther): where the next one goes, for the fewest steps run again."""

from __future__ import annotations


def next_checkpoint(steps: int, checkpoints: int) -> int:
    """How many of `steps`, which are to be reversed, to advance before the next checkpoint is made. There are so many,
    the one at the beginning included."""
    if checkpoints <= 1 or steps <= 1:
        return max(1, steps - 1)
    repeats, reach = 0, 1
    while reach < steps:
        repeats += 1
        reach = reach * (repeats + checkpoints) // repeats
    return min(max(1, _advance(steps, checkpoints, repeats, reach)), steps - 1)


def _advance(steps: int, c: int, repeats: int, reach: int) -> int:
    """`reach`: the most steps that c checkpoints reverse with so many repeats of each."""
    first = reach * repeats // (c + repeats)
    second = first * c // (c + repeats - 1) if c > 1 else 1
    third = 0 if c == 1 else (second * (c - 1) // (c + repeats - 2) if c > 2 else 1)
    fourth = second * (repeats - 1) // c
    fifth = 0 if c < 3 else (third * (c - 1) // repeats if c > 3 else 1)
    if steps <= first + third:
        return fourth
    return first if steps >= reach - fifth else steps - second - third


def steps_run(steps: int, checkpoints: int) -> int:
    """How many steps are run again in all."""
    if steps <= 1:
        return 0
    if checkpoints <= 1:
        return steps * (steps - 1) // 2
    m = next_checkpoint(steps, checkpoints)
    return m + steps_run(steps - m, checkpoints - 1) + steps_run(m, checkpoints)
