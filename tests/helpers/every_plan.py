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

from kernelgrad.autodiff.costs.work import Work
from kernelgrad.runtime.integers import Ways

Forced = list[tuple[str, str, Any]]
_HUGE = 1 << 60


def _ways(single: bool = False, on_gpu: bool = False) -> tuple[str, str, Any]:
    """Who needs one kernel, as second derivatives do, gets it."""

    def ways(self: Any, placement: Any, asked: bool, watched: bool) -> Ways:
        one = single or asked or bool(self.settings.report_nan)
        return Ways(single=one, on_gpu=on_gpu and not one)

    return "derivatives.gradient:Gradient", "ways", ways


_IN_TWO: Forced = [
    ("launches.choice.split_launch", "ENOUGH", Work(0, 0)),
    ("launches.choice.split_launch", "DENSE", 0),
    ("launches.choice.split_launch", "MORE", 1e9),
]
_GATHERED: Forced = [
    ("launches.choice.gathers", "ATOMIC_INSTRUCTIONS", _HUGE),
    ("autodiff.accumulate.gather.pattern", "FILLING_THREADS", _HUGE),
    ("autodiff.accumulate.gather.pattern", "_LONG", _HUGE),
    ("launches.choice.gather_parts", "_FEW", 0),
]
_STAGED: Forced = [
    ("launches.choice.gathers", "_FEWEST_USES", 0),
    ("launches.choice.gathers", "_STAGING", -_HUGE),
    ("launches.choice.staging", "_CHEAP", 0),
]
_WIDE: Forced = [("autodiff.accumulate.gather.pattern", "_MANY", 1)]
_LONG: Forced = [("launches.choice.choose", "_LARGE_TAPE", -1)]
_PIECES: Forced = [
    ("analysis.access.contribution_counts", "LONG", -1),
    ("transforms.sum_pieces", "SHORT", 0),
    ("transforms.sum_pieces", "PIECE", 2),
    ("autodiff.prepare.double_cells", "MOST_ADDITIONS", -1),
    ("autodiff.prepare.double_cells", "FEW_CELLS", _HUGE),
]
_CROWDED: Forced = [
    ("launches.choice.choose", "_MANY_BLOCKS", 0),
    ("launches.choice.choose", "_CROWD", 0),
    ("launches.choice.choose", "on_cores", lambda facts: facts),
]
_ON_GPU: Forced = [
    ("launches.vector_width", "_ENOUGH", 1),
    ("autodiff.accumulate.fewer_blocks", "_THREADS", 1),
    ("autodiff.accumulate.fewer_blocks", "_TURNS", 1),
    ("schedule.coarsen.block_rows", "FILLING_THREADS", 1),
    ("schedule.coarsen.block_rows", "_FEWEST", 32),
    _ways(on_gpu=True),
]
_CELLS: Forced = [
    ("launches.choice.gathers", "ATOMIC_INSTRUCTIONS", 0),  # no gathers
    ("launches.choice.block_cells", "_FEW_ADDITIONS", 0),
    ("launches.choice.block_cells", "_ADDITIONS", 0),
    ("launches.choice.block_cells", "_SUMMED_TURNS", _HUGE),
    ("launches.choice.block_cells", "RESIDENT_THREADS", 512),
    ("autodiff.sweep.reverse_sweep", "RESIDENT_THREADS", 512),
    _ways(on_gpu=True),
]

_EXCHANGED: Forced = [
    ("schedule.exchange.exchanged", "_ENOUGH", 1),
    ("schedule.exchange.exchanged", "_UPDATE", _HUGE),
    ("schedule.exchange.exchanged", "FEWEST", 1),
]
_WITHOUT_COPIES: Forced = [
    ("launches.choice.without_copies:Estimate", "is_less_than", lambda self, other: True),
    *_IN_TWO,
    *_GATHERED,
    _ways(on_gpu=True),
]

_IN_TURNS: Forced = [
    ("launches.choice.block_turns", "_STARTED_THREADS", 64),
    ("launches.choice.block_turns", "_TURNS", 2),
    ("launches.choice.block_turns", "_HOISTED", 0.3),
]

PLANS: dict[str, Forced] = {
    "as launched": [],
    "one kernel": [_ways(single=True)],
    "in two": _IN_TWO,
    "gathered": _GATHERED,
    "gathered as on a GPU": [*_GATHERED, *_WIDE, _ways()],
    "gathered and staged": [*_GATHERED, *_STAGED],
    "a large tape": _LONG,
    "a large tape in two": [*_LONG, *_IN_TWO],
    "long sums": _PIECES,
    "many blocks": _CROWDED,
    "exchanged": [*_EXCHANGED, _ways(on_gpu=True)],
    "as on a GPU": [*_ON_GPU, *_CROWDED],
    "in cells of blocks": _CELLS,
    "without copies": _WITHOUT_COPIES,
    "blocks in turns": [*_IN_TURNS, _ways(on_gpu=True)],
    "blocks in turns, with cells": [*_IN_TURNS, *_CELLS],
    "in two on a GPU": [*_ON_GPU, *_IN_TWO, *_GATHERED, *_STAGED, *_WIDE],
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
