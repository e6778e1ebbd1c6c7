"""A block of one row as a block of several: `t % 32` and `t / 32` are then a thread's indices.

    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;       in a block of 1024 threads

is a block of 32 x 32 written otherwise. Threads keep their numbers, and so their warps and lanes; what is known of
indices along two axes then holds here, too: who reads what a row or a column of threads reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Builtin, Constant, For, Function, Load, Op, Value, While
from ..ir.traverse import blocks, operands, rebuild, walk, with_body
from ..ir.types import U32, Pointer, Scalar
from .unroll import constants_of, iterations

_MOST = 1024  # threads of a block
_SMALL = 1 << 20  # what is added to an index, and wraps nowhere


def width_of(function: Function, threads: int) -> int | None:
    """The length of the rows that the threads of a block are taken in where loops read shared memory; None where that
    does not divide them."""
    found = _Found(function)
    cut = {part.value: part.by for op in walk(function.body) for part in found.parts(op)}
    counted = Counter(by for slice in _addresses(function, found.definition) for by in {cut[v] for v in slice & {*cut}})
    fitting = [(-count, by) for by, count in counted.items() if 1 < by < threads and threads % by == 0]
    return min(fitting)[1] if fitting else None


def with_rows(function: Function, threads: int, width: int) -> Function:
    """The function for blocks of rows of that width, in place of one row of so many threads."""
    return with_body(function, _Rows(function, threads, width).block(function.body))


def _addresses(function: Function, definition: dict[Value, Op]) -> Iterator[set[Value]]:
    """What the addresses of loads from shared memory in loops come from."""
    loops = [op for op in walk(function.body) if isinstance(op, For | While)]
    inside = {op: None for loop in loops for block in blocks(loop) for op in walk(block)}
    for op in inside:
        if isinstance(op, Load) and isinstance(op.ptr.type, Pointer) and op.ptr.type.space == "shared":
            found, todo = set[Value](), [op.ptr]
            while todo:
                value = todo.pop()
                if value not in found:
                    found.add(value)
                    todo += operands(definition[value]) if value in definition else ()
            yield found


class _Part(NamedTuple):
    """`value`: the quotient of the index by a number, or the remainder; of the index and `more`, multiples of that
    number that are not negative: values and what they are multiplied with."""

    value: Value
    by: int
    is_rest: bool
    more: tuple[tuple[Value, int], ...] = ()


class _Found:
    """Where a function takes a thread's index apart. `index`: values that are the index."""

    def __init__(self, function: Function):
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.constants = constants_of(function)
        loops = (op for op in walk(function.body) if isinstance(op, For))
        self.counters = {loop.body.args[0]: found for loop in loops if (found := iterations(loop, self.constants))}
        self.index: set[Value] = set()
        for op in walk(function.body):
            is_index = isinstance(op, Builtin) and (op.name, op.axis) == ("thread_idx", 0)
            if is_index or (isinstance(op, Apply) and op.fn == "convert" and _keeps(op) and op.args[0] in self.index):
                self.index.update(op.results)

    def parts(self, op: Op) -> Iterator[_Part]:
        """What an operation computes of the index."""
        if not isinstance(op, Apply) or len(op.args) != 2:
            return
        number, fn = self.constants.get(op.args[1], 0), op.fn
        found: tuple[int, bool] | None = None
        if fn in ("div", "rem") and number > 0:
            found = number, fn == "rem"
        elif fn == "shr" and 0 <= number < 31:
            found = 1 << number, False
        elif fn == "and" and number >= 0 and number & (number + 1) == 0:
            found = number + 1, True
        more = None if found is None else self.more(op.args[0], found[0])
        if found is not None and more is not None:
            yield _Part(op.result, *found, more)

    def more(self, value: Value, by: int) -> tuple[tuple[Value, int], ...] | None:
        """What a value is besides the index: small multiples of a number; None if it is something else."""
        if value in self.index:
            return ()
        op = self.definition.get(value)
        if not (isinstance(op, Apply) and op.fn == "add") or not _is_wide(value):
            return None
        for one, other in (op.args, op.args[::-1]):
            term, before = self.multiple(other), self.more(one, by)
            if term is not None and before is not None and term[1] % by == 0:
                return (*before, term)
        return None

    def multiple(self, value: Value) -> tuple[Value, int] | None:
        """A counter of few iterations and what it is multiplied with, neither of them negative."""
        op = self.definition.get(value)
        factor = 1
        if isinstance(op, Apply) and op.fn == "mul" and op.args[1] in self.constants:
            value, factor = op.args[0], self.constants[op.args[1]]
        values = self.counters.get(value)
        fits = values is not None and min(values) >= 0 and max(values) * max(factor, 1) < _SMALL
        return (value, factor) if fits and factor > 0 and _is_wide(value) else None


def _is_wide(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint") and value.type.bits >= 32


def _keeps(op: Apply) -> bool:
    """Whether a conversion keeps every index of a thread."""
    type = op.result.type
    return isinstance(type, Scalar) and type.kind in ("int", "uint") and 1 << (type.bits - 1) >= _MOST


class _Rows:
    def __init__(self, function: Function, threads: int, width: int):
        self.found, self.threads, self.width = _Found(function), threads, width

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.replaced(op) or (rebuild(op, lambda v: v, self.block),)
        return Block(block.args, tuple(ops), block.results)

    def replaced(self, op: Op) -> list[Op] | None:
        """What stands for an operation. The last one has its result; none for most of them."""
        b = Builder(op.span)
        match op:
            case Builtin("block_dim", axis):
                return [Constant((self.threads, 1, 1)[axis], results=op.results, span=op.span)]
            case Builtin("thread_idx", axis) if axis:
                return [Constant(0, results=op.results, span=op.span)]
            case Builtin("thread_idx"):
                return self.defined(b, op.result, self.whole(b))
        for part in self.found.parts(op):
            found = self.rest(b, part.by) if part.is_rest else self.quotient(b, part.by)
            return None if found is None else self.defined(b, part.value, found, part)
        return None

    def defined(self, b: Builder, value: Value, as_: Value, part: _Part | None = None) -> list[Op]:
        for counter, factor in part.more if part is not None and not part.is_rest else ():
            assert part is not None
            times = b.constant(factor // part.by, value.type)
            as_ = b.apply("add", b.convert(as_, value.type), b.apply("mul", b.convert(counter, value.type), times))
        return [*b.ops, Apply("convert", (as_,), results=(value,), span=b.span)]

    def whole(self, b: Builder) -> Value:
        x, y = (b.builtin("thread_idx", axis) for axis in (0, 1))
        return b.apply("add", x, b.apply("mul", y, b.constant(self.width, U32)))

    def quotient(self, b: Builder, by: int) -> Value | None:
        if by % self.width == 0:
            return b.apply("div", b.builtin("thread_idx", 1), b.constant(by // self.width, U32))
        if self.width % by:
            return None
        first = b.apply("div", b.builtin("thread_idx", 0), b.constant(by, U32))
        rows = b.apply("mul", b.builtin("thread_idx", 1), b.constant(self.width // by, U32))
        return b.apply("add", first, rows)

    def rest(self, b: Builder, by: int) -> Value | None:
        if by % self.width == 0:
            row = b.apply("rem", b.builtin("thread_idx", 1), b.constant(by // self.width, U32))
            return b.apply("add", b.builtin("thread_idx", 0), b.apply("mul", row, b.constant(self.width, U32)))
        if self.width % by:
            return None
        return b.apply("rem", b.builtin("thread_idx", 0), b.constant(by, U32))
