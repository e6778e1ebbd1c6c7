"""Note [Conditional divisions]: a workaround for a miscompilation in LLVM 22.1.

A division is not speculated unless its divisor is a constant. One in a branch inside of a vectorised loop is done for
the lanes whose condition holds. Where LLVM finds that the addresses of all iterations follow from the first one's, as
in `p[(y + h) % h * w + x]` (the row is the same for all x) or `p[i / w * w + i % w + 1]` (the place is i + 1), it
computes the first lane's address alone, from a quotient that the first lane may not have. Which CPUs that happens for
depends on costs. What is a branch, and what goes into an address, is known to LLVM alone, after it has unrolled loops,
threaded jumps and forwarded what memory holds. So it does not see what any quotient or remainder is: they are xored
with a zero that comes out of an empty piece of assembly at the function's start, and addresses that they go into are
computed for every lane.

Where this file can tell that a row of threads, or a loop's iterations, share a quotient of up to 32 bits, such a
division in a branch is done in doubles: the same quotient, which may move out of the loop, so that addresses stay
consecutive.
"""

from __future__ import annotations

from llvmlite import ir

from ...analysis.uniform import uniform_values
from ...ir.ops import Apply, Block, Builtin, Constant, For, Function, If, Op, Value, While
from ...ir.traverse import blocks, operands, walk
from ...ir.types import F64, Scalar
from . import llvm_types as lt
from .convert import convert
from .frame import Frame
from .scalars import ROWS, Application
from .workarounds import address_parts, opaque

_DIVISIONS = ("div", "rem")
_IN_DOUBLES = 32  # bits


def conditional_divisions(function: Function) -> frozenset[Apply]:
    """Divisions into addresses, under conditions inside of loops (or the loop over threads) that do not change them."""
    ops = list(walk(function.body))
    constants = {op.result for op in ops if isinstance(op, Constant)}
    divisions = {op for op in ops if isinstance(op, Apply) and is_division(op) and _fits_doubles(op)}
    divisions = {op for op in divisions if op.args[1] not in constants}
    if not divisions:
        return frozenset()
    parts, uniform = address_parts(function), _uniform_in_rows(ops) | uniform_values(function)
    return frozenset(op for op in divisions & _invariant(function.body, uniform) if op.result in parts)


def _uniform_in_rows(ops: list[Op]) -> set[Value]:
    """What threads of a block have alike that differ in `threadIdx.x` alone: the innermost loop over threads is over
    these. Also what is not known to differ: to divide in doubles is right anyway."""
    varying = set[Value]()
    for op in ops:
        is_index = isinstance(op, Builtin) and op.name == "thread_idx" and op.axis == 0
        if is_index or not varying.isdisjoint(operands(op)):
            varying.update(op.results)
    return {v for op in ops for v in op.results} - varying


def _is_int(op: Apply) -> bool:
    return isinstance(op.result.type, Scalar) and op.result.type.kind in ("int", "uint")


def _fits_doubles(op: Apply) -> bool:
    return isinstance(op.result.type, Scalar) and op.result.type.bits <= _IN_DOUBLES


def _invariant(body: Block, uniform: set[Value]) -> set[Apply]:
    """What stands under a condition, and has operands from outside of the loop around that, or that are `uniform` in
    the loop over threads."""
    found: set[Apply] = set()

    def visit(block: Block, inside: frozenset[Value], conditional: bool, in_loop: bool) -> None:
        """`inside`: what varies with the innermost loop. `conditional`: for threads; `in_loop`: for iterations."""
        varying = set(inside) | set(block.args)
        for op in block.ops:
            is_loop, is_if = isinstance(op, For | While), isinstance(op, If)
            for inner in blocks(op):
                known = frozenset[Value]() if is_loop else frozenset(varying)
                visit(inner, known, conditional or is_if, is_if or (in_loop and not is_loop))
            if isinstance(op, Apply):
                alike = conditional and all(v in uniform for v in op.args)
                if alike or (in_loop and not varying.intersection(op.args)):
                    found.add(op)
            varying.update(op.results)

    visit(body, frozenset(), False, False)
    return found


def is_division(op: Apply) -> bool:
    return op.fn in _DIVISIONS and _is_int(op)


def divide(frame: Frame, op: Apply, call: Application) -> ir.Value:
    if op in frame.conditional_divisions:
        return _in_doubles(op.fn, call)
    result = ROWS[op.fn](call)
    return result if isinstance(call.args[1], ir.Constant) else _unseen(frame, result)


def _unseen(frame: Frame, value: ir.Value) -> ir.Value:
    """The same value, which LLVM does not know to be."""
    if frame.unseen_zero is None:
        with frame.b.goto_block(frame.allocas):
            frame.unseen_zero = opaque(frame.b, lt.i64(0))
    with frame.b.goto_block(frame.allocas):
        zero = frame.b.trunc(frame.unseen_zero, value.type) if value.type != lt.I64 else frame.unseen_zero
    return frame.b.xor(value, zero)


def _in_doubles(fn: str, call: Application) -> ir.Value:
    b, (x, y) = call.b, call.args
    by_zero = b.icmp_unsigned("==", y, ir.Constant(y.type, 0))
    y = b.select(by_zero, ir.Constant(y.type, 1), y)
    quotient = b.fdiv(*(convert(b, v, call.scalar, F64) for v in (x, y)))
    whole = b.trunc(b.fptosi(quotient, lt.I64), x.type)
    if fn == "div":
        return b.select(by_zero, ir.Constant(x.type, -1), whole)
    return b.select(by_zero, x, b.sub(x, b.mul(whole, y)))
