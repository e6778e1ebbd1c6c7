"""Tiles: shared arrays that one phase fills and later phases only read, as in a tiled matrix product.

    for (...) { A[t] = a[...];  __syncthreads();  ... reads of A ...  __syncthreads(); }

What was read from a tile need not be kept: entering the reverse of the block, the tile is filled again and can be read
again (rule 8). That is right if the fill writes every cell that is read; `coverage` decides this for a launch, and
without it the reads are kept on the tape. A tile of a block that runs once in a joint sweep still holds what it held.

Of an array that several phases fill, each over what the last one left, what is read behind all of them is what it holds
when the reverse begins, if its block runs once and in a joint sweep (Note [Last phase]).

An array of a thread's own that its block fills first and then reads is such a tile, too: each execution has its own, so
that filling it again makes it what it was, whatever of it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.effects import has_barrier
from ..ir.ops import Alloca, Barrier, Block, For, If, Load, Op, Store, Value, While
from ..ir.traverse import blocks, operands, walk
from ..ir.types import Pointer
from .roots import Memory
from .structure import Place, Structure

if TYPE_CHECKING:
    from .cycles import Cycle
    from .induction import Induction


@dataclass(frozen=True, eq=False)
class Earlier:
    """How the cells are filled again that an iteration of a loop leaves out (see `autodiff/saving/earlier_fills`).
    `number`: of the iteration that is reversed, from zero. `guards`: conditions, and which way they must go, for an
    iteration to come to the fill. `inductions`: of what the loop carries. `outside`: values from around the loop that
    guards and fill use. `last`: for branches of the fill that are in no loop of it, pointers to which iteration took
    them last."""

    loop: For | While
    number: Value
    guards: tuple[tuple[Value, bool], ...]
    inductions: Mapping[Value, Induction | Cycle]
    outside: tuple[Value, ...]
    last: Mapping[int, Value]


@dataclass(frozen=True, eq=False)
class Tile:
    root: Value
    variable: str
    place: Place  # the block that fills and reads it
    barrier: Barrier | None  # between the fill and the reads; None where it is the thread's own
    fill: tuple[Op, ...]  # operations of the block that write it
    stores: frozenset[int]
    loads: frozenset[int]
    reads: tuple[Op, ...]  # operations of the block that read it
    inner: frozenset[int] = frozenset()  # loads of what is filled so far, in the operations that fill it
    earlier: Earlier | None = None  # how to fill it again although guards leave cells out, if that can be done
    looks_back: bool = False  # it is filled again so

    @property
    def ready(self) -> Op:
        """Before this operation, it is filled."""
        return self.reads[0] if self.barrier is None else self.barrier

    @property
    def stays(self) -> bool:
        """Whether the reverse sweep finds the contents as they were."""
        return self.place.in_scope

    def contains(self, place: Place | None) -> bool:
        """Whether a place lies in the tile's block."""
        while place is not None and place.block is not self.place.block:
            place = place.parent
        return place is not None

    def stored(self, op: Op) -> list[Value]:
        """What the writes in an operation of the fill use, and what decides whether they happen."""
        used = [v for store in _nested(op) if id(store) in self.stores for v in operands(store)]
        around = (control for control in _nested(op) if blocks(control) and touches(control, self.stores))
        return [*used, *(v for control in around for v in _decides(control))]


def find_tiles(memory: Memory, structure: Structure) -> dict[Value, Tile]:
    found: dict[Value, Tile] = {}
    for name, root in memory.global_names.items():
        if isinstance(root.type, Pointer) and root.type.space == "shared":
            tile = _tile(root, name, memory, structure)
            if tile is not None:
                found[root] = tile
    return found


