"""Loop exchange: adjoints of shared cells that a loop's counter picks and that many rows of threads read.

    for (k = 0; k < 32; ++k) ... atomicAdd(&_d_B[k][tx], v)      in a block of 32 x 32 threads

All threads of a column add to the same cell in turn. Here they exchange the loop for their row: thread (tx, ty) is the
one that has cell [ty][tx], and sums up what the threads (tx, 0), (tx, 1), ... would have added in iteration ty. The
sum is plain code. To compute what another thread adds, the loop's body is copied with that thread's index; what the
other thread alone has, such as the adjoint of its result, it leaves in shared memory first.

Cells that all threads of a row read are shared out along the row likewise, where the lanes of a warp then read memory
together. Where they do if each of them starts at another iteration, `warp_rotation` has a better way.

The proof is for a block's shape: all threads are here, their cells differ, and nothing in the loop minds who runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...analysis.access.banks import exchange_together, stay_together
from ...analysis.access.block_affine import BlockAffine
from ...analysis.aliases import Aliases
from ...analysis.block_interpreter.lanes import (
    Recomputed,
    Trips,
    added,
    copy_block,
    from_counter,
    is_free_of_order,
    nested,
    rewrite_loops,
    trips_of,
    updates,
)
from ...analysis.machine import WARP
from ...analysis.uniform import uniform_values
from ...autodiff.calculus.shadows import ZERO
from ...ir.builder import Builder
from ...ir.effects import PURE
from ...ir.ops import (
    Atomic,
    Barrier,
    Block,
    Builtin,
    For,
    Function,
    Global,
    GlobalRef,
    If,
    Load,
    Module,
    Op,
    Store,
    Value,
)
from ...ir.traverse import descend, walk
from ...ir.types import I32, U32, Array, Scalar, Type
from ...transforms.unroll import constants_of
from .owners import Cell, cell_of, owned_along
from .partners import Needs, needs_of

_MOST_BYTES = 16 << 10  # of what threads leave for each other
_INDICES = frozenset(("thread_idx", "block_idx", "block_dim", "grid_dim", "warp_size"))


class _Part(NamedTuple):
    """Updates of cells that the threads along an axis share out."""

    axis: int
    cells: list[Cell]
    needs: Needs


def run(
    function: Function, module: Module, block: tuple[int, int, int], row: int
) -> tuple[Function, dict[str, Global]]:
    """The function, and the variables in which threads leave values for each other. `row`: a power of two that its rows
    are multiples of, on a GPU."""
    uniform = uniform_values(function)
    work = _Exchange(function, module, block, uniform, row)
    body = rewrite_loops(function.body, uniform, work.change)
    return (replace(function, body=body), work.variables) if work.done else (function, {})


class _Exchange:
    def __init__(self, function: Function, module: Module, block: tuple[int, int, int], uniform: set[Value], row: int):
        self.module, self.block, self.uniform, self.row = module, block, uniform, row
        self.aliases = Aliases(function)
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.params = {p.value for p in function.params}
        self.constants = constants_of(function)
        self.variables: dict[str, Global] = {}
        self.done = False
        # What a thread computes of its index and of what all threads have, another one can compute for it.
        self.again = Recomputed(self.definition, lambda v: v in uniform, _is_cheap)

    def change(self, loop: For, behind: tuple[Op, ...], before: list[Op]) -> list[Op] | None:
        found = (cell_of(u, loop, self.module, self.definition, self.aliases, self.uniform) for u in updates(loop))
        cells = [cell for cell in found if cell is not None]
        if not cells or not is_free_of_order(loop, self.aliases):
            return None
        trips = trips_of(loop, self.constants)
        parts = list(self.parts(cells, loop, trips))
        if not parts:
            return None
        self.done = True
        return _Emitter(self, loop, trips, parts).ops(behind, before)

    def parts(self, cells: list[Cell], loop: For, trips: Trips) -> Iterator[_Part]:
        """What is shared out along each axis. All updates of a variable have to go along one of them."""
        taken, left = set[str](), dict[Value, None]()
        for axis in (1, 2, 0):
            chosen = owned_along(axis, [c for c in cells if c.variable not in taken], self.block, trips)
            needs = needs_of([cell.update for cell in chosen], loop)
            found = left | dict.fromkeys(self.left(needs))
            if not chosen or not self.is_possible(needs, found) or not (axis or self.pays_in_rows(loop, trips, needs)):
                continue
            yield _Part(axis, chosen, needs)
            taken, left = taken | {c.variable for c in chosen}, found

    def is_possible(self, needs: Needs, left: Iterable[Value]) -> bool:
        """`left`: all that threads leave for others."""
        nbytes = sum(v.type.size for v in left) * math.prod(self.block)
        known = all(self.is_common(op.ptr) for op in needs.ops if isinstance(op, Load))
        others = any(isinstance(op, Builtin) and op.name not in _INDICES for op in needs.ops)
        possible = known and not others and not needs.carried
        return possible and nbytes <= _MOST_BYTES and all(_can_be_left(v.type) for v in left)

    def pays_in_rows(self, loop: For, trips: Trips, needs: Needs) -> bool:
        """Whether the lanes of a row had better have cells of their own than sums that go round."""
        width = min(self.row, self.block[0])
        if width == 1 or self.block[0] > WARP or trips.number is None or trips.number % self.block[0]:
            return False
        sums = BlockAffine(self.definition, self.uniform, loop.body.args[0])
        turns = any(stay_together(loop, sums, width, turn) for turn in (np.add, np.bitwise_xor))
        loads = [op for op in needs.ops if isinstance(op, Load)]
        return not turns and exchange_together(loads, sums, loop, self.block[0])

    def left(self, needs: Needs) -> list[Value]:
        """What threads leave in shared memory, since others cannot compute it."""
        return [v for v in needs.outside if not self.again.is_possible(v)]

    def is_common(self, ptr: Value) -> bool:
        """Whether a pointer leads to memory that is the same for all threads."""
        root = self.aliases.root(ptr)
        return root in self.params or isinstance(self.definition.get(root), GlobalRef)

    def variable(self, value: Value) -> Global:
        taken, name = {*self.module.globals, *self.variables}, f"_of_{value.shown or 'thread'}"
        while name in taken:
            name += "_"
        self.variables[name] = Global(name, Array(value.type, math.prod(self.block)), "shared")
        return self.variables[name]


def _is_cheap(op: Op) -> bool:
    """Indices and addresses; a thread's index is one, its lane is not known here."""
    if isinstance(op, Builtin):
        return op.name == "thread_idx"
    return not any(isinstance(v.type, Scalar) and v.type.is_float for v in op.results)


