"""What lies in the cells of shared memory, told by playing a block of known shape through.

The operations of a finished gradient are done for all threads at once, phase by phase, with integers as they are
(`threads`) and floats as ids (`terms`). What depends on memory or on the block leaves cells unknown, and so do
loops and branches with barriers inside. Nothing is said of threads that touch the same cell in one phase without an
atomic: that is a race, which neither a kernel nor its gradient has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.effects import PURE, has_barrier
from ...ir.ops import (
    Alloca,
    Apply,
    Assert,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Constant,
    For,
    Function,
    If,
    Leave,
    Load,
    Op,
    Print,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import blocks, uses, walk
from ...ir.types import Pointer, Scalar, Type
from ..aliases import Aliases
from ..machine import WARP
from ..structure import Structure, analyse
from .accesses import Access, Addition, Anything, element
from .terms import COMBINED, NOBODY, Ids, Terms, Total
from .threads import Threads
from .warps import ALL, Warps, ballot, sources

_MOST_STEPS = 4096
_MOST_WORK = 200_000  # numbers that are combined
_LONGEST_FILL = 64  # iterations
_CALM = (*PURE, Alloca, Print, Assert, Warp)  # change no memory of others


class Unplayable(Exception):
    """There is something in the kernel of which too little is known."""


class Play:
    """`accesses` in order; `at_start`: the cells when a phase begins; `meetings`: where the barriers stand."""

    def __init__(
        self,
        function: Function,
        variables: dict[str, Type],
        block: tuple[int, int, int],
        gathering: frozenset[str] = frozenset(),
    ):
        self.gathering = gathering
        self.function, self.variables, self.aliases = function, variables, Aliases(function)
        self.structure: Structure = analyse(function, apart=False)
        self.threads = Warps(block, self.structure, lambda _: None)
        self.count = math.prod(block)
        self.terms = Terms(self.count)
        self.used = uses(function.body)
        self.types = {name: element(type) for name, type in variables.items()}
        self.sizes = {name: type.size // self.types[name].size for name, type in variables.items()}
        self.cells = {name: self.terms.unknown(size) for name, size in self.sizes.items()}
        self.values: dict[Value, Ids] = {}
        self.exchanges: dict[Value, int] = {}  # how often lanes exchange something for it
        self.phases: dict[Value, int] = {}  # in which it is computed
        self.accesses: list[Access | Anything] = []
        self.additions: list[Addition] = []
        self.pending: dict[tuple[str, int], Addition] = {}
        self.at_start: list[dict[str, Ids]] = [self._copy()]
        self.meetings: list[int] = []
        self.at = self.phase = self.steps = 0
        self._run()

    def _run(self) -> None:
        everyone = np.ones(self.count, bool)
        for at, op in enumerate(self.function.body.ops):
            self.at = at
            if (isinstance(op, Barrier) and op.scope == "block") or isinstance(op, BarrierReduce):
                self._meet()
            else:
                self._op(op, everyone, True)

    def _copy(self) -> dict[str, Ids]:
        return {name: ids.copy() for name, ids in self.cells.items()}

    def _meet(self) -> None:
        for (name, cell), addition in self.pending.items():
            if addition.is_all:
                total = self.terms.one(Total(len(self.additions)))
                self.additions.append(addition)
                self.cells[name][cell] = self.terms.combined("add", addition.before, total)
        self.pending = {}
        self.meetings.append(self.at)
        self.phase += 1
        self.at_start.append(self._copy())

    def _block(self, block: Block, mask: Any, sure: bool) -> None:
        for op in block.ops:
            self._op(op, mask, sure)

    def _op(self, op: Op, mask: Any, sure: bool) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS or self.terms.work > _MOST_WORK:
            raise Unplayable
        match op:
            case Load() | Store() | Atomic():
                self._access(op, mask, sure)
            case If() if not has_barrier(op):
                self._if(op, mask, sure)
            case For() if self._is_fill(op):
                self._fill(op, mask, sure)
            case If() | For() | While():
                self._lose(op)
            case Apply(fn, args) if fn in COMBINED and any(a in self.values for a in args):
                self._apply(op, mask)
            case Warp():
                self._warp(op, mask, sure)
            case Barrier("warp"):
                pass
            case _ if not isinstance(op, _CALM):
                raise Unplayable

    def _apply(self, op: Apply, mask: Any) -> None:
        args = [self.ids(a) for a in op.args]
        chosen = self.threads.value(op.args[0]) if op.fn == "select" else None
        found = self.terms.all_combined(op.fn, args, mask) if chosen is None else np.where(chosen, *args[1:])
        self._define(op.result, found, max(self.exchanges.get(a, 0) for a in op.args))

    def _define(self, value: Value, ids: Ids, exchanges: int) -> None:
        self.values[value], self.phases[value] = ids, self.phase
        if exchanges:
            self.exchanges[value] = exchanges

    def _warp(self, op: Warp, mask: Any, sure: bool) -> None:
        """What whole warps exchange."""
        if (
            not sure
            or self.count % WARP
            or (mask.reshape(-1, WARP).any(axis=1) != mask.reshape(-1, WARP).all(axis=1)).any()
        ):
            return
        named, *args = (self.threads.value(a) for a in op.args) if op.args else (None,)
        if named is None or (named[mask] != ALL).any():
            return
        if op.fn == "vote_ballot" and args[0] is not None:
            self.threads.given[op.result] = ballot(args[0] & mask)
        elif (
            op.fn.startswith("shfl_") and args[1] is not None and args[2] is not None and (args[2][mask] == WARP).all()
        ):
            source = sources(op.fn, args[1])
            value = op.args[1]
            if source is not None and is_float(value.type):
                self._define(op.result, self.ids(value)[source], self.exchanges.get(value, 0) + 1)

    def _if(self, op: If, mask: Any, sure: bool) -> None:
        chosen = self.threads.value(op.cond)
        if chosen is None:
            self._block(op.then, mask, False)
            self._block(op.orelse, mask, False)
            return
        self._block(op.then, mask & chosen, sure)
        self._block(op.orelse, mask & ~chosen, sure)
        for result, one, other in zip(op.results, op.then.results, op.orelse.results, strict=True):
            if one in self.values or other in self.values or is_float(result.type):
                exchanges = max(self.exchanges.get(one, 0), self.exchanges.get(other, 0))
                self._define(result, np.where(chosen, self.ids(one), self.ids(other)), exchanges)

    def ids(self, value: Value) -> Ids:
        if value in self.values:
            return self.values[value]
        op = self.structure.definition.get(value)
        if (
            isinstance(op, Constant)
            and isinstance(value.type, Scalar)
            and (value.type.is_float or value.type.kind == "bool")
        ):
            return np.full(self.count, self.terms.number(op.value))
        return self.terms.leaves(value)

    # ---- memory

    def _access(self, op: Load | Store | Atomic, mask: Any, sure: bool) -> None:
        names = self.reached(op.ptr)
        if not names or not mask.any():
            return
        name = next(iter(names))
        cells = self._cells_of(op, name, mask) if len(names) == 1 else None
        if cells is None:
            self._forget(names)
            return
        access = Access(op, name, cells, mask, self.at, self.phase, sure)
        match op:
            case Load():
                found = np.where(mask, self.cells[name][cells], NOBODY)
                self._define(op.result, found, 0)
                self.accesses.append(Access(op, name, cells, mask, self.at, self.phase, sure, found))
            case Store(_, value):
                self.accesses.append(access)
                self._mix(name, access.touched)
                ids = self.ids(value)[mask] if sure else self.terms.unknown(int(mask.sum()))
                self.cells[name][access.touched] = ids
            case Atomic():
                self.accesses.append(access)
                self._add(op, access)

    def _add(self, op: Atomic, access: Access) -> None:
        name, touched = access.variable, np.unique(access.touched)
        adds = op.kind == "add" and not any(self.used.get(r) for r in op.results)
        if not adds or len(touched) > 1 or name not in self.gathering:
            self._mix(name, touched)
            self.cells[name][touched] = self.terms.unknown(len(touched))
            return
        cell = int(touched[0])
        if (name, cell) not in self.pending:
            before = int(self.cells[name][cell])
            clean = before == int(self.at_start[-1][name][cell])
            self.pending[name, cell] = Addition(name, cell, self.phase, self.types[name], before, is_all=clean)
        self.pending[name, cell].atomics.append(op)
        self.cells[name][cell] = self.terms.unknown(1)[0]

    def _is_fill(self, loop: For) -> bool:
        """Whether it does nothing but store numbers in cells, and ends soon."""
        if not all(isinstance(op, (*PURE, Store)) for op in loop.body.ops):
            return False
        stores = [op for op in loop.body.ops if isinstance(op, Store)]
        numbers = all(isinstance(self.structure.definition.get(op.value), Constant) for op in stores)
        return numbers and all(len(self.reached(op.ptr)) == 1 for op in stores)

    def _fill(self, loop: For, mask: Any, sure: bool) -> None:
        rounds = list(self.threads.iterations(loop, mask, _LONGEST_FILL))
        if not all(once.sure for once in rounds):
            self._lose(loop)
            return
        for op in loop.body.ops:
            if isinstance(op, Store):
                (name,) = self.reached(op.ptr)
                found = [self._cells_of(op, name, once.mask, once.threads) for once in rounds]
                if any(cells is None for cells in found):
                    self._forget(frozenset((name,)))
                    continue
                cells = np.concatenate([c[r.mask] for c, r in zip(found, rounds, strict=True) if c is not None] or [[]])
                cells = np.unique(cells).astype(int)
                self.accesses.append(Access(op, name, cells, np.ones(len(cells), bool), self.at, self.phase, sure))
                self._mix(name, cells)
                self.cells[name][cells] = self.ids(op.value)[0] if sure else self.terms.unknown(len(cells))

    def _mix(self, name: str, touched: Ids) -> None:
        """Something else happens to the cells than that threads add to them."""
        for cell in np.unique(touched):
            if (name, int(cell)) in self.pending:
                self.pending[name, int(cell)].is_all = False

    def _lose(self, op: Op) -> None:
        """A part that is not played."""
        inside = [inner for b in blocks(op) for inner in walk(b)]
        if not all(
            isinstance(i, (*_CALM, Load, Store, Atomic, Barrier, BarrierReduce, If, For, While)) for i in inside
        ):
            raise Unplayable
        if any(isinstance(i, Leave) or (isinstance(i, If) and i.exits) for i in inside):
            raise Unplayable
        reached = [self.reached(i.ptr) for i in inside if isinstance(i, Load | Store | Atomic)]
        self._forget(frozenset(name for names in reached for name in names))
        if has_barrier(op):
            self._meet()

    def _forget(self, names: frozenset[str]) -> None:
        if names:
            self.accesses.append(Anything(names, self.at, self.phase))
        for name in names:
            self._mix(name, np.arange(self.sizes[name]))
            self.cells[name] = self.terms.unknown(self.sizes[name])

    def reached(self, ptr: Value) -> frozenset[str]:
        root = self.aliases.root(ptr)
        name = self.aliases.variable(root)
        if name is not None:
            return frozenset((name,)) & self.sizes.keys()
        named = root in self.aliases.local or any(root is p.value for p in self.function.params)
        space = ptr.type.space if isinstance(ptr.type, Pointer) else "generic"
        return frozenset() if named or space not in ("shared", "generic") else frozenset(self.sizes)

    def _cells_of(self, op: Load | Store | Atomic, name: str, mask: Any, threads: Threads | None = None) -> Ids | None:
        """The cell of each thread; None where that is not known, or an access is not to a cell."""
        type, address = self.types[name], (threads or self.threads).address(op.ptr)
        if not isinstance(op.ptr.type, Pointer) or op.ptr.type.pointee != type or getattr(op, "volatile", False):
            return None
        if address is None:
            return None
        inside = (
            (address[mask] >= 0) & (address[mask] < self.sizes[name] * type.size) & (address[mask] % type.size == 0)
        )
        return np.where(mask, address // type.size, 0) if inside.all() else None


def is_float(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float
