"""The reverse of loops: from the last iteration to the first, carrying the carried values' adjoints."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ...ir.ops import For, Value, While
from ...ir.types import I64, Scalar
from ..calculus.shadows import adjoint_type, shadow_name
from .adjoints import zero

if TYPE_CHECKING:
    from .reverse_sweep import Sweep


def reverse_for(sweep: Sweep, op: For) -> None:
    if id(op) in sweep.plan.rerun:
        sweep.copier(effects=False).rerun(op)
    lower, upper = sweep.value(op.lower), sweep.value(op.upper)
    index_type = lower.type
    assert isinstance(index_type, Scalar)
    one = sweep.b.constant(1, index_type)
    if op.step == 1 and index_type.kind == "int":  # iv itself runs backwards
        last, end = sweep.b.apply("sub", upper, one), sweep.b.apply("sub", lower, one)
        iv = Value(index_type, op.body.args[0].name)

        def counted() -> dict[Value, Value]:
            number = sweep.b.apply("sub", sweep.b.convert(iv, I64), sweep.b.convert(lower, I64))
            return {op.body.args[0]: iv, **_inductions(sweep, op, number)}

        _backward_loop(sweep, op, last, end, iv, counted)
        return
    count = _trip_count(sweep, lower, upper, op.step)
    k = Value(I64, "~trip")
    minus_one = sweep.b.constant(-1, I64)
    last = sweep.b.apply("sub", count, sweep.b.constant(1, I64))

    def known() -> dict[Value, Value]:
        moved = sweep.b.apply("mul", k, sweep.b.constant(op.step, I64))
        at = sweep.b.apply("add", sweep.b.convert(lower, I64), moved)
        iv = sweep.b.convert(at, index_type, op.body.args[0].name)
        return {op.body.args[0]: iv, **_inductions(sweep, op, k)}

    _backward_loop(sweep, op, last, minus_one, k, known)


def _trip_count(sweep: Sweep, lower: Value, upper: Value, step: int) -> Value:
    """How often a For runs: in 64 bits, so that the difference of its bounds does not wrap."""
    b = sweep.b
    low, high = b.convert(lower, I64), b.convert(upper, I64)
    first, second = (low, high) if step > 0 else (high, low)
    distance = b.apply("sub", second, first)
    rounded = b.apply("add", distance, b.constant(abs(step) - 1, I64))
    return b.apply("div", b.apply("max", rounded, b.constant(0, I64)), b.constant(abs(step), I64))


def reverse_while(sweep: Sweep, op: While) -> None:
    if id(op) in sweep.plan.rerun:
        count = sweep.copier(effects=False).rerun(op)
        assert count is not None
    elif id(op) in sweep.plan.counted_again:
        count = sweep.copier(effects=False).count_again(op)
    else:
        count = sweep.value(sweep.plan.counts[id(op)])
    last = sweep.b.apply("sub", count, sweep.b.constant(1, I64))
    k = Value(I64, "~trip")
    _backward_loop(sweep, op, last, sweep.b.constant(-1, I64), k, lambda: _inductions(sweep, op, k))


def _inductions(sweep: Sweep, op: For | While, iteration: Value) -> dict[Value, Value]:
    """What an iteration's number tells: of what the loop carries, and itself."""
    found = {}
    if id(op) in sweep.plan.numbers:
        found[sweep.plan.numbers[id(op)]] = iteration
    for arg in op.body.args:
        rule = sweep.plan.inductions.get(arg)
        if rule is not None:
            given = {v: sweep.value(v) for v in rule.needs}
            found[arg] = rule.at(sweep.b, given, iteration, arg.name)
    return found


def _remembered_fills(sweep: Sweep, op: For | While) -> dict[Value, Value]:
    """Variables with the iterations that filled tiles last, as far as the reverse has gone back for them: it does so no
    more (see `saving/earlier_fills`)."""
    found: dict[Value, Value] = {}
    for tile in (tile for used in sweep.plan.refilled.values() for tile in used):
        if tile.looks_back and tile.earlier is not None and tile.earlier.loop is op:
            for last in tile.earlier.last.values():
                if last not in found:
                    found[last] = sweep.b.alloca(I64, "~last_filled")
                    sweep.b.store(found[last], sweep.b.constant((1 << 63) - 1, I64))
    return found


def _backward_loop(sweep: Sweep, op: For | While, last: Value, end: Value, index: Value, known: object) -> None:
    """Runs the reverse of the body from the last iteration to the first, carrying the carried values' adjoints."""
    remembered = _remembered_fills(sweep, op) if id(op) in sweep.plan.numbers else {}
    args = op.body.args[1:] if isinstance(op, For) else op.body.args
    carried = [k for k, arg in enumerate(args) if arg in sweep.activity or op.results[k] in sweep.activity]
    types = {k: adjoint_type(args[k].type) for k in carried}
    running = {k: sweep.b.alloca(types[k], shadow_name(args[k].name)) for k in carried}
    for k in carried:
        start = sweep.adjoints.get(op.results[k]) if op.results[k] in sweep.adjoints else zero(sweep.b, types[k])
        sweep.b.store(running[k], start)
    with sweep.b.region() as region, sweep.repeated(op):
        given = {k: sweep.b.load(running[k]) for k in carried}
        seeds = [(op.body.results[k], adjoint) for k, adjoint in given.items()]
        place = sweep.structure.place(op.body)
        with nullcontext() if sweep.tests is None else sweep.tests.loop(op, index):
            sweep.reverse_block(place, seeds, {**known(), **remembered})  # type: ignore[operator]
        for k in carried:
            following = sweep.adjoints.get(args[k]) if args[k] in sweep.adjoints else zero(sweep.b, types[k])
            sweep.b.store(running[k], following)
    sweep.b.span = op.span.reversed()
    sweep.b.for_(last, end, (), -1, region.block((index,)))
    for k in carried:
        sweep.adjoints.add(op.inits[k], sweep.b.load(running[k]))
