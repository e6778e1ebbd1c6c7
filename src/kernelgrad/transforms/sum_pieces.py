"""Long sums of adjoints: a sum of floats loses what is added to it once it is 2^24 times as large.

    for (j = n - 1; j > -1; --j) sum += v;

becomes a loop over pieces of that loop. Each piece adds up in a float of its own, which is then added to a double: an
addition of doubles for every so many iterations. What is summed up in loops inside of the loop, or in one whose threads
meet, is one piece for each iteration. Where a sum is read while it grows, so is its total (`sum_reads`). For launches
whose loops are long (`analysis/access/contribution_counts.py`); loops of few iterations are left alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ..analysis.adjoint_values import adjoint_values
from ..ir.builder import Builder
from ..ir.effects import MEETINGS
from ..ir.ops import Apply, Block, Constant, For, Function, If, Module, Op, Value, While
from ..ir.traverse import blocks, clone, descend, operands, walk, with_body
from ..ir.types import F32, F64, I64, U64
from .sum_reads import Reads, chain, is_nan_test

PIECE = 128  # iterations
SHORT = 1024  # iterations that need no pieces
_ADDING = frozenset(("add", "sub", "fma", "select"))


def run(function: Function, _: Module, memory: frozenset[str]) -> Function:
    """`memory`: the parameters and variables that hold adjoints. The kernel's own sums stay as they are."""
    return with_body(function, _Pass(function, adjoint_values(function, memory)).block(function.body))


class _Use(NamedTuple):
    """Of a value: by an operation, `as_` the `number`-th of what a loop begins with, or of what a block gives."""

    by: Op | None
    as_: str = ""
    number: int = 0


class _Pass:
    def __init__(self, function: Function, adjoints: set[Value]):
        self.adjoints = adjoints
        self.definition = {r: op for op in walk(function.body) for r in op.results}
        self.users = _users(function.body)

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            sums = self.sums(op) if isinstance(op, For) else {}
            inner = descend(op, self.block)
            ops += _in_pieces(inner, sums) if isinstance(inner, For) and sums else [inner]
        return Block(block.args, tuple(ops), block.results)

    def sums(self, loop: For) -> dict[int, set[Value]]:
        """Which of the values that a loop carries are sums of adjoints; of those that are read on the way, with what
        they are in an iteration."""
        if self.most(loop) <= SHORT or loop.lower.type == U64:
            return {}
        floats = (k for k, arg in enumerate(loop.body.args[1:]) if arg.type == F32 and arg in self.adjoints)
        found = {k: set[Value]() if self.grows(loop, k) else self.read_sum(loop, k) for k in floats}
        return {k: values for k, values in found.items() if values is not None}

    def most(self, op: Op) -> float:
        """Iterations of a loop with those of the loops inside, which add to the same sums."""
        inside = max((self.most(inner) for block in blocks(op) for inner in block.ops), default=1)
        return inside * self.length(op) if isinstance(op, For | While) else inside

    def length(self, loop: For | While) -> float:
        ends = [self.definition.get(v) for v in (loop.lower, loop.upper)] if isinstance(loop, For) else []
        numbers = [op.value for op in ends if isinstance(op, Constant)]
        if not isinstance(loop, For) or len(numbers) != 2:
            return math.inf
        return max(0, -((numbers[0] - numbers[1]) // loop.step))

    def grows(self, loop: For, k: int) -> bool:
        """Whether a value that a loop carries is, after an iteration, the same with something added, and nothing else
        sees it on the way. A test for NaN, after which the same is added again with more care (Note [Masks]), may as
        well be made of a part of the sum."""
        start, end = loop.body.args[1 + k], loop.body.results[k]
        sums, todo = {start}, [start]
        while todo:
            for use in self.users.get(todo.pop(), ()):
                if use == _Use(loop, "given", k) or is_nan_test(use.by):
                    continue
                found = _sum_by(use)
                if found is None:
                    return False
                todo += () if found in sums else (found,)
                sums.add(found)
        return end in sums - {start} and all(self.is_sum(v, sums) for v in sums - {start})

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
                return op.inits[k] in sums and self.grows(op, k)
        return False


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


def _in_pieces(loop: For, sums: dict[int, set[Value]]) -> list[Op]:
    b = Builder(loop.span)
    grown = tuple(Value(F64, _total_name(loop.body.args[1 + k])) for k in sums)
    for (k, values), total in zip(sums.items(), grown, strict=True):
        if values:
            loop = replace(loop, body=Reads(values, total).block(loop.body, frozenset((k,))))
    others = [k for k in range(len(loop.inits)) if k not in sums]
    totals = tuple(b.convert(loop.inits[k], F64) for k in sums)
    has_loops = any(isinstance(op, (For, While, *MEETINGS)) for op in walk(loop.body))  # or threads meet in it
    piece = _one if has_loops else _several
    at = Value(loop.lower.type if has_loops else I64, loop.body.args[0].name)
    carried = tuple(Value(loop.inits[k].type, loop.body.args[1 + k].name) for k in others)
    with b.region() as region:
        starts = dict(zip(others, carried, strict=True)) | {k: b.constant(-0.0, F32) for k in sums}
        ends = piece(b, loop, at, tuple(starts[k] for k in range(len(loop.inits))))
        added = tuple(b.apply("add", t, b.convert(ends[k], F64)) for t, k in zip(grown, sums, strict=True))
    body = region.block((at, *carried, *grown), (*(ends[k] for k in others), *added))
    lower, upper = (v if has_loops else b.convert(v, I64) for v in (loop.lower, loop.upper))
    step = loop.step if has_loops else loop.step * PIECE
    results = (*(loop.results[k] for k in others), *(Value(F64, _total_name(loop.results[k])) for k in sums))
    inits = (*(loop.inits[k] for k in others), *totals)
    unroll = loop.unroll if has_loops else 1
    b.add(For(lower, upper, inits, step, body, unroll, results=results, span=loop.span))
    for k, total in zip(sums, results[len(others) :], strict=True):
        b.add(Apply("convert", (total,), results=(loop.results[k],), span=loop.span))
    return b.ops


def _total_name(value: Value) -> str | None:
    return value.name and f"{value.name}_total"


def _one(b: Builder, loop: For, at: Value, starts: tuple[Value, ...]) -> tuple[Value, ...]:
    """One iteration is a piece."""
    mapping = dict(zip(loop.body.args, (at, *starts), strict=True))
    copy = clone(Block((), loop.body.ops, loop.body.results), mapping)
    b.ops += copy.ops
    return copy.results


def _several(b: Builder, loop: For, at: Value, starts: tuple[Value, ...]) -> tuple[Value, ...]:
    type = loop.lower.type
    end = b.apply("add", at, b.constant(loop.step * PIECE, I64))
    end = b.apply("min" if loop.step > 0 else "max", end, b.convert(loop.upper, I64))
    results = tuple(Value(v.type, v.name) for v in loop.results)
    inner = replace(loop, lower=b.convert(at, type), upper=b.convert(end, type), inits=starts, results=results)
    b.add(inner)
    return results
