"""Loops whose bounds are each thread's own, as loops of one length for all threads with a condition inside.

    for (j = 0; j <= i; ++j) f(j)                      for (j = 0; j < most; ++j) if (j <= i) f(j)
    for (j = max(0, i - r); j < min(n, i + r); ++j)    for (k = 0; k < 2 * r; ++k) if (j = i - r + k is in bounds) f(j)

So gathers see coordinates and conditions, as of loops that a program has written that way. A window around something
that threads differ in keeps its length; what else is each thread's own runs over all that any thread runs over. How
far that is the launch tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from ....analysis.access.affine import Affine, Sums
from ....ir.builder import Builder
from ....ir.ops import Apply, Atomic, Block, Constant, For, Function, If, Op, Param, Value
from ....ir.traverse import descend, holds, substitute, walk, with_ops
from ....ir.types import I64, Scalar, limits

PREFIX = "_bound_"
_LONGEST = 1 << 31
_ENDLESS = 1 << 62  # iterations, of loops that nothing is known of


class Bounds(NamedTuple):
    """Of a loop: all of `lows` are at most its counter, and the counter is less than all of `highs`, each a value and
    what is added to it."""

    lows: tuple[tuple[Value, int], ...]
    highs: tuple[tuple[Value, int], ...]


@dataclass(frozen=True)
class Rectangle:
    """How a loop, by its number among the pattern's operations, is written. `window`: from which of the lower bounds it
    is counted; None where it runs over all that any thread runs over."""

    number: int
    window: int | None


class Told(NamedTuple):
    """What the launch tells a loop: where it begins, if that is the same for all threads, and its length."""

    first: int
    length: int


def rectangles(function: Function, sums: Sums) -> dict[Rectangle, Told]:
    """Of the loops around updates that a launch's threads have different bounds of: those that can be written so."""
    loops = ((k, op) for k, op in enumerate(walk(function.body)) if isinstance(op, For) and abs(op.step) == 1)
    own = ((k, op) for k, op in loops if holds(op, Atomic) and not _is_common(op, sums))
    found = (_rectangle(k, _bounds(op, sums.structure.definition), sums) for k, op in own)
    return dict(rectangle for rectangle in found if rectangle is not None)


def _is_common(op: For, sums: Sums) -> bool:
    """Whether it has the same bounds in all threads."""
    ends = [sums.of(op.lower), sums.of(op.upper)]
    return all(end is not None and not end.terms for end in ends)


def _bounds(op: For, definition: dict[Value, Op]) -> Bounds:
    low, high = (op.lower, op.upper) if op.step > 0 else (op.upper, op.lower)
    more = 0 if op.step > 0 else 1
    return Bounds(
        tuple((value, shift + more) for value, shift in _parts(low, "max", definition)),
        tuple((value, shift + more) for value, shift in _parts(high, "min", definition)),
    )


def _parts(value: Value, fn: str, definition: dict[Value, Op]) -> Iterator[tuple[Value, int]]:
    """What a value is the largest or the smallest of, each as a value and what is added to it: `min(a, b) + 1` is the
    smaller of `a + 1` and `b + 1`, where neither of them wraps around (see `_is_whole`)."""
    match definition.get(value):
        case Apply(found, (left, right)) if found == fn:
            yield from _parts(left, fn, definition)
            yield from _parts(right, fn, definition)
            return
        case Apply("add" | "sub" as sign, (inner, by)) if isinstance(constant := definition.get(by), Constant):
            shift = int(constant.value) if sign == "add" else -int(constant.value)
            yield from ((part, more + shift) for part, more in _parts(inner, fn, definition))
            return
    yield value, 0


def _rectangle(number: int, bounds: Bounds, sums: Sums) -> tuple[Rectangle, Told] | None:
    if not all(shift == 0 or _is_whole(v, shift, sums) for side in bounds for v, shift in side):
        return None
    lows, highs = ([_sum(v, shift, sums) for v, shift in side] for side in bounds)
    windows = [
        (far.const, k)
        for k, low in enumerate(lows)
        for high in highs
        if low is not None and low.terms and high is not None and not (far := high.plus(low, -1)).terms
    ]
    if windows:
        length, k = min(windows)
        return (Rectangle(number, k), Told(0, length)) if 0 < length < _LONGEST else None
    first = max((sums.range(low, _ENDLESS)[0] for low in lows if low is not None), default=None)
    end = min((sums.range(high, _ENDLESS)[1] for high in highs if high is not None), default=None)
    if first is None or end is None or not 0 < end - first < _LONGEST:
        return None
    return Rectangle(number, None), Told(first, end - first)


