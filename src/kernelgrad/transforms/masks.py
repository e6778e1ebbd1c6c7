"""Zero adjoints stay zero, whatever they are multiplied by (DESIGN, rule 23): where that has to be tested.

Note [Masks]
A masked infinity is common: `inv = 1 / (d * d); ...; if (j == i) v = 0;`. Reversed, the mask gives an adjoint of zero,
and zero times infinity would be no number. So an adjoint of zero contributes zero to all that lies before it. What is
made of an adjoint by multiplications is right unless the adjoint is zero, and needs no test until something else is
made of it than a product: until it is added to another, or to memory. There stands one `masked(v, g)`: v, but zero
where g is zero. The `guards` of a value are the adjoints on which it still hangs in this way: its chain's source (what
was loaded, chosen by a select, or summed up), and those that autodiff itself has masked, since functions with infinite
derivatives follow.

A sum of numbers with the same guards has these guards; so has what a loop carries, if it does nothing but scale it.

Note [Careful loops]
Where a loop would test in each iteration, and writes nothing but its results, it runs without tests, and again with
them if a result is NaN: where there is none, no zero met an infinity. If lanes exchange values in it, all of them run
it again; so does a block that fills shared memory in each iteration before it reads that. Long sums in straight code
are made so, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from ..analysis.adjoint_values import LongSums, adjoint_values, long_sums
from ..analysis.machine import FULL_WARP
from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import (
    Apply,
    Barrier,
    BarrierReduce,
    Block,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
)
from ..ir.traverse import clone, free_values, operands, rebuild, walk, with_body
from ..ir.types import BOOL, I32, U32, Scalar
from . import simplify

_MOST = 6  # guards of a value
_TRIED = 8  # times that a carried adjoint is taken to be only scaled, and is not: loops around it try it again
_AGAIN = "rare: an adjoint of zero met an infinity; again, with tests for zero"
_RUN_AGAIN = (Load, If, For)
_SCALED = frozenset(("mul", "div", "fast_div", "ldexp"))  # by something: the first argument, of `mul` also the second
_ALIKE = frozenset("neg convert convert_rn convert_rd convert_ru convert_rz".split())
_PASSING = _SCALED | _ALIKE | {"add", "sub", "select", "masked"}  # NaN, if only to where it is dropped


class Guarded(NamedTuple):
    """A value stands for `raw`, but for zero where one of the `guards` is zero. `fresh`: it may itself be a zero that
    no guard tells of; it is one where its `source` is, of which it is a multiple."""

    raw: Value
    guards: tuple[Value, ...] = ()
    fresh: bool = True
    source: Value | None = None

    @property
    def following(self) -> tuple[Value, ...]:
        """The guards of what is made of it by multiplication."""
        return _union(self.guards, (self.source or self.raw,)) if self.fresh else self.guards


def run(function: Function, module: Module, memory: frozenset[str], filled: frozenset[str] = frozenset()) -> Function:
    """`memory`: what holds adjoints (see `adjoint_values`). `filled`: shared variables that a block fills wherever it
    reads them afterwards."""
    adjoints = adjoint_values(function, memory)
    masks = _Masks(adjoints, _pointers_to(function, filled))
    body = masks.block(function.body)
    return simplify.run(with_body(function, body), module) if masks.changed else function


def _pointers_to(function: Function, variables: frozenset[str]) -> frozenset[Value]:
    if not variables:
        return frozenset()
    found = set[Value]()
    for op in walk(function.body):
        named = isinstance(op, GlobalRef) and op.name in variables
        found.update(op.results if named or (isinstance(op, Offset | PtrCast) and op.ptr in found) else ())
    return frozenset(found)


def is_second_run(op: If, definition: Mapping[Value, Op]) -> bool:
    """See Note [Careful loops]: rare."""
    test = definition.get(op.cond)
    while isinstance(test, Warp | BarrierReduce) or (isinstance(test, Apply) and test.fn in ("or", "convert")):
        test = definition.get(test.value if isinstance(test, BarrierReduce) else test.args[-1])
    return bool(op.results) and not op.orelse.ops and _is_nan_test(test)


def _is_nan_test(op: Op | None) -> bool:
    return isinstance(op, Apply) and op.fn == "ne" and op.args[0] is op.args[1]


class _Masks:
    def __init__(self, adjoints: set[Value], filled: frozenset[Value]):
        self.adjoints, self.filled = adjoints, filled
        self.b = Builder()
        self.known: dict[Value, Guarded] = {}
        self.definition: dict[Value, Op] = {}
        self.scopes: list[dict[tuple[Value, tuple[Value, ...]], Value]] = []
        self.masked = 0  # how many tests there are so far
        self.failed = Counter[Value]()  # of what loops carry: how often it was not only scaled
        self.changed = False
        self.careful = False

    # ---- values

    def of(self, value: Value) -> Guarded:
        return self.known.get(value) or Guarded(value)

    def is_replaced(self, value: Value) -> bool:
        """Whether something else stands for it: with a test, or where it was tested already."""
        known = self.of(value)
        return known.raw is not value or bool(known.guards)

    def is_adjoint(self, value: Value) -> bool:
        return value in self.adjoints and _is_float(value)

    def exact(self, value: Value) -> Value:
        known = self.of(value)
        if not known.guards:
            return known.raw
        key = known.raw, known.guards
        for scope in self.scopes:
            if key in scope:
                return scope[key]
        self.masked += 1
        found = self.scopes[-1][key] = self.test(known)
        return found

    def test(self, known: Guarded) -> Value:
        op = self.definition.get(known.raw)
        match op:
            case Apply("mul", (a, p)) if known.guards in ((a,), (p,)):  # the product may still become a part of an fma
                a, p = (a, p) if known.guards == (a,) else (p, a)
                return self.b.apply("mul", a, self.b.apply("masked", p, a), name=known.raw.name)
        return reduce(lambda v, guard: self.b.apply("masked", v, guard), known.guards, known.raw)

    def number(self, value: Value) -> float | None:
        op = self.definition.get(value)
        return float(op.value) if isinstance(op, Constant) else None

    def is_zero(self, value: Value) -> bool:
        return self.number(value) == 0

    def is_finite(self, factor: Value) -> bool:
        """For sure."""
        number, op = self.number(factor), self.definition.get(factor)
        converted = isinstance(op, Apply) and op.fn == "convert" and not _is_float(op.args[0])
        return converted if number is None else math.isfinite(number)

    # ---- operations

    def block(self, block: Block, raw: Sequence[int] = ()) -> Block:
        """`raw`: the results that go on as they are."""
        self.scopes.append({})
        sums = None if self.careful else long_sums(block, self.is_part)
        members, plain = set(sums.ops) if sums else set(), dict[Value, Value]()
        with self.b.region() as region:
            for op in block.ops:
                self.b.span = op.span
                if op not in members:
                    self.op(op)
                    continue
                self.term(op, plain)
                if sums is not None and op is sums.ops[-1]:
                    self.sums(sums, plain)
            results = tuple(self.of(v).raw if k in raw else self.exact(v) for k, v in enumerate(block.results))
        self.scopes.pop()
        return region.block(block.args, results)

    def op(self, op: Op) -> None:
        if isinstance(op, Apply) and _is_float(op.result) and any(map(self.is_adjoint, op.args)):
            self.apply(op)
        elif isinstance(op, For) and any(map(self.is_adjoint, op.results)):
            self.for_(op)
        else:
            self.generic(op)

    def generic(self, op: Op) -> None:
        self.emit(rebuild(op, self.exact, self.block))

    def emit(self, op: Op) -> None:
        self.b.add(op)
        self.definition.update((v, op) for v in op.results)
        for v in op.results:  # what was found with another view of a loop around it
            self.known.pop(v, None)

    def passed(self, op: Apply, guards: tuple[Value, ...], fresh: bool, source: Value | None = None) -> None:
        """With its arguments as they are."""
        self.emit(rebuild(op, lambda v: self.of(v).raw, self.block))
        self.known[op.result] = Guarded(op.result, guards, fresh, source)
        self.changed |= bool(guards)

    def multiple(self, op: Apply, a: Value, exact: bool) -> None:
        """By a number. `exact`: not by zero, nor is it rounded to zero."""
        known = self.of(a)
        self.passed(op, known.guards, known.fresh or not exact, (known.source or known.raw) if exact else None)

    def apply(self, op: Apply) -> None:
        match op.fn, op.args:
            case "masked", (value, guard):
                self.guard(op, self.of(value), guard)
            case fn, (a, p) if fn in _SCALED and not self.is_adjoint(p):
                self.product(op, a, p)
            case "mul", (p, a) if not self.is_adjoint(p):
                self.product(op, a, p)
            case fn, (a,) if fn in _ALIKE:
                self.multiple(op, a, fn == "neg")
            case "add" | "sub", (x, y):
                self.joined(op, x, y, sums=True)
            case "select", (_, x, y):
                self.joined(op, x, y, sums=False)
            case _:
                self.generic(op)

    def guard(self, op: Apply, value: Guarded, by: Value) -> None:
        """What autodiff masked itself: the test waits as others do. Before functions with infinite derivatives it is
        made of the adjoint there, which the functions after may have made zero."""
        own = self.of(by)
        guards = _union(value.guards, own.guards, (own.source or own.raw,))
        self.known[op.result] = Guarded(value.raw, guards, value.fresh or by in self.adjoints)
        if len(guards) > _MOST:
            self.known[op.result] = Guarded(self.exact(op.result))
        self.changed = True

    def product(self, op: Apply, a: Value, p: Value) -> None:
        if self.is_finite(p):
            self.multiple(op, a, bool(self.number(p)))
        elif len(guards := self.of(a).following) <= _MOST:
            self.passed(op, guards, False)
        else:
            known, self.known[a] = self.known[a], Guarded(self.exact(a))
            self.product(op, a, p)
            self.known[a] = known  # what was tested here, in a branch perhaps, is not known elsewhere

    def joined(self, op: Apply, x: Value, y: Value, sums: bool) -> None:
        one, other = sorted((self.of(x), self.of(y)), key=lambda known: len(known.guards))
        if self.is_zero(x) or self.is_zero(y):
            self.passed(op, one.guards or other.guards, True)
        elif one.guards == other.guards:
            self.passed(op, one.guards, one.fresh and other.fresh if sums and one.guards else True)
        elif sums and not one.guards and one.following == other.guards:  # a multiple of the other's guard
            self.passed(op, other.guards, False)
        else:
            self.generic(op)

    # ---- sums

    def is_part(self, op: Apply) -> bool:
        return self.is_adjoint(op.result) and op.fn in _PASSING

    def term(self, op: Op, plain: dict[Value, Value]) -> None:
        """A part of a long sum, without tests."""
        plain.update((v, self.exact(v)) for v in operands(op) if v not in plain and self.is_replaced(v))
        self.b.ops += clone(Block((), (op,), ()), plain).ops

    def sums(self, sums: LongSums, plain: dict[Value, Value]) -> None:
        """With tests, where a sum without them is NaN."""
        names: dict[Value, Value] = {}
        copies = clone(Block((), sums.ops, sums.roots), names)
        self.adjoints.update(copy for v, copy in names.items() if v in self.adjoints)
        before, self.careful = self.masked, True
        tested = self.block(copies)
        self.careful = False
        results = tuple(plain[v] for v in sums.roots)
        if self.masked > before:
            some = self.any_nan(results)
            span = self.b.span.because(_AGAIN)
            self.emit(If(some, tested, Block((), (), results), results=sums.roots, span=span))
        else:
            self.known.update({v: Guarded(plain[v]) for v in sums.roots})
        self.changed = True

    def any_nan(self, values: Sequence[Value]) -> Value:
        return reduce(lambda x, y: self.b.apply("or", x, y), (self.b.apply("ne", v, v) for v in values))

    # ---- loops

    def for_(self, op: For) -> None:
        again = not self.careful and self.can_run_again(op)
        self.careful |= again
        with self.b.region() as region:
            tests = self.scaling(op)
        self.careful &= not again
        if again and tests:
            self.run_again(op, region.ops)
        else:
            self.b.ops += region.ops

    def scaling(self, op: For) -> int:
        """How many tests are in the loop. Carried adjoints that are only scaled keep the guards they have before it."""
        args = op.body.args[1:]
        starts = {k: self.of(v) for k, v in enumerate(op.inits) if self.may_be_scaled(args[k], v)}
        while True:
            before = self.masked
            self.known.update({arg: Guarded(arg) for arg in args})
            self.known.update({args[k]: Guarded(args[k], start.following, False) for k, start in starts.items()})
            body = self.block(op.body, list(starts))
            changed = {k for k, start in starts.items() if not self.is_scaled(op.body.results[k], start)}
            if not changed:
                break
            self.failed.update(args[k] for k in changed)
            starts = {k: start for k, start in starts.items() if k not in changed}
        tests = self.masked - before
        inits = tuple(starts[k].raw if k in starts else self.exact(v) for k, v in enumerate(op.inits))
        self.emit(replace(op, inits=inits, body=body))
        self.known.update(
            {op.results[k]: Guarded(op.results[k], start.following, False) for k, start in starts.items()}
        )
        return tests

    def may_be_scaled(self, carried: Value, start: Value) -> bool:
        return self.is_adjoint(carried) and self.number(start) is None and self.failed[carried] < _TRIED

    def is_scaled(self, value: Value, start: Guarded) -> bool:
        """Whether an iteration only scales what it is given: a select in it may have left a zero for the next one."""
        known = self.of(value)
        return known.guards == start.following and not known.fresh

    def can_run_again(self, loop: For) -> bool:
        """It writes nothing, and NaN in it is NaN in a result."""
        inside = list(walk(loop.body))
        fixed = self.number(loop.lower) is not None and self.number(loop.upper) is not None
        meets = self.is_of_block if self.filled else lambda op: fixed and self.is_of_warp(op)
        allowed = all(is_pure(op) or isinstance(op, _RUN_AGAIN) or meets(op) for op in inside)
        if not allowed:
            return False
        scalars = all(_is_float(v) for v in loop.results if v in self.adjoints)
        return scalars and all(self.passes_on(op) for op in inside)

    def is_of_warp(self, op: Op) -> bool:
        """An exchange in which all lanes take part."""
        return isinstance(op, Warp) and op.fn.startswith("shfl") and self.number(op.args[0]) == FULL_WARP

    def is_of_block(self, op: Op) -> bool:
        """A barrier of the block, or the filling of what it reads."""
        return (isinstance(op, Store) and op.ptr in self.filled) or (isinstance(op, Barrier) and op.scope == "block")

    def passes_on(self, op: Op) -> bool:
        match op:
            case Warp() | Barrier():
                return True
            case Store(ptr):
                return ptr in self.filled
            case Apply() if any(map(self.is_adjoint, op.args)):
                return op.fn in _PASSING and _is_float(op.result)
            case Load() | If() | For():
                return not (isinstance(op, Load) and op.volatile)
        return not any(map(self.is_adjoint, operands(op)))

    def run_again(self, op: For, careful: list[Op]) -> None:
        """The loop without tests, then the other one where that is needed. What comes before it is made once."""
        *first, last = careful
        assert isinstance(last, For)
        self.b.ops += first
        given = {v: self.exact(v) for v in (*op.inits, *free_values(op.body)) if self.is_replaced(v)}
        plain = clone(Block((), (op,), ()), given).ops[0]
        self.b.add(plain)
        pairs = zip(plain.results, op.results, strict=True)
        some = self.any_nan([new for new, old in pairs if self.is_adjoint(old)])
        if any(isinstance(inner, Warp) for inner in walk(op.body)):
            some = self.b.emit(Warp, "vote_any", (self.b.constant(FULL_WARP, U32), some), type=BOOL)
        if any(isinstance(inner, Barrier) for inner in walk(op.body)):
            number = self.b.convert(some, I32)
            anywhere = self.b.emit(BarrierReduce, "or", number, type=I32)
            some = self.b.convert(anywhere, BOOL)
        results: dict[Value, Value] = {}
        tested = clone(Block((), (replace(last, unroll=1),), last.results), results)
        waiting = {v: self.known[v] for v in last.results if v in self.known}  # for tests that come after both
        span = op.span.because(_AGAIN)
        self.emit(If(some, tested, Block((), (), plain.results), results=last.results, span=span))
        self.known.update(waiting)


def _union(*guards: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(v for some in guards for v in some))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
