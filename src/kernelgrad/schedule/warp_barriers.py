"""Barriers of which a warp's own suffices, in blocks of a known shape.

The last levels of a tree are one warp's: no other thread touches what it touches there. The block's operations are
played through with the integers of all its threads (`Threads`). At a barrier, what was touched since the last
meeting of the whole block is compared with what is touched next: where different warps do not meet in a cell that one
of them writes, `__syncwarp` orders all that needs an order. Later phases are compared with all of it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..analysis.aliases import Aliases
from ..analysis.block_interpreter.threads import Numbers, Threads
from ..analysis.machine import FULL_WARP, WARP
from ..analysis.structure import analyse
from ..ir.builder import Builder
from ..ir.effects import PURE
from ..ir.ops import Atomic, Barrier, BarrierReduce, Block, For, Function, If, Load, Op, Store, Value, Warp, While
from ..ir.traverse import walk, with_body
from ..ir.types import U32, Array, Pointer

_CELL = 4  # bytes


def run(function: Function, block: tuple[int, int, int]) -> Function:
    threads = math.prod(block)
    if threads % WARP or threads == WARP or not any(map(_is_barrier, function.body.ops)):
        return function
    return with_body(function, _Warps(function, block).body())


@dataclass(frozen=True)
class _Touched:
    """Of a piece of memory: which warps read and write each cell."""

    read: Numbers
    written: Numbers

    def plus(self, other: _Touched) -> _Touched:
        return _Touched(self.read | other.read, self.written | other.written)

    def meets(self, other: _Touched) -> bool:
        """Whether different warps touch a cell that one of them writes, one on each side."""
        return _across(self.written, other.read | other.written) or _across(self.read, other.written)


def _across(one: Numbers, other: Numbers) -> bool:
    both = one.any(axis=1) & other.any(axis=1)
    alone = (one.sum(axis=1) == 1) & (other.sum(axis=1) == 1) & (one & other).any(axis=1)
    return bool((both & ~alone).any())


_Phase = dict[Value, _Touched]


class _Anything(Exception):
    """Something happens of which nothing is known."""


class _Warps:
    def __init__(self, function: Function, block: tuple[int, int, int]):
        self.function, self.aliases = function, Aliases(function)
        self.threads = Threads(block, analyse(function, apart=False), lambda _: None)
        self.warps = self.threads.count // WARP
        self.names: dict[str, Value] = {}  # one root for each shared variable

    def body(self) -> Block:
        ops: list[Op] = []
        since: _Phase | None = {}
        rest = self.function.body.ops
        for k, op in enumerate(rest):
            if _is_barrier(op):
                following = self.phase(rest[k + 1 :])
                if since is None or following is None or self.meet(since, following):
                    since = {}
                else:
                    op = _of_warp(op, ops)
            elif isinstance(op, BarrierReduce):
                since = {}
            else:
                since = self.with_op(since, op)
            ops.append(op)
        return Block(self.function.body.args, tuple(ops), self.function.body.results)

    def phase(self, ops: tuple[Op, ...]) -> _Phase | None:
        """What is touched until the next barrier; None for anything."""
        found: _Phase | None = {}
        for op in ops:
            if _is_barrier(op) or isinstance(op, BarrierReduce):
                break
            found = self.with_op(found, op)
        return found

    def with_op(self, phase: _Phase | None, op: Op) -> _Phase | None:
        if phase is None:
            return None
        total = dict(phase)
        try:
            self.touch(op, np.ones(self.threads.count, bool), True, total)
        except _Anything:
            return None
        return total

    def touch(self, op: Op, mask: Numbers, known: bool, phase: _Phase) -> None:
        """`known`: addresses are what they seem, as they are not in loops."""
        match op:
            case Load(ptr, volatile) | Store(ptr, _, volatile) if not volatile:
                size = op.result.type.size if isinstance(op, Load) else op.value.type.size
                self.add(ptr, size, mask, known, isinstance(op, Store), phase)
            case Atomic(_, ptr, (value, *_)):
                self.add(ptr, value.type.size, mask, known, True, phase)
            case If(cond, then, orelse):
                chosen = self.threads.value(cond) if known else None
                for side, here in ((then, chosen), (orelse, None if chosen is None else ~chosen)):
                    for inner in side.ops:
                        self.touch(inner, mask if here is None else mask & here, known, phase)
            case For() | While():
                for inner in walk(Block((), (op,), ())):
                    if not isinstance(inner, If | For | While):
                        self.touch(inner, mask, False, phase)
            case _ if not isinstance(op, (*PURE, Warp)):
                raise _Anything

    def add(self, ptr: Value, size: int, mask: Numbers, known: bool, writes: bool, phase: _Phase) -> None:
        root = self.aliases.root(ptr)
        if root in self.aliases.local or not mask.any():
            return
        cells = self.cells_of(root)
        touched = np.zeros((cells, self.warps), bool)
        address = self.threads.address(ptr) if known and cells > 1 else None
        who = np.flatnonzero(mask)
        if address is None or (address[who] < 0).any() or (address[who] + size > cells * _CELL).any():
            touched[:, np.unique(who // WARP)] = True
        else:
            for k in (*range(0, size, _CELL), size - 1):  # what begins within a cell may end in one more
                touched[(address[who] + k) // _CELL, who // WARP] = True
        nothing = np.zeros_like(touched)
        found = _Touched(nothing, touched) if writes else _Touched(touched, nothing)
        key = self.key(root)
        phase[key] = phase[key].plus(found) if key in phase else found

    def key(self, root: Value) -> Value:
        name = self.aliases.variable(root)
        return root if name is None else self.names.setdefault(name, root)

    def cells_of(self, root: Value) -> int:
        """One for memory whose places are not compared."""
        assert isinstance(root.type, Pointer)
        type = root.type.pointee
        if isinstance(type, Array) and type.count == 0:
            raise _Anything
        is_variable = self.aliases.variable(root) is not None and root.type.space == "shared"
        return max(1, -(-type.size // _CELL)) if is_variable else 1

    def meet(self, one: _Phase, other: _Phase) -> bool:
        for a, first in one.items():
            for b, second in other.items():
                written = first.written.any() or second.written.any()
                if a is b and first.meets(second):
                    return True
                if a is not b and written and self.aliases.may_share(a, b):
                    return True
        return False


def _of_warp(op: Op, ops: list[Op]) -> Op:
    b = Builder(op.span)
    everyone = b.constant(FULL_WARP, U32)
    ops += b.ops
    return replace(Barrier("warp", (everyone,)), span=op.span)


def _is_barrier(op: Op) -> bool:
    return isinstance(op, Barrier) and op.scope == "block"