def _tile(root: Value, name: str, memory: Memory, structure: Structure) -> Tile | None:
    stores = [op for op in memory.stores if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    accesses: list[Op] = [*stores, *loads]
    plain = all(isinstance(op, Store | Load) and len(memory.of(op.ptr)) == 1 for op in accesses)
    if not stores or not loads or not plain:
        return None
    place = common_place(accesses, structure)
    ids = {id(op) for op in stores}, {id(op) for op in loads}
    fill, reads = ([k for k, op in enumerate(place.block.ops) if touches(op, which)] for which in ids)
    between = place.block.ops[fill[-1] + 1 : reads[0]]
    barrier = next((op for op in between if isinstance(op, Barrier) and op.scope == "block"), None)
    ops = place.block.ops
    written, read = map(frozenset, ids)
    filling, reading = (tuple(ops[k] for k in which) for which in (fill, reads))
    # What one thread fills before a barrier and another after it would race where the fill runs again without one.
    if barrier is not None and not any(map(has_barrier, ops[fill[0] : fill[-1] + 1])):
        return Tile(root, name, place, barrier, filling, written, read, reading)
    # Note [Last phase]: in a block that runs once, whatever one thread stores stands before what another one reads
    # behind it. So it happened before: to happen after, the reader would have to come to a barrier behind its read that
    # the other one comes to before its store, and there is none that is both. Anything else is a race.
    last = tuple(ops[k] for k in reads if k > fill[-1])
    if not last or not place.in_scope:
        return None
    return Tile(root, name, place, None, filling, written, _nested_in(last) & read, last)


def _nested_in(ops: tuple[Op, ...]) -> frozenset[int]:
    return frozenset(id(op) for outer in ops for op in _nested(outer))


def find_own(memory: Memory, structure: Structure) -> Iterator[Tile]:
    """Arrays of a thread's own, in the order in which they stand."""
    for root, op in structure.definition.items():
        if isinstance(op, Alloca) and root not in memory.escaped:
            tile = _own(root, memory, structure)
            if tile is not None:
                yield tile


def _own(root: Value, memory: Memory, structure: Structure) -> Tile | None:
    accesses = [op for op in (*memory.stores, *memory.loads) if root in memory.of(op.ptr)]  # type: ignore[attr-defined]
    if not all(isinstance(op, Store | Load) and len(memory.of(op.ptr)) == 1 for op in accesses):
        return None
    stores = frozenset(id(op) for op in accesses if isinstance(op, Store))
    loads = frozenset(id(op) for op in accesses if isinstance(op, Load))
    place, ops = structure.home[root], structure.home[root].block.ops
    fill = [k for k, op in enumerate(ops) if touches(op, stores)]
    after = ops[fill[-1] + 1 :] if fill else ()
    reads = tuple(op for op in after if touches(op, loads))
    if not reads:
        return None
    read = _nested_in(reads) & loads
    filling = tuple(ops[k] for k in fill)
    inner = _nested_in(filling) & loads
    return Tile(root, root.name or "", place, None, filling, stores, read, reads, inner)


def common_place(accesses: list[Op], structure: Structure) -> Place:
    """The innermost block that all the operations are in."""
    wanted = {id(op) for op in accesses}
    place = structure.top
    while True:
        inside = [inner for op in place.block.ops for inner in blocks(op) if _holds(inner, wanted)]
        direct = any(id(op) in wanted for op in place.block.ops)
        if direct or len(inside) != 1:
            return place
        place = structure.place(inside[0])


def _holds(block: Block, wanted: set[int]) -> bool:
    return any(id(op) in wanted for op in walk(block))


def touches(op: Op, wanted: Set[int]) -> bool:
    return any(id(nested) in wanted for nested in _nested(op))


def _decides(op: Op) -> tuple[Value, ...]:
    """What says which of its blocks an operation runs, and how often."""
    match op:
        case If(cond):
            return (cond,)
        case For(lower, upper):
            return lower, upper
        case While(inits, _, body):
            return inits[0], body.results[0]
    return ()


def _nested(op: Op) -> Iterator[Op]:
    yield op
    for inner in blocks(op):
        yield from walk(inner)
