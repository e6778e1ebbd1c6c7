"""A loop that carries one active number, with the derivatives of that number: see `carried_derivatives`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.builder import Builder
from ...ir.ops import (
    Aggregate,
    Apply,
    Builtin,
    Constant,
    Extract,
    For,
    GlobalRef,
    Load,
    Member,
    Offset,
    Op,
    PtrCast,
    Value,
    While,
)
from ...ir.traverse import clone
from ...ir.types import I32, Scalar
from ..calculus.activity import Activity
from ..calculus.expression import Applied, Expr
from ..calculus.rules import Zero, rule_for
from .forward_sweep import Arithmetic, Slope, Slopes, Tangents, carried, carrying
from .scaled_derivatives import Scaled, Tracked, bias

_PURE = (Constant, Offset, Member, PtrCast, Extract, Aggregate, GlobalRef)
_INDICES = ("thread_idx", "block_idx", "block_dim", "grid_dim")


def slopes_of(
    b: Builder, loop: For | While, activity: Activity, numbers: Sequence[Value], named: dict[Value, Value]
) -> list[Slope]:
    """Emits the loop, its results renamed. The derivatives of what it carries by the numbers: floats and exponents."""
    if not is_smooth(loop):
        found = _with_exponents(b, loop, activity, numbers)
        _rename(b, named)
        return found
    slopes, least = _tracked(b, loop, activity, numbers).emit()
    _rename(b, named)
    with b.region() as enough:
        type = slopes[0][0].type
        back = b.constant(1 / bias(type), type)
        plain = tuple(v for (s,) in slopes for v in (b.apply("mul", s, back), b.constant(0, I32)))
    with b.region() as again:
        exact = tuple(v for slope in _with_exponents(b, loop, activity, numbers) for v in slope)
    rerun = clone(again.block((), exact), {})
    parts = b.if_(Tracked.suffices(b, slopes, least), enough.block((), plain), rerun)
    return list(zip(parts[::2], parts[1::2], strict=True))


def _rename(b: Builder, named: dict[Value, Value]) -> None:
    """What the loop that was just emitted gives."""
    made = b.ops.pop()
    b.add(replace(made, results=tuple(named.get(v, v) for v in made.results)))


def _with_exponents(b: Builder, loop: For | While, activity: Activity, numbers: Sequence[Value]) -> list[Slope]:
    type = numbers[0].type
    unit = b.constant(0.5, type), b.constant(1, I32)
    return _Carrier(b, loop, activity, numbers, Scaled(), unit, unit).emit()[0]


def _tracked(b: Builder, loop: For | While, activity: Activity, numbers: Sequence[Value]) -> _Carrier:
    (index,) = carried(loop, activity)
    type = numbers[0].type
    one, unit, least = b.constant(1.0, type), b.constant(bias(type), type), Value(type, "~least")
    arithmetic = Tracked(least, one, unit, loop.body.results[index])
    return _Carrier(b, loop, activity, numbers, arithmetic, (one,), (unit,), arithmetic)


@dataclass
class _Carrier:
    """`one`: what the derivative by the carried number starts with in each iteration; `unit`: those by the numbers from
    outside. The former multiplies what is carried, the latter are added to it."""

    b: Builder
    loop: For | While
    activity: Activity
    numbers: Sequence[Value]
    arithmetic: Arithmetic
    one: Slope
    unit: Slope
    tracked: Tracked | None = None

    def emit(self) -> tuple[list[Slope], Value]:
        """The derivatives after the loop, and the least number that was looked at."""
        (index,) = carried(self.loop, self.activity)
        args = self.loop.body.args[1:] if isinstance(self.loop, For) else self.loop.body.args
        inits = [self.first(self.loop.inits[index] is x) for x in self.numbers]
        slopes = [self.arithmetic.fresh(args[index]) for _ in self.numbers]
        with self.b.region() as region:
            sweep = Slopes(self.b, self.activity, self.arithmetic, self.seeds(args[index]))
            for op in self.loop.body.ops:
                sweep.op(op)
            result = self.loop.body.results[index]
            following = [self.step(sweep, result, k, slope) for k, slope in enumerate(slopes)]
        results = [self.arithmetic.fresh(args[index]) for _ in self.numbers]
        watched, seen, last = self.least()
        body = region.block(
            (*self.loop.body.args, *_flat(slopes), *watched), (*self.loop.body.results, *_flat(following), *seen)
        )
        before = (*_flat(inits), *(self.b.constant(float("inf"), v.type) for v in watched))
        self.b.add(carrying(self.loop, before, body, (*_flat(results), *last)))
        return results, last[0] if last else result

    def least(self) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
        """As an argument of the body, at its end, and after the loop."""
        if self.tracked is None:
            return (), (), ()
        return (self.start,), (self.tracked.least,), (Value(self.start.type, "~least"),)

    def __post_init__(self) -> None:
        self.start = self.tracked.least if self.tracked is not None else self.numbers[0]

    def first(self, is_init: bool) -> Slope:
        return self.unit if is_init else self.arithmetic.zero(self.b, self.numbers[0].type)

    def seeds(self, arg: Value) -> dict[Value, Tangents]:
        none: Tangents = (None,) * len(self.numbers)
        found = {x: (None, *none[:k], self.unit, *none[k + 1 :]) for k, x in enumerate(self.numbers)}
        return {**found, arg: (self.one, *none)}

    def step(self, sweep: Slopes, result: Value, k: int, slope: Slope) -> Slope:
        """The next derivative by number k."""
        by_carried, own = sweep.known(result, 0), sweep.known(result, 1 + k)
        total = None if by_carried is None else self.arithmetic.product(self.b, by_carried, slope)
        if own is not None:
            total = own if total is None else self.arithmetic.plus(self.b, total, own)
        if total is None:
            return self.arithmetic.zero(self.b, result.type)
        if self.tracked is not None:
            self.tracked.look(self.b, total[0])
        return total


def _flat(slopes: Sequence[Slope]) -> tuple[Value, ...]:
    return tuple(part for slope in slopes for part in slope)


def is_smooth(loop: For | While) -> bool:
    """Whether it can run again, and nothing in it hangs on how a float was rounded."""
    return isinstance(loop, For) and all(map(_is_smooth, loop.body.ops))


def _is_smooth(op: Op) -> bool:
    match op:
        case Load():
            return not op.volatile
        case Builtin(name):
            return name in _INDICES
        case Apply(fn, args) if any(map(_is_float, args)):
            rule = rule_for(fn)
            smooth = rule is not None and not isinstance(rule, Zero) and not any(map(_decides, rule.formulas))
            return smooth and _is_float(op.result)
    return isinstance(op, (*_PURE, Apply))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


def _decides(formula: Expr) -> bool:
    return isinstance(formula, Applied) and (formula.fn == "select" or any(map(_decides, formula.args)))