def _sum(value: Value, shift: int, sums: Sums) -> Affine | None:
    """None where it is none, or comes round in loops around it."""
    found = sums.of(value)
    if found is None or any(basis in sums.wrapping for basis, _ in found.terms):
        return None
    return found.plus(Affine(shift))


def _is_whole(value: Value, shift: int, sums: Sums) -> bool:
    """Whether a sum does not wrap around in any thread. The program may not make it: of `min(i, INT_MAX) + 1` it adds
    to the smaller one alone."""
    sum_ = _sum(value, shift, sums)
    if sum_ is None or not isinstance(value.type, Scalar):
        return False
    (low, high), (least, most) = sums.range(sum_, _ENDLESS), limits(value.type)
    return least <= low and high <= most


# ---- code -----------------------------------------------------------------------------------------------------------


def parameters(number: int) -> tuple[Param, Param]:
    names = (f"{PREFIX}first_{number}", f"{PREFIX}length_{number}")
    first, length = (Param(Value(I64, name), "long long", variable=name) for name in names)
    return first, length


def told(found: dict[Rectangle, Told]) -> dict[str, int]:
    names = {rectangle: [p.name for p in parameters(rectangle.number)] for rectangle in found}
    return {name: value for r, values in found.items() for name, value in zip(names[r], values, strict=True)}


def with_rectangles(function: Function, found: tuple[Rectangle, ...]) -> Function:
    """The function with these loops written so; its last parameters are what the launch tells."""
    ops = list(walk(function.body))
    chosen = {id(ops[r.number]): r for r in found}
    params = {r.number: parameters(r.number) for r in found}
    definition = {value: op for op in ops for value in op.results}

    def visit(block: Block) -> Block:
        written = list[Op]()
        for op in block.ops:
            inner = descend(op, visit)
            if id(op) in chosen and isinstance(inner, For) and isinstance(op, For):
                r = chosen[id(op)]
                written += _written(inner, _bounds(op, definition), r.window, params[r.number])
            else:
                written.append(inner)
        return with_ops(block, written)

    body = visit(function.body)
    return replace(function, params=(*function.params, *(p for own in params.values() for p in own)), body=body)


def _written(op: For, bounds: Bounds, window: int | None, params: tuple[Param, Param]) -> list[Op]:
    b, type = Builder(op.span), op.lower.type
    first, length = (b.convert(p.value, type) for p in params)
    one, at = b.constant(1, type), Value(type, op.body.args[0].name)
    if window is not None:
        first = _shifted(b, *bounds.lows[window])
        lower, upper = b.constant(0, type), length
    else:
        lower, upper = first, b.apply("add", first, length)
    if op.step < 0:
        lower, upper = b.apply("sub", upper, one), b.apply("sub", lower, one)
    with b.region() as body:
        counter = at if window is None else b.apply("add", first, at)
        tests = [b.apply("ge", counter, _shifted(b, *low)) for k, low in enumerate(bounds.lows) if k != window]
        tests += [b.apply("lt", counter, _shifted(b, *high)) for high in bounds.highs]
        inside = substitute(op.body, {op.body.args[0]: counter})
        carried = op.body.args[1:]
        results = tuple(Value(v.type, v.name) for v in carried)
        held = reduce(lambda left, right: b.apply("and", left, right), tests)
        then, orelse = Block((), inside.ops, inside.results), Block((), (), carried)
        b.add(If(held, then, orelse, results=results, span=op.span))
    b.add(replace(op, lower=lower, upper=upper, body=body.block((at, *carried), results), unroll=None))
    return b.ops


def _shifted(b: Builder, value: Value, shift: int) -> Value:
    return b.apply("add", value, b.constant(shift, value.type)) if shift else value
