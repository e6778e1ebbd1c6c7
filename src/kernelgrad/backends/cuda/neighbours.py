"""Atomic additions to neighbouring numbers. Devices of compute capability 9.0 and newer add two or four floats, as the
parts of a `float4` are, in one access. Of eight and more, as the rows of weights that all threads share, a warp whose
lanes are all at the same place gives each lane some to add up: one exchange for each number instead of five. In shared
memory, where nothing is added two or four at a time, that alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...analysis.access.constant_offsets import Spot, spot_of
from ...ir.ops import Apply, Atomic, Block, Constant, Function, Load, Member, Module, Offset, Op, Param, PtrCast, Value
from ...ir.traverse import blocks, descend, uses, walk, with_body
from ...ir.types import F32, F64, Pointer, Type

ROWS = (32, 16, 8)  # how many elements the lanes of a warp add up together
# How many are added at a time, by the memory's space and what it holds.
SIZES: dict[tuple[str, Type], tuple[int, ...]] = {
    ("global", F32): (*ROWS, 4, 2),
    ("global", F64): ROWS,
    ("shared", F32): ROWS,
    ("shared", F64): ROWS,
}


@dataclass(frozen=True)
class Neighbours:
    """Additions next to each other, in the order of their addresses; `last`: the one that comes last."""

    adds: tuple[Atomic, ...]
    last: Atomic

    @property
    def helper(self) -> str:
        return f"{'cells' if _space(self.last) == 'shared' else 'warp'}_add_{len(self.adds)}"

    @property
    def helpers(self) -> tuple[str, ...]:
        """With what that calls."""
        return (self.helper, "add_four") if len(self.adds) in ROWS and _space(self.last) != "shared" else (self.helper,)


def _space(op: Atomic) -> str:
    assert isinstance(op.ptr.type, Pointer)
    return op.ptr.type.space


def run(function: Function, _: Module) -> Function:
    """The function with additions to neighbouring floats behind each other."""
    finder = _Finder(function)

    def arranged(block: Block) -> Block:
        ops = [descend(op, arranged) for op in block.ops]
        later: dict[int, list[Op]] = {}
        moved: set[int] = set()
        for group in finder.groups(ops):
            later[id(group.last)] = [op for op in group.adds if op is not group.last]
            moved |= {id(op) for op in later[id(group.last)]}
        behind = [[*later.get(id(op), ()), op] for op in ops if id(op) not in moved]
        return Block(block.args, tuple(op for group in behind for op in group), block.results)

    return with_body(function, arranged(function.body))


def neighbours(function: Function) -> Iterator[Neighbours]:
    """Those of a function that `run` gave."""
    yield from _inside(function.body, _Finder(function))


def _inside(block: Block, finder: _Finder) -> Iterator[Neighbours]:
    yield from finder.groups(list(block.ops))
    for op in block.ops:
        for inner in blocks(op):
            yield from _inside(inner, finder)


class _Finder:
    def __init__(self, function: Function):
        self.definition = {result: op for op in walk(function.body) for result in op.results}
        self.params: dict[Value, Param] = {p.value: p for p in function.params}
        self.used = uses(function.body)

    def groups(self, ops: list[Op]) -> Iterator[Neighbours]:
        for run in self._runs(ops):
            places = {id(op): self._place(op.ptr) for op in run}
            for part in _parted(run, places):
                at = {places[id(op)].bytes: op for op in part}
                for numbers in _consecutive(sorted(at), part[0]):
                    adds = tuple(at[n] for n in numbers)
                    yield Neighbours(adds, next(op for op in reversed(part) if op in adds))

    def _runs(self, ops: list[Op]) -> Iterator[list[Atomic]]:
        """Additions between which nothing happens that they could be seen by."""
        run: list[Atomic] = []
        for op in ops:
            if self._is_addition(op):
                run.append(op)  # type: ignore[arg-type]
            elif run and not self._goes_before(op, run):
                yield run
                run = []
        yield run

    def _is_addition(self, op: Op) -> bool:
        if not isinstance(op, Atomic) or not op.together or self.used.get(op.result):
            return False
        return (_space(op), op.result.type) in SIZES

    def _goes_before(self, op: Op, run: list[Atomic]) -> bool:
        """Whether the additions may as well come after it."""
        if isinstance(op, Load):
            if {*map(_space, run)} == {"shared"} and isinstance(op.ptr.type, Pointer) and op.ptr.type.space == "global":
                return not op.volatile
            root = self.params.get(self._place(op.ptr).root)
            added = [self.params.get(self._place(add.ptr).root) for add in run]
            apart = [p is not None and p.restrict for p in (root, *added)]
            return not op.volatile and all(apart) and root not in added
        return isinstance(op, Apply | Constant | Offset | Member | PtrCast)

    def _place(self, ptr: Value) -> Spot:
        return spot_of(ptr, self.definition)


def _parted(run: list[Atomic], places: Mapping[int, Spot]) -> Iterator[list[Atomic]]:
    """By all but the constant part of the address; of additions to one element the first alone."""
    parts: dict[tuple[Value, frozenset[tuple[Value, int]], Type], dict[int, Atomic]] = {}
    for op in run:
        place = places[id(op)]
        parts.setdefault((place.root, place.terms, op.result.type), {}).setdefault(place.bytes, op)
    for part in parts.values():
        yield list(part.values())


def _consecutive(places: list[int], op: Atomic) -> Iterator[list[int]]:
    """Runs of places that are next to each other, from the left, as long as can be. `op`: what is done there."""
    k, type = 0, op.result.type
    while k < len(places):
        for size in SIZES[_space(op), type]:
            found = places[k : k + size]
            if len(found) == size and found[-1] - found[0] == (size - 1) * type.size:
                yield found
                k += size
                break
        else:
            k += 1
