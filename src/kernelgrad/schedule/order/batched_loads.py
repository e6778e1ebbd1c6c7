"""Loads of several turns at once: what a loop loads in four turns comes before what it does with it in the first.

    for (int turn = 0; turn < turns; ++turn) {              for (unsigned batch = 0; batch < (turns + 3) / 4; ++batch) {
        int i = first + turn * stride;                          float x_values[4];
        if (i < n) sum += f(x[i]);                              #pragma unroll
    }                                                           for (int j = 0; j < 4; ++j) ... x_values[j] = x[i];
                                                                #pragma unroll
                                                                for (int j = 0; j < 4; ++j) ... sum += f(x_values[j]);
                                                            }

A GPU needs many bytes under way, and compilers do not load ahead over branches and what exponentials are made of: of a
thread that goes through memory in a loop, they have one turn's loads under way. (On an H200, the reverse of a bias and
an activation takes 0.27 ms where it took 0.43; what adds to memory atomically in each turn gets slower.) The turns stay
in their order, so sums are the same to the last bit. What is loaded is written nowhere in the loop, and its place and
the conditions around it come from the loop's number alone: a load is made where it would be made, and no other. A tape
that each turn reads would be waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...analysis import structure as structure_analysis
from ...analysis.aliases import Aliases
from ...analysis.structure import Structure
from ...autodiff.costs.operations import cost
from ...ir.builder import Builder
from ...ir.effects import PURE, is_pure
from ...ir.ops import Block, Constant, For, Function, If, Load, Module, Op, Store, Value
from ...ir.traverse import blocks, clone, descend, operands, walk, with_body, with_ops
from ...ir.types import I64, U32, Array, Pointer, Scalar

Values = tuple[Value, ...]
Turn = Callable[[Builder, Value, Value, Values], Values]  # of its cells' number, the loop's, and what is carried

TURNS = 4  # at once
_MOST_LOADS = 4
_FEWEST_TURNS = 16  # of a loop of constant length
_ENOUGH, _MOST = 24, 256  # operations of a turn, in multiplications
_PLAIN = (*PURE, If, Load, Store)


def run(function: Function, module: Module) -> Function:
    return _Pass(function).run()


def applies_to(function: Function) -> bool:
    return bool(_Pass(function).found)


class _Pass:
    def __init__(self, function: Function):
        self.function = function
        own, aliases = structure_analysis.analyse(function, apart=False), Aliases(function)
        self.found = {
            id(op): turn
            for op in walk(function.body)
            if isinstance(op, For) and (turn := _Turn(op, own, aliases)).is_suited()
        }

    def run(self) -> Function:
        return with_body(self.function, self.block(self.function.body)) if self.found else self.function

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            turn = self.found.get(id(op))
            ops += [descend(op, self.block)] if turn is None else turn.batched()
        return with_ops(block, ops)


class _Turn:
    """One of a loop's."""

    def __init__(self, loop: For, structure: Structure, aliases: Aliases):
        self.loop, self.structure, self.aliases = loop, structure, aliases
        self.loads: list[Load] = []
        self.cells: dict[int, Value] = {}  # by loads: for those of a batch
        self._counted: dict[Value, bool] = {}

    # ---- which

    def is_suited(self) -> bool:
        ops = list(walk(self.loop.body))
        if self.loop.unroll == 0 or not all(map(self.is_plain, ops)) or not self.is_long():
            return False
        self.find(self.loop.body)
        if any(map(self.waits, ops)):
            return False
        return 0 < len(self.loads) <= _MOST_LOADS and _ENOUGH <= cost(self.loop.body) <= _MOST

    def waits(self, op: Op) -> bool:
        """Whether each turn loads it from where only the turn before tells: what waits anyway gains nothing by loads
        that come first."""
        return isinstance(op, Load) and self.is_far(self.aliases.root(op.ptr)) and not self.is_counted(op.ptr)

    def is_far(self, root: Value) -> bool:
        return isinstance(root.type, Pointer) and root.type.space in ("global", "generic")

    def is_plain(self, op: Op) -> bool:
        harmless = not (isinstance(op, Load | Store) and op.volatile) and not (isinstance(op, If) and op.exits)
        return isinstance(op, _PLAIN) and harmless

    def is_long(self) -> bool:
        ends = [self.structure.definition.get(bound) for bound in (self.loop.lower, self.loop.upper)]
        known = [op.value for op in ends if isinstance(op, Constant) and isinstance(op.value, int)]
        return len(known) < 2 or abs(known[1] - known[0]) >= _FEWEST_TURNS * abs(self.loop.step)

    def find(self, block: Block) -> None:
        """Loads behind nothing but conditions that the loop's number decides."""
        for op in block.ops:
            if isinstance(op, Load) and self.may_come_first(op):
                self.loads.append(op)
            elif isinstance(op, If) and self.is_counted(op.cond):
                for side in blocks(op):
                    self.find(side)

    def may_come_first(self, load: Load) -> bool:
        root = self.aliases.root(load.ptr)
        moves = isinstance(load.result.type, Scalar) and self.is_counted(load.ptr) and self.is_moved(load.ptr)
        return self.is_far(root) and moves and not self.may_be_written(root)

    def is_moved(self, value: Value) -> bool:
        """Whether what is counted differs between turns."""
        op = self.structure.definition.get(value)
        if op is None or not self.structure.is_inside(value, self.loop):
            return value is self.loop.body.args[0]
        return any(map(self.is_moved, operands(op)))

    def may_be_written(self, root: Value) -> bool:
        written = [op for op in walk(self.loop.body) if isinstance(op, Store)]
        return any(self.aliases.may_share(root, self.aliases.root(op.ptr)) for op in written)

    def is_counted(self, value: Value) -> bool:
        """Whether it comes from the loop's number and what is outside alone."""
        if value not in self._counted:
            self._counted[value] = False
            op = self.structure.definition.get(value)
            if not self.structure.is_inside(value, self.loop) or value is self.loop.body.args[0]:
                self._counted[value] = True
            elif op is not None and is_pure(op) and not blocks(op):
                self._counted[value] = all(map(self.is_counted, operands(op)))
        return self._counted[value]

    # ---- the code

    def batched(self) -> list[Op]:
        b, loop = Builder(self.loop.span), self.loop
        for load in self.loads:
            name = f"{self.aliases.root(load.ptr).name}_values"
            self.cells[id(load)] = b.alloca(Array(load.result.type, TURNS), name)
        trips = self.trips(b)
        each = b.constant(TURNS, trips.type)
        batches = b.apply("div", b.apply("add", trips, b.constant(TURNS - 1, trips.type)), each)
        batch, carried = Value(trips.type, "~batch"), _fresh(loop.body.args[1:])
        with b.region() as region:
            first = b.apply("mul", batch, each)
            self.each_turn(b, first, trips, (), self.load)
            following = self.each_turn(b, first, trips, carried, self.work)
        body = region.block((batch, *carried), following)
        zero = b.constant(0, trips.type)
        b.add(For(zero, batches, loop.inits, 1, body, unroll=1, results=loop.results, span=loop.span))
        return b.ops

    def trips(self, b: Builder) -> Value:
        """The number of turns, without overflow."""
        lower, upper, step = self.loop.lower, self.loop.upper, self.loop.step
        assert isinstance(lower.type, Scalar)
        type = I64 if lower.type.bits > 32 else U32
        ends = (upper, lower) if step > 0 else (lower, upper)
        distance = b.apply("sub", *(b.convert(v, type) for v in ends))
        if abs(step) > 1:
            one, size = b.constant(1, type), b.constant(abs(step), type)
            distance = b.apply("add", b.apply("div", b.apply("sub", distance, one), size), one)
        runs = b.apply("lt" if step > 0 else "gt", lower, upper)
        return b.apply("select", runs, distance, b.constant(0, type))

    def each_turn(self, b: Builder, first: Value, trips: Value, carried: Values, turn: Turn) -> Values:
        """A loop over those of a batch that there are, to be unrolled so that cells are registers."""
        number, args = Value(U32, "~j"), _fresh(carried)
        with b.region() as region:
            at = b.apply("add", first, b.convert(number, first.type))
            with b.region() as taken:
                results = turn(b, number, self.counter(b, at), args)
            following = b.if_(b.apply("lt", at, trips), taken.block((), results), Block((), (), args))
        body = region.block((number, *args), following)
        return b.for_(b.constant(0, U32), b.constant(TURNS, U32), carried, 1, body, unroll=0)

    def counter(self, b: Builder, at: Value) -> Value:
        lower, step = self.loop.lower, self.loop.step
        by = b.convert(at, lower.type)
        if abs(step) > 1:
            by = b.apply("mul", by, b.constant(abs(step), lower.type))
        return b.apply("add" if step > 0 else "sub", lower, by, name=self.loop.body.args[0].name)

    def load(self, b: Builder, number: Value, counter: Value, _: Values) -> Values:
        b.ops += clone(self.only_loads(self.loop.body, number), {self.loop.body.args[0]: counter}).ops
        return ()

    def only_loads(self, block: Block, number: Value) -> Block:
        """To the cells of a turn."""
        b = Builder(self.loop.span)
        for op in block.ops:
            b.span = op.span
            if isinstance(op, Load) and id(op) in self.cells:
                b.add(op)
                b.store(b.offset(b.decay(self.cells[id(op)]), number), op.result)
            elif isinstance(op, If) and any(id(inner) in self.cells for inner in walk(Block((), (op,), ()))):
                b.if_(op.cond, self.only_loads(op.then, number), self.only_loads(op.orelse, number))
            elif is_pure(op) and not blocks(op) and all(map(self.is_counted, op.results)):
                b.add(op)
        return Block((), tuple(b.ops), ())

    def work(self, b: Builder, number: Value, counter: Value, args: Values) -> Values:
        body = self.with_cells(self.loop.body, number)
        mapping = dict(zip(self.loop.body.args, (counter, *args), strict=True))
        made = clone(Block((), body.ops, body.results), mapping)
        b.ops += made.ops
        return made.results

    def with_cells(self, block: Block, number: Value) -> Block:
        """With what was loaded before."""
        ops: list[Op] = []
        for op in block.ops:
            b = Builder(op.span)
            if isinstance(op, Load) and id(op) in self.cells:
                ptr = b.offset(b.decay(self.cells[id(op)]), number)
                ops += [*b.ops, replace(op, ptr=ptr)]
            else:
                ops.append(descend(op, lambda inner: self.with_cells(inner, number)))
        return with_ops(block, ops)


def _fresh(values: Iterable[Value]) -> Values:
    return tuple(Value(v.type, v.name) for v in values)
