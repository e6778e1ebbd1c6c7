"""Note [Sections]: a row's middle, where its bounds hold, apart from its ends.

`if (i < n)` and `if (i < 1 || i >= n - 1) return` hold for a range of the row's index. The loop over the row is
therefore made twice: for the middle, where these comparisons are known, so that nothing in it is masked, and as it was
for what is left at both ends. The bounds are `Invariants`: the same for all threads that the loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from llvmlite import ir

from ...ir.ops import Apply, Builtin, Constant, Function, If, Member, Offset, Op, PtrCast, Value
from ...ir.traverse import operands, settle, walk
from ...ir.types import I32, I64, U32, Scalar
from . import llvm_types as lt
from .convert import resize
from .frame import Frame
from .llvm_types import i64
from .threads import emit_op

_CHEAP = frozenset("add sub mul neg convert".split())
_EXTENTS = frozenset(("block_dim", "grid_dim", "warp_size"))


class Invariants:
    """`by_row`: the loop runs over a row of blocks, else over one. `counters`: of loops, to be taken for constants."""

    def __init__(self, function: Function, by_row: bool, counters: frozenset[Value] = frozenset()):
        self.definitions = {v: op for op in walk(function.body) for v in op.results}
        self.params = {p.value for p in function.params}
        self.by_row, self.counters = by_row, counters
        self._picked: dict[Value, frozenset[Value] | None] = {}

    def holds(self, value: Value) -> bool:
        return self._counters(value) is not None

    def counters_of(self, value: Value) -> frozenset[Value]:
        """Those that a value depends on; it `holds`."""
        return self._counters(value) or frozenset()

    def _counters(self, value: Value) -> frozenset[Value] | None:
        settle(value, self._picked, self._needs, self._note)
        return self._picked[value]

    def _needs(self, value: Value) -> tuple[Value, ...]:
        op = None if value in self.params or value in self.counters else self.definitions.get(value)
        return operands(op) if op is not None and self._is_fixed(op) else ()

    def _note(self, value: Value) -> None:
        op = self.definitions.get(value)
        if value in self.params or value in self.counters:
            self._picked[value] = frozenset((value,)) & self.counters
        elif op is None or not self._is_fixed(op):
            self._picked[value] = None
        else:
            parts = [self._picked[operand] for operand in operands(op)]
            known = [part for part in parts if part is not None]
            self._picked[value] = frozenset().union(*known) if len(known) == len(parts) else None

    def _is_fixed(self, op: Op) -> bool:
        match op:
            case Constant() | Offset() | Member() | PtrCast():
                return True
            case Builtin("block_idx", axis):
                return axis > 0 or not self.by_row
            case Builtin(name):
                return name in _EXTENTS
            case Apply(fn):
                type = op.result.type
                return fn in _CHEAP and isinstance(type, Scalar) and not type.is_float
        return False

    def emit(self, frame: Frame, value: Value) -> None:
        """Code for it where the frame stands, unless it is there already."""
        settle(
            value,
            frame.values,
            lambda v: operands(self.definitions[v]),
            lambda v: emit_op(frame, self.definitions[v]),
        )


# ---- the middle of a range -------------------------------------------------------------------------------------


_LONGEST = 400  # operations of a kernel that is worth having twice
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True)
class Bound:
    """Where `index + offsets`, each added or subtracted, compares so with the limit, the test is what `holds` says."""

    test: Value
    holds: bool
    relation: str
    offsets: tuple[tuple[int, Value], ...]
    limit: Value


def find_bounds(function: Function, indices: frozenset[Value]) -> tuple[Bound, ...]:
    """What the kernel's outermost branches ask of the row's index."""
    if not indices or sum(1 for _ in walk(function.body)) > _LONGEST:
        return ()
    invariants = Invariants(function, by_row=True)
    finder = Finder(invariants.definitions, indices, invariants.holds)
    return distinct(b for op in function.body.ops if isinstance(op, If) for b in finder.bounds(op.cond, True))


def distinct(bounds: Iterator[Bound]) -> tuple[Bound, ...]:
    return tuple({bound.test: bound for bound in bounds}.values())


@dataclass(frozen=True)
class Finder:
    """`fixed`: whether a number is the same for all threads of the loop, and can be had before it."""

    definitions: Mapping[Value, Op]
    indices: frozenset[Value]
    fixed: Callable[[Value], bool]

    def bounds(self, value: Value, holds: bool) -> Iterator[Bound]:
        """What must be so of the index for this test to be what `holds` says."""
        op = self.definitions.get(value)
        match op:
            case Apply("not", (arg,)):
                yield from self.bounds(arg, not holds)
            case Apply("and" | "or" as fn, args) if (fn == "and") == holds:
                for arg in args:
                    yield from self.bounds(arg, holds)
            case Apply(fn, (left, right)) if fn in _FLIPPED and (holds or fn in _NEGATED):
                yield from self._compared(value, holds, left, fn, right)
                yield from self._compared(value, holds, right, _FLIPPED[fn], left)

    def _compared(self, test: Value, holds: bool, side: Value, relation: str, limit: Value) -> Iterator[Bound]:
        offsets = self._offsets(side)
        if offsets is None or not self.fixed(limit):
            return
        if side.type in (I32, I64) or (side.type == U32 and not offsets):
            yield Bound(test, holds, relation if holds else _NEGATED[relation], offsets, limit)

    def _offsets(self, value: Value) -> tuple[tuple[int, Value], ...] | None:
        """What is added to the index; signed sums do not overflow, and an index is less than 2**31."""
        if value in self.indices:
            return ()
        op, fixed = self.definitions.get(value), self.fixed
        match op:
            case Apply("convert", (arg,)) if value.type in (I32, I64):
                inner = self._offsets(arg)
                # A sum keeps its value in a type that is no shorter; in a shorter one it may wrap.
                return inner if not inner or arg.type in (value.type, I32) else None
            case Apply("add", (left, right)) if value.type in (I32, I64):
                for side, other in ((left, right), (right, left)):
                    inner = self._offsets(side)
                    if inner is not None and fixed(other):
                        return (*inner, (1, other))
            case Apply("sub", (left, right)) if value.type in (I32, I64) and fixed(right):
                inner = self._offsets(left)
                return None if inner is None else (*inner, (-1, right))
        return None


# ---- code ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Middle:
    """The index's range [begin, end) in which all bounds hold, and what is known there."""

    begin: ir.Value
    end: ir.Value
    known: dict[Value, ir.Value]


