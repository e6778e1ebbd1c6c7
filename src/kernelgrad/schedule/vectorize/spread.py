"""A loop whose turns have nothing to do with each other, as blocks of the launch: grid strides, four elements a thread.

    for (int i = block * 256 + thread; i < n; i += 256 * blocks) y[i] = f(x[i]);

does in turn k what one thread of another launch could do, one that has a second axis of blocks. So the loop goes, k is
`blockIdx.y`, and its test is a guard. Nothing else in the kernel may touch memory, and turns must be independent as
threads are: what is written is an element of each turn's own, by its address as a sum, and touched at no other address.
What many threads add to is better added up by the threads there are: such loops stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...analysis import structure as structure_analysis
from ...analysis.access.affine import Affine, Shape, Sums
from ...analysis.access.executions import Digit, leaps
from ...analysis.aliases import Aliases
from ...ir.builder import Builder
from ...ir.effects import PURE
from ...ir.ops import Atomic, Block, Builtin, For, Function, If, Load, Module, Op, Store, Value, While
from ...ir.traverse import blocks, clone, descend, uses, walk, with_body
from ...transforms import simplify
from ..rows.turns import Test, TurnSums, counter, holds

TURN = ("block_idx", 1)
_MOST_TURNS = 65535  # blocks along the second axis


class Spread(NamedTuple):
    """`turns`: of the thread that takes most. `tested`: some take fewer."""

    turns: int
    tested: bool


def find(function: Function, shape: Shape, known: Callable[[Value], Any]) -> Spread | None:
    """Of a kernel that is one loop in such a launch."""
    loop = _only_loop(function)
    if loop is None or any(map(_is_tied, walk(function.body))):
        return None
    sums = TurnSums(structure_analysis.analyse(function, apart=False), shape, known)
    count = sums.count(loop)
    if count is None or sums.test(loop) is None:
        return None
    least, most = sums.turns(count)
    if not 0 < most <= _MOST_TURNS:
        return None
    return Spread(most, least < most)


def is_independent(function: Function, sums: Sums) -> bool:
    """Whether blocks along the second axis can be in any order, of a function in which they are turns."""
    aliases = Aliases(function)
    touching: dict[Value, list[Load | Store]] = {}
    for op in walk(function.body):
        if isinstance(op, Load | Store):
            touching.setdefault(aliases.root(op.ptr), []).append(op)
    for root, ops in touching.items():
        if all(isinstance(op, Load) for op in ops):
            continue
        shared = any(aliases.may_share(root, other) for other in touching if other is not root)
        if shared or not _is_own(ops, root, sums):
            return False
    return True


def _is_own(ops: list[Load | Store], root: Value, sums: Sums) -> bool:
    """Whether all are at one place, which no other thread or turn has."""
    found = {sums.address(op.ptr, root) for op in ops}
    address = found.pop() if len(found) == 1 else None
    if not isinstance(address, Affine):
        return False
    several = {("thread_idx", 0), ("block_idx", 0), TURN}
    wanted = {basis for basis in several if sums.shape.extent(*basis) > 1}
    if set(address.coefficients) != wanted:
        return False
    digits = [Digit(basis, abs(c), sums.extents[basis]) for basis, c in address.terms]
    size = max(op.ptr.type.pointee.size for op in ops)  # type: ignore[union-attr]
    return leaps(digits, size, address.coefficients, set())


def run(function: Function, module: Module, tested: bool) -> Function:
    """The kernel without its loop."""
    loop = _only_loop(function)
    assert loop is not None
    sums = TurnSums(structure_analysis.analyse(function, apart=False), Shape((1, 1, 1), (1, 1, 1)), lambda _: None)
    test = sums.test(loop)
    assert test is not None

    def block(inner: Block) -> Block:
        ops: list[Op] = []
        for op in inner.ops:
            ops += _turn(loop, test if tested else None) if op is loop else [descend(op, block)]
        return Block(inner.args, tuple(ops), inner.results)

    changed = simplify.run(with_body(function, block(function.body)), module)
    return simplify.run(_without_counting(changed), module)


def _turn(loop: For, test: Test | None) -> list[Op]:
    b = Builder(loop.span)
    turn = b.builtin(*TURN)
    with b.region() as region:
        mapping = {loop.body.args[0]: counter(b, loop, turn)}
        b.ops += clone(Block((), loop.body.ops, ()), mapping).ops
    if test is None:
        return [*b.ops, *region.ops]
    b.if_(holds(b, test, turn), region.block())
    return b.ops


def _only_loop(function: Function) -> For | None:
    """The one that touches memory, with all that does."""
    found = [op for op in walk(function.body) if isinstance(op, For | While) and _touches(op)]
    if len(found) != 1 or not isinstance(found[0], For) or found[0].inits:
        return None
    others = sum(map(_is_effect, walk(function.body))) - sum(map(_is_effect, walk(found[0].body)))
    return found[0] if others == 0 else None


def _is_tied(op: Op) -> bool:
    """To other threads, or to the axis that turns take."""
    return isinstance(op, Atomic) or (isinstance(op, Builtin) and op.axis > 0)


def _touches(op: Op) -> bool:
    return any(_is_effect(inner) for side in blocks(op) for inner in walk(side))


def _is_effect(op: Op) -> bool:
    return not isinstance(op, (*PURE, If, For, While))


def _without_counting(function: Function) -> Function:
    """Loops that do nothing but count to what nobody needs any more come to an end, as was found."""
    used = uses(function.body)

    def is_needed(op: Op) -> bool:
        return not isinstance(op, While) or any(used.get(v) for v in op.results) or _touches(op)

    def block(inner: Block) -> Block:
        return Block(inner.args, tuple(descend(op, block) for op in inner.ops if is_needed(op)), inner.results)

    return with_body(function, block(function.body))
