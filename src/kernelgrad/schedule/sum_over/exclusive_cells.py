"""Sums of a warp rotation, added plainly: to cells of shared memory that one lane alone touches between two barriers.

The lane in which the sum of an iteration ends is the only one of its row that adds it. If different rows and iterations
have different cells, and nobody else has to do with them until threads meet again, no atomic is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...analysis.aliases import Aliases
from ...analysis.block_interpreter.lanes import Trips, Update, nested
from ...ir.effects import PURE
from ...ir.ops import Alloca, Atomic, Barrier, For, If, Load, Module, Op, Store, Value, Warp, While
from ...ir.traverse import walk
from ..exchange.owners import Cell, cell_of, owned_along


class BlockFacts(NamedTuple):
    """Of a function and the blocks that it is for. `row`: lanes that agree on the cells."""

    module: Module
    block: tuple[int, int, int]
    row: int
    definition: dict[Value, Op]
    aliases: Aliases
    uniform: set[Value]

    def own(self, loop: For, chosen: list[Update], trips: Trips, behind: Iterable[Op], before: list[Op]) -> set[int]:
        """Those of the updates, by the ids of their atomics, whose sums may be added plainly after the loop."""
        if self.block[0] != self.row:  # else several warps of a row have a sum of the same cell
            return set()
        found = [cell_of(u, loop, self.module, self.definition, self.aliases, self.uniform) for u in chosen]
        owned = owned_along(0, [cell for cell in found if cell is not None], self.block, trips)
        added = [op for op in walk(loop.body) if isinstance(op, Atomic)]
        around = (list(reversed(before)), list(behind))
        return {
            id(cell.update.atomic)
            for cell in owned
            if self._is_all(cell, owned, added) and all(self._is_quiet(ops, cell.update.ptr) for ops in around)
        }

    def _is_all(self, cell: Cell, owned: list[Cell], added: list[Atomic]) -> bool:
        """Whether nothing else of the loop goes to the cell's variable."""
        own = {id(c.update.atomic) for c in owned if c.variable == cell.variable}
        others = (op for op in added if id(op) not in own)
        return not any(self.aliases.may_meet(op.ptr, cell.update.ptr) for op in others)

    def _is_quiet(self, ops: Iterable[Op], cell: Value) -> bool:
        """Whether threads meet before any of them touches the cells."""
        for op in ops:
            if isinstance(op, Barrier) and op.scope == "block":
                return True
            for inner in nested((op,)):
                match inner:
                    case Load(ptr) | Store(ptr) | Atomic(_, ptr):
                        if self.aliases.may_meet(ptr, cell):
                            return False
                    case _ if not isinstance(inner, (*PURE, Alloca, Barrier, For, If, Warp, While)):
                        return False
        return False
