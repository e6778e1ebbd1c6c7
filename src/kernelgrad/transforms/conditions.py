"""Conditions that change what they test: `while (n--)` becomes `while (n) { n -= 1; ... }`, with one more after it.

What a loop's condition computes for the body is computed in the body instead, and again after the loop, where it is
used there: the condition then only tests, which is what `loops` and `walks` know. Only counting moves. Likewise,
`for (;;) { if (i >= n) break; ... }` becomes `while (i < n) { ... }`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import Apply, Block, Constant, Function, If, Module, Op, Value, While
from ..ir.traverse import clone, descend, operands, substitute, walk, with_body
from ..ir.types import Scalar
from .dce import eliminate


def run(function: Function, module: Module) -> Function:
    constants = {op.result: op for op in walk(function.body) if isinstance(op, Constant)}
    body = _block(function.body, constants)
    return function if body is function.body else with_body(function, eliminate(body))


def _block(block: Block, constants: dict[Value, Constant]) -> Block:
    ops: list[Op] = []
    renamed: dict[Value, Value] = {}
    for op in block.ops:
        op = descend(op, lambda inner: _block(inner, constants))
        if isinstance(op, While) and _computes(op):
            ops += _tested(op, renamed)
        else:
            left = _left_first(op, constants) if isinstance(op, While) else None
            ops += [op] if left is None else left.tested(renamed)
    same = len(ops) == len(block.ops) and all(a is b for a, b in zip(ops, block.ops, strict=True))
    return block if same else substitute(Block(block.args, tuple(ops), block.results), renamed)


def _computes(loop: While) -> bool:
    """Whether the condition hands on what it computes to a body, and nothing but counting computes it."""
    computed = any(v not in loop.before.args for v in loop.before.results[1:])
    return computed and bool(loop.body.ops) and all(map(_counts, loop.before.ops))


def _counts(op: Op) -> bool:
    """Arithmetic of integers and addresses: what floats are computed to is not computed twice."""
    values = (*operands(op), *op.results)
    return is_pure(op) and not any(isinstance(v.type, Scalar) and v.type.is_float for v in values)


def _tested(loop: While, renamed: dict[Value, Value]) -> list[Op]:
    """`renamed`: gets what stands for the loop's results."""
    before = loop.before
    passed = tuple(Value(v.type, v.name) for v in before.args)
    ops, values = _again(before, passed)
    inner = substitute(Block((), loop.body.ops, loop.body.results), dict(zip(loop.body.args, values, strict=True)))
    ends = tuple(Value(v.type, v.name) for v in before.args)
    after, final = _again(before, ends)
    renamed |= dict(zip(loop.results, final, strict=True))
    test = Block(before.args, before.ops, (before.results[0], *before.args))
    body = Block(passed, (*ops, *inner.ops), inner.results)
    return [replace(loop, before=test, body=body, results=ends), *after]


def _again(before: Block, args: tuple[Value, ...]) -> tuple[tuple[Op, ...], tuple[Value, ...]]:
    """What the condition's block computes from other arguments, and what it hands on of that."""
    copy = clone(before, {})
    given = substitute(Block((), copy.ops, copy.results), dict(zip(copy.args, args, strict=True)))
    return given.ops, given.results[1:]


# ---- loops that are left before anything is done --------------------------------------------------------------------

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class _LeftFirst:
    """A loop until carried value `flag` is set, by what `first` computes from the others; nothing else is done then.
    `rest`: counting after the branch."""

    loop: While
    flag: int
    first: tuple[Op, ...]
    branch: If
    rest: tuple[Op, ...]

    def tested(self, renamed: dict[Value, Value]) -> list[Op]:
        """`renamed`: gets what stands for the loop's results."""
        before, body = self.loop.before, self.loop.body
        passed = dict(zip(before.results[1:], body.args, strict=True))
        args = tuple(passed.get(v) or Value(v.type, v.name) for v in before.args)
        then, orelse = (dict(zip(self.branch.results, side.results, strict=True)) for side in _sides(self.branch))
        ops = (*self.first, *self.branch.orelse.ops, *self.rest)
        again = substitute(Block(args, ops, body.results), orelse)
        left = substitute(Block(args, (*self.first, *self.rest), body.results), then)
        ends = tuple(Value(v.type, v.name) for v in args)
        copy = clone(left, {})
        after = substitute(Block((), copy.ops, copy.results), dict(zip(copy.args, ends, strict=True)))
        renamed |= {
            v: after.results[before.args.index(of)] for v, of in zip(self.loop.results, before.results[1:], strict=True)
        }
        new = replace(self.loop, before=self.test(args), body=again, results=ends)
        return [new, *after.ops]

    def test(self, args: tuple[Value, ...]) -> Block:
        copy = clone(Block(args, self.first, (self.branch.cond,)), {})
        b, (cond,) = Builder(self.branch.span), copy.results
        op = next(op for op in copy.ops if cond in op.results)
        turned = _NEGATED.get(op.fn) if isinstance(op, Apply) else None
        go = b.apply(turned, *op.args) if turned and isinstance(op, Apply) else b.apply("not", cond)
        return Block(copy.args, (*copy.ops, *b.ops), (go, *copy.args))


def _sides(branch: If) -> tuple[Block, Block]:
    return branch.then, branch.orelse


def _left_first(loop: While, constants: dict[Value, Constant]) -> _LeftFirst | None:
    match loop.before.ops:
        case (Apply("not", (flag,)) as test,) if test.result is loop.before.results[0] and flag in loop.before.args:
            k = loop.before.args.index(flag)
        case _:
            return None
    first, branch = constants.get(loop.inits[k]), next((op for op in loop.body.ops if isinstance(op, If)), None)
    if first is None or first.value or branch is None or branch.cond is not loop.body.results[k] or branch.then.ops:
        return None
    at = loop.body.ops.index(branch)
    before, rest = loop.body.ops[:at], loop.body.ops[at + 1 :]
    decided = any(branch.cond in op.results for op in before)
    forwards = all(v in loop.before.args and v is not flag for v in loop.before.results[1:])
    if not decided or not forwards or not all(map(_counts, (*before, *rest))):
        return None
    return _LeftFirst(loop, k, before, branch, rest)
