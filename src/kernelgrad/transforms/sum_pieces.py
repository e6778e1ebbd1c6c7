"""Long sums of adjoints: a sum of floats loses what is added to it once it is 2^24 times as large.

    for (j = n - 1; j > -1; --j) sum += v;

becomes a loop over pieces of that loop. Each piece adds up in a float of its own, which is then added to a double: an
addition of doubles for every so many iterations. What is summed up in loops inside of the loop, or in one whose threads
meet, is one piece for each iteration. Only sums: what is read of them while they grow stays as it is. For launches
whose loops are long (`analysis/access/contribution_counts.py`); loops of few iterations are left alone.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.adjoint_values import adjoint_values
from ..ir.builder import Builder
from ..ir.effects import MEETINGS
from ..ir.ops import Apply, Block, Constant, For, Function, If, Module, Op, Value, While
from ..ir.traverse import clone, descend, uses, walk, with_body
from ..ir.types import F32, F64, I64, U64

PIECE = 128  # iterations
SHORT = 1024  # iterations that need no pieces


def run(function: Function, _: Module, memory: frozenset[str]) -> Function:
    """`memory`: the parameters and variables that hold adjoints. The kernel's own sums stay as they are."""
    return with_body(function, _Pass(function, adjoint_values(function, memory)).block(function.body))


class _Pass:
    def __init__(self, function: Function, adjoints: set[Value]):
        self.adjoints = adjoints
        self.used = uses(function.body)
        self.definition = {r: op for op in walk(function.body) for r in op.results}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            sums = self.sums(op) if isinstance(op, For) else []
            inner = descend(op, self.block)
            ops += _in_pieces(inner, sums) if isinstance(inner, For) and sums else [inner]
        return Block(block.args, tuple(ops), block.results)

    def sums(self, loop: For) -> list[int]:
        """Which of the values that a loop carries are sums of adjoints."""
        if self.is_short(loop) or loop.lower.type == U64:
            return []
        return [
            k
            for k, arg in enumerate(loop.body.args[1:])
            if arg.type == F32 and arg in self.adjoints and self.grows(arg, loop.body.results[k])
        ]

    def is_short(self, loop: For) -> bool:
        ends = [self.definition.get(v) for v in (loop.lower, loop.upper)]
        numbers = [op.value for op in ends if isinstance(op, Constant)]
        return len(numbers) == 2 and abs(numbers[1] - numbers[0]) <= SHORT * abs(loop.step)

    def grows(self, start: Value, end: Value) -> bool:
        """Whether a value is another one with something added, and nothing else sees either of them."""
        reached = self.reached(start, end)
        return end is not start and reached is not None and reached == self.used.get(start, 0)

    def reached(self, start: Value, end: Value) -> int | None:
        """How many times `start` is used on the way to `end`; None where that is no sum."""
        if end is start:
            return 1
        op = self.definition.get(end)
        match op:
            case Apply("add", args) if self.used.get(end) == 1:
                found = [r for r in (self.reached(start, v) for v in args) if r is not None]
                return found[0] if len(found) == 1 else None
            case Apply("sub", (left, _)) if self.used.get(end) == 1:
                return self.reached(start, left)
            case Apply("fma", (_, _, added)) if self.used.get(end) == 1:
                return self.reached(start, added)
            case Apply("select", (_, *sides)) if self.used.get(end) == 1:
                return self.both(start, sides)
            case For() if self.used.get(end) == 1:
                k = op.results.index(end)
                inner = self.grows(op.body.args[1 + k], op.body.results[k])
                return self.reached(start, op.inits[k]) if inner else None
            case If() if self.used.get(end) == 1:
                k = op.results.index(end)
                return self.both(start, [op.then.results[k], op.orelse.results[k]])
        return None

    def both(self, start: Value, ends: list[Value]) -> int | None:
        found = [self.reached(start, end) for end in ends]
        return None if None in found else sum(n for n in found if n is not None)


def _in_pieces(loop: For, sums: list[int]) -> list[Op]:
    b = Builder(loop.span)
    others = [k for k in range(len(loop.inits)) if k not in sums]
    totals = tuple(b.convert(loop.inits[k], F64) for k in sums)
    has_loops = any(isinstance(op, (For, While, *MEETINGS)) for op in walk(loop.body))  # or threads meet in it
    piece = _one if has_loops else _several
    at = Value(loop.lower.type if has_loops else I64, loop.body.args[0].name)
    carried = tuple(Value(loop.inits[k].type, loop.body.args[1 + k].name) for k in others)
    grown = tuple(Value(F64, _total_name(loop.body.args[1 + k])) for k in sums)
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
