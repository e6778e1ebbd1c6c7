"""The planner's part in tiles: which of them the reverse fills again, and what that takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...analysis.tiles import Tile, find_tiles
from ...ir.ops import Op, Store, Value
from ...ir.traverse import blocks, operands
from .recompute import Again


def choose_tiles(again: Again, refill: bool) -> None:
    """Those whose contents stay, and those that can be filled again. Values stored in branches and loops must be
    recomputable; one that the block itself stores can be kept."""
    for root, tile in find_tiles(again.memory, again.structure).items():
        bad = any(blocks(op) and again.trace(tile.stored(op), op).bad for op in tile.fill)
        if tile.stays or (refill and not bad):
            again.tiles[root] = tile


class Refills:
    """`refilled`: for each block, the tiles filled again before its reverse."""

    def __init__(self, again: Again, refilled: dict[int, list[Tile]]):
        self.again, self.refilled = again, refilled
        self.done: set[Tile] = set()

    def note(self, values: Iterable[Value]) -> None:
        """These will be computed again: tiles they are loaded from must be there."""
        for value in values:
            tile = self.again.tile_of(self.again.structure.definition.get(value))
            if tile is not None and not tile.stays:
                used = self.refilled.setdefault(id(tile.place.block), [])
                if tile not in used:
                    used.append(tile)
                    used.sort(key=lambda t: t.variable)  # the values come in no order, the text must

    def needed(self) -> Iterator[tuple[list[Value], Op | None]]:
        """What the fills store: values, and the operation that they are inside. To get them may take more tiles."""
        while todo := [t for used in self.refilled.values() for t in used if t not in self.done]:
            for tile in todo:
                self.done.add(tile)
                for op in tile.fill:
                    yield (list(operands(op)), None) if isinstance(op, Store) else (tile.stored(op), op)
