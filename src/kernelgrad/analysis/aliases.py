"""Which pointers may reach the same memory, from what they are derived from."""

from __future__ import annotations

from dataclasses import replace

from ..ir.effects import MEETINGS
from ..ir.ops import Alloca, Apply, Atomic, Constant, Function, GlobalRef, Member, Offset, Op, PtrCast, Store, Value
from ..ir.traverse import settle, walk
from ..ir.types import Array, Pointer, Scalar

_Sum = tuple[int, dict[Value, int]]
Group = tuple[Value, frozenset[tuple[Value, int]] | None]  # an array, and what its indices have in common
_WRAP = 1 << 32
_LINEAR = frozenset(("convert", "add", "sub", "mul"))
_NUMBERS = frozenset((Apply, Constant))
_MOST_TERMS = 64  # of an index; a longer sum is a number of its own


class Aliases:
    """A local array is reached only through pointers derived from it; so is what a `__restrict__` parameter points to.
    Pointers whose origin is a choice or memory may reach anything."""

    def __init__(self, function: Function):
        self._root: dict[Value, Value] = {}  # derived pointer -> what it is derived from in the end
        self.local: set[Value] = set()
        self._named: set[Value] = {p.value for p in function.params}  # pointers whose memory has a name of its own
        self._own: set[Value] = {p.value for p in function.params if p.restrict}
        self._definition: dict[Value, Op] = {}
        self._sums: dict[Value, _Sum] = {}
        self._spots: dict[Value, tuple[Value, Group, int]] = {}
        self._variables: dict[Value, str] = {}
        for op in walk(function.body):
            if type(op) in _NUMBERS:  # as most are
                self._definition[op.result] = op
            elif isinstance(op, Offset | Member | PtrCast):
                self._root[op.result] = self._root.get(op.ptr, op.ptr)
                if isinstance(op, Offset):
                    self._definition[op.result] = op
            elif isinstance(op, Alloca | GlobalRef):
                self._named.add(op.result)
                if isinstance(op, Alloca):
                    self.local.add(op.result)
                else:
                    self._variables[op.result] = op.name
        self._own |= self.local

    def root(self, pointer: Value) -> Value:
        return self._root.get(pointer, pointer)

    def is_own(self, root: Value) -> bool:
        """Whether nothing but pointers derived from it, and those of unknown origin, reach its memory."""
        return root in self._own

    def is_named(self, root: Value) -> bool:
        """Whether a root's memory has a name of its own; any other may be all memory."""
        return root in self._named

    def variable(self, root: Value) -> str | None:
        """The name of the module variable that a pointer names."""
        return self._variables.get(root)

    def may_alias(self, a: Value, b: Value) -> bool:
        (one, group, offset), (other, same, at) = self.spot(a), self.spot(b)
        return not (one is other and group == same and offset != at) and self.may_share(one, other)

    def may_meet(self, a: Value, b: Value) -> bool:
        """Whether what one thread reaches through a pointer, another one, or another iteration, may reach through the
        other: then also a constant between their indices tells nothing."""
        return self.may_share(self.root(a), self.root(b))

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

    def spot(self, pointer: Value) -> tuple[Value, Group, int]:
        """Its root, and an offset that tells it from others of its group: of x[i] and x[i + 256], whose indices differ
        by a constant. Pointers of different groups may be equal."""
        if pointer not in self._spots:
            op = self._definition.get(pointer)
            group: Group = (pointer, None)
            offset = 0
            if isinstance(op, Offset):
                offset, terms = self._sum(op.index)
                group = (op.ptr, frozenset(terms.items()))
            self._spots[pointer] = self.root(pointer), group, offset % _WRAP
        return self._spots[pointer]

    def _sum(self, value: Value) -> _Sum:
        settle(value, self._sums, self._summands, self._note_sum)
        return self._sums[value]

    def _summands(self, value: Value) -> tuple[Value, ...]:
        op = self._definition.get(value)
        if not (isinstance(op, Apply) and op.fn in _LINEAR and _is_index(value)):
            return ()
        return op.args if op.fn != "convert" or _is_index(op.args[0]) else ()

    def _note_sum(self, value: Value) -> None:
        offset, terms = self._find_sum(value)
        self._sums[value] = (offset, terms) if len(terms) <= _MOST_TERMS else (0, {value: 1})

    def _find_sum(self, value: Value) -> _Sum:
        """An integer as a constant and multiples of others, up to multiples of 2**32, which conversions keep."""
        match self._definition.get(value):
            case Constant(number) if isinstance(number, int):
                return int(number), {}
            case Apply("convert", (source,)) if _is_index(value) and _is_index(source):
                return self._sums[source]
            case Apply("add" | "sub" as fn, (left, right)) if _is_index(value):
                (first, terms), (second, others) = self._sums[left], self._sums[right]
                sign = 1 if fn == "add" else -1
                total = {v: terms.get(v, 0) + sign * others.get(v, 0) for v in terms | others}
                return first + sign * second, {v: c for v, c in total.items() if c}
            case Apply("mul", (left, right)) if _is_index(value):
                (first, terms), (second, others) = self._sums[left], self._sums[right]
                if not others:
                    return first * second, {v: c * second for v, c in terms.items() if c * second}
        return 0, {value: 1}

    def may_change(self, op: Op, pointer: Value) -> bool:
        """Whether an operation without regions may change the memory behind a pointer, or wait for who does."""
        if isinstance(op, MEETINGS):
            return self.root(pointer) not in self.local
        return isinstance(op, Store | Atomic) and self.may_alias(op.ptr, pointer)


def arguments_apart(function: Function) -> Function:
    """The function, where no two of its arguments overlap."""
    params = (replace(p, restrict=True) if isinstance(p.type, Pointer) else p for p in function.params)
    return replace(function, params=tuple(params))


def _is_dynamic(variable: Value) -> bool:
    """Dynamic shared memory: all its names are of the same memory."""
    type = variable.type.pointee if isinstance(variable.type, Pointer) else None
    return isinstance(type, Array) and type.count == 0


def _is_index(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint") and value.type.bits >= 32
