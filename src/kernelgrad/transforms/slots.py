"""What each alloca's bytes are used for: the analysis behind `promote`.

A pointer that is derived from an alloca by members, casts and constant offsets is a static `Address`: alloca and byte
offset. Every access through one is cut into scalar leaves. Leaves that are only ever accessed as a whole become
`Cell`s, to be promoted; where a pointer escapes, is indexed dynamically, is volatile, or where accesses of different
extent overlap (unions), the smallest part of the variable's type that contains them stays memory: a `Region`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..analysis.fold import Number, evaluate
from ..ir.ops import Alloca, Apply, Block, Constant, Load, Member, Offset, Op, PtrCast, Store, Undef, Value
from ..ir.traverse import blocks, operands
from ..ir.types import Array, Pointer, Scalar, Struct, Type

_MOST_LEAVES = 256  # a local larger than that is an array to be indexed, not a handful of values


@dataclass(frozen=True, slots=True)
class Address:
    root: Value
    offset: int
    stepped: bool = False  # by a constant offset: it may be the end of one array rather than the start of the next


@dataclass(frozen=True, slots=True)
class Cell:
    """A promoted scalar: `index` numbers it within the function."""

    index: int
    type: Type
    name: str | None


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a variable that stays memory, as an alloca of its own."""

    offset: int
    type: Type
    name: str | None

    @property
    def end(self) -> int:
        return self.offset + self.type.size


