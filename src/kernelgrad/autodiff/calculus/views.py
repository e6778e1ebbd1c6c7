"""Views: parts of one array that a kernel uses as different types, as of dynamic shared memory that it cuts by hand.

Bytes that hold a float for one access and something else for another lose its derivative (rule 15). Views that start at
different places do not: `int *index = (int *)(values + n)` lies behind the values. Such a start is the same for all
threads of a block; where it varies, the cast is of an element, to get at its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from ...analysis.roots import Memory
from ...analysis.roots import analyse as roots_of
from ...analysis.uniform import uniform_values
from ...errors import UnsupportedError
from ...ir.builder import pointee
from ...ir.ops import (
    Apply,
    Atomic,
    Constant,
    Function,
    GlobalRef,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Undef,
    Value,
)
from ...ir.traverse import walk
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from ...locks import cached_property
from ...transforms.stretch import closed, flowing_together
from ...transforms.widen import is_row

Access = Load | Store | Atomic


def leaves(type: Type) -> frozenset[Scalar]:
    match type:
        case Scalar():
            return frozenset((type,))
        case Array(element, _):
            return leaves(element)
        case Struct():
            return frozenset(leaf for field in type.fields for leaf in leaves(field.type))
    return frozenset()


def held(root: Value) -> frozenset[Scalar]:
    """The floating-point types that memory is declared to hold; none if it is declared as bytes."""
    return (
        frozenset(t for t in leaves(root.type.pointee) if t.is_float) if isinstance(root.type, Pointer) else frozenset()
    )


@dataclass(frozen=True)
class Start:
    """Where a view begins: bytes, and values that are the same for all threads times a number of bytes."""

    bytes: int
    terms: frozenset[tuple[Value, int]]


@dataclass(frozen=True)
class View:
    types: frozenset[Scalar]
    start: Start | None  # None: not the same for all threads, or not known

    @property
    def has_floats(self) -> bool:
        return any(t.is_float for t in self.types)

    def meets(self, other: View) -> bool:
        """Whether one may take a float for something else that the other sees."""
        if self.types == other.types or not (self.has_floats or other.has_floats):
            return False
        if self.start is None or other.start is None:
            return True
        near = max(t.size for t in self.types | other.types)
        return self.start.terms == other.start.terms and abs(self.start.bytes - other.start.bytes) < near


_NONE = frozenset[int]()


def zero_words(function: Function) -> frozenset[int]:
    """The stores of integers that are zero in shared memory: zeros of whatever is there. Gradients clear their shadows
    in this way."""
    ops = list(walk(function.body))
    zeros = {op.result for op in ops if isinstance(op, Constant) and _is_integer(op.result) and op.value == 0}
    stores = (op for op in ops if isinstance(op, Store) and op.value in zeros)
    return frozenset(id(op) for op in stores if isinstance(op.ptr.type, Pointer) and op.ptr.type.space == "shared")


def apart(
    function: Function, memory: Memory, roots: Iterable[Value], active: Set[Value], zeros: frozenset[int] = _NONE
) -> frozenset[int]:
    """The accesses that see memory as another type than it is declared with, each in a part of its own.

    Memory that is declared as bytes has no type but that of its views: if it carries derivatives, those must be apart.
    Typed arrays are cut in parts only where their size is not known. `zeros`: stores that are apart from all others.
    """
    work = _Views(function, memory, active, zeros)
    found = [op for root in roots if _is_cut(root) for op in work.of_root(root)]
    if any(_makes_float(op) for op in work.definitions.values()):  # of integers that may be the bits of another view
        found = [op for op in found if not isinstance(op, Load)]
    return zeros.union(map(id, found))


def views_of(function: Function) -> Callable[[Access], list[View]]:
    """Those that an access is through, of all memory that it may be to."""
    memory = roots_of(function)
    work = _Views(function, memory, frozenset())
    return lambda op: [view for root in memory.of(op.ptr) for view in work.views(op.ptr, root)]


def cut_pointers(function: Function) -> frozenset[Value]:
    """The pointers into local and shared memory that is cut into parts of different types, floats among them, as far as
    nothing else can be where they lead. An error where parts overlap."""
    memory = roots_of(function)
    casts = [op for op in walk(function.body) if isinstance(op, PtrCast)]
    strange = [op for op in casts if not is_row(pointee(op.ptr), pointee(op.result))]
    cut = frozenset(root for op in strange for root in memory.of(op.ptr))
    pointers = closed(frozenset(v for v in memory.roots if memory.of(v) & cut), function)
    reached = frozenset[Value]().union(*map(memory.of, pointers))
    if any(not _is_of_launch(root) for root in reached) or reached & memory.escaped:
        return frozenset()
    if not all(isinstance(v.type, Pointer) for v in pointers):
        return frozenset()
    work = _Views(function, memory, reached)
    for root in reached:
        work.of_root(root, strict=True)
    return pointers


def _is_of_launch(root: Value) -> bool:
    return isinstance(root.type, Pointer) and root.type.space in ("local", "shared")


def _is_cut(root: Value) -> bool:
    if not isinstance(root.type, Pointer):
        return False
    type = root.type.pointee
    return not held(root) or (isinstance(type, Array) and type.count == 0)


class _Views:
    def __init__(self, function: Function, memory: Memory, active: Set[Value], zeros: frozenset[int] = _NONE):
        self.function, self.memory, self.active, self.zeros = function, memory, active, zeros
        self.definitions = {v: op for op in walk(function.body) for v in op.results}

    @cached_property
    def together(self) -> dict[Value, list[Value]]:
        """Pointers to those that they may be."""
        found: dict[Value, list[Value]] = {}
        for group in flowing_together(self.function):
            for value in group:
                found.setdefault(value, []).extend(group)
        return found

    @cached_property
    def uniform(self) -> set[Value]:
        return uniform_values(self.function)

    def of_root(self, root: Value, strict: bool = False) -> list[Access]:
        """`strict`: also what is declared as floats may hold nothing else in their place."""
        known = (op for op in (*self.memory.loads, *self.memory.stores) if isinstance(op, Load | Store | Atomic))
        accesses = [op for op in known if root in self.memory.of(op.ptr) and id(op) not in self.zeros]
        if len({leaves(pointee(op.ptr)) for op in accesses}) < 2:
            return []
        found = [(op, view) for op in accesses for view in self.views(op.ptr, root)]
        found.sort(key=lambda pair: pair[1].has_floats)  # an error is about the others
        declared = leaves(pointee(root)) if held(root) else frozenset()
        strange = [(op, view) for op, view in found if not (view.types and view.types <= declared)]
        mixed = [op for op, view in strange if any(view.meets(other) for _, other in found)]
        if mixed and (strict or not declared) and root in self.active:
            raise UnsupportedError(
                f"'{root.name}' holds floating-point numbers and something else in the same place: the derivative"
                " would be lost",
                mixed[0].span,
                "give each type a part of its own, or an array of its own",
            )
        return [op for op, _ in strange if not any(op is other for other in mixed)]

    def views(self, ptr: Value, root: Value) -> list[View]:
        """From the access back to the root: one for each way that a pointer can come, through branches and loops."""
        pending, joined = [ptr], set[Value]()
        found: list[View] = []
        while pending:
            view, end = self.view(pending.pop(), root)
            others = [v for v in self.together.get(end, ()) if v not in joined]
            if view is None and not self.together.get(end):  # null, or what nobody set
                view = None if isinstance(self.definitions.get(end), Constant | Undef) else _unknown(ptr)
            joined.update(others)
            pending += others
            found += [] if view is None else [view]
        return found

    def view(self, ptr: Value, root: Value) -> tuple[View | None, Value]:
        """By indices, the cast that makes the view, and what that is the cast of. None for what comes from elsewhere
        before any cast, and where that is."""
        first = ptr
        seen: frozenset[Scalar] | None = None  # what the view holds, once its cast is found
        terms: dict[Value, int] = {}
        start = 0
        while ptr is not root:
            match self.definitions.get(ptr):
                case GlobalRef():
                    break
                case PtrCast(inner):
                    if seen is None and leaves(pointee(inner)) != leaves(pointee(ptr)):
                        seen, start = leaves(pointee(ptr)), 0
                        terms.clear()
                case Offset(inner, index):
                    start += self.add(index, pointee(ptr).size, terms)
                case Member(inner, field):
                    struct = pointee(inner)
                    assert isinstance(struct, Struct)
                    start += struct.fields[field].offset
                case _:
                    return (None, ptr) if seen is None else (View(seen, None), first)
            ptr = inner
        varying = {v for v in terms if v not in self.uniform}
        types = leaves(pointee(root)) if seen is None else seen
        if (seen is not None and varying) or (seen is None and all(t.size == 1 for t in types)):
            return View(types, None), first  # bytes that are no other type's by a cast may be anything's
        uniform = frozenset((v, scale) for v, scale in terms.items() if scale and v not in varying)
        return View(types, Start(start, uniform)), first

    def add(self, index: Value, scale: int, terms: dict[Value, int]) -> int:
        """Splits an index into terms; what is constant in it is returned."""
        op = self.definitions.get(index)
        match op:
            case Constant(value):
                return int(value) * scale
            case Apply("convert", (arg,)) if _is_integer(arg):
                return self.add(arg, scale, terms)
            case Apply("add", (a, b)):
                return self.add(a, scale, terms) + self.add(b, scale, terms)
            case Apply("sub", (a, b)):
                return self.add(a, scale, terms) + self.add(b, -scale, terms)
        factor = self.factor(op)
        if factor is not None:
            return self.add(factor[0], scale * factor[1], terms)
        terms[index] = terms.get(index, 0) + scale
        return 0

    def factor(self, op: Op | None) -> tuple[Value, int] | None:
        if not isinstance(op, Apply) or op.fn != "mul":
            return None
        for value, other in (op.args, op.args[::-1]):
            number = self.definitions.get(other)
            if isinstance(number, Constant):
                return value, int(number.value)
        return None


def _unknown(ptr: Value) -> View:
    return View(leaves(pointee(ptr)), None)


def _makes_float(op: Op) -> bool:
    return isinstance(op, Apply) and op.fn == "bitcast" and _is_float(op.result) and not _is_float(op.args[0])


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint")
