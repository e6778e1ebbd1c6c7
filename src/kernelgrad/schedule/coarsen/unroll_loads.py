"""Four turns of a loop at a time, their loads first. Compilers unroll such a loop, but test its end and wait for what
was loaded in every turn; a GPU then has too few bytes under way.

For loops at the top of a function that ask to be unrolled by four and only carry sums: what does not depend on those,
nor on what was loaded, is computed for all four turns before anything else is. A guard around loads is tested for them
and, once they are there, for the rest. The last turns go one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.builder import Builder
from ...ir.effects import is_addressing
from ...ir.ops import Apply, Block, Function, If, Load, Module, Op, Undef, Value, While
from ...ir.traverse import clone, free_values, operands, substitute, with_body
from ...ir.types import Pointer

FACTOR = 4


@dataclass(frozen=True)
class _Counter:
    """Carried value `index` runs in steps of `step` up to `count`; both come from outside."""

    index: int
    count: Value
    step: Value


def run(function: Function, module: Module) -> Function:
    ops: list[Op] = []
    for op in function.body.ops:
        counter = _counter(op) if isinstance(op, While) and op.unroll == FACTOR else None
        ops += [op] if counter is None or not isinstance(op, While) else _jammed(op, counter)
    return with_body(function, Block(function.body.args, tuple(ops), function.body.results))


def _counter(loop: While) -> _Counter | None:
    """`block < count`, `block += step`, where nothing else is tested."""
    before, body = loop.before, loop.body
    test = before.ops[0] if len(before.ops) == 1 else None
    if not isinstance(test, Apply) or test.fn != "lt" or before.results != (test.result, *before.args):
        return None
    tested, count = test.args
    if tested not in before.args or count in before.args:
        return None
    index = before.args.index(tested)
    following = next((op for op in body.ops if body.results[index] in op.results), None)
    if not isinstance(following, Apply) or following.fn != "add" or following.args[0] is not body.args[index]:
        return None
    step = following.args[1]
    return _Counter(index, count, step) if step in free_values(body) else None


def _jammed(loop: While, counter: _Counter) -> list[Op]:
    b = Builder(loop.span)
    last = b.apply("mul", counter.step, b.constant(FACTOR - 1, counter.step.type))
    args = tuple(Value(v.type, v.name) for v in loop.before.args)
    with b.region() as before:
        end = b.apply("add", args[counter.index], last)
        more = b.apply("lt", end, counter.count)
    inside = tuple(Value(v.type, v.name) for v in loop.body.args)
    with b.region() as body:
        results = _turns(b, loop, counter, inside)
    test, turns = before.block(args, (more, *args)), body.block(inside, results)
    carried = b.while_(loop.inits, test, turns)
    return [*b.ops, replace(loop, inits=carried, unroll=1)]


def _turns(b: Builder, loop: While, counter: _Counter, carried: tuple[Value, ...]) -> tuple[Value, ...]:
    """The body of four turns; what it hands on."""
    at, ready = carried[counter.index], []
    for _ in range(FACTOR):
        body = clone(loop.body, {})
        given = {body.args[counter.index]: at}
        sums = frozenset(v for k, v in enumerate(body.args) if k != counter.index)
        early, late = _parted(substitute(body, given).ops, sums)
        b.ops += early
        ready.append((body, late, given))
        at = b.apply("add", at, counter.step)
    for body, late, given in ready:
        given |= dict(zip(body.args, carried, strict=True)) | given
        turn = substitute(Block((), tuple(late), body.results), given)
        b.ops += turn.ops
        carried = turn.results
    return tuple(at if k == counter.index else v for k, v in enumerate(carried))


def _parted(ops: tuple[Op, ...], awaited: frozenset[Value]) -> tuple[list[Op], list[Op]]:
    """What needs none of the values that are awaited, loads among it; and the rest, which awaits these too."""
    early: list[Op] = []
    late: list[Op] = []
    waiting = set(awaited)
    for op in ops:
        free = not any(v in waiting for v in operands(op))
        if free and (is_addressing(op) or _is_load(op)):
            early.append(op)
            waiting.update(op.results if isinstance(op, Load) else ())
            continue
        parts = _split(op, waiting) if free and isinstance(op, If) else None
        if parts is not None:
            early.append(parts[0])
            waiting.update(parts[0].results)
        late.append(op if parts is None else parts[1])
        waiting.update(op.results)
    return early, late


def _split(op: If, waiting: set[Value]) -> tuple[If, If] | None:
    """A guard around loads, and the same guard around what is done with them."""
    early, late = _parted(op.then.ops, frozenset(waiting))
    if not any(isinstance(inner, Load | If) for inner in early):
        return None
    wanted = set(free_values(Block((), tuple(late), op.then.results)))
    made = [v for inner in early for v in inner.results if v in wanted]
    nothing = [Undef(results=(Value(v.type, v.name),), span=op.span) for v in made]
    outside = tuple(Value(v.type, v.name) for v in made)
    then = Block((), tuple(early), tuple(made))
    orelse = Block((), tuple(nothing), tuple(u.result for u in nothing))
    first = If(op.cond, then, orelse, False, results=outside, span=op.span)
    rest = substitute(Block((), tuple(late), op.then.results), dict(zip(made, outside, strict=True)))
    return first, replace(op, then=rest)


def _is_load(op: Op) -> bool:
    """Of memory that nothing in the loop writes: all but the thread's own."""
    return isinstance(op, Load) and not (isinstance(op.ptr.type, Pointer) and op.ptr.type.space == "local")
