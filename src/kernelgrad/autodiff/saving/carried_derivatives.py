"""Derivatives carried along: a loop that few numbers go into and one comes out of needs no tape.

    for (k = 0; k < n; ++k) v = f(v);   becomes   for (k = 0; k < n; ++k) { slope = f'(v) * slope; v = f(v); }

The loop then computes, beside the number that it carries, its derivative by each active number from outside, and its
reverse is a product. In the function that is reversed stands `along(v, x, slope)`: v, with that derivative by x, where
v itself is detached from the loop. For launches whose tape would be large, that is faster than any tape.

The product of all slopes has another range than the adjoint that the reverse would multiply with one after the other:
see Note [Scaled slopes] (`scaled_derivatives`). A loop of smooth arithmetic carries plain floats, and runs again with
exponents where these did not suffice; what runs again decides nothing. Other loops carry exponents at once. Of two
numbers that are carried, the slopes may cancel where their adjoints would not: such loops are left alone.

Only operations whose partial derivatives are finite take part: an infinite one times zero would be no number, where the
reverse sweep leaves out what is zero. What the loop does to memory must have no adjoint.
"""

from __future__ import annotations

from ...analysis.roots import Memory
from ...errors import Span
from ...ir.builder import Builder
from ...ir.functions import ONLY_IN_REVERSE
from ...ir.ops import Apply, Atomic, Barrier, BarrierReduce, Block, For, Function, If, Leave, Op, Store, Value, While
from ...ir.traverse import blocks, descend, operands, substitute, walk, with_body
from ...ir.types import F32, F64
from ..calculus.activity import Activity
from ..calculus.rules import rule_for
from .carried_number import slopes_of
from .forward_sweep import carried
from .plan import Plan

_MOST = 4  # derivatives that a loop carries: with six, strips are faster
_TRANSPARENT = ("select", "convert")


def candidates(function: Function, plan: Plan, memory: Memory, activity: Activity) -> frozenset[Span]:
    """The loops that tape something, and that few numbers go through."""
    found = (op for op in walk(function.body) if isinstance(op, For | While) and _tapes(op, plan))
    return frozenset(loop.span for loop in found if is_narrow(loop, memory, activity))


def _tapes(loop: For | While, plan: Plan) -> bool:
    return any(plan.taped.get(id(b)) for op in (loop, *_inside(loop)) for b in blocks(op))


def is_narrow(loop: For | While, memory: Memory, activity: Activity) -> bool:
    ops, numbers = (loop, *_inside(loop)), sources(loop, activity)
    inside = (v for op in ops for v in (*op.results, *(arg for block in blocks(op) for arg in block.args)))
    types = {v.type for v in (*numbers, *inside) if v in activity}
    loops = [op for op in ops if isinstance(op, For | While)]
    alone = len(carried(loop, activity)) == 1 and all(len(carried(inner, activity)) <= 1 for inner in loops)
    return (
        0 < len(numbers) <= _MOST
        and alone
        and types in ({F32}, {F64})
        and all(_is_plain(op, memory, activity) for op in ops)
    )


def _is_plain(op: Op, memory: Memory, activity: Activity) -> bool:
    """Whether an operation has no adjoint, or is a part of what the loop's numbers go through."""
    match op:
        case If() | For() | While():
            return True
        case Barrier() | BarrierReduce() | Leave():
            return False
        case Store() | Atomic() if memory.of(op.ptr) & activity.roots:
            return False
        case Apply(fn) if op.result in activity:
            rule = rule_for(fn)
            return fn in _TRANSPARENT or (rule is not None and not rule.singular)
    return not any(v in activity for v in op.results)


def sources(loop: For | While, activity: Activity) -> list[Value]:
    """Active numbers from outside."""
    inside = list(_inside(loop))
    defined = {v for op in inside for v in op.results}
    defined |= {arg for op in (loop, *inside) for block in blocks(op) for arg in block.args}
    used = [*loop.inits, *loop.body.results]
    for op in inside:
        used += [*operands(op), *(v for block in blocks(op) for v in block.results)]
    return list(dict.fromkeys(v for v in used if v in activity and v not in defined))


def _inside(loop: Op) -> list[Op]:
    return [op for block in blocks(loop) for op in walk(block)]


def run(function: Function, chosen: frozenset[Span], memory: Memory, activity: Activity) -> Function:
    """A loop may stand in several places, as what was inlined does: each is looked at by itself."""

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, For | While) and op.span in chosen and is_narrow(op, memory, activity):
                ops += _with_slopes(op, activity)
            else:
                ops.append(descend(op, block))
        return Block(b.args, tuple(ops), b.results)

    return with_body(function, block(function.body))


def _with_slopes(loop: For | While, activity: Activity) -> list[Op]:
    """A derivative is a float and an exponent: in reverse, the adjoint is multiplied with the one, then scaled."""
    b = Builder(loop.span)
    numbers = sources(loop, activity)
    result = loop.results[carried(loop, activity)[0]]
    raw = Value(result.type, result.name)
    found = slopes_of(b, loop, activity, numbers, {result: raw})
    current = b.apply("detach", raw, name=result.name)
    for k, (x, (slope, exponent)) in enumerate(zip(numbers, found, strict=True)):
        following = result if k == len(numbers) - 1 else Value(result.type, result.name)
        x = b.apply("ldexp", x, exponent)
        b.add(Apply("along", (current, x, slope), results=(following,), span=loop.span))
        current = following
    return b.ops


def erased(block: Block) -> Block:
    """Without `along`, which is there for the reverse sweep to see: what it gives is its first argument."""
    found = {op.result: op.args[0] for op in walk(block) if isinstance(op, Apply) and op.fn in ONLY_IN_REVERSE}
    if not found:
        return block
    for value in found:
        while found[value] in found:
            found[value] = found[found[value]]
    return substitute(_without(block), found)


def _without(block: Block) -> Block:
    kept = (op for op in block.ops if not (isinstance(op, Apply) and op.fn in ONLY_IN_REVERSE))
    return Block(block.args, tuple(descend(op, _without) for op in kept), block.results)
