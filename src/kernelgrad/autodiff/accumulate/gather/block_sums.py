"""A gather of few elements with long sums: a block for each tile of them, whose threads add up together.

    d_w[k][c][r][s] = sum over x, y of d_y[k][y][x] * in[c][y + r][x + s]

becomes a block for each (k, c): its threads run over x and y, with the sums of all (r, s) in registers, and add those
up at the end. What does not depend on r and s is loaded once for all of them. No two blocks have the same element; or,
where there are few tiles, several blocks share one, each with its part of x or y, and add what they have atomically.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product

from ....ir.ops import Apply, BarrierReduce, For, If, Load, Op, Value
from ....ir.traverse import operands
from ....ir.types import BOOL
from .conditions import Coordinate
from .kernel import Emitter
from .plan import Site
from .slices import Guard, NotSliceable, Slice, together


def _axes(site: Site) -> list[Coordinate]:
    return [c for c in site.summed if c.kind == "axis"]


def _fixed_first(tests: list[Value], ops: list[Op], counter: Value) -> list[Value]:
    """What tests are the conjunction of: before the others, what does not change with a loop's counter, which is tested
    once for the loop. `ops`: what the loop does before, of a body without loops."""
    definition = {r: op for op in ops for r in op.results}
    changing = {counter}
    for op in ops:
        if not changing.isdisjoint(operands(op)):
            changing.update(op.results)
    parts: list[Value] = []
    for test in tests:
        parts += _conjuncts(test, definition)
    return sorted(parts, key=changing.__contains__)


def _conjuncts(value: Value, definition: dict[Value, Op]) -> list[Value]:
    op = definition.get(value)
    if not isinstance(op, Apply) or op.fn != "and" or op.result.type != BOOL:
        return [value]
    return [part for arg in op.args for part in _conjuncts(arg, definition)]


class BlockSums(Emitter):
    """Emits such a gather."""

    def _whole(self) -> None:
        b, (site,) = self.b, self.gather.sites
        rows = self._rows()
        variables = [b.alloca(self.element, "~sum") for _ in rows]
        for variable in variables:
            b.store(variable, b.constant(0.0, self.element))
        b.span = self.updates[site.number].op.span
        slices = [Slice(self, site, row, own, False) for row, own in zip(rows, variables, strict=True)]
        lanes, *others = _axes(site)
        loops = [c for c in site.summed if c.kind == "loop"]
        self._over(slices, (*loops, *reversed(others), lanes))
        totals = [b.emit(BarrierReduce, "sum", b.load(variable), type=self.element) for variable in variables]
        with b.region() as first:
            for row, total in zip(rows, totals, strict=True):
                self._update(row, {0: total})
        here = [b.convert(b.builtin("thread_idx", axis), self.type) for axis in (0, 1)]
        b.if_(together(b, [b.apply("eq", at, b.constant(0, self.type)) for at in here]), first.block())

    def _rows(self) -> list[list[Value]]:
        """The digits of the block's elements."""
        b, tile = self.b, self.gather.tile or ()
        rest, outer = b.convert(b.builtin("block_idx"), self.type), list[Value]()
        if self.gather.parts > 1:
            rest = b.apply("div", rest, b.constant(self.gather.parts, self.type))
        for k in range(len(tile), self.gather.digits):
            extent, is_last = self.number(f"_extent_{k}"), k == self.gather.digits - 1
            at = rest if is_last else b.apply("rem", rest, extent)
            outer.append(b.apply("add", self.number(f"_first_{k}"), at))
            rest = rest if is_last else b.apply("div", rest, extent)
        firsts = [self.number(f"_first_{k}") for k in range(len(tile))]
        return [
            [*(b.apply("add", v, b.constant(n, self.type)) for v, n in zip(firsts, place, strict=True)), *outer]
            for place in product(*map(range, tile))
        ]

    def _over(self, slices: list[Slice], rest: tuple[Coordinate, ...]) -> None:
        """Loops over the coordinates that are summed over, some of them in strides of the block."""
        if not rest:
            self._execution(slices)
            return
        (first, *others), b, at = rest, self.b, Value(self.type, "~at")
        threads = slices[0].site.threads
        number, step = (list(threads).index(first), threads[first]) if first in threads else (None, 1)
        start = b.constant(0, self.type) if number is None else b.convert(b.builtin("thread_idx", number), self.type)
        if first == self.gather.divided:
            start, step = b.apply("add", start, self._part(step)), step * self.gather.parts
        length = slices[0].length(first)
        with b.region() as body, ExitStack() as scopes:
            for one in slices:
                scopes.enter_context(one.scope())
                one.at[first] = at
            self._over(slices, tuple(others))
        b.for_(start, length, (), step, body.block((at,)))

    def _part(self, step: int) -> Value:
        """Where the block's part begins."""
        b, block = self.b, self.b.convert(self.b.builtin("block_idx"), self.type)
        part = b.apply("rem", block, b.constant(self.gather.parts, self.type))
        return b.apply("mul", part, b.constant(step, self.type))

    def _add(self, place: Value, sum_: Value, there: bool) -> None:
        if self.gather.parts == 1:
            super()._add(place, sum_, there)
            return
        b = self.b
        with b.region() as region:
            b.atomic("add", place, sum_)
        b.if_(b.apply("ne", sum_, b.constant(0.0, self.element)), region.block())

    def _execution(self, slices: list[Slice]) -> None:
        """Of all elements: what is the same for them is tested and loaded first."""
        b, common, inner = self.b, slices[0], self._first_inner(slices[0])
        with common.scope():
            conditions = [c for k in range(len(self.gather.tile or ()), len(common.digits)) for c in common.solve(k)]
            conditions += [*common.threads_exist(), *self._outer_conditions(common, inner)]
            before = b.ops
            with b.region() as region, common.scope():
                for load in self._loads_outside(common, inner):
                    common.value(load.result)
                self._contributions(slices, inner, dict(common.known), dict(common.at), before)
            b.if_(together(b, conditions), region.block())

    def _first_inner(self, one: Slice) -> int:
        """Where on the way to the read the first loop is whose iterations are elements of the tile."""
        tile = {solved.coordinate for solved in one.site.solved[: len(self.gather.tile or ())]}
        loops = [op for op, _ in one.update.path if isinstance(op, For)]
        inner = {id(loop) for k, loop in enumerate(loops) if Coordinate("loop", k) in tile}
        path = one.update.path
        return next((k for k, (op, _) in enumerate(path) if id(op) in inner), len(path))

    def _outer_conditions(self, common: Slice, inner: int) -> list[Value]:
        path = common.update.path[:inner]
        for k, op in enumerate(op for op, _ in path if isinstance(op, For)):
            common.bind(op.body.args[0], common.counter(op, common.at[Coordinate("loop", k)]))
        guards = [(op.cond, side is op.then) for op, side in path if isinstance(op, If)]
        guards = [guard for guard in guards if not common.is_zero_test(guard[0])]
        if not all(common.is_cheap(cond) for cond, _ in guards):
            raise NotSliceable
        return [common.holds(*guard) for guard in guards]

    def _loads_outside(self, common: Slice, inner: int) -> list[Load]:
        """What the kernel loads for all elements of the tile, if it gets that far, and each of them needs."""
        around = (self.pattern.body, *(block for _, block in common.update.path[:inner]))
        outside = {id(op) for block in around for op in block.ops}
        found, seen, pending = list[Load](), set[Value](), [common.update.op.args[0]]
        while pending:
            value = pending.pop()
            op = self.definition.get(value)
            if value in seen or op is None or isinstance(op, For | If):
                continue
            seen.add(value)
            pending += operands(op)
            if id(op) in outside and common.is_copied_load(op):
                found.append(op)
        return found

    def _contributions(
        self,
        slices: list[Slice],
        inner: int,
        known: dict[Value, Value],
        at: dict[Coordinate, Value],
        before: list[Op],
    ) -> None:
        """To all sums. Where all executions exist, no test stands between the loads, and they overlap. `before`: what
        the innermost loop does before."""
        b = self.b
        with b.region() as tested:
            for one in slices:
                with one.scope():
                    one.guarded(*self._found(one, inner, known, at))
        tests = self._tests(slices, inner, known, at) if len(slices) > 1 and 6 * self.copied < self.most else None
        if tests is None:
            b.ops += tested.ops
            return
        tests = _fixed_first(tests, [*before, *b.ops], at[_axes(slices[0].site)[0]])
        with b.region() as untested:
            values = []
            for one in slices:
                with one.scope():
                    self._found(one, inner, known, at)
                    values.append(one.value(one.update.op.args[0]))
            for one, value in zip(slices, values, strict=True):
                one.add(value)
        b.if_(together(b, tests), untested.block(), tested.block())

    def _tests(
        self, slices: list[Slice], inner: int, known: dict[Value, Value], at: dict[Coordinate, Value]
    ) -> list[Value] | None:
        """All that must hold for all executions to exist; None where not all of it may be asked at once."""
        tests = list[Value]()
        for one in slices:
            with one.scope():
                conditions, guards = self._found(one, inner, known, at)
                if not all(one.is_cheap(cond) for cond, _ in guards):
                    return None
                tests += [*conditions, *(one.holds(*guard) for guard in guards)]
        return tests

    def _found(
        self, one: Slice, inner: int, known: dict[Value, Value], at: dict[Coordinate, Value]
    ) -> tuple[list[Value], list[Guard]]:
        """Finds the execution that contributes to an element's sum: what must hold for it to be one, and the guards on
        the way to it."""
        for value, copy in known.items():
            one.bind(value, copy)
        one.at.update(at)
        conditions = [c for k in range(len(self.gather.tile or ())) for c in one.solve(k)]
        for k, loop in enumerate(one.loops):
            if loop.body.args[0] not in known:
                one.bind(loop.body.args[0], one.counter(loop, one.at[Coordinate("loop", k)]))
        guards = [(op.cond, side is op.then) for op, side in one.update.path[inner:] if isinstance(op, If)]
        return conditions, [guard for guard in guards if not one.is_zero_test(guard[0])]
