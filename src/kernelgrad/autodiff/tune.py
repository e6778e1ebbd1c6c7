"""What is done to a finished gradient for the launches it is for: no needless fills, exchanged loops and rings
instead of atomics, barriers of warps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..ir.ops import Function, Module
from ..transforms import early, reciprocals, simplify
from . import exchange, fills, rings, trees, warp_barriers

_WARP = 32


@dataclass(frozen=True)
class Tuning:
    """`row`: a power of two that the rows of a block are multiples of, where its warps are whole; 1 if not known.
    `block`: its shape, where that is known. `refilled`: the tiles that are filled again wherever they are read."""

    row: int = 1
    block: tuple[int, int, int] | None = None
    refilled: frozenset[str] = frozenset()

    @property
    def on_cpu(self) -> Tuning:
        """Lanes that exchange values cost more there than they save."""
        return self if self.block is None else replace(self, row=1)

    def __str__(self) -> str:
        return f"{self.row} {self.block} {sorted(self.refilled)}"


PLAIN = Tuning()
USUAL = PLAIN  # what a launch of any shape can use


def tuning_for(block: tuple[int, int, int]) -> Tuning:
    return Tuning(math.gcd(block[0], _WARP) if math.prod(block) % _WARP == 0 else 1, block)


def run(function: Function, module: Module, tuning: Tuning, gathering: frozenset[str]) -> Module:
    """The module with the function as it is best for the launches; what it needs is still in local variables.
    `gathering`: the memory in which adjoints are added up, in any order."""
    variables = dict(module.globals)
    function = fills.run(function, tuning.refilled)
    if tuning.block is not None:
        exchanged, own = exchange.run(function, module, tuning.block)
        if exchanged is not function:
            function, variables = simplify.run(exchanged, module), variables | own
    function = rings.run(function, tuning.row)
    if tuning.block is not None:
        function = trees.run(function, module, tuning.block, gathering)
    if tuning.block is not None and tuning.row > 1:
        function = reciprocals.run(early.run(function), gathering)
        function = warp_barriers.run(function, tuning.block)
    return replace(module, functions={function.name: function}, globals=variables)
