"""Refuses loops that wait for other threads: what they wait for was passed between blocks inside one launch (rule 2).

Such a loop repeats one and the same atomic until it succeeds: a lock (`while (atomicCAS(&lock, 0, 1) != 0);`), or a
look at a counter (`while (atomicAdd(&count, 0) < n);`). A loop whose atomic changes its operands from round to round
goes through memory instead, as in a hash table, and a counter that every round increases hands out work.
"""

from __future__ import annotations

from ...errors import UnsupportedError
from ...ir.ops import Atomic, Block, Constant, For, Function, If, Load, Op, Value, While
from ...ir.traverse import blocks, operands, walk

_SWAPS = ("cas", "exch")
_LOOKS = ("add", "sub", "or", "xor", "max")  # with zero, which changes nothing


def refuse_waiting(function: Function) -> None:
    definitions = {r: op for op in walk(function.body) for r in op.results}
    for loop in walk(function.body):
        if not isinstance(loop, While):
            continue
        inside = _inside(loop)
        deciding = _deciding(loop)
        for op in (o for b in blocks(loop) for o in walk(b)):
            if not isinstance(op, Atomic) or op.result not in deciding or any(_varies(v, inside) for v in operands(op)):
                continue
            if op.kind in _SWAPS or (op.kind in _LOOKS and _is_zero(definitions.get(op.args[0]))):
                reason = "a loop that waits for another thread passes values between threads inside one launch"
                raise UnsupportedError(f"{reason}: that has no gradient", op.span, "use two launches, or atomicAdd")


def _inside(loop: While) -> dict[Value, Op | None]:
    """What the loop defines; None for arguments of blocks."""
    found: dict[Value, Op | None] = {}
    for op in walk(Block((), (loop,), ())):
        found |= {r: op for r in op.results if op is not loop}
        found |= {a: None for b in blocks(op) for a in b.args}
    return found


def _varies(value: Value, inside: dict[Value, Op | None]) -> bool:
    """Whether a value may differ from round to round."""
    if value not in inside:
        return False
    op = inside[value]
    if op is None or blocks(op) or isinstance(op, Atomic | Load):
        return True
    return any(_varies(v, inside) for v in operands(op))


def _deciding(loop: While) -> set[Value]:
    """Everything in the loop that going on depends on."""
    sources: dict[Value, list[Value]] = {}
    for op in walk(Block((), (loop,), ())):
        for result in op.results:
            sources[result] = list(operands(op))
        match op:
            case If(cond, then, orelse):
                for k, result in enumerate(op.results):
                    sources[result] = [cond, then.results[k], orelse.results[k]]
            case For(body=body):
                for k, result in enumerate(op.results):
                    sources[body.args[k + 1]] = sources[result] = [op.inits[k], body.results[k]]
            case While(inits, before, body):
                for k, arg in enumerate(before.args):
                    sources[arg] = [inits[k], body.results[k]]
                for k, forwarded in enumerate(before.results[1:]):
                    sources[body.args[k]] = sources[op.results[k]] = [forwarded, before.results[0]]
    seen: set[Value] = set()
    todo = [loop.before.results[0]]
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            todo += sources.get(value, [])
    return seen


def _is_zero(op: Op | None) -> bool:
    return isinstance(op, Constant) and op.value == 0