@dataclass(slots=True)
class Root:
    """One alloca: the accesses made to it, and what becomes of it."""

    value: Value
    type: Type
    accesses: dict[tuple[int, Type], None] = field(default_factory=dict)
    memory: set[tuple[int, int]] = field(default_factory=set)  # byte ranges that must stay memory
    cells: dict[int, Cell] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing of it is promoted."""
        return len(self.regions) == 1 and self.regions[0].type is self.type


class Slots:
    """The result of the analysis."""

    def __init__(self, body: Block):
        self.roots: dict[Value, Root] = {}
        self.addresses: dict[Value, Address] = {}
        self.cells: list[Cell] = []
        self.undefined: set[Value] = set()  # storing such a value into a variable does nothing
        self._constants: dict[Value, Number] = {}
        self._scan(body)
        for root in self.roots.values():
            self._divide(root)

    # ---- collecting accesses

    def _scan(self, block: Block) -> None:
        for op in block.ops:
            self._visit(op)
            for inner in blocks(op):
                self._scan(inner)
        for value in block.results:
            self._escape(value)

    def _visit(self, op: Op) -> None:
        match op:
            case Alloca():
                self._root(op.result)
            case Undef():
                self.undefined.add(op.result)
            case Store(ptr, value, False) if value in self.undefined and ptr in self.addresses:
                pass
            case Constant(value) if isinstance(op.result.type, Scalar):
                self._constants[op.result] = value
            case Apply():
                self._fold(op)
                self._escape_all(op)
            case Load(ptr, volatile):
                self._access(ptr, op.result.type, volatile)
            case Store(ptr, value, volatile):
                self._access(ptr, value.type, volatile)
                self._escape(value)
            case Member(ptr, index) if ptr in self.addresses:
                self._derive(op, ptr, _pointee(ptr).fields[index].offset)  # type: ignore[union-attr]
            case PtrCast(ptr) if ptr in self.addresses:
                self._derive(op, ptr, 0)
            case Offset(ptr, index) if ptr in self.addresses and index in self._constants:
                self._derive(op, ptr, int(self._constants[index]) * _pointee(ptr).size, stepped=True)
            case _:
                self._escape_all(op)

    def _root(self, value: Value) -> None:
        type = _pointee(value)
        self.roots[value] = Root(value, type)
        self.addresses[value] = Address(value, 0)

    def _fold(self, op: Apply) -> None:
        known = self._constants
        if op.args and all(arg in known for arg in op.args) and isinstance(op.result.type, Scalar):
            types = tuple(arg.type for arg in op.args if isinstance(arg.type, Scalar))
            value = evaluate(op.fn, tuple(known[arg] for arg in op.args), types, op.result.type)
            if value is not None:
                known[op.result] = value

    def _derive(self, op: Op, ptr: Value, by: int, stepped: bool = False) -> None:
        base = self.addresses[ptr]
        offset = base.offset + by
        if 0 <= offset <= self.roots[base.root].type.size:
            self.addresses[op.result] = Address(base.root, offset, base.stepped or (stepped and by != 0))
        else:
            self._escape(ptr)

    def _access(self, ptr: Value, type: Type, volatile: bool) -> None:
        address = self.addresses.get(ptr)
        if address is None:
            return
        root, offset = self.roots[address.root], address.offset
        if offset + type.size > root.type.size:
            root.memory.add((0, root.type.size))
        elif volatile:
            root.memory.add((offset, offset + type.size))
        else:
            root.accesses[offset, type] = None

    def _escape_all(self, op: Op) -> None:
        for value in operands(op):
            self._escape(value)

    def _escape(self, value: Value) -> None:
        address = self.addresses.get(value)
        if address is not None:
            root = self.roots[address.root]
            start, end = _reachable(root.type, address.offset, _pointee(value))
            if address.stepped and start == address.offset:
                start, end = 0, root.type.size
            root.memory.add((start, end))

    # ---- deciding

    def _divide(self, root: Root) -> None:
        """Cells and regions of one alloca."""
        if (0, root.type.size) in root.memory or _leaf_count(root.type) > _MOST_LEAVES:
            root.regions = [Region(0, root.type, root.value.name)]
            return
        ranges, leaves = _separate(root)
        for start, end in ranges:
            offset, type, names = _enclosing(root.type, start, end)
            root.regions.append(Region(offset, type, _join(root.value.name, names)))
        if root.whole:
            return
        for offset, types in sorted(leaves.items()):
            self._cell(root, offset, types[0])

    def _cell(self, root: Root, offset: int, type: Type) -> None:
        at, declared, names = _enclosing(root.type, offset, offset + type.size)
        exact = at == offset and declared.size == type.size and convertible(declared, type)
        cell = Cell(len(self.cells), declared if exact else type, _join(root.value.name, names))
        self.cells.append(cell)
        root.cells[offset] = cell


def convertible(left: Type, right: Type) -> bool:
    """Whether a cell of one type can be read as the other: by bitcast or pointer cast."""
    if left == right:
        return True
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return left.size == right.size and "bool" not in (left.kind, right.kind)
    return isinstance(left, Pointer) and isinstance(right, Pointer)


def leaves(type: Type, offset: int) -> Iterator[tuple[int, Type]]:
    """The scalars and pointers (and unions, whole) that make up a value of the type at the offset."""
    if isinstance(type, Array):
        for k in range(type.count):
            yield from leaves(type.element, offset + k * type.element.size)
    elif isinstance(type, Struct) and not type.is_union:
        for part in type.fields:
            yield from leaves(part.type, offset + part.offset)
    else:
        yield offset, type


def _leaf_count(type: Type) -> int:
    if isinstance(type, Array):
        return type.count * _leaf_count(type.element)
    if isinstance(type, Struct) and not type.is_union:
        return sum(_leaf_count(part.type) for part in type.fields)
    return 1


def _separate(root: Root) -> tuple[list[tuple[int, int]], dict[int, list[Type]]]:
    """Disjoint byte ranges that stay memory, and the types of each leaf outside them.

    A leaf that meets a range, another leaf in part, or itself with a type that does not convert, joins the memory;
    the range it becomes is widened to a whole part of the variable and may then meet others, hence the loop.
    """
    found: dict[int, list[Type]] = {}
    memory = {_whole_part(root.type, *span) for span in root.memory}
    clashes: set[tuple[int, int]] = set()
    for offset, type in root.accesses:
        for at, leaf in leaves(type, offset):
            types = found.setdefault(at, [leaf])
            if not all(convertible(leaf, other) for other in types):
                clashes.add((at, at + max(leaf.size, *(t.size for t in types))))
            if leaf not in types:
                types.append(leaf)
    while True:
        spans = [(at, at + max(t.size for t in types)) for at, types in found.items()]
        merged, clashing = _merge(memory | clashes, spans)
        if not clashing and merged == sorted(memory):
            return merged, found
        memory = {_whole_part(root.type, *span) for span in (*merged, *clashing)}
        clashes = set()
        found = {at: types for at, types in found.items() if not any(start <= at < end for start, end in memory)}


def _merge(
    memory: set[tuple[int, int]], spans: list[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The ranges with overlapping ones joined, and those joined ranges that were not memory alone or a leaf alone."""
    merged: list[tuple[int, int]] = []
    clashing: list[tuple[int, int]] = []
    marked = sorted([(*span, True) for span in memory] + [(*span, False) for span in spans])
    k = 0
    while k < len(marked):
        start, end, in_memory = marked[k]
        group = 1
        while k + group < len(marked) and marked[k + group][0] < end:
            end = max(end, marked[k + group][1])
            in_memory |= marked[k + group][2]
            group += 1
        if group > 1:
            clashing.append((start, end))
        elif in_memory:
            merged.append((start, end))
        k += group
    return merged, clashing


