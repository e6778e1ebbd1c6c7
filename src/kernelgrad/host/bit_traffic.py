"""Bits of floats that go from launch to launch in buffers of integers, which have no adjoints: derivatives are lost.

Within a kernel that is refused where it concerns an active value (`autodiff/refusals/bits`). Between launches it takes
two: one that stores bits of floats (`kept`), and one that makes floats of what it loads there (`made`); others may move
them on (`moved`). One of them alone is no loss: hashes and keys that are compared, random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..analysis.roots import Memory
from ..autodiff.calculus.activity import holds_floats
from ..autodiff.refusals.bits import flows
from ..ir.ops import Apply, Atomic, Function, Load, Op, Store, Value
from ..ir.traverse import walk
from ..ir.types import Scalar

_FLOATS = ""  # among the names of buffers: bits of a float of this kernel's


class BitTraffic(NamedTuple):
    """Buffers of integers, by name. `moved`: (from, to)."""

    kept: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    moved: frozenset[tuple[str, str]] = frozenset()


def bit_traffic(function: Function, memory: Memory, names: Mapping[Value, str]) -> BitTraffic:
    ops = list(walk(function.body))
    integers = {root: name for root, name in names.items() if not holds_floats(root.type)}
    stored = any(integers.keys() & memory.of(op.ptr) for op in ops if isinstance(op, Store | Atomic))
    if not integers or not (stored or any(isinstance(op, Apply) and op.fn == "bitcast" for op in ops)):
        return BitTraffic()
    work = _Origins(memory, integers)
    while work.changed:
        work.changed = False
        for op in ops:
            work.op(op)
    return BitTraffic(frozenset(work.kept), frozenset(work.made), frozenset(work.moved))


class _Origins:
    """The buffers that an integer's bits were loaded from, and `_FLOATS` if they are a float's."""

    def __init__(self, memory: Memory, integers: Mapping[Value, str]):
        self.memory, self.integers = memory, integers
        self.of: dict[Value, set[str]] = {}  # values, and memory by its root
        self.kept: set[str] = set()
        self.made: set[str] = set()
        self.moved: set[tuple[str, str]] = set()
        self.changed = True

    def op(self, op: Op) -> None:
        match op:
            case Apply("bitcast", (arg,)) if _is_float(arg) and not _is_float(op.result):
                self.add(op.result, {_FLOATS})
            case Apply("bitcast", (arg,)) if _is_float(op.result):
                self.made |= self.of.get(arg, set()) - {_FLOATS}
            case Apply(_, args) if not _is_float(op.result) and not _is_bool(op.result):
                self.add(op.result, self.among(args))
            case Load(ptr):
                roots = self.memory.of(ptr)
                self.add(op.result, self.among(roots) | {self.integers[r] for r in roots if r in self.integers})
            case Store(ptr, value):
                self.store(ptr, (value,))
            case Atomic(_, ptr, args):
                self.store(ptr, args)
        for target, sources in flows(op):
            self.add(target, self.among(sources))

    def among(self, values: Iterable[Value]) -> set[str]:
        return set[str]().union(*(self.of.get(value, set()) for value in values))

    def store(self, ptr: Value, values: Iterable[Value]) -> None:
        found = self.among(values)
        for root in self.memory.of(ptr):
            if root not in self.integers:
                self.add(root, found)  # shared or local memory
                continue
            name = self.integers[root]
            self.kept |= {name} if _FLOATS in found else set()
            self.moved |= {(origin, name) for origin in found - {_FLOATS}}

    def add(self, value: Value, found: set[str]) -> None:
        before = self.of.setdefault(value, set())
        self.changed |= not found <= before
        before |= found


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _is_bool(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind == "bool"