def middle(frame: Frame, bounds: tuple[Bound, ...], invariants: Invariants, begin: ir.Value, end: ir.Value) -> Middle:
    b = frame.b
    first, last = b.zext(begin, lt.I64), b.zext(end, lt.I64)
    low, high = first, last
    with frame.scope():
        for bound in bounds:
            limit = _limit(frame, bound, invariants)
            if bound.relation in ("lt", "le"):
                high = _least(b, high, limit)
            else:
                low = _most(b, low, limit)
            if bound.relation == "eq":
                high = _least(b, high, _saturating(b, "sadd", limit, i64(1)))
    low = _least(b, low, last)
    high = _most(b, high, low)
    known = {bound.test: ir.Constant(lt.I1, int(bound.holds)) for bound in bounds}
    return Middle(b.trunc(low, lt.I32), b.trunc(high, lt.I32), known)


def _limit(frame: Frame, bound: Bound, invariants: Invariants) -> ir.Value:
    """The first index behind an upper bound, the first one that a lower bound allows, the one that is equal."""

    def wide(value: Value) -> ir.Value:
        invariants.emit(frame, value)
        assert isinstance(value.type, Scalar)
        return resize(frame.b, frame.get(value), value.type, I64)

    limit = wide(bound.limit)
    for sign, value in bound.offsets:
        limit = _saturating(frame.b, "ssub" if sign > 0 else "sadd", limit, wide(value))
    return _saturating(frame.b, "sadd", limit, i64(1)) if bound.relation in ("le", "gt") else limit


def _saturating(b: ir.IRBuilder, fn: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return lt.intrinsic(b, f"llvm.{fn}.sat", lt.I64, [left, right], [lt.I64])


def _least(b: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", left, right), left, right)


def _most(b: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", left, right), left, right)
