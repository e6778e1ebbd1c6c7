"""Values that a loop carries and one iteration takes:

    for (j = n - 1; j > -1; --j) { d_s += j == last ? d_m : 0; d_m = j == last ? 0 : d_m; }

No two iterations have the same counter. So before that iteration, and in it, the value is what the loop began with, and
iterations do not depend on each other for its sake.
"""

from __future__ import annotations

from ...ir.ops import Apply, Block, For, Function, If, Op, Value
from ...ir.traverse import descend, rebuild, substitute, walk, with_body


def run(function: Function) -> Function:
    definition = {v: op for op in walk(function.body) for v in op.results}

    def block(b: Block) -> Block:
        ops = tuple(descend(op, block) for op in b.ops)
        return Block(b.args, tuple(_settled(op, definition) if isinstance(op, For) else op for op in ops), b.results)

    return with_body(function, block(function.body))


def _settled(loop: For, definition: dict[Value, Op]) -> For:
    body = loop.body
    for arg, init, result in zip(body.args[1:], loop.inits, body.results, strict=True):
        test = _test_of(arg, result, definition)
        if test is not None and _is_of_one_iteration(test, loop, definition):
            body = _where(body, test, arg, init)
    return loop if body is loop.body else rebuild(loop, lambda v: v, lambda _: body)  # type: ignore[return-value]


def _test_of(arg: Value, result: Value, definition: dict[Value, Op]) -> Value | None:
    """The condition under which a carried value changes, where it is one."""
    match definition.get(result):
        case Apply("select", (test, _, kept)) if kept is arg:
            return test
        case If(test, _, orelse) as op if orelse.results[op.results.index(result)] is arg:
            return test
    return None


def _is_of_one_iteration(test: Value, loop: For, definition: dict[Value, Op]) -> bool:
    op, counter = definition.get(test), loop.body.args[0]
    if not isinstance(op, Apply) or op.fn != "eq" or counter not in op.args:
        return False
    inside = {*loop.body.args, *(v for inner in walk(loop.body) for v in inner.results)}
    return sum(v not in inside for v in op.args) == 1


def _where(block: Block, test: Value, arg: Value, init: Value) -> Block:
    """With `init` for `arg` wherever the test holds."""

    def changed(op: Op) -> Op:
        match op:
            case Apply("select", (cond, taken, _)) if cond is test and taken is arg:
                return rebuild(op, lambda v: v, lambda b: b, args=(cond, init, op.args[2]))
            case If(cond, then) if cond is test:
                return rebuild(op, lambda v: v, lambda b: substitute(b, {arg: init}) if b is then else inner(b))
        return descend(op, inner)

    def inner(b: Block) -> Block:
        return Block(b.args, tuple(map(changed, b.ops)), b.results)

    return inner(block)
