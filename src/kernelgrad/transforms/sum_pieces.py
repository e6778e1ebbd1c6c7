"""Long sums of adjoints: a sum of floats loses what is added to it once it is 2^24 times as large.

    for (j = n - 1; j > -1; --j) sum += v;

becomes a loop over pieces of that loop. Each piece adds up in a float of its own, which is then added to a total: one
addition to it for every `PIECE` additions. The total is a double, or a float where no more than `MIDDLING` additions
are made (`analysis/access/contribution_counts.py`), since that costs neither registers nor the few units for doubles of
many GPUs; of many sums of one loop, the totals are in memory of the thread. An iteration with that many additions of
its own, in loops inside of the loop perhaps, is a piece. Where a sum is read while it grows, so is its total
(`sum_reads`). Where no loop alone is long, the loops inside of a loop make its pieces, and no other loop is needed.
A loop around such a loop carries the total, if that is a double. Sums of few additions are left alone.

N additions of equal floats, one after the other, are off by N / 4 * 2^-24 at most: 3.8e-6 for 256 of them, and the same
for a float's 128 pieces of 128. Of numbers that differ, in the worst of orders, it is four times that of their
magnitudes' sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..analysis.adjoint_values import adjoint_values
from ..analysis.tuning import Totals
from ..ir.builder import Builder
from ..ir.ops import Alloca, Apply, Block, Constant, For, Function, If, Module, Op, Value
from ..ir.traverse import blocks, clone, descend, operands, substitute, walk, with_body
from ..ir.types import F32, F64, I32, I64, U64, Array, Pointer, Scalar, Type
from .sum_reads import Reads, chain, is_nan_test

PIECE = 128  # additions
SHORT = 1 << 8  # additions that need no pieces
_DOUBLES = Totals(F64)
_MOST_REGISTERS = 16  # for totals of one loop
_ADDING = frozenset(("add", "sub", "fma", "select"))


def run(function: Function, _: Module, memory: frozenset[str], totals: Totals = _DOUBLES) -> Function:
    """`memory`: the parameters and variables that hold adjoints. The kernel's own sums stay as they are."""
    passed = _Pass(function, adjoint_values(function, memory), totals)
    body = passed.block(function.body)
    return with_body(function, Block(body.args, (*passed.variables, *body.ops), body.results))


class _Use(NamedTuple):
    """Of a value: by an operation, `as_` the `number`-th of what a loop begins with, or of what a block gives."""

    by: Op | None
    as_: str = ""
    number: int = 0


class _Sum(NamedTuple):
    """That a loop carries: the values it is on its way through an iteration, `additions` to it in each, whether
    something else reads it there, and whether loops inside add to it."""

    values: set[Value]
    additions: float
    is_read: bool
    in_nest: bool


