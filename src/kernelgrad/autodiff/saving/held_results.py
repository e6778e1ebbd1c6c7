"""Outputs that still hold the results, by the user's promise: the reverse reads what the kernel stored there.

    r = rsqrt(s / n + eps); rstd[row] = r; ... x * r ...      here r is rstd[row], and the sum s is not needed again

A value that is stored where it is computed, by a store that is the only one of its element, is had again by a load.
That pays where computing it takes more than a few operations, and the operands are not needed besides: exp and roots
have derivatives by their results alone, a mean by nothing. A quotient's takes its operands, and so does that of tanh,
which 1 - r * r does not tell where r is close to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...analysis.roots import Memory
from ...analysis.structure import Structure
from ...ir.effects import is_addressing
from ...ir.ops import Apply, Block, For, Function, If, Load, Op, Store, Value, While
from ...ir.traverse import descend, operands, with_body
from ...ir.types import Pointer, Scalar
from ..calculus.activity import Activity
from ..calculus.rules import rule_for
from .costs import effort


def roots_of(function: Function, names: Iterable[str]) -> frozenset[Value]:
    wanted = set(names)
    return frozenset(p.value for p in function.params if p.name in wanted)


def arranged(function: Function, memory: Memory, roots: frozenset[Value]) -> Function:
    """With addresses of such stores computed before what they store."""

    def block(b: Block) -> Block:
        ops = tuple(descend(op, block) for op in b.ops)
        return Block(b.args, _reordered(ops, memory, roots), b.results)

    return with_body(function, block(function.body))


def _reordered(ops: tuple[Op, ...], memory: Memory, roots: frozenset[Value]) -> tuple[Op, ...]:
    first: dict[int, list[Op]] = {}
    for store, op in _pairs(ops, memory, roots):
        slice_ = _address(store, ops)
        if slice_ is not None and op not in slice_:
            first.setdefault(id(op), []).extend(slice_)
    placed: dict[int, Op] = {}
    for each in ops:
        before = {id(earlier) for earlier in first.get(id(each), ())}
        placed |= {id(o): o for o in ops if id(o) in before and id(o) not in placed}
        placed.setdefault(id(each), each)
    return tuple(placed.values())


def _pairs(ops: tuple[Op, ...], memory: Memory, roots: frozenset[Value]) -> Iterator[tuple[Store, Apply]]:
    """Stores of results, and the operations of the same block that compute what they store."""
    made = {op.result: op for op in ops if isinstance(op, Apply)}
    for op in ops:
        if isinstance(op, Store) and op.value in made and memory.of(op.ptr) <= roots and not op.volatile:
            yield op, made[op.value]


def _address(store: Store, ops: tuple[Op, ...]) -> list[Op] | None:
    """What computes the address of a store, in its block; None where that is more than arithmetic."""
    made = {v: op for op in ops for v in op.results}
    found: dict[int, Op] = {}
    todo = [store.ptr]
    while todo:
        op = made.get(todo.pop())
        if op is None or id(op) in found:
            continue
        if not is_addressing(op):
            return None
        found[id(op)] = op
        todo += operands(op)
    return list(found.values())


# ---- which of them pay ----------------------------------------------------------------------------------------------


def find(structure: Structure, memory: Memory, activity: Activity, roots: frozenset[Value]) -> dict[int, Load]:
    """For operations whose results are read: the loads that stand for them."""
    found: dict[int, Load] = {}
    for place in structure.places.values():
        ops = place.block.ops
        position = {id(op): k for k, op in enumerate(ops)}
        for store, op in _pairs(ops, memory, roots):
            address = _address(store, ops)
            early = address is not None and all(position[id(a)] < position[id(op)] for a in address)
            if early and id(op) not in found and _pays(op, store, activity, structure):
                found[id(op)] = Load(store.ptr, results=op.results, span=store.span)
    return found


def _pays(op: Apply, store: Store, activity: Activity, structure: Structure) -> bool:
    type, rule = store.ptr.type, rule_for(op.fn)
    if not isinstance(type, Pointer) or type.pointee != op.result.type or not isinstance(op.result.type, Scalar):
        return False
    if not op.result.type.is_float or rule is None or op.fn in ("select", "min", "max"):
        return False
    active = [k for k, arg in enumerate(op.args) if arg in activity and not rule.is_zero(k)]
    needed = {op.args[j] for k in active for j in rule.needs(k).args}
    return not any(v in activity for v in needed) and (effort(op) > 0 or _is_summed(op, structure))


def _is_summed(op: Apply, structure: Structure) -> bool:
    """Whether loops or branches are behind it, as far as a few operations tell."""
    todo, seen = list(op.args), 0
    while todo and seen < _FEW:
        made, seen = structure.definition.get(todo.pop()), seen + 1
        if isinstance(made, For | While | If):
            return True
        todo += made.args if isinstance(made, Apply) else ()
    return False


_FEW = 16
