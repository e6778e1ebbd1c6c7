"""What of the forward sweep the reverse may run again (rules 3 and 4), and which tiles it fills again for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...analysis.roots import UNKNOWN, Memory, Roots
from ...analysis.structure import Place, Structure
from ...ir.effects import NESTING, OF_OPERANDS, is_clock
from ...ir.functions import REPLACED
from ...ir.ops import Alloca, Apply, Builtin, Constant, For, If, Load, Op, Store, Value, Warp, While
from ...ir.traverse import blocks, operands
from ...ir.types import Scalar

if TYPE_CHECKING:
    from ...analysis.tiles import Tile


class Trace(NamedTuple):
    """A slice: whether any of it comes from what must not be run again (rule 4), which values from outside it uses, and
    all values in it."""

    bad: bool
    outside: dict[Value, None]
    seen: set[Value]


class Again:
    """`tiles`: shared arrays that are there, or filled again, when the reverse of their block runs. `changing`: memory
    that may hold something else by then, whoever wrote it (rule 25). `early`: loads of what memory held before the
    kernel, and holds again. `held`: for operations whose results outputs still hold, the loads of them."""

    def __init__(self, structure: Structure, memory: Memory, may_alias: bool, changing: Roots, early: frozenset[int]):
        self.structure, self.memory, self.may_alias = structure, memory, may_alias
        self.changing, self.early = changing, early
        self.written = memory.written()
        self.tiles: dict[Value, Tile] = {}
        self.held: Mapping[int, Load] = {}
        self.numbers: dict[int, Value] = {}  # loop -> the number of the iteration that is reversed, where fills need it
        self.last_filled: dict[int, Value] = {}  # If -> a pointer to the iteration that it filled a tile in last

    def tile_of(self, op: Op | None) -> Tile | None:
        """The tile that a load reads."""
        if not isinstance(op, Load):
            return None
        tile = self.tiles.get(next(iter(self.memory.of(op.ptr)), op.result))
        return tile if tile is not None and id(op) in tile.loads else None

    def is_untiled(self, load: Load) -> bool:
        return self.tile_of(load) is None

    def trace(self, wanted: Iterable[Value], within: Op, inner: Set[int] = frozenset()) -> Trace:
        """Follows values back inside an operation, which would run again where it stands. `inner`: loads of what it
        stores itself, and then stores again."""
        place = self.structure.place_of(within)
        seen: set[Value] = set()
        outside: dict[Value, None] = {}
        todo = list(wanted)
        bad = False
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            op = self.structure.definition.get(value)
            if op is not within and not self.structure.is_inside(value, within):
                outside[value] = None
            elif op is None:
                todo += self.structure.argument_sources(value)
            elif id(op) in self.held:
                todo += operands(self.held[id(op)])
            elif id(op) not in inner and self.is_source(op, place):
                bad = True
            elif isinstance(op, Apply) and op.fn in REPLACED:
                todo.append(self._replaced(op, within))
            else:
                todo += dependencies(op, value)
        return Trace(bad, outside, seen)

    def _replaced(self, op: Apply, within: Op) -> Value:
        """What a value that the reverse of a loop has something else for comes from; itself, if all of that loop runs
        again."""
        from .in_reverse import loop_argument, replacement

        again = self.structure.is_inside(loop_argument(op), within)
        return op.args[0] if again else replacement(op, self.structure)

    def is_source(self, op: Op, place: Place) -> bool:
        """Whether an operation must not be run again in the reverse of a block."""
        if isinstance(op, Load):
            tile = self.tile_of(op)
            if tile is not None and tile.contains(place):
                return False
            early = id(op) in self.early and self.memory.of(op.ptr).isdisjoint(self.changing)
            return op.volatile or not (early or self._unwritten(op.ptr))
        if isinstance(op, Builtin):
            return is_clock(op)
        if isinstance(op, Warp):
            # Those that a mask names are all there again. Outside loops, results are in registers.
            return op.fn == "activemask" or not place.in_loop
        return not isinstance(op, (*OF_OPERANDS, Alloca, *NESTING))

    def is_countable(self, loop: While) -> bool:
        """Whether nothing but arithmetic on integers decides how often a loop runs, which comes out the same again, and
        none of them is a counter: those count many iterations, while a number is halved a few times."""
        found = self.trace((loop.inits[0], loop.body.results[0]), loop)
        inside = found.seen.difference(found.outside)
        ops = (self.structure.definition.get(value) for value in inside)
        whole = all(isinstance(v.type, Scalar) and not v.type.is_float for v in found.seen)
        whole = whole and not found.bad and all(op is None or isinstance(op, Apply | Constant | Builtin) for op in ops)
        return whole and not any(self._is_counter(loop, v) for v in inside.intersection(loop.body.args))

    def _is_counter(self, loop: While, arg: Value) -> bool:
        from ...analysis.induction import find_step

        step = find_step(loop, arg, self.structure)
        return step is not None and step.fn in ("add", "sub")

    def _unwritten(self, ptr: Value) -> bool:
        """Rule 3: nothing in the whole grid writes that memory, through any pointer."""
        roots = self.memory.of(ptr)
        if roots & self.changing:
            return False
        if self.may_alias and any(not isinstance(self.structure.definition.get(r), Alloca) for r in roots):
            return not self.written
        if UNKNOWN in roots or UNKNOWN in self.written:
            return not self.written
        return not (roots & self.written) and bool(roots)


def dependencies(op: Op, result: Value) -> list[Value]:
    """What one result of a pure or structured operation depends on."""
    match op:
        case If(cond, then, orelse):
            k = op.results.index(result)
            return [cond, then.results[k], orelse.results[k]]
        case For(lower, upper, inits, _, body):
            k = op.results.index(result)
            return [lower, upper, inits[k], body.results[k]]
        case While(inits, _, body):
            k = op.results.index(result)
            return [inits[k], body.results[k], body.results[0], inits[0]]
    return list(operands(op))


# ---- tiles ----------------------------------------------------------------------------------------------------------


def choose_tiles(again: Again, refill: bool, looks_back: Collection[str] = ()) -> None:
    """Those whose contents stay, and those that can be filled again. Values stored in branches and loops must be
    recomputable; one that the block itself stores can be kept. `looks_back`: those whose fills leave cells out."""
    if again.memory.global_names:
        from ...analysis.tiles import find_tiles

        for root, tile in find_tiles(again.memory, again.structure).items():
            if root not in again.changing and (tile.stays or (refill and _can_fill(again, tile))):
                again.tiles[root] = tile
        _look_back(again, looks_back)
    if any(isinstance(again.structure.definition.get(root), Alloca) for root in again.written):
        from ...analysis.tiles import find_own

        left = [tile for tile in find_own(again.memory, again.structure) if tile.root not in again.changing]
        while found := [tile for tile in left if tile.stays or _can_fill(again, tile)]:  # from others, perhaps
            again.tiles.update((tile.root, tile) for tile in found)
            left = [tile for tile in left if tile not in found]


def _look_back(again: Again, names: Collection[str]) -> None:
    """Says of each how it can be filled again where guards leave cells out. `names`: those of which that is asked; they
    are no tiles if it cannot be."""
    for root, tile in list(again.tiles.items()):
        if tile.barrier is None or tile.stays:
            continue
        from .earlier_fills import find_earlier

        again.tiles[root] = replace(tile, earlier=find_earlier(again, tile), looks_back=tile.variable in names)
        if tile.variable in names and again.tiles[root].earlier is None:
            del again.tiles[root]


def _can_fill(again: Again, tile: Tile) -> bool:
    return not any(blocks(op) and again.trace(tile.stored(op), op, tile.inner).bad for op in tile.fill)


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

    def needed(self) -> Iterator[tuple[list[Value], Op | None, Tile]]:
        """What the fills store: values, and the operation that they are inside. To get them may take more tiles."""
        while todo := [t for used in self.refilled.values() for t in used if t not in self.done]:
            for tile in todo:
                self.done.add(tile)
                if tile.looks_back and tile.earlier is not None:
                    yield list(tile.earlier.outside), None, tile
                for op in tile.fill:
                    yield (list(operands(op)), None, tile) if isinstance(op, Store) else (tile.stored(op), op, tile)
