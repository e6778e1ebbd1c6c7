"""Which values are the same for all threads of a block: an analysis for backends and autodiff.

Optimistic: everything is uniform until a reason shows that it varies, and reasons spread until nothing changes. What
comes out of a branch or loop varies if the choice of path or the number of iterations does.
"""

from __future__ import annotations

from ..ir.effects import OF_OPERANDS
from ..ir.ops import (
    Apply,
    BarrierReduce,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    If,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Value,
    Warp,
    While,
)
from ..ir.traverse import operands, walk
from ..ir.types import Pointer
from .machine import WARP
from .passed import only_read

_UNIFORM_BUILTINS = frozenset(("block_idx", "block_dim", "grid_dim", "warp_size"))
_OF_OPERANDS, _MOVED = frozenset(OF_OPERANDS), frozenset((Offset, Member, PtrCast))  # pointers, with their memory
_LANE_WIDE = frozenset(("vote_any", "vote_all", "vote_uni", "vote_ballot"))


def uniform_values(
    function: Function, alike: frozenset[tuple[str, int]] = frozenset(), at_once: bool = False
) -> set[Value]:
    """Values that every thread of a block that computes them computes alike. `alike`: indices that are the same for the
    threads asked about, (thread_idx, 1) and (thread_idx, 2) for the threads of one row. `at_once`: they load at the
    same time, so that what they load at one address is the same."""
    return _all_values(function) - _Varying(function, alike, at_once).values


def warp_uniform_values(function: Function, whole_rows: bool) -> set[Value]:
    """Values that the lanes of a warp compute alike, if they go the same way. `whole_rows`: the rows of a block are
    whole warps, so that lanes share `threadIdx.y` and `threadIdx.x / 32`."""
    rows = frozenset((("thread_idx", 1), ("thread_idx", 2))) if whole_rows else frozenset[tuple[str, int]]()
    return _all_values(function) - _VaryingInWarp(function, rows, whole_rows).values


def _all_values(function: Function) -> set[Value]:
    everything = {p.value for p in function.params}
    for op in walk(function.body):
        everything.update(op.results)
        match op:
            case For(body=body):
                everything.update(body.args)
            case While(before=before, body=body):
                everything.update(before.args, body.args)
    return everything


class _Varying:
    def __init__(self, function: Function, alike: frozenset[tuple[str, int]], at_once: bool):
        self.values: set[Value] = set()
        self.alike, self.at_once = alike, at_once
        self.read_only: set[Value] = set(only_read(function))
        if function.kind != "kernel":
            self.values.update(p.value for p in function.params)
        while True:
            before = len(self.values)
            self.block(function.body)
            if len(self.values) == before:
                break

    def any(self, *values: Value) -> bool:
        return not self.values.isdisjoint(values)

    def mark(self, values: tuple[Value, ...], reason: bool = True) -> None:
        if reason:
            self.values.update(values)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.visit(op)

    def visit(self, op: Op) -> None:
        kind = type(op)
        if kind in _OF_OPERANDS:  # as most are
            if kind in _MOVED and op.ptr in self.read_only:  # type: ignore[attr-defined]
                self.read_only.add(op.result)
            if not self.values.isdisjoint(operands(op)):
                self.values.update(op.results)
            return
        match op:
            case Builtin(name, axis):
                self.mark(op.results, name not in _UNIFORM_BUILTINS and (name, axis) not in self.alike)
            case Load(ptr, volatile):
                constant = isinstance(ptr.type, Pointer) and ptr.type.space == "constant"
                fixed = (self.at_once or constant or ptr in self.read_only) and not volatile
                self.mark(op.results, not fixed or self.any(ptr))
            case BarrierReduce():
                pass
            case If():
                self.if_(op)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case _:
                self.mark(op.results)

    def if_(self, op: If) -> None:
        self.block(op.then)
        self.block(op.orelse)
        for result, a, b in zip(op.results, op.then.results, op.orelse.results, strict=True):
            self.mark((result,), self.any(op.cond, a, b))

    def for_(self, op: For) -> None:
        trips_vary = self.any(op.lower, op.upper)
        self.mark(op.body.args[:1], trips_vary)
        self.carry(op.body.args[1:], op.inits, op.body.results, trips_vary)
        self.block(op.body)
        self.carry(op.results, op.inits, op.body.results, trips_vary)

    def while_(self, op: While) -> None:
        trips_vary = self.any(op.before.results[0])
        self.carry(op.before.args, op.inits, op.body.results, trips_vary)
        self.block(op.before)
        for source, arg, result in zip(op.before.results[1:], op.body.args, op.results, strict=True):
            self.mark((arg, result), trips_vary or self.any(source))
        self.block(op.body)

    def carry(
        self, targets: tuple[Value, ...], inits: tuple[Value, ...], following: tuple[Value, ...], always: bool
    ) -> None:
        for target, init, value in zip(targets, inits, following, strict=True):
            self.mark((target,), always or self.any(init, value))


class _VaryingInWarp(_Varying):
    """What differs between the lanes of a warp, which load at the same time."""

    def __init__(self, function: Function, alike: frozenset[tuple[str, int]], whole_rows: bool):
        self.whole_rows = whole_rows
        self.constants = {op.result: op.value for op in walk(function.body) if isinstance(op, Constant)}
        self.along: set[Value] = set()  # that count up with threadIdx.x, from a multiple of 32
        super().__init__(function, alike, at_once=True)

    def visit(self, op: Op) -> None:
        match op:
            case Builtin("thread_idx", 0):
                self.along.add(op.result)
                self.mark(op.results)
            case Apply("div" | "shr" as fn, (a, b)) if self.whole_rows and a in self.along and self.drops_lane(fn, b):
                pass
            case Apply("convert", (a,)) if a in self.along:
                self.along.add(op.result)
                self.mark(op.results)
            case Apply("add", (a, b)) if self.is_start(a, b) or self.is_start(b, a):
                self.along.add(op.result)
                self.mark(op.results)
            case Warp(fn, args) if fn in _LANE_WIDE or fn.startswith("reduce_"):
                self.mark(op.results, self.any(args[0]))
            case Warp("shfl_idx", (mask, _, lane, width)) if self.constants.get(width) == WARP:
                self.mark(op.results, self.any(mask, lane))
            case _:
                super().visit(op)

    def drops_lane(self, fn: str, by: Value) -> bool:
        number = self.constants.get(by)
        return isinstance(number, int) and (number >= 5 if fn == "shr" else number > 0 and number % WARP == 0)

    def is_start(self, start: Value, index: Value) -> bool:
        """Whether this is `blockIdx.x * blockDim.x + threadIdx.x`: products of the block's extents."""
        return index in self.along and not self.any(start)
