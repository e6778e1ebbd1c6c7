"""Which pointers may reach the same memory, from what they are derived from."""

from __future__ import annotations

from ..ir.effects import MEETINGS
from ..ir.ops import (
    Alloca,
    Apply,
    Atomic,
    Constant,
    Function,
    GlobalRef,
    Member,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
)
from ..ir.traverse import walk
from ..ir.types import Array, Pointer, Scalar

_Sum = tuple[int, dict[Value, int]]
_WRAP = 1 << 32


class Aliases:
    """A local array is reached only through pointers derived from it; so is what a `__restrict__` parameter points to.
    Pointers whose origin is a choice or memory may reach anything."""

    def __init__(self, function: Function):
        self._base: dict[Value, Value] = {}  # derived pointer -> what it is derived from
        self.local: set[Value] = set()
        self._named: set[Value] = {p.value for p in function.params}  # pointers whose memory has a name of its own
        self._own: set[Value] = {p.value for p in function.params if p.restrict}
        self._definition: dict[Value, Op] = {}
        self._sums: dict[Value, _Sum] = {}
        self._variables: dict[Value, str] = {}
        for op in walk(function.body):
            if isinstance(op, Offset | Apply | Constant):
                self._definition[op.result] = op
            if isinstance(op, Offset | Member | PtrCast):
                self._base[op.result] = op.ptr
            elif isinstance(op, Alloca | GlobalRef):
                self._named.add(op.result)
                if isinstance(op, Alloca):
                    self.local.add(op.result)
                else:
                    self._variables[op.result] = op.name
        self._own |= self.local

    def root(self, pointer: Value) -> Value:
        while pointer in self._base:
            pointer = self._base[pointer]
        return pointer

    def variable(self, root: Value) -> str | None:
        """The name of the module variable that a pointer names."""
        return self._variables.get(root)

    def may_alias(self, a: Value, b: Value) -> bool:
        one, other = self.root(a), self.root(b)
        return not (one is other and self._are_apart(a, b)) and self.may_share(one, other)

    def may_share(self, one: Value, other: Value) -> bool:
        """Whether what one thread reaches from one root, another may reach from the other."""
        names = [self._variables.get(root) for root in (one, other)]
        if None not in names and not any(_is_dynamic(root) for root in (one, other)):
            return names[0] == names[1]
        if one is other or one not in self._named or other not in self._named:
            return True
        spaces = {v.type.space for v in (one, other) if isinstance(v.type, Pointer)}
        apart = len(spaces) == 2 and "generic" not in spaces
        return not (apart or one in self._own or other in self._own)

    def _are_apart(self, a: Value, b: Value) -> bool:
        """Elements of one array whose indices differ by a constant: x[i] and x[i + 256]."""
        one, other = self._definition.get(a), self._definition.get(b)
        if not (isinstance(one, Offset) and isinstance(other, Offset) and one.ptr is other.ptr):
            return False
        (first, terms), (second, others) = self._sum(one.index), self._sum(other.index)
        return terms == others and (first - second) % _WRAP != 0

    def _sum(self, value: Value) -> _Sum:
        if value not in self._sums:
            self._sums[value] = self._find_sum(value)
        return self._sums[value]

    def _find_sum(self, value: Value) -> _Sum:
        """An integer as a constant and multiples of others, up to multiples of 2**32, which conversions keep."""
        match self._definition.get(value):
            case Constant(number) if isinstance(number, int):
                return int(number), {}
            case Apply("convert", (source,)) if _is_index(value) and _is_index(source):
                return self._sum(source)
            case Apply("add" | "sub" as fn, (left, right)) if _is_index(value):
                (first, terms), (second, others) = self._sum(left), self._sum(right)
                sign = 1 if fn == "add" else -1
                total = {v: terms.get(v, 0) + sign * others.get(v, 0) for v in terms | others}
                return first + sign * second, {v: c for v, c in total.items() if c}
            case Apply("mul", (left, right)) if _is_index(value):
                (first, terms), (second, others) = self._sum(left), self._sum(right)
                if not others:
                    return first * second, {v: c * second for v, c in terms.items() if c * second}
        return 0, {value: 1}

    def may_change(self, op: Op, pointer: Value) -> bool:
        """Whether an operation without regions may change the memory behind a pointer, or wait for who does."""
        if isinstance(op, MEETINGS):
            return self.root(pointer) not in self.local
        return isinstance(op, Store | Atomic) and self.may_alias(op.ptr, pointer)


def _is_dynamic(variable: Value) -> bool:
    """Dynamic shared memory: all its names are of the same memory."""
    type = variable.type.pointee if isinstance(variable.type, Pointer) else None
    return isinstance(type, Array) and type.count == 0


def _is_index(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint") and value.type.bits >= 32
