"""What `report_nan=True` found in a launch, told as an error at the user's line: Note [Finite tests] in
autodiff/sweep/finite_tests.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...autodiff.sweep import finite_tests as layout
from ...autodiff.sweep.finite_tests import FiniteTests, Site
from ...errors import Iteration, NotFiniteError
from ...runtime.arguments import Placement
from ...runtime.config import Launch
from ...runtime.launch_memory import LaunchMemory
from ...runtime.scratch import Scratch

_SINGULAR = "keep its arguments away from where it has no finite derivative: take another branch there, or add a little"
_LARGE = "the numbers get too large for their type: scale them, or compute in double"
_ARRIVED = "it came in with an adjoint that was passed, or another thread added it up: look for it in the seeds first"
_ADDED = "what several uses of a value contribute adds up to it: scale them, or compute in double"
_PRIMAL = "the kernel itself computes with it: see that it does not, or does not use it"
_TANGENT_CAME = "it came in with a tangent that was passed, or another thread stored it"

# How functions are spelt in the source where that is not their name.
_SPELT = {"div": "/", "mul": "*", "add": "+", "sub": "-", "neg": "-", "convert": "a conversion", "powi": "pow"}
_OPERANDS = ("first argument", "second argument", "result")
_REGULAR = frozenset("add sub mul neg fma convert select min max".split())


def add_records(
    tests: FiniteTests | None, launch: Launch, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    """Makes the records of a launch, and looks at them when all else is done."""
    assert tests is not None
    memory = own.add(layout.NAME, Scratch(layout.NBYTES, placement.cuda, stream).zero())

    def look() -> None:
        records = np.frombuffer(memory.read(), np.int64).reshape(layout.RECORDS, layout.WORDS)
        found = [record for record in records if record[layout.OWNER] != 0]
        if tests.forward and not any(record[layout.STORED] for record in found):
            return
        if found:
            raise _error(tests, found, launch)

    own.after.insert(0, look)  # the steps after a launch run from the last to the first


def _error(tests: FiniteTests, found: list[Any], launch: Launch) -> NotFiniteError:
    """Of the thread with the smallest number among those in which one arose; in all others they came from there."""

    def order(record: Any) -> tuple[bool, bool, int]:
        arrived = tests.sites[record[layout.SITE]].function is None
        return arrived, tests.forward and not record[layout.STORED], int(record[layout.OWNER])

    record = min(found, key=order)
    site = tests.sites[record[layout.SITE]]
    number, adjoint = (_float(record[word]) for word in (layout.FOUND, layout.ADJOINT))
    arguments = [_float(record[layout.FIRST_ARGUMENT + k]) for k in range(len(site.given))]
    given = [value for value, known in zip(arguments, site.given, strict=True) if known]
    what = _what(tests, site, number, adjoint, _at(site, arguments))
    return NotFiniteError(f"{what}; {_who(record, site, launch)}", site.span, _hint(tests, site, adjoint, given))


def _what(tests: FiniteTests, site: Site, number: float, adjoint: float, at: str) -> str:
    if site.function is None:
        return f"{'a tangent' if tests.forward else 'the adjoint of what is written here'} is {number}"
    name = _SPELT.get(site.function, site.function)
    shown = name if site.function == "convert" else f"'{name}'"
    if tests.forward:
        return f"the tangent of {shown} is {number}{at}"
    return f"the reverse of {shown} gives {number}, of an adjoint of {adjoint:.6g}{at}"


def _at(site: Site, arguments: list[float]) -> str:
    told = [f"{_OPERANDS[k]} {value:.6g}" for k, value in enumerate(arguments) if site.given[k]]
    return f" ({', '.join(told)})" if told else ""


def _who(record: Any, site: Site, launch: Launch) -> str:
    """The thread, and the iteration."""
    block, thread = divmod(int(record[layout.OWNER]) - 1, math.prod(launch.block))
    told = f"thread {_coordinates(thread, launch.block)} of block {_coordinates(block, launch.grid)}"
    counted = [Iteration(*loop, int(record[layout.FIRST_LOOP + k])) for k, loop in enumerate(site.loops)]
    loops = sorted((*counted, *site.span.iterations), key=lambda iteration: iteration.line)
    return f"{told}, in the loop with {', '.join(map(str, loops))}" if loops else told


def _coordinates(number: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


def _hint(tests: FiniteTests, site: Site, adjoint: float, given: list[float]) -> str:
    if site.function is None:
        return _TANGENT_CAME if tests.forward else _ARRIVED
    if not all(map(math.isfinite, given)):
        return _PRIMAL
    if not math.isfinite(adjoint):
        return _LARGE if tests.forward else _ADDED
    return _LARGE if site.function in _REGULAR else _SINGULAR


def _float(word: Any) -> float:
    return float(np.int64(word).view(np.float64))
