"""What every iteration of a loop reads again is read before it: rows of inputs that short loops inside go through.

    for (j = 0; j < 16; ++j) for (k = 0; k < 16; ++k) s += w[j * 16 + k] * x[k * n + i];

reads each x[k * n + i] sixteen times. Written out, the inner loop reads sixteen elements that the outer one does not
move. As values from before it they stay in registers, as do their adjoints, which are added to memory once.

Both loops run at least once, so that what they read may be read before them; nobody writes that memory, if arguments
are apart.
"""

from __future__ import annotations

from collections.abc import Set

from ..analysis import roots
from ..errors import Span
from ..ir.effects import PURE
from ..ir.ops import Block, Constant, For, Function, If, Load, Member, Module, Offset, Op, PtrCast, Store, Value
from ..ir.traverse import blocks, descend, operands, walk, with_body
from . import simplify
from .invariant import is_movable
from .unroll import constants_of, copies_of, iterations, unroll

_FEWEST, _MOST = 4, 16  # iterations of the inner loop: as many registers, and as many adjoints
_LONGEST = 256  # operations that it is written out as
_PLAIN = (*PURE, Load, Store, If, For)
_POINTING = (Offset, Member, PtrCast)


def run(function: Function, module: Module) -> Function:
    found = _Search(function).found()
    if not found:
        return function
    inner = {loop for loops in found.values() for loop in loops}
    written_out = simplify.run(unroll(function, lambda loop: loop in inner), module)
    moved = _Moved(written_out, frozenset(loop.span for loop in found))
    return simplify.run(with_body(written_out, moved.block(written_out.body)), module)


class _Fixed:
    """Reads of memory that nobody writes."""

    def __init__(self, function: Function):
        self.constants, self.memory = constants_of(function), roots.analyse(function)
        known = all(self.memory.of(op.ptr) for op in self.memory.stores)  # type: ignore[attr-defined]
        left = {p.value for p in function.params} - self.memory.written() - self.memory.escaped
        self.read_only = left if known else set[Value]()
        self.definition = {r: op for op in walk(function.body) for r in op.results}

    def runs(self, loop: For) -> int:
        """How often for sure; 0 where that is not known, or where it does more than compute."""
        known = iterations(loop, self.constants)
        return 0 if known is None or not all(isinstance(op, _PLAIN) for op in walk(loop.body)) else len(known)

    def is_fixed(self, op: Op) -> bool:
        found = self.memory.of(op.ptr) if isinstance(op, Load) and not op.volatile else frozenset()
        return bool(found) and found <= self.read_only


class _Search(_Fixed):
    def __init__(self, function: Function):
        super().__init__(function)
        self.function_body = function.body

    def found(self) -> dict[For, list[For]]:
        """By the outer loops, those inside that read the same in each of their iterations."""
        outer = [op for op in walk(self.function_body) if isinstance(op, For) and self.runs(op) > 1]
        pairs = {loop: [op for op in loop.body.ops if isinstance(op, For) and self.rereads(loop, op)] for loop in outer}
        return {loop: loops for loop, loops in pairs.items() if loops}

    def rereads(self, loop: For, inner: For) -> bool:
        count = self.runs(inner)
        flat = not any(blocks(op) for op in inner.body.ops)
        if not flat or not _FEWEST <= count <= _MOST or copies_of(inner, count) > _LONGEST:
            return False
        own = {v for op in walk(loop.body) for v in op.results} | {*loop.body.args, *inner.body.args[1:]}
        counting = own - {inner.body.args[0]}
        return any(self.is_fixed(op) and self.stays(op.ptr, counting) for op in inner.body.ops if isinstance(op, Load))

    def stays(self, value: Value, changing: Set[Value]) -> bool:
        """Whether it changes with the inner loop alone."""
        op = self.definition.get(value)
        if value not in changing:
            return True
        movable = op is not None and (is_movable(op) or isinstance(op, _POINTING))
        return movable and op is not None and all(self.stays(v, changing) for v in operands(op))


class _Moved(_Fixed):
    def __init__(self, function: Function, chosen: frozenset[Span]):
        super().__init__(function)
        self.chosen = chosen

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, For) and op.span in self.chosen and self.runs(op) > 1:
                before, body = self.split(op)
                ops += before
                op = descend(op, lambda _, body=body: body)  # type: ignore[misc]
            ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)

    def split(self, loop: For) -> tuple[list[Op], Block]:
        changing = {*loop.body.args, *(v for op in walk(loop.body) for v in op.results)}
        before, rest = list[Op](), list[Op]()
        for op in loop.body.ops:
            if self.may_move(op) and not any(v in changing for v in operands(op)):
                before.append(op)
                changing -= set(op.results)
            else:
                rest.append(op)
        return before, Block(loop.body.args, tuple(rest), loop.body.results)

    def may_move(self, op: Op) -> bool:
        return isinstance(op, (Constant, *_POINTING)) or is_movable(op) or self.is_fixed(op)
