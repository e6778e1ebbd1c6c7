"""The kernel that reads memory itself where it reads copies of it in shared memory (see `transforms/tile_copies`), as it is
for a launch: what its sizes decide is decided."""

from __future__ import annotations

from typing import NamedTuple

from ...analysis.access.affine import Shape
from ...analysis.access.intervals import Intervals
from ...ir.ops import Function, Module
from ...runtime.integers import Extents, KnownLaunch
from ...transforms import interval_tests, merged_guards, tile_copies
from ...transforms.interval_tests import Outcomes
from ...transforms.merged_guards import Merged

_ROUNDS = 3


class Key(NamedTuple):
    """What one such function holds for."""

    block: Extents
    outcomes: tuple[Outcomes, ...]  # what is decided lets more be decided
    merged: Merged


class WithoutTiles:
    """Those functions of one kernel."""

    def __init__(self, function: Function, module: Module):
        self.function, self.module = function, module
        self._plain: dict[Extents, Function | None] = {}  # by the block
        self._decided: dict[tuple[Extents, tuple[Outcomes, ...]], Function] = {}

    def key(self, launch: KnownLaunch) -> Key | None:
        """None where shared memory holds more than copies."""
        block = launch.block
        if block not in self._plain:
            self._plain[block] = tile_copies.run(self.function, self.module, block)
        plain = self._plain[block]
        if plain is None:
            return None
        decided, found = plain, tuple[Outcomes, ...]()
        for _ in range(_ROUNDS):
            tested = interval_tests.tested(decided)
            more = interval_tests.outcomes(tested, _intervals(tested, launch))
            if not more:
                break
            found = (*found, more)
            if (block, found) not in self._decided:
                self._decided[block, found] = interval_tests.with_outcomes(tested, self.module, more)
            decided = self._decided[block, found]
        shape = Shape(launch.grid, block)
        merged = merged_guards.find(decided, _intervals(decided, launch), shape, launch.answers(decided))
        return Key(block, found, merged)

    def made(self, key: Key) -> Function:
        decided = self._decided.get((key.block, key.outcomes), self._plain[key.block])
        assert decided is not None
        return merged_guards.with_merged(decided, self.module, key.merged)


def _intervals(function: Function, launch: KnownLaunch) -> Intervals:
    known, params = launch.answers(function), {p.name: p.value for p in function.params}

    def number(name: str) -> int | None:
        found = known(params[name]) if name in params else None
        return int(found) if isinstance(found, int) else None

    return Intervals(function, launch.grid, launch.block, number)
