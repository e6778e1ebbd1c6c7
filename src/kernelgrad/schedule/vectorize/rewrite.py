"""Vectorisation: what four threads load and store side by side, one does at once.

A GPU needs many bytes under way, and threads that handle one float each have too few. So each thread of the launch that
is started does the work of `width` neighbours of the kernel's launch. Where the guards around it hold for all of them,
their loads come first, 16 bytes at a time, then the work of one after the other, then their stores:

    if (i < n && i + 3 < n) {
        float4 x_4 = *(const float4 *)&x[i];
        ...
        *(float4 *)&_d_x[i] = make_float4(...);
    } else {
        for (int k = 0; k < 4; k++) ...
    }

The order is right since the neighbours are threads that do not wait for each other: whatever happens in between
elements, they might have done in that order. Blocks of the kernel's launch become rows of those that are started, so
that every thread and block index is at hand without a division:

    thread = 4 * threadIdx.x + k, block = blockIdx.x * blockDim.y + threadIdx.y

Turns of a loop that are independent as threads are become blocks along the second axis before (`spread`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from ...analysis.aliases import Aliases
from ...analysis.machine import VECTORS
from ...analysis.tuning import Vectorization
from ...ir.builder import Builder
from ...ir.effects import is_addressing, is_pure
from ...ir.ops import Apply, Atomic, Block, Builtin, Extract, Function, If, Load, Module, Op, Param, Store, Value
from ...ir.traverse import blocks, clone, descend, free_values, operands, uses, walk, with_body
from ...ir.types import I32, I64, U32, Array, Pointer, Scalar, Struct
from . import spread

_WORTH_A_LOOP = 6  # operations
GRID = "_grid_x"  # the parameter with the number of blocks of the kernel's launch


def run(function: Function, module: Module, plan: Vectorization) -> Function:
    if plan.turns:
        function = spread.run(function, module, plan.tested)
    grid = Param(Value(I64, GRID), "long long", variable=GRID)
    b = Builder(function.span)
    extent = b.convert(grid.value, U32)
    row = b.apply("mul", b.builtin("block_idx"), b.builtin("block_dim", 1))
    block = b.apply("add", row, b.builtin("thread_idx", 1), name="~block")
    with b.region() as region:
        _Quadrupled(b, function, plan, block, extent).emit()
    b.if_(b.apply("lt", block, extent), region.block(), exits=True)
    body = Block(function.body.args, tuple(b.ops), function.body.results)
    return replace(with_body(function, body), params=(*function.params, grid))


def accesses(function: Function) -> list[Load | Store]:
    return [op for op in walk(function.body) if isinstance(op, Load | Store)]


class _Quadrupled:
    """`maps`: for each of the neighbours, its own values in place of the function's."""

    def __init__(self, b: Builder, function: Function, plan: Vectorization, block: Value, extent: Value):
        self.b, self.function, self.width, self.turns = b, function, plan.width, plan.turns
        found = accesses(function)
        self.wide = {found[k] for k in plan.wide}
        self.aliases = Aliases(function)
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.used = uses(function.body)
        self.is_long = sum(map(_is_arithmetic, walk(function.body))) >= _WORTH_A_LOOP
        self.indices = {"block_idx": block, "grid_dim": extent}
        count = b.constant(self.width, U32)
        self.first = b.apply("mul", b.builtin("thread_idx"), count)
        self.indices["block_dim"] = b.apply("mul", b.builtin("block_dim"), count)
        self.maps: list[dict[Value, Value]] = []

    def emit(self) -> None:
        b, body = self.b, self.function.body
        self.maps = [self.numbered(b.constant(k, U32)) for k in range(self.width)]
        guards = list(self.guards(body))
        if not guards:
            self.together(body)
            return
        # A guard is a range: where it holds for the first and the last, it holds between them.
        conditions = [self.condition(op, ends) for op in guards for ends in (self.maps[0], self.maps[-1])]
        holds = reduce(lambda one, other: b.apply("and", one, other), conditions)
        with b.region() as together:
            self.together(body)
        with b.region() as alone:
            self.one_by_one(body)
        b.if_(holds, together.block(), alone.block())

    def numbered(self, number: Value) -> dict[Value, Value]:
        """The indices of one of the neighbours."""
        b, found = self.b, {}
        thread = b.apply("add", self.first, number)
        for op in walk(self.function.body):
            if isinstance(op, Builtin):
                along_x = {**self.indices, "thread_idx": thread}[op.name]
                value = along_x if op.axis == 0 else b.constant(int(op.name.endswith("dim")), U32)
                if self.turns and (op.name, op.axis) == spread.TURN:
                    value = b.builtin(*spread.TURN)
                found[op.result] = b.convert(value, op.result.type)
        return found

    # ---- guards

    def guards(self, block: Block) -> list[If]:
        """The branches around what goes together, the outer before the inner."""
        around = [op for op in block.ops if isinstance(op, If) and self.side(op) is not None]
        return [guard for op in around for guard in (op, *self.guards(self.taken(op)))]

    def side(self, op: If) -> Block | None:
        return next((s for s in (op.then, op.orelse) if any(inner in self.wide for inner in walk(s))), None)

    def taken(self, op: If) -> Block:
        side = self.side(op)
        assert side is not None
        return side

    def condition(self, op: If, values: dict[Value, Value]) -> Value:
        """Whether a neighbour gets behind a guard."""
        needed = self.slice(op.cond)
        mapping = dict(values)
        self.b.ops += clone(_unnumbered(Block((), needed, ())), mapping).ops
        holds = mapping.get(op.cond, op.cond)
        return holds if self.side(op) is op.then else self.b.apply("not", holds)

    def slice(self, value: Value) -> tuple[Op, ...]:
        """What a guard is computed from; it reads no memory."""
        wanted, found = [value], set()
        while wanted:
            op = self.definition.get(wanted.pop())
            if op is not None and not isinstance(op, Builtin) and op not in found:
                found.add(op)
                wanted += [*operands(op), *(v for inner in blocks(op) for v in free_values(inner))]
        return tuple(op for op in walk(self.function.body) if op in found)

    # ---- the work

    def one_by_one(self, body: Block) -> None:
        b, number = self.b, Value(U32, "~k")
        with b.region() as region:
            b.ops += clone(_staying(_unnumbered(body)), self.numbered(number)).ops
        b.for_(b.constant(0, U32), b.constant(self.width, U32), (), 1, region.block((number,)), unroll=1)

    def together(self, block: Block) -> None:
        """Loads, then the work of each neighbour, then stores."""
        waiting: list[Op] = []
        for op in self.loads_first(_unnumbered(block).ops):
            guard = isinstance(op, If) and self.side(op) is not None
            if not guard and op not in self.wide and not _is_sum(op):
                waiting.append(op)
                continue
            self.each(waiting)
            if isinstance(op, Atomic):
                self.add(op)
            elif isinstance(op, Load):
                self.load(op)
            elif isinstance(op, Store):
                self.store(op)
            elif isinstance(op, If):
                self.enter(op)
        self.each(waiting)

    def enter(self, guard: If) -> None:
        taken = self.taken(guard)
        self.together(taken)
        for values in self.maps:
            for result, inner in zip(guard.results, taken.results, strict=True):
                values[result] = values.get(inner, inner)

    def each(self, waiting: list[Op]) -> None:
        """Much of it is written once, in a loop that is unrolled, whose arrays are registers."""
        if sum(map(_is_arithmetic, waiting)) >= _WORTH_A_LOOP and all(map(is_pure, waiting)):
            self.in_a_loop(Block((), tuple(waiting), ()))
        else:
            for values in self.maps:
                self.b.ops += clone(Block((), tuple(waiting), ()), values).ops
        waiting.clear()

    def in_a_loop(self, block: Block) -> None:
        b, number, own = self.b, Value(U32, "~j"), {v for op in block.ops for v in op.results}
        given = [v for v in free_values(block) if len({values.get(v, v) for values in self.maps}) > 1]
        wanted = [v for v in own if self.used.get(v, 0) > sum(v in operands(op) for op in block.ops)]
        wanted.sort(key=list(self.definition).index)
        cells = {v: b.alloca(Array(v.type, self.width), f"{v.name or 'other'}_values") for v in (*given, *wanted)}
        for v in given:
            for k, values in enumerate(self.maps):
                b.store(self.cell(cells[v], b.constant(k, U32)), values[v])
        with b.region() as region:
            mapping = {**self.maps[0], **{v: b.load(self.cell(cells[v], number), name=v.name) for v in given}}
            b.ops += clone(block, mapping).ops
            for v in wanted:
                b.store(self.cell(cells[v], number), mapping[v])
        b.for_(b.constant(0, U32), b.constant(self.width, U32), (), 1, region.block((number,)), unroll=0)
        for k, values in enumerate(self.maps):
            values.update((v, b.load(self.cell(cells[v], b.constant(k, U32)), name=v.name)) for v in wanted)

    def cell(self, cells: Value, number: Value) -> Value:
        return self.b.offset(self.b.decay(cells), number)

    def load(self, op: Load) -> None:
        b, lanes, parts = self.b, *self.parts(op.ptr)
        loaded = [b.load(part) for part in parts]
        for k, values in enumerate(self.maps):
            name = None if self.is_long else op.result.name
            values[op.result] = b.emit(Extract, loaded[k // lanes], k % lanes, type=op.result.type, name=name)

    def store(self, op: Store) -> None:
        b, lanes, parts = self.b, *self.parts(op.ptr)
        stored = [values.get(op.value, op.value) for values in self.maps]
        for k, part in enumerate(parts):
            assert isinstance(part.type, Pointer) and isinstance(part.type.pointee, Struct)
            b.store(part, b.aggregate(part.type.pointee, tuple(stored[k * lanes : (k + 1) * lanes])))

    def add(self, op: Atomic) -> None:
        """Of neighbours that follow each other and add to the same element, the last adds for all."""
        b, (value,) = self.b, op.args
        places = [values.get(op.ptr, op.ptr) for values in self.maps]
        added = [values.get(value, value) for values in self.maps]
        nothing = b.constant(0.0, value.type)
        for k in range(1, self.width):
            same = b.apply("eq", places[k - 1], places[k])
            added[k] = b.apply("select", same, b.apply("add", added[k - 1], added[k]), added[k])
            added[k - 1] = b.apply("select", same, nothing, added[k - 1])
        for k, (place, total) in enumerate(zip(places, added, strict=True)):
            last = k == self.width - 1  # of which the lanes of a warp may have the same
            made = replace(op, ptr=place, args=(total,), together=last, results=(Value(value.type),))
            if last:
                b.add(made)
            else:
                b.if_(b.apply("ne", total, nothing), Block((), (made,), ()))

    def parts(self, ptr: Value) -> tuple[int, list[Value]]:
        """How many elements go at once, and where those of the neighbours are."""
        b, first = self.b, self.maps[0].get(ptr, ptr)
        assert isinstance(ptr.type, Pointer) and isinstance(ptr.type.pointee, Scalar)
        vector = VECTORS[ptr.type.pointee]
        lanes = len(vector.fields)
        start = b.cast_pointer(first, Pointer(vector, ptr.type.space))
        rest = range(1, self.width // lanes)
        return lanes, [start, *(b.offset(start, b.constant(k, I32)) for k in rest)]

    def loads_first(self, ops: tuple[Op, ...]) -> list[Op]:
        """Compilers leave a load behind a loop, such as a sine's for large arguments, where it stands there."""
        early: list[Op] = []
        late: list[Op] = []
        made: set[Value] = set()  # late
        for op in ops:
            waits = any(v in made for v in operands(op))
            if not waits and (_is_addressing(op) or self.is_free(op, late)):
                early.append(op)
            else:
                late.append(op)
                made.update(op.results)
        return early + late

    def is_free(self, op: Op, before: list[Op]) -> bool:
        if not isinstance(op, Load):
            return False
        inside = (nested for one in before for nested in walk(Block((), (one,), ())))
        return not any(self.aliases.may_change(nested, op.ptr) for nested in inside)


def _is_arithmetic(op: Op) -> bool:
    return isinstance(op, Apply) and isinstance(op.result.type, Scalar) and op.result.type.is_float


def _is_sum(op: Op) -> bool:
    return isinstance(op, Atomic) and op.together


def _is_addressing(op: Op) -> bool:
    numbers = [v.type for v in (*operands(op), *op.results) if isinstance(v.type, Scalar)]
    return is_addressing(op) and not any(type.is_float for type in numbers)


def _unnumbered(block: Block) -> Block:
    """Without the indices that every neighbour has its own of."""

    def inner(b: Block) -> Block:
        kept = tuple(descend(op, inner) for op in b.ops if not isinstance(op, Builtin))
        return Block(b.args, kept, b.results)

    return inner(block)


def _staying(block: Block) -> Block:
    """A neighbour that is done does not end the thread."""

    def stay(op: Op) -> Op:
        op = descend(op, _staying) if blocks(op) else op
        return replace(op, exits=False) if isinstance(op, If) else op

    return Block(block.args, tuple(map(stay, block.ops)), block.results)
