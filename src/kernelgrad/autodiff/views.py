"""Views: parts of one array that a kernel uses as different types, as of dynamic shared memory that it cuts by hand.

Bytes that hold a float for one access and something else for another lose its derivative (rule 15). Views that start at
different places do not: `int *index = (int *)(values + n)` lies behind the values. Such a start is the same for all
threads of a block; where it varies, the cast is of an element, to get at its bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..ir.builder import pointee
from ..ir.ops import Apply, Atomic, Constant, Function, GlobalRef, Load, Member, Offset, Op, PtrCast, Store, Value
from ..ir.traverse import walk
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from ..locks import cached_property
from ..transforms.uniform import uniform_values
from .roots import Memory

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


def apart(function: Function, memory: Memory, roots: Iterable[Value], active: Set[Value]) -> frozenset[int]:
    """The accesses that see memory as another type than it is declared with, each in a part of its own.

    Memory that is declared as bytes has no type but that of its views: if it carries derivatives, those must be apart.
    Typed arrays are cut in parts only where their size is not known.
    """
    work = _Views(function, memory, active)
    found = [op for root in roots if _is_cut(root) for op in work.of_root(root)]
    if any(_makes_float(op) for op in work.definitions.values()):  # of integers that may be the bits of another view
        found = [op for op in found if not isinstance(op, Load)]
    return frozenset(map(id, found))


def _is_cut(root: Value) -> bool:
    if not isinstance(root.type, Pointer):
        return False
    type = root.type.pointee
    return not held(root) or (isinstance(type, Array) and type.count == 0)


class _Views:
    def __init__(self, function: Function, memory: Memory, active: Set[Value]):
        self.function, self.memory, self.active = function, memory, active
        self.definitions = {v: op for op in walk(function.body) for v in op.results}

    @cached_property
    def uniform(self) -> set[Value]:
        return uniform_values(self.function)

    def of_root(self, root: Value) -> list[Access]:
        accesses = [op for op in (*self.memory.loads, *self.memory.stores) if root in self.memory.of(_pointer(op))]
        if len({leaves(pointee(_pointer(op))) for op in accesses}) < 2:
            return []
        found = [(op, self.view(_pointer(op), root)) for op in accesses]
        found.sort(key=lambda pair: pair[1].has_floats)  # an error is about the others
        declared = leaves(pointee(root)) if held(root) else frozenset()
        good: list[Access] = []
        for op, view in found:
            assert isinstance(op, Load | Store | Atomic)
            if view.types and view.types <= declared:
                continue
            if not any(view.meets(other) for _, other in found):
                good.append(op)
            elif not declared and root in self.active:
                raise UnsupportedError(
                    f"'{root.name}' holds floating-point numbers and something else in the same place: the derivative"
                    " would be lost",
                    op.span,
                    "give each type a part of its own, or an array of its own",
                )
        return good

    def view(self, ptr: Value, root: Value) -> View:
        """From the access back to the root: indices, the cast that makes the view, and what that is the cast of."""
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
                    return View(seen or leaves(pointee(ptr)), None)
            ptr = inner
        varying = {v for v in terms if v not in self.uniform}
        types = leaves(pointee(root)) if seen is None else seen
        if (seen is not None and varying) or all(t.size == 1 for t in types):  # bytes may be anything's
            return View(types, None)
        uniform = frozenset((v, scale) for v, scale in terms.items() if scale and v not in varying)
        return View(types, Start(start, uniform))

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


def _pointer(op: Op) -> Value:
    assert isinstance(op, Load | Store | Atomic)
    return op.ptr


def _makes_float(op: Op) -> bool:
    return isinstance(op, Apply) and op.fn == "bitcast" and _is_float(op.result) and not _is_float(op.args[0])


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint")
