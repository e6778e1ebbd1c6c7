"""A small number of generated kernels: each one's gradient is right, or refused with an error of ours.

`python -m tests.generated --count 5000` runs many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from every_plan import PLANS

from .checking import FAILURES, check, fails_alike
from .cooperating import Cooperating, random_cooperating
from .expressions import Variable
from .generator import FromRandom, programs, random_program
from .program import Program, lines, reduced

SEEDED, DRAWN, COOPERATING = 33, 4, 20
WATCHED = 4  # every fourth kernel also runs under the check mode


pytestmark = pytest.mark.usefixtures("cache_of_its_own")


def assert_right(program: Program, watched: bool, plans: Sequence[str] = ()) -> None:
    outcome = check(program, watched, plans=plans)
    if outcome.kind == "wrong":
        program = reduced(program, lambda p: fails_alike(outcome, p, watched, plans=plans), seconds=60)
    if outcome.kind in FAILURES:
        pytest.fail(f"{outcome.detail}\n\n{program.describe()}")


def seeds(count: int, quick: int) -> list[Any]:
    """The first of them always, the others with `-m slow`."""
    return [pytest.param(seed, marks=() if seed < quick else pytest.mark.slow) for seed in range(count)]


@pytest.mark.parametrize("seed", seeds(SEEDED, 16))
def test_seeded_kernels(seed: int) -> None:
    plan = list(PLANS)[seed % len(PLANS)]
    assert_right(random_program(seed), watched=seed % WATCHED == 0, plans=[plan])


@pytest.mark.parametrize("seed", seeds(COOPERATING, 8))
def test_cooperating_kernels(seed: int) -> None:
    assert_right(random_cooperating(seed, size=4), watched=seed % WATCHED == 0)


# Programs are made smaller by taking their statements apart, which is faster than drawing other ones.
@settings(
    max_examples=DRAWN,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(program=programs())
def test_drawn_kernels(program: Program) -> None:
    assert_right(program, watched=False)


def test_no_pointer_into_shared_memory_lasts_longer_than_a_phase() -> None:
    """After the next barrier it would lead to another thread's cell."""
    taken = 0
    for seed in range(200):
        made = Cooperating(FromRandom(seed), "double", frozenset({"pointers"}), 9)
        made.scopes, made.returns = [[Variable("v", "real", level=1)]], "double"
        statements = [line for node in made.worked_on(["cells[tid]"]) for line in lines(node)]
        taken += any("= &cells[tid]" in line for line in statements)
        pointers = {v.name for v in made.visible("pointer")}
        assert not any(f"{name} = &cells[tid]" in line for name in pointers for line in statements), (seed, statements)
    assert taken > 10