class _Pass:
    def __init__(self, function: Function, adjoints: set[Value], totals: Totals):
        self.adjoints, self.total, self.by_nests = adjoints, totals.type, totals.by_nests
        self.definition = {r: op for op in walk(function.body) for r in op.results}
        self.users = _users(function.body)
        self.variables: list[Op] = []

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            sums = self.long_sums(op) if isinstance(op, For) else {}
            inner = descend(op, self.block)
            ops += self.summed(inner, sums) if isinstance(inner, For) and sums else [inner]
        return Block(block.args, tuple(ops), block.results)

    def summed(self, loop: For, sums: dict[int, _Sum]) -> list[Op]:
        """`loop`: with pieces of the loops inside."""
        b = Builder(loop.span)
        wide = [k for k in sums if self.total == F64 and _is_total(loop.body, k)]
        loop, narrowed = _carrying(b, loop, wide) if wide else (loop, ())
        rest = {k: found for k, found in sums.items() if k not in wide}
        return [*b.ops, *(self.pieces(loop, rest).ops if rest else (loop,)), *narrowed]

    def pieces(self, loop: For, sums: dict[int, _Sum]) -> Builder:
        unread = [k for k, found in sums.items() if not found.is_read]
        if len(unread) <= _MOST_REGISTERS:
            return _in_pieces(loop, sums, self.total, None, self.piece(sums))
        cells = Value(Pointer(Array(self.total, len(unread)), "local"), "totals")
        self.variables.append(Alloca(results=(cells,), span=loop.span))
        return _in_pieces(loop, sums, self.total, cells, self.piece(sums))

    def piece(self, sums: dict[int, _Sum]) -> int:
        """How many iterations are one."""
        if self.by_nests and any(found.in_nest for found in sums.values()):
            return 1
        return 1 << int(math.log2(max(1, PIECE // max(found.additions for found in sums.values()))))

    def long_sums(self, loop: For) -> dict[int, _Sum]:
        """Which of the values that a loop carries are sums of many adjoints."""
        length = self.length(loop)
        return {k: found for k, found in self.sums(loop).items() if found.additions * length > SHORT}

    def sums(self, loop: For) -> dict[int, _Sum]:
        if loop.lower.type == U64:
            return {}
        floats = (k for k, arg in enumerate(loop.body.args[1:]) if arg.type == F32 and arg in self.adjoints)
        return {k: found for k in floats if (found := self.sum(loop, k)) is not None}

    def sum(self, loop: For, k: int) -> _Sum | None:
        grown = self.grown(loop, k)
        values = self.read_sum(loop, k) if grown is None else grown
        if values is None:
            return None
        in_nest = any(isinstance(self.definition.get(v), For) for v in values)
        return _Sum(values, self.additions(loop, k, values), grown is None, in_nest)

    def additions(self, loop: For, k: int, values: set[Value]) -> float:
        """At most, to a sum on its way through an iteration: one side of a branch. A loop inside that adds up in pieces
        adds once."""
        made = {loop.body.args[1 + k]: 0.0}
        for op in _inside_out(loop.body):
            for number, result in enumerate(op.results):
                if result in values:
                    before = max((made[v] for v in _parts(op, number) if v in made), default=0.0)
                    made[result] = before + self.added(op, number)
        return max(1.0, made[loop.body.results[k]])

    def added(self, op: Op, k: int) -> float:
        match op:
            case For():
                return self.in_loop(op, k)
            case Apply(fn) if fn != "select":
                return 1.0
        return 0.0

    def in_loop(self, loop: For, k: int) -> float:
        grown, length = self.grown(loop, k), self.length(loop)
        many = math.inf if grown is None else self.additions(loop, k, grown) * length
        return 1.0 if many > SHORT else many

    def length(self, loop: For) -> float:
        ends = [self.definition.get(v) for v in (loop.lower, loop.upper)]
        numbers = [op.value for op in ends if isinstance(op, Constant)]
        if len(numbers) != 2:
            return SHORT if self.by_nests else math.inf
        return max(0, -((numbers[0] - numbers[1]) // loop.step))

    def grown(self, loop: For, k: int) -> set[Value] | None:
        """What a value that a loop carries is on its way through an iteration, if it is, after that, the same with
        something added, and nothing else sees it on the way. A test for NaN, after which the same is added again with
        more care (Note [Masks]), may as well be made of a part of the sum."""
        start, end = loop.body.args[1 + k], loop.body.results[k]
        sums, todo = {start}, [start]
        while todo:
            for use in self.users.get(todo.pop(), ()):
                if use == _Use(loop, "given", k) or is_nan_test(use.by):
                    continue
                found = _sum_by(use)
                if found is None:
                    return None
                todo += () if found in sums else (found,)
                sums.add(found)
        is_it = end in sums - {start} and all(self.is_sum(v, sums) for v in sums - {start})
        return sums if is_it else None

    def read_sum(self, loop: For, k: int) -> set[Value] | None:
        """What a value that a loop carries is on its way through an iteration, if something is added to it there, by no
        loop inside; whatever else is made of it."""
        start, end = loop.body.args[1 + k], loop.body.results[k]
        reached, todo = {start}, [start]
        while todo:
            for found in map(_sum_by, self.users.get(todo.pop(), ())):
                if found is not None and found not in reached and not isinstance(self.definition[found], For):
                    reached.add(found)
                    todo.append(found)
        values = chain(start, end, reached, self.definition)
        is_it = end is not start and end in values and all(self.is_sum(v, values) for v in values - {start})
        return values if is_it else None

    def is_sum(self, value: Value, sums: set[Value]) -> bool:
        """Whether it is one of the sums, with something added that is none: whichever way was taken."""
        op = self.definition[value]
        match op:
            case Apply("add", args):
                return sum(v in sums for v in args) == 1
            case Apply("sub", (left, right)):
                return left in sums and right not in sums
            case Apply("fma", (*factors, added)):
                return added in sums and sums.isdisjoint(factors)
            case Apply("select", (_, *sides)):
                return sums.issuperset(sides)
            case If(_, then, orelse):
                k = op.results.index(value)
                return then.results[k] in sums and orelse.results[k] in sums
            case For():
                k = op.results.index(value)
                return op.inits[k] in sums and self.grown(op, k) is not None
        return False


def _is_total(body: Block, k: int) -> bool:
    """Whether a float that a loop carries is the total of a loop inside, rounded: nobody else sees it."""
    arg, end = body.args[1 + k], body.results[k]
    made = [op for op in body.ops if end in op.results and isinstance(op, Apply) and op.fn == "convert"]
    readers = [op for op in walk(body) if arg in operands(op)]
    given = [v for block in _blocks(body) for v in block.results if v in (arg, end)]
    rounds = [op.args[0].type for op in made] == [F64] and not any(end in operands(op) for op in walk(body))
    return rounds and len(readers) == 1 and given == [end] and _widens(readers[0]) and readers[0] in body.ops


def _widens(op: Op) -> bool:
    return isinstance(op, Apply) and op.fn == "convert" and op.result.type == F64


def _carrying(b: Builder, loop: For, wide: list[int]) -> tuple[For, tuple[Op, ...]]:
    """The loop, which carries such totals as they are, and what rounds them after it."""
    body, inits, results = loop.body, list(loop.inits), list(loop.results)
    args, ends, known = list(body.args), list(body.results), dict[Value, Value]()
    definition = {r: op for op in body.ops for r in op.results}
    for k in wide:
        args[1 + k] = Value(F64, _total_name(body.args[1 + k]))
        (read,) = (op.result for op in walk(body) if body.args[1 + k] in operands(op))
        known[read] = args[1 + k]
        ends[k] = operands(definition[body.results[k]])[0]
        inits[k], results[k] = b.convert(inits[k], F64), Value(F64, _total_name(loop.results[k]))
    kept = tuple(op for op in body.ops if not any(r in known for r in op.results))
    inner = substitute(Block(tuple(args), kept, tuple(ends)), known)
    narrowed = tuple(Apply("convert", (results[k],), results=(loop.results[k],), span=loop.span) for k in wide)
    return replace(loop, inits=tuple(inits), body=inner, results=tuple(results)), narrowed


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in walk(block):
        yield from blocks(op)


def _sum_by(use: _Use) -> Value | None:
    """What is a sum, perhaps, where one is used so."""
    match use:
        case _Use(If(), "given", k) | _Use(For(), "begins", k):
            assert use.by is not None
            return use.by.results[k]
        case _Use(Apply(fn), "") if fn in _ADDING:
            assert use.by is not None
            return use.by.result
    return None


def _parts(op: Op, k: int) -> tuple[Value, ...]:
    """What the k-th result of an operation may be a sum of."""
    match op:
        case If(_, then, orelse):
            return then.results[k], orelse.results[k]
        case For(_, _, inits):
            return (inits[k],)
    return operands(op)


def _inside_out(block: Block) -> Iterator[Op]:
    """In order, what is in an operation before it; not what is in loops."""
    for op in block.ops:
        for inner in () if isinstance(op, For) else blocks(op):
            yield from _inside_out(inner)
        yield op


def _users(body: Block) -> dict[Value, list[_Use]]:
    found: dict[Value, list[_Use]] = {}

    def visit(block: Block, owner: Op | None) -> None:
        for op in block.ops:
            inits = op.inits if isinstance(op, For) else ()
            for value in operands(op)[: -len(inits) or None]:
                found.setdefault(value, []).append(_Use(op))
            for k, value in enumerate(inits):
                found.setdefault(value, []).append(_Use(op, "begins", k))
            for inner in blocks(op):
                visit(inner, op)
        for k, value in enumerate(block.results):
            found.setdefault(value, []).append(_Use(owner, "given", k))

    visit(body, None)
    return found


def _in_pieces(loop: For, sums: dict[int, _Sum], type: Scalar, cells: Value | None, piece: int) -> Builder:
    """`cells`: where totals are kept of sums that nobody reads on the way."""
    b = Builder(loop.span)
    stored = [k for k, found in sums.items() if cells is not None and not found.is_read]
    held = [k for k in sums if k not in stored]
    grown = {k: Value(type, _total_name(loop.body.args[1 + k])) for k in held}
    for k in (k for k in held if sums[k].is_read):
        loop = replace(loop, body=Reads(sums[k].values, grown[k]).block(loop.body, frozenset((k,))))
    others = [k for k in range(len(loop.inits)) if k not in sums]
    totals = {k: _as(b, loop.inits[k], type) for k in sums}
    for number, k in enumerate(stored):
        b.store(_cell(b, cells, number), totals[k], volatile=True)
    at = Value(I64 if piece > 1 else loop.lower.type, loop.body.args[0].name)
    carried = tuple(Value(loop.inits[k].type, loop.body.args[1 + k].name) for k in others)
    with b.region() as region:
        starts = dict(zip(others, carried, strict=True)) | {k: b.constant(-0.0, F32) for k in sums}
        begins = tuple(starts[k] for k in range(len(loop.inits)))
        ends = _several(b, loop, at, begins, piece) if piece > 1 else _one(b, loop, at, begins)
        added = tuple(b.apply("add", grown[k], _as(b, ends[k], type)) for k in held)
        for number, k in enumerate(stored):
            cell = _cell(b, cells, number)
            b.store(cell, b.apply("add", b.load(cell, volatile=True), _as(b, ends[k], type)), volatile=True)
    body = region.block((at, *carried, *grown.values()), (*(ends[k] for k in others), *added))
    lower, upper = (_as(b, v, I64) if piece > 1 else v for v in (loop.lower, loop.upper))
    whole = {k: Value(type, _total_name(loop.results[k])) for k in held}
    results = (*(loop.results[k] for k in others), *whole.values())
    inits = (*(loop.inits[k] for k in others), *(totals[k] for k in held))
    unroll = 1 if piece > 1 else loop.unroll
    b.add(For(lower, upper, inits, loop.step * piece, body, unroll, results=results, span=loop.span))
    whole |= {k: b.load(_cell(b, cells, number), volatile=True) for number, k in enumerate(stored)}
    for k, total in whole.items():
        b.add(Apply("convert", (total,), results=(loop.results[k],), span=loop.span))
    return b


def _cell(b: Builder, cells: Value | None, number: int) -> Value:
    assert cells is not None
    return b.offset(b.decay(cells), b.constant(number, I32))


def _as(b: Builder, value: Value, type: Type) -> Value:
    return value if value.type == type else b.convert(value, type)


def _total_name(value: Value) -> str | None:
    return value.name and f"{value.name}_total"


def _one(b: Builder, loop: For, at: Value, starts: tuple[Value, ...]) -> tuple[Value, ...]:
    """One iteration is a piece."""
    mapping = dict(zip(loop.body.args, (at, *starts), strict=True))
    copy = clone(Block((), loop.body.ops, loop.body.results), mapping)
    b.ops += copy.ops
    return copy.results


def _several(b: Builder, loop: For, at: Value, starts: tuple[Value, ...], piece: int) -> tuple[Value, ...]:
    type = loop.lower.type
    end = b.apply("add", at, b.constant(loop.step * piece, I64))
    end = b.apply("min" if loop.step > 0 else "max", end, _as(b, loop.upper, I64))
    results = tuple(Value(v.type, v.name) for v in loop.results)
    inner = replace(loop, lower=_as(b, at, type), upper=_as(b, end, type), inits=starts, results=results)
    b.add(inner)
    return results