def _can_be_left(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind != "bool"


class _Emitter:
    def __init__(self, work: _Exchange, loop: For, trips: Trips, parts: list[_Part]):
        self.work, self.loop, self.trips, self.parts = work, loop, trips, parts
        left = dict.fromkeys(v for part in parts for v in work.left(part.needs))
        self.left = {v: work.variable(v) for v in left}
        self.b = Builder(loop.span)

    @property
    def cells(self) -> list[Cell]:
        return [cell for part in self.parts for cell in part.cells]

    def ops(self, behind: tuple[Op, ...], before: list[Op]) -> list[Op]:
        """The exchanged loop, then what is left of the loop."""
        stores = self.leave()
        at = self.met(before)
        if at is None:
            self.b.ops += [*stores, Barrier("block", span=self.loop.span)]
        else:
            before[at:at] = stores
        for part in self.parts:
            self.exchanged(part)
        rest = self.rest()
        if not self.meets((rest, *behind)):
            self.b.effect(Barrier, "block")
        return [*self.b.ops, rest]

    # ---- barriers

    def met(self, before: list[Op]) -> int | None:
        """The barrier before the loop that serves for what threads leave, too. Nobody looks at the cells behind it."""
        cells = [c.update.ptr for c in self.cells]
        for at in range(len(before) - 1, -1, -1):
            op = before[at]
            if isinstance(op, Barrier) and op.scope == "block":
                return at
            if not isinstance(op, (*PURE, Load)) or any(v in self.left for v in op.results):
                return None
            if isinstance(op, Load) and any(self.work.aliases.may_meet(op.ptr, p) for p in cells):
                return None
        return None

    def meets(self, ops: Iterable[Op]) -> bool:
        """Whether threads meet again before any of them touches the cells or changes what the loop reads."""
        may_meet = self.work.aliases.may_meet
        cells = [c.update.ptr for c in self.cells]
        read = [op.ptr for part in self.parts for op in part.needs.ops if isinstance(op, Load)]
        for op in ops:
            if isinstance(op, Barrier) and op.scope == "block":
                return True
            for inner in nested((op,)):
                match inner:
                    case Load(ptr):
                        touches = any(may_meet(ptr, p) for p in cells)
                    case Store(ptr) | Atomic(_, ptr):
                        touches = any(may_meet(ptr, p) for p in (*cells, *read))
                    case _:
                        touches = not isinstance(inner, (*PURE, For, If))
                if touches:
                    return False
        return False

    # ---- what threads leave

    def leave(self) -> list[Op]:
        b = Builder(self.loop.span)
        for value, variable in self.left.items():
            b.store(self.place(b, variable, self.own_place(b)), value)
        return b.ops

    def own_place(self, b: Builder) -> Value:
        return self.linear(b, [b.convert(b.builtin("thread_idx", axis), I32) for axis in range(3)])

    def linear(self, b: Builder, indices: list[Value]) -> Value:
        """The thread's number in a block of this shape."""
        x, y, z = indices
        width, height, _ = (b.constant(n, I32) for n in self.work.block)
        rows = b.apply("add", y, b.apply("mul", z, height)) if self.work.block[2] > 1 else y
        return b.apply("add", x, b.apply("mul", rows, width))

    def place(self, b: Builder, variable: Global, index: Value) -> Value:
        return b.offset(b.decay(b.global_ref(variable.name, variable.type, "shared")), index)

    # ---- the exchanged loop

    def exchanged(self, part: _Part) -> None:
        """Each thread's cells: those of one iteration, and of every one as many iterations on as there are threads."""
        b, trips, extent = self.b, self.trips, self.work.block[part.axis]
        own = b.convert(b.builtin("thread_idx", part.axis), trips.type)
        count = trips.count(b)
        if trips.number == extent:
            self.cells_of(part, own)
        elif trips.number is not None and trips.number < extent:
            with b.region() as some:
                self.cells_of(part, own)
            b.if_(b.apply("lt", own, count), some.block())
        else:
            iteration = Value(trips.type, "~iteration")
            with b.region() as body:
                self.cells_of(part, iteration)
            b.for_(own, count, (), extent, body.block((iteration,)))

    def cells_of(self, part: _Part, iteration: Value) -> None:
        """The cells of one iteration: what all threads along the axis add to them."""
        b = self.b
        counter = self.trips.counter(b, iteration)
        sums = {}
        for cell in part.cells:
            name = cell.update.sum_name(self.work.aliases)
            sums[id(cell.update.atomic)] = total = b.alloca(cell.update.value.type, name)
            b.store(total, b.constant(ZERO, cell.update.value.type))
        other = Value(U32, "~other")
        with b.region() as body:
            self.contribution(part, other, counter, sums)
        b.for_(b.constant(0, U32), b.constant(self.work.block[part.axis], U32), (), 1, body.block((other,)))
        again, mapping = from_counter(self.loop, self.work.definition), {self.loop.body.args[0]: counter}
        for cell in part.cells:
            ptr = again.emit(b, cell.update.ptr, mapping)
            b.store(ptr, b.apply("add", b.load(ptr), b.load(sums[id(cell.update.atomic)])))

    def contribution(self, part: _Part, other: Value, counter: Value, sums: dict[int, Value]) -> None:
        """What the thread with another index along the axis adds in an iteration."""
        b = self.b
        own = {op.result: op for op in self.work.definition.values() if isinstance(op, Builtin)}
        mapping = {v: other for v, op in own.items() if op.name == "thread_idx" and op.axis == part.axis}
        turned = set(mapping)
        mapping[self.loop.body.args[0]] = counter
        indices = [b.convert(b.builtin("thread_idx", axis), I32) for axis in range(3)]
        indices[part.axis] = b.convert(other, I32)
        place = self.linear(b, indices)
        for value in part.needs.outside:
            if value in self.left:
                mapping[value] = b.load(self.place(b, self.left[value], place), name=value.name)
            else:
                self.work.again.emit(b, value, mapping)
        guards = {id(c.update.guarded): c.update for c in part.cells if c.update.guarded is not None}

        def change(op: Op, copy: Op) -> list[Op]:
            update = guards.get(id(op))
            if update is not None:
                return added(sums[id(update.atomic)], mapping.get(update.value, update.value), op)
            if id(op) in sums:
                return added(sums[id(op)], copy.args[0], op)  # type: ignore[attr-defined]
            if op not in part.needs.ops or isinstance(op, Atomic):
                return []
            if isinstance(op, Builtin) and op.result in turned:
                mapping[op.result] = other
                return []
            return [_without_results(copy)] if isinstance(copy, If) and op in part.needs.bare else [copy]

        b.ops += copy_block(self.loop.body, mapping, change).ops

    def rest(self) -> Op:
        """The loop without the updates; it goes if that was all."""
        gone = {id(c.update.atomic) for c in self.cells}

        def without(block: Block) -> Block:
            kept = [op for op in block.ops if id(op) not in gone]
            return Block(block.args, tuple(descend(op, without) for op in kept), block.results)

        return replace(self.loop, body=without(self.loop.body))


def _without_results(op: If) -> If:
    then, orelse = (Block((), side.ops, ()) for side in (op.then, op.orelse))
    return replace(op, then=then, orelse=orelse, results=())
