"""Gradients under every plan: a small launch is made to get what only large ones, or those on a GPU, get otherwise.

Which form of a gradient a launch gets depends on its size: one kernel or two, gathers, forms for long tapes, fewer
blocks, copies of small adjoints, several elements for each thread. A kernel of a test is small. So that it runs in all
of these forms, each entry of `PLANS` puts thresholds out of the way, as a list of (module, name, value):

    with forced("in two"):
        kg.gradient(kernel)[grid, block](*arguments, *adjoints)       # made and launched inside

    for plan, found in under_every_plan(run).items(): ...             # `run` makes, launches, and returns arrays

A plan is asked for, not granted: where its proofs fail, the launch gets another. A gradient remembers what its launches
get, so each plan needs one of its own. "as on a GPU" and what follows it run on the CPU what a GPU would run, as far as
that is IR. Names that no longer exist are errors, so that a plan cannot quietly force nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelgrad.autodiff.telling.work import Work
from kernelgrad.known import Ways

Forced = list[tuple[str, str, Any]]
_HUGE = 1 << 60


def _ways(**ways: bool) -> tuple[str, str, Any]:
    return "gradients:Gradient", "ways", staticmethod(lambda *_: Ways(**ways))


_IN_TWO: Forced = [("in_two", "ENOUGH", Work(0, 0)), ("in_two", "DENSE", 0), ("in_two", "MORE", 1e9)]
_GATHERED: Forced = [
    ("gathers", "ATOMIC_INSTRUCTIONS", _HUGE),
    ("autodiff.adding.gather", "FILLING_THREADS", _HUGE),
    ("autodiff.adding.gather", "_LONG", _HUGE),
    ("gather_parts", "_FEW", 0),
]
_WIDE: Forced = [("autodiff.adding.gather", "_MANY", 1)]
_LONG: Forced = [("launch_choice", "_LARGE_TAPE", -1)]
_PIECES: Forced = [
    ("autodiff.tuning.long_loops", "LONG", -1),
    ("transforms.sum_pieces", "SHORT", 0),
    ("transforms.sum_pieces", "PIECE", 2),
]
_CROWDED: Forced = [
    ("launch_choice", "_MANY_BLOCKS", 0),
    ("launch_choice", "_CROWD", 0),
    ("launch_choice", "on_cores", lambda facts: facts),
]
_ON_GPU: Forced = [
    ("quads", "_ENOUGH", 1),
    ("autodiff.adding.coarse", "_THREADS", 1),
    ("autodiff.adding.coarse", "_TURNS", 1),
    ("autodiff.tuning.rows", "FILLING_THREADS", 1),
    ("autodiff.tuning.rows", "_FEWEST", 32),
    _ways(on_gpu=True),
]

PLANS: dict[str, Forced] = {
    "as launched": [],
    "one kernel": [_ways(single=True)],
    "in two": _IN_TWO,
    "gathered": _GATHERED,
    "gathered as on a GPU": [*_GATHERED, *_WIDE, _ways()],
    "a large tape": _LONG,
    "a large tape in two": [*_LONG, *_IN_TWO],
    "long sums": _PIECES,
    "many blocks": _CROWDED,
    "as on a GPU": [*_ON_GPU, *_CROWDED],
    "in two on a GPU": [*_ON_GPU, *_IN_TWO, *_GATHERED, *_WIDE],
}


@contextmanager
def forced(plan: str) -> Iterator[None]:
    """Launches of gradients that are made inside get the plan, if they can."""
    before = []
    try:
        for where, name, value in PLANS[plan]:
            module, _, owner = where.partition(":")
            place: Any = importlib.import_module(f"kernelgrad.{module}")
            place = getattr(place, owner) if owner else place
            before.append((place, name, vars(place)[name]))
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in reversed(before):
            setattr(place, name, value)


def under_every_plan(run: Callable[[], Any]) -> dict[str, Any]:
    """What `run` returns, under each plan."""
    found = {}
    for plan in PLANS:
        with forced(plan):
            found[plan] = run()
    return found
