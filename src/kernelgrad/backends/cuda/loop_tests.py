"""While loops with their test where the source has it: at the top, on what the loop carries.

Reversal carries the outcome of the test from one iteration to the next (`transforms/rotate`):

    go = test(s0); while (go) { s = body(s); go = test(s) }      becomes      while (test(s)) s = body(s)

which the text writes as `for (int i = start; i < n; i += stride)`. It is the same where the test is a pure function of
what is carried and of what the loop does not change, and the first outcome is that function of the initial values.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from ...analysis.fold import evaluate
from ...ir.ops import Apply, Block, Builtin, Constant, Function, Module, Op, Value, While
from ...ir.traverse import blocks, clone, descend, uses, walk, with_body
from ...ir.types import Scalar, Type
from ...transforms.dce import eliminate

_CLOCKS = ("clock", "clock64", "globaltimer")
_NEUTRAL = {"and": True, "or": False}


def run(function: Function, _: Module) -> Function:
    """The function with all loops whose test can go to its place."""
    found = _Placing(function)
    return with_body(function, eliminate(found.block(function.body))) if found.any else function


class _Placing:
    def __init__(self, function: Function):
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        self.uses = uses(function.body)
        self.any = any(isinstance(op, While) and self._is_carried(op) for op in walk(function.body))

    def block(self, block: Block) -> Block:
        return Block(block.args, tuple(map(self._op, block.ops)), block.results)

    def _op(self, op: Op) -> Op:
        moved = self._moved(op) if isinstance(op, While) and self._is_carried(op) else None
        return descend(op if moved is None else moved, self.block)

    def _is_carried(self, loop: While) -> bool:
        """Whether the loop carries the outcome of its test, and nobody else asks for it."""
        test = loop.before
        if test.ops or test.results[0] not in test.args:
            return False
        asking = zip(test.results[1:], loop.body.args, loop.results, strict=True)
        return not any(v is test.results[0] and (self.uses.get(a) or self.uses.get(r)) for v, a, r in asking)

    def _moved(self, loop: While) -> While | None:
        outcome = loop.before.args.index(loop.before.results[0])
        following = loop.body.results[outcome]
        carried = {v: k for k, v in enumerate(loop.body.results) if k != outcome}
        needed = _expression(following, carried, loop)
        starts = {v: loop.inits[k] for v, k in carried.items()}
        if needed is None or self._key(following, starts) != self._key(loop.inits[outcome], {}):
            return None
        mapping = {v: loop.before.args[k] for v, k in carried.items()}
        return _tested(loop, outcome, clone(Block((), tuple(needed), (following,)), mapping))

    def _key(self, value: Value, starts: Mapping[Value, Value]) -> Hashable:
        """What a value is, with its loop's variables at their initial values: equal keys are equal values."""
        if value in starts:  # which is from before the loop: there, a variable's next value may be what it is made of
            return self._key(starts[value], {})
        op = self.definition.get(value)
        match op:
            case Constant(number):
                return _number(number, value.type)
            case Builtin(name, axis) if name not in _CLOCKS:
                return name, axis, value.type
            case Apply(fn, args):
                return _simplest(fn, [self._key(a, starts) for a in args], op)
            case _:
                return value


def _tested(loop: While, outcome: int, test: Block) -> While:
    """The loop that computes its test, and does not carry number `outcome`."""
    args, old = loop.before.args, loop.before.results
    kept = [k for k, v in enumerate(old[1:]) if v is not old[0]]
    before = Block(_without(args, outcome), test.ops, (*test.results, *(old[k + 1] for k in kept)))
    body = Block(tuple(loop.body.args[k] for k in kept), loop.body.ops, _without(loop.body.results, outcome))
    results = tuple(loop.results[k] for k in kept)
    return replace(loop, inits=_without(loop.inits, outcome), before=before, body=body, results=results)


def _without(values: tuple[Value, ...], index: int) -> tuple[Value, ...]:
    return values[:index] + values[index + 1 :]


def _all_inside(loop: While) -> list[Value]:
    within = [op for block in blocks(loop) for op in walk(block)]
    args = [a for block in blocks(loop) for a in block.args]
    return args + [v for op in within for v in (*op.results, *(a for b in blocks(op) for a in b.args))]


def _expression(root: Value, carried: Mapping[Value, int], loop: While) -> list[Op] | None:
    """The operations that compute a value from what is carried on; None if they need anything else of the loop."""
    needed: dict[Op, None] = {}
    inside = {v: op for op in loop.body.ops for v in op.results}
    local = set(_all_inside(loop))

    def visit(value: Value) -> bool:
        if value in carried or value not in local:
            return True
        op = inside.get(value)
        pure = isinstance(op, Constant | Apply) or (isinstance(op, Builtin) and op.name not in _CLOCKS)
        if op is None or not pure or not all(map(visit, op.args if isinstance(op, Apply) else ())):
            return False
        needed[op] = None
        return True

    return list(needed) if visit(root) else None


def _number(number: int | float | bool, type: Type) -> Hashable:
    """Zeros of both signs are equal as numbers."""
    return "number", type, number, str(number)


def _simplest(fn: str, args: list[Hashable], op: Apply) -> Hashable:
    numbers = [a[2] for a in args if isinstance(a, tuple) and a[0] == "number"]
    if fn in _NEUTRAL and op.args[0].type == op.result.type and len(numbers) == 1:
        rest = next(a for a in args if not (isinstance(a, tuple) and a[0] == "number"))
        if numbers[0] is _NEUTRAL[fn]:
            return rest
    types = tuple(a.type for a in op.args)
    if len(numbers) == len(args) and all(isinstance(t, Scalar) for t in (*types, op.result.type)):
        found = evaluate(fn, tuple(numbers), types, op.result.type)  # type: ignore[arg-type]
        if found is not None:
            return _number(found, op.result.type)
    return fn, op.result.type, *args
