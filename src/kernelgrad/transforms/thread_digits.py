"""A block of one row as a block of several: `t % 32` and `t / 32` are then a thread's indices.

    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;       in a block of 1024 threads

is a block of 32 x 32 written otherwise. Threads keep their numbers, and so their warps and lanes; what is known of
indices along two axes then holds here, too: who reads what a row or a column of threads reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Builtin, Constant, For, Function, Load, Op, Value, While
from ..ir.traverse import blocks, operands, rebuild, walk, with_body
from ..ir.types import U32, Pointer, Scalar

_MOST = 1024  # threads of a block


def width_of(function: Function, threads: int) -> int | None:
    """The length of the rows that the threads of a block are taken in where loops read shared memory; None where that
    does not divide them."""
    found = _Found(function)
    cut = {v: by for op in walk(function.body) for v, by, _ in found.parts(op)}
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


class _Found:
    """Where a function takes a thread's index apart. `index`: values that are the index."""

    def __init__(self, function: Function):
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.index: set[Value] = set()
        for op in walk(function.body):
            is_index = isinstance(op, Builtin) and (op.name, op.axis) == ("thread_idx", 0)
            if is_index or (isinstance(op, Apply) and op.fn == "convert" and _keeps(op) and op.args[0] in self.index):
                self.index.update(op.results)

    def parts(self, op: Op) -> Iterator[tuple[Value, int, bool]]:
        """A part of the index that an operation computes: of which number, and whether it is the remainder."""
        if not isinstance(op, Apply) or len(op.args) != 2 or op.args[0] not in self.index:
            return
        constant = self.definition.get(op.args[1])
        number = constant.value if isinstance(constant, Constant) and isinstance(constant.value, int) else 0
        if op.fn in ("div", "rem") and number > 0:
            yield op.result, number, op.fn == "rem"
        elif op.fn == "shr" and 0 <= number < 31:
            yield op.result, 1 << number, False
        elif op.fn == "and" and number >= 0 and number & (number + 1) == 0:
            yield op.result, number + 1, True


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
        for value, by, is_rest in self.found.parts(op):
            part = self.rest(b, by) if is_rest else self.quotient(b, by)
            return None if part is None else self.defined(b, value, part)
        return None

    def defined(self, b: Builder, value: Value, as_: Value) -> list[Op]:
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
