"""What a chain of statements makes of one adjoint, as a factor.

Reversed, p = p * v + c gives `d_v += d_p * p; d_p *= v` for each step: an adjoint that is scaled step by step, and sums
of what it is at each. All of it is linear in the adjoint that was loaded at first. Where nothing else is made of that
one than a single number, it is the loaded adjoint times a factor, and the factor can be had from the other end: each
step scales the factor and adds to it, `f = f * v + p`. That takes fewer operations, needs what the forward sweep
computed in the order in which it did, and does not scale an adjoint down to where floats become coarse.

Only sums that autodiff made are taken apart: of adjoints that are loaded from the user's shadows. An adjoint of zero
stays zero, also where the factor, a product of many numbers, is too large for a float.

A factor has another range than the adjoint that is scaled step by step. One that overflows on the way is infinite or no
number in the end. What it loses where it is too small on the way is less than 2^-149 for each step (for floats), times
what comes after: no more than 2^40 if no step multiplies by more than the root of that. So a factor that is finite and
not below 2^-64 then has lost nothing. Where that does not hold, the chain is run as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Function, Load, Member, Module, Offset, Op, PtrCast, Value
from ..ir.traverse import blocks, clone, free_values, operands, rebuild, walk, with_body
from ..ir.types import Scalar

_FEWER = 4  # operations that must be saved
_GROWTH = 40  # exponent of what all steps together may multiply with
_LEAST = 2.0**-64
_SAME = frozenset(("add", "sub", "neg"))


def run(function: Function, module: Module, shadows: frozenset[str]) -> Function:
    pointers = {p.value for p in function.params if p.name in shadows}
    for op in walk(function.body):
        if isinstance(op, Offset | Member | PtrCast) and op.ptr in pointers:
            pointers.add(op.result)
    return with_body(function, _block(function.body, pointers))


def _block(block: Block, pointers: set[Value]) -> Block:
    ops = tuple(rebuild(op, lambda v: v, lambda b: _block(b, pointers)) if blocks(op) else op for op in block.ops)
    block = Block(block.args, ops, block.results)
    for op in ops:
        if isinstance(op, Load) and op.ptr in pointers and _is_float(op.result) and not op.volatile:
            block = _factored(block, op.result)
    return block


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float and value.type.bits >= 32


def _factored(block: Block, seed: Value) -> Block:
    """The block with the one number that is made of the seed as a product; as it was if there are more."""
    made = _linear(block.ops, seed)
    outside = _used_outside(block, made)
    if len(outside) != 1:
        return block
    (last,) = outside
    factor = _Factor(seed, made)
    total = factor.transpose(last)
    if total is None or len(factor.b.ops) + 1 + _FEWER > len(factor.needed):
        return block
    b = factor.b
    b.span = made[last].span
    enough = factor.suffices(total)
    with b.region() as product:
        scaled = b.apply("mul", seed, total)
    mapping: dict[Value, Value] = {}
    chain = clone(Block((), tuple(op for op in block.ops if op in factor.needed), ()), mapping)
    steps = Block((), chain.ops, (mapping[last],))
    (found,) = b.if_(enough, product.block((), (scaled,)), steps)
    b.add(Apply("masked", (found, seed), results=(last,), span=b.span))
    kept = [op for op in block.ops if op not in factor.needed]
    return Block(block.args, _placed(kept, b.ops), block.results)


def _linear(ops: Iterable[Op], seed: Value) -> dict[Value, Apply]:
    """What is a multiple of the seed, by its value."""
    made: dict[Value, Apply] = {}

    def is_made(value: Value) -> bool:
        return value is seed or value in made

    for op in ops:
        if isinstance(op, Apply) and op.result.type == seed.type:
            multiples = sum(map(is_made, op.args))
            if (op.fn in _SAME and multiples == len(op.args)) or (op.fn == "mul" and multiples == 1):
                made[op.result] = op
    return made


def _used_outside(block: Block, made: dict[Value, Apply]) -> set[Value]:
    own = set(made.values())
    used = {v for op in block.ops if op not in own for v in (*operands(op), *_inner(op))}
    return {v for v in made if v in used or v in block.results}


def _inner(op: Op) -> Iterable[Value]:
    return (v for inner in blocks(op) for v in free_values(inner))


Weight = Value | None  # None for 1


class _Factor:
    """The derivative of the last number by the seed, from the last operation to the first."""

    def __init__(self, seed: Value, made: dict[Value, Apply]):
        self.seed, self.made = seed, made
        self.b = Builder()
        self.needed: set[Op] = set()
        self.steps: list[Value] = []  # what factors are multiplied with, one after the other

    def transpose(self, last: Value) -> Weight:
        weights: dict[Value, list[Weight]] = defaultdict(list)
        weights[last].append(None)
        for value, op in reversed(self.made.items()):
            if value in weights:
                self.needed.add(op)
                self.b.span = op.span
                weight = self._sum(weights[value])
                for arg, share in self._shares(op, weight):
                    weights[arg].append(share)
        return self._sum(weights[self.seed])

    def _shares(self, op: Apply, weight: Weight) -> Iterator[tuple[Value, Weight]]:
        match op.fn, op.args:
            case "mul", (left, right):
                multiple, factor = (left, right) if left is self.seed or left in self.made else (right, left)
                if weight is not None:
                    self.steps.append(factor)
                yield multiple, factor if weight is None else self.b.apply("mul", weight, factor)
            case "neg", (arg,):
                yield arg, self._negated(weight)
            case fn, (left, right):
                yield left, weight
                yield right, self._negated(weight) if fn == "sub" else weight

    def suffices(self, total: Value) -> Value:
        """Whether the factor has lost nothing to the range of floats."""
        b, type = self.b, self.seed.type
        size = b.apply("abs", total)
        least = b.apply("ge", size, b.constant(_LEAST, type))
        holds = b.apply("and", least, b.apply("isfinite", total))
        if not self.steps:
            return holds
        largest = reduce(lambda x, y: b.apply("max", x, y), (b.apply("abs", v) for v in dict.fromkeys(self.steps)))
        most = 2.0 ** (_GROWTH // len(self.steps)) if len(self.steps) <= _GROWTH else 1.0
        return b.apply("and", holds, b.apply("le", largest, b.constant(most, type)))

    def _negated(self, weight: Weight) -> Weight:
        return self._number(-1) if weight is None else self.b.apply("neg", weight)

    def _sum(self, terms: list[Weight]) -> Weight:
        values = [t for t in terms if t is not None]
        ones = len(terms) - len(values)
        if ones and (values or ones > 1):
            values.append(self._number(ones))
        return reduce(lambda x, y: self.b.apply("add", x, y), values) if values else None

    def _number(self, number: int) -> Value:
        return self.b.constant(float(number), self.seed.type)


def _placed(ops: list[Op], new: list[Op]) -> tuple[Op, ...]:
    """Each of the new operations as early as it can be."""
    later = {v for op in (*ops, *new) for v in op.results}
    placed: list[Op] = []
    for op in (None, *ops):
        if op is not None:
            placed.append(op)
            later.difference_update(op.results)
        while new and not later.intersection((*operands(new[0]), *_inner(new[0]))):
            placed.append(new[0])
            later.difference_update(new[0].results)
            new = new[1:]
    return tuple(placed)
