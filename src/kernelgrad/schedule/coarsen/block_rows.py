"""Thread coarsening, several rows of a block for each thread: what their threads load alike, one thread loads once.

    for (k = 0; k < 32; ++k) sum += left[k][tx] * A[k][ty]        in a block of 32 x 32 threads

is two loads for each multiplication, and shared memory gives a lane one word a cycle at best. A thread that does rows
4 * ty to 4 * ty + 3 loads `left` once for all four, and their `A` with one access of 16 bytes. What several of them
would add to the same address, it adds up first.

Between two barriers, threads run in any order; so a thread may do the rows' work operation by operation, if it meets
barriers once for all. Branches and loops that all rows take alike are done for all together, others for one row after
the other. In a block that is one row, its threads are taken in as many parts, so that lanes stay what they are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

from ...analysis.machine import FILLING_THREADS, WARP
from ...ir.builder import Builder
from ...ir.ops import (
    Alloca,
    Apply,
    Assert,
    Atomic,
    Barrier,
    Block,
    Builtin,
    For,
    Function,
    If,
    Op,
    Print,
    Store,
    Trap,
    Value,
    While,
)
from ...ir.traverse import blocks, clone, descend, operands, walk
from ...ir.types import F32, U32
from .alike_rows import AlikeRows, Extents, axis_of

_EACH = ((2,), (8, 4, 2))  # parts of the only row, rows
_FEWEST = 64  # threads of a block
_MOST_WORK = 3200  # operations: of more, the values of all rows do not fit in registers
_TYPICAL: tuple[Extents, ...] = ((32, 8, 1), (256, 1, 1))
_EFFECTS = (Store, Atomic, Alloca, Print, Assert, Trap)


def shape(block: Extents, each: int) -> Extents | None:
    """The block that is started where a thread does so many; None where it cannot be divided like this."""
    axis = axis_of(block)
    unit = WARP if axis == 0 else 1
    if block[2] > 1 or block[axis] % (each * unit):
        return None
    left = (block[0] // each, 1, 1) if axis == 0 else (block[0], block[1] // each, 1)
    return left if math.prod(left) >= _FEWEST and math.prod(left) % WARP == 0 else None


def rows_for(grid: Extents, block: Extents) -> int:
    """How many rows a thread had better do in a launch."""
    threads = math.prod(grid) * math.prod(block)
    for each in _EACH[axis_of(block)]:
        if threads >= each * FILLING_THREADS and shape(block, each) is not None:
            return each
    return 1


def started(function: Function, block: Extents) -> Extents:
    """The block that a launch of a function made for such blocks starts: its bounds tell."""
    threads = math.prod(block)
    if not function.launch_bounds or function.launch_bounds[0] >= threads:
        return block
    return shape(block, threads // function.launch_bounds[0]) or block


def run(function: Function, block: Extents, each: int) -> Function:
    """The same function, or one whose threads do up to so many rows each: `started` tells for which block."""
    work = len(list(walk(function.body)))
    while each > 1 and (shape(block, each) is None or work * each > _MOST_WORK):
        each //= 2
    left = shape(block, each)
    if each == 1 or left is None:
        return function
    rows = _Merged(function, block, each)
    if not rows.is_possible() or not rows.pays():
        return function
    bounds = (math.prod(left), *(each * n for n in function.launch_bounds[1:]))
    return replace(function, body=rows.body(), launch_bounds=bounds)


def applies_to(function: Function, block: Extents, each: int) -> bool:
    """Whether a thread does several rows in such blocks: of a kernel, or of its gradient, which does the same and
    more."""
    if shape(block, 2) is None or each < 2:
        return False
    found = AlikeRows(function, block, 2)
    return found.is_possible() and found.pays()


def applies(function: Function) -> bool:
    """Whether a thread does several rows in blocks like those that tiles are made for."""
    rows = (AlikeRows(function, block, 2) for block in _TYPICAL)
    return any(r.is_possible() and r.pays() for r in rows)


class _Merged(AlikeRows):
    """`maps`: for each row, its own values in place of the function's."""

    def __init__(self, function: Function, block: Extents, each: int):
        super().__init__(function, block, each)
        self.b = Builder(function.span)
        self.maps: list[dict[Value, Value]] = [{} for _ in range(each)]

    def body(self) -> Block:
        self.block(self.function.body)
        return Block(self.function.body.args, tuple(self.b.ops), ())

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        match op:
            case Builtin("thread_idx" | "block_dim"):
                self.index(op)
            case Atomic() if self.is_sum(op):
                self.add(op)
            case If() if (atomic := self.skipped(op)) is not None:
                self.add(atomic, guarded=True)
            case If() | For() | While() if not self.is_together(op):
                self.apart(op)
            case If():
                self.if_(op)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case Barrier():
                self.b.add(replace(op))
            case _ if isinstance(op, _EFFECTS) or any(v not in self.alike for v in (*operands(op), *op.results)):
                self.apart(op)
            case _:
                self.once(op)

    def apart(self, op: Op) -> None:
        """For one row after the other. A row that is done does not end the thread."""
        for values in self.maps:
            self.b.ops += clone(_staying(Block((), (op,), ())), values).ops

    def once(self, op: Op) -> None:
        self.b.ops += clone(Block((), (op,), ()), self.maps[0]).ops
        for values in self.maps[1:]:
            values.update((v, self.maps[0][v]) for v in op.results)

    def index(self, op: Builtin) -> None:
        b = self.b
        if op.name == "block_dim" or self.extents[op.axis] == 1:
            known = self.extents[op.axis] if op.name == "block_dim" else 0
            self.define(op.result, [b.constant(known, U32)] * self.each)
        elif op.axis != self.axis:
            self.once(op)
        else:
            own = b.builtin("thread_idx", op.axis)
            self.define(op.result, [self.numbered(own, number) for number in range(self.each)])

    def define(self, value: Value, own: list[Value]) -> None:
        for values, one in zip(self.maps, own, strict=True):
            values[value] = self.b.convert(one, value.type)

    def numbered(self, own: Value, number: int) -> Value:
        """Neighbouring rows; or of the only row, parts that begin at whole warps."""
        b = self.b
        if self.axis:
            own, by = b.apply("mul", own, b.constant(self.each, U32)), number
        else:
            by = number * (self.extents[0] // self.each)
        return b.apply("add", own, b.constant(by, U32))

    # ---- sums

    def add(self, op: Atomic, guarded: bool = False) -> None:
        """One addition of what all rows add: of floats that go into a double, as floats."""
        b, (value,) = self.b, op.args
        made = self.definition.get(value)
        added = made.args[0] if isinstance(made, Apply) and made.fn == "convert" and made.args[0].type == F32 else value
        total = reduce(lambda one, other: b.apply("add", one, other), [m.get(added, added) for m in self.maps])
        total = b.convert(total, value.type)
        with b.region() as region:
            made = replace(op, ptr=self.maps[0].get(op.ptr, op.ptr), args=(total,), results=(Value(total.type),))
            b.add(made)
        if guarded:
            b.if_(b.apply("ne", total, b.constant(0.0, total.type)), region.block())
        else:
            b.ops += region.ops

    # ---- what rows do together

    def own(self, value: Value, varies: bool) -> tuple[Value, ...]:
        """A value of each row, or the one of all."""
        return tuple(m.get(value, value) for m in (self.maps if varies else self.maps[:1]))

    def all_own(self, values: tuple[Value, ...], like: tuple[Value, ...]) -> tuple[Value, ...]:
        """Of several, as many of each as of those that they become."""
        return tuple(v for value, as_ in zip(values, like, strict=True) for v in self.own(value, as_ not in self.alike))

    def fresh(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        found: list[Value] = []
        for value in values:
            made = [Value(value.type, value.name) for _ in (self.maps if value not in self.alike else (0,))]
            for k, m in enumerate(self.maps):
                m[value] = made[k % len(made)]
            found += made
        return tuple(found)

    def inner(self, block: Block, like: tuple[Value, ...], first: int = 0) -> Block:
        """A block for all rows. `first`: the results before it are the same for all."""
        args = self.fresh(block.args)
        with self.b.region() as region:
            self.block(block)
        same = tuple(self.maps[0].get(v, v) for v in block.results[:first])
        return region.block(args, (*same, *self.all_own(block.results[first:], like)))

    def if_(self, op: If) -> None:
        then, orelse = (self.inner(side, op.results) for side in (op.then, op.orelse))
        cond = self.maps[0].get(op.cond, op.cond)
        self.b.add(replace(op, cond=cond, then=then, orelse=orelse, results=self.fresh(op.results)))

    def for_(self, op: For) -> None:
        lower, upper = (self.maps[0].get(v, v) for v in (op.lower, op.upper))
        inits = self.all_own(op.inits, op.results)
        body = self.inner(op.body, op.results)
        results = self.fresh(op.results)
        self.b.add(replace(op, lower=lower, upper=upper, inits=inits, body=body, results=results))

    def while_(self, op: While) -> None:
        inits = self.all_own(op.inits, op.before.args)
        before = self.inner(op.before, op.results, first=1)
        body = self.inner(op.body, op.before.args)
        self.b.add(replace(op, inits=inits, before=before, body=body, results=self.fresh(op.results)))


def _staying(block: Block) -> Block:
    def stay(op: Op) -> Op:
        op = descend(op, _staying) if blocks(op) else op
        return replace(op, exits=False) if isinstance(op, If) else op

    return Block(block.args, tuple(map(stay, block.ops)), block.results)
