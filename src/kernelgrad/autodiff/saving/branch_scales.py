"""Loops that rescale their sums in a branch, in the form that `rescaled_sums` knows.

    if (s > m) { c = exp(m - s); l *= c; acc *= c; m = s; }

What the branch multiplies, it yields the factor of: l = l * (s > m ? c : 1), which is the same to the last bit. And
what m becomes has a name of its own inside of the branch: there s is the next m, after it a term's exponent.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.builder import Builder
from ...ir.ops import Apply, Block, For, If, Op, Value, While
from ...ir.traverse import blocks, substitute, walk
from ...ir.types import Scalar
from .forward_sweep import carried_args


def arranged(loop: For | While, index: int) -> For | While:
    """The loop with factors for what branches multiply, if they replace carried value `index`."""
    label, following = carried_args(loop)[index], loop.body.results[index]
    branch = next((op for op in loop.body.ops if isinstance(op, If) and following in op.results), None)
    if branch is None:
        return loop
    k = branch.results.index(following)
    ends = [side.results[k] for side in _sides(branch)]
    if ends.count(label) != 1 or any(end in defined(side) for end, side in zip(ends, _sides(branch), strict=True)):
        return loop
    ops: list[Op] = []
    for op in loop.body.ops:
        ops += _factored(_named(branch, k, label)) if op is branch else [op]
    return replace(loop, body=Block(loop.body.args, tuple(ops), loop.body.results))


def _sides(branch: If) -> tuple[Block, Block]:
    return branch.then, branch.orelse


def defined(side: Block) -> set[Value]:
    """All that is in a block."""
    return {v for op in walk(side) for v in op.results} | {a for op in walk(side) for b in blocks(op) for a in b.args}


def _named(branch: If, k: int, label: Value) -> If:
    """With a name for what replaces the label, in the side that does."""
    sides = []
    for side in _sides(branch):
        end = side.results[k]
        if end is not label:
            b = Builder(branch.span)
            name = b.apply("convert", end, type=end.type, name=end.name)
            inner = substitute(Block(side.args, side.ops, side.results), {end: name})
            side = Block(inner.args, (*b.ops, *inner.ops), inner.results)
        sides.append(side)
    return replace(branch, then=sides[0], orelse=sides[1])


def _factored(branch: If) -> list[Op]:
    """The branch, and products after it in place of those in it."""
    sides, made = _sides(branch), [defined(side) for side in _sides(branch)]
    results, ends = list(branch.results), [list(side.results) for side in sides]
    front, after = Builder(branch.span), Builder(branch.span)
    for k, result in enumerate(branch.results):
        found = [_product(sides[n], sides[1 - n].results[k], k) for n in range(2)]
        for n, product in enumerate(found):
            other = sides[1 - n].results[k]
            if product is None or other in made[0] | made[1]:
                continue
            factor = product.args[1] if product.args[0] is other else product.args[0]
            results[k] = Value(result.type, factor.name)
            ends[n][k], ends[1 - n][k] = factor, front.constant(1.0, result.type)
            after.add(Apply(product.fn, (other, results[k]), results=(result,), span=branch.span))
            break
    new = [Block(side.args, side.ops, tuple(end)) for side, end in zip(sides, ends, strict=True)]
    return [*front.ops, replace(branch, then=new[0], orelse=new[1], results=tuple(results)), *after.ops]


def _product(side: Block, other: Value, k: int) -> Apply | None:
    """What a side multiplies by something, and the other side leaves as it is."""
    op = next((op for op in side.ops if side.results[k] in op.results), None)
    is_float = isinstance(other.type, Scalar) and other.type.is_float
    if not isinstance(op, Apply) or op.fn not in ("mul", "mul_rn") or not is_float or other not in op.args:
        return None
    return op