def _reachable(type: Type, offset: int, pointee: Type) -> tuple[int, int]:
    """The bytes that arithmetic on a pointer into a variable may reach: the array around it, else everything.

    `(&v.x)[i]` is not C++ but common, so a pointer to a member that is no array element reaches the whole variable.
    """
    path = list(_path(type, offset, pointee))
    for depth in range(len(path) - 1, -1, -1):
        start, part = path[depth]
        if isinstance(part, Array) and part.element == pointee and (offset - start) % max(1, pointee.size) == 0:
            while depth > 0 and isinstance(path[depth - 1][1], Array):
                depth -= 1
            start, part = path[depth]
            return start, start + part.size
    start, part = path[-1]
    if part == pointee and start == offset and isinstance(part, Struct | Array):
        return start, start + part.size
    return 0, type.size


def _path(type: Type, offset: int, stop: Type) -> Iterator[tuple[int, Type]]:
    """The nested parts that contain a byte, outermost first, down to a part of type `stop` or a leaf."""
    start = 0
    while True:
        yield start, type
        if type == stop and start == offset:
            return
        inner = _child(type, start, offset, offset + 1)
        if inner is None:
            return
        start, type, _ = inner


def _child(type: Type, start: int, low: int, high: int) -> tuple[int, Type, str] | None:
    """The direct part of an aggregate that contains the bytes [low, high)."""
    if isinstance(type, Array) and type.element.size:
        k = (low - start) // type.element.size
        at = start + k * type.element.size
        if k < type.count and high <= at + type.element.size:
            return at, type.element, str(k)
    if isinstance(type, Struct) and not type.is_union:
        for part in type.fields:
            if start + part.offset <= low and high <= start + part.offset + part.type.size:
                return start + part.offset, part.type, part.name
    return None


def _enclosing(type: Type, low: int, high: int) -> tuple[int, Type, list[str]]:
    """The smallest part that contains the bytes, and the names on the way to it."""
    start, names = 0, []
    while not (start == low and type.size == high - low and not _single(type)):
        inner = _child(type, start, low, high)
        if inner is None:
            break
        start, type, name = inner
        names.append(name)
    return start, type, names


def _single(type: Type) -> bool:
    """An aggregate of one part, whose bytes are also that part's."""
    return isinstance(type, Struct | Array) and _child(type, 0, 0, type.size) is not None


def _whole_part(type: Type, low: int, high: int) -> tuple[int, int]:
    start, part, _ = _enclosing(type, low, high)
    return start, start + part.size


def _join(name: str | None, parts: list[str]) -> str | None:
    return None if name is None else "_".join((name, *parts))


def _pointee(ptr: Value) -> Type:
    assert isinstance(ptr.type, Pointer)
    return ptr.type.pointee
