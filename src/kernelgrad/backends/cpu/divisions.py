"""Note [Conditional divisions]: a workaround for a miscompilation in LLVM 22.1.

A division is not speculated unless its divisor is a constant. Under a condition in which iterations differ, one of
which only the first lane's quotient is wanted, since its operands are the same in all iterations and it goes into an
address, is done only where the first lane's condition holds; the other lanes then use an address that was never
computed. Which CPUs that happens for depends on costs. Such divisions of up to 32 bits are done in doubles, which
gives the same quotients and may move out of the loop. Those of 64 bits are passed through an empty piece of assembly.
"""

from __future__ import annotations

from llvmlite import ir

from ...analysis.uniform import uniform_values
from ...ir.ops import Apply, Block, Builtin, Constant, For, Function, If, Op, Value, While
from ...ir.traverse import blocks, operands, walk
from ...ir.types import F64, Scalar
from . import llvm_types as lt
from .convert import convert
from .scalars import ROWS, Application
from .workarounds import address_parts, opaque

_DIVISIONS = ("div", "rem")


def conditional_divisions(function: Function) -> frozenset[Apply]:
    """Divisions into addresses, under conditions inside of loops (or the loop over threads) that do not change them."""
    ops = list(walk(function.body))
    constants = {op.result for op in ops if isinstance(op, Constant)}
    divisions = {op for op in ops if isinstance(op, Apply) and op.fn in _DIVISIONS and _is_int(op)}
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


def divide(fn: str, call: Application) -> ir.Value:
    if call.scalar.bits > 32:
        return opaque(call.b, ROWS[fn](call))
    b, (x, y) = call.b, call.args
    by_zero = b.icmp_unsigned("==", y, ir.Constant(y.type, 0))
    y = b.select(by_zero, ir.Constant(y.type, 1), y)
    quotient = b.fdiv(*(convert(b, v, call.scalar, F64) for v in (x, y)))
    whole = b.trunc(b.fptosi(quotient, lt.I64), x.type)
    if fn == "div":
        return b.select(by_zero, ir.Constant(x.type, -1), whole)
    return b.select(by_zero, x, b.sub(x, b.mul(whole, y)))
