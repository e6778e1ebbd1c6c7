"""Note [Rescaled sums]: sums that a loop keeps in range by a running scale need no tape.

    m2 = max(m, s); c = exp(m - m2); p = exp(s - m2); l = l * c + p; acc = acc * c + p * v; m = m2

What such a loop ends with does not hang on how the scale got there: acc is the sum of all exp(s - m) * v with the last
m, and its derivative by that m is -acc. So the reverse has the last m for every m (`at_end`), the factors c are 1, and
the sums are plain ones: their adjoints are the same in all iterations, and nothing that the loop carried is needed.
Only m has an adjoint of its own, which goes to it after the loop.

That is the derivative of what the loop computes but for rounding, as any order of additions is: each term is rounded
once where the loop as written rounds it in every iteration, and a term that overflows has overflowed the sum, too.

It holds for sums of any degree (`scale_degrees`) whose values decide nothing and which enter linearly, with factors
that have no derivatives of their own: else the reverse would need what they held on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...errors import Span
from ...ir.builder import Builder
from ...ir.ops import Apply, Block, Constant, For, Function, If, Op, Value, While
from ...ir.traverse import descend, operands, walk, with_body
from ...ir.types import Scalar
from ...locks import cached_property
from ..calculus.activity import Activity
from .branch_scales import arranged, defined
from .empty_maxima import Maximum
from .forward_sweep import carried_args
from .in_reverse import made_from
from .scale_degrees import EXPONENTIALS, Degree, Degrees, Dependence, Labels

_LINEAR = {"add": (0, 1), "sub": (0, 1), "add_rn": (0, 1), "sub_rn": (0, 1), "neg": (0,), "convert": (0,)}
_FACTORS = {"mul": (0, 1), "mul_rn": (0, 1), "fma": (0, 1), "div": (0,), "fast_div": (0,)}


class Rescaled:
    """A loop, the value that scales what it carries, and the degrees of that."""

    def __init__(self, given: For | While, index: int, activity: Activity, constants: dict[Value, Constant]):
        self.loop, self.activity = arranged(given, index), activity
        loop, self.labels = self.loop, Labels(self.loop, index)
        self.fresh = set() if loop is given else defined(loop.body) - defined(given.body)  # of these activity knows not
        self.dependence = Dependence(self.labels)
        self.degrees = Degrees(self.labels, self.dependence)
        self.degrees.constants = constants
        self.maximum = Maximum(self.labels, self.degrees.definition, self.degrees.number)
        if self._scales() and self._adds_below_maximum:
            self.degrees.alias, self.degrees.is_nothing = self.maximum.alias, self._is_nothing
        self.carried: dict[int, Degree] = {}

    @property
    def holds(self) -> bool:
        if not self._scales() or self.dependence.escapes():
            return False
        found = self.degrees.of_loop()
        if not found or not any(found.values()):
            return False
        self.carried = found
        if not self._terms.isdisjoint(self.labels.all):  # the scale itself would need what they held
            return False
        return all(map(self._is_fit, walk(self.loop.body))) and all(map(self._is_start_known, found))

    def _scales(self) -> bool:
        """Whether there is anything to find, cheaply."""
        return any(self.is_scale(op) for op in walk(self.loop.body))

    def is_scale(self, op: Op) -> bool:
        return isinstance(op, Apply) and op.fn in EXPONENTIALS and op.args[0] in self.dependence.found

    @cached_property
    def _adds_below_maximum(self) -> bool:
        """Whether guards for maxima of nothing make no difference (see `empty_maxima`)."""
        scales = [op for op in walk(self.loop.body) if isinstance(op, Apply) and self.is_scale(op)]
        added = [op for op in scales if not self._is_of_labels(op.args[0])]
        starts = (v for k, v in enumerate(self.loop.inits) if k != self.labels.index and _is_float(v))
        return all(map(self.degrees.is_zero, starts)) and self.maximum.bounds(added)

    def _is_of_labels(self, exponent: Value) -> bool:
        op = self.degrees.definition.get(exponent)
        if exponent in self.labels.all or self.maximum.alias(exponent) is not None:
            return True
        known = ("sub", "sub_rn", "add", "add_rn", "neg", "mul", "mul_rn")
        return (
            isinstance(op, Apply)
            and op.fn in known
            and all(self._is_of_labels(arg) or self.degrees.number(arg) is not None for arg in op.args)
        )

    # ---- what is done with sums and their terms

    def _is_fit(self, op: Op) -> bool:
        """Whether an operation on terms or sums is linear in the sums, and decides nothing."""
        if not any(map(self._is_scaled, operands(op))) or isinstance(op, For | While | If):
            return True
        if not isinstance(op, Apply) or not all(map(_is_float, op.results)):
            return False
        if op.fn == "select":
            return not self._is_scaled(op.args[0])
        summed = [k for k, arg in enumerate(op.args) if arg in self._sums]
        if op.fn in _LINEAR:
            return True
        if op.fn not in _FACTORS:
            return False
        factors = [k for k in summed if not (op.fn == "fma" and k == 2)]
        if not factors:
            return True
        others = [op.args[k] for k in range(2) if k != factors[0]]
        return len(factors) == 1 and factors[0] in _FACTORS[op.fn] and all(map(self._is_steady, others))

    def _is_scaled(self, value: Value) -> bool:
        """A sum or a term: what is not in the reverse what it was."""
        return value in self._terms

    def are_terms(self, values: Iterable[Value]) -> bool:
        """Whether all of them are nothing where a term is nothing."""
        return all(map(self._is_scaled, values))

    @cached_property
    def _terms(self) -> set[Value]:
        scales = {op.results[0] for op in walk(self.loop.body) if self.is_scale(op)}
        return made_from(self.loop.body, scales | self._sums)

    @cached_property
    def _sums(self) -> set[Value]:
        return made_from(self.loop.body, {carried_args(self.loop)[k] for k in self.carried})

    def _is_steady(self, value: Value) -> bool:
        """A factor without a derivative in the reverse."""
        return (value not in self.activity and value not in self.fresh) or self.is_one(value)

    def _is_start_known(self, k: int) -> bool:
        """Whether what value k begins with is nothing, or in the end only scaled: by no other factors, and in no other
        sums."""
        arg, factors = carried_args(self.loop)[k], {factor for _, fs in self.carried[k] for factor in fs}
        if self.degrees.is_zero(self.loop.inits[k]):
            return True
        made, ends = made_from(self.loop.body, {arg}), self.loop.body.results
        crossed = any(v in made for other, v in enumerate(ends) if other != k)
        steady = not any(factor in self.activity for factor in factors)
        return steady and not crossed and _Start(self, arg, made).is_scaled(ends[k])

    def is_one(self, value: Value) -> bool:
        """A factor that is 1 in the reverse."""
        op = self.degrees.definition.get(value)
        return (op is not None and self.is_scale(op) and self.cancels(op)) or self.is_chosen_one(value)

    def is_chosen_one(self, value: Value) -> bool:
        """The same, of what is chosen: `s > m ? exp(m - s) : 1`."""
        op = self.degrees.definition.get(value)
        match op:
            case If():
                k = op.results.index(value)
                sides = (op.then.results[k], op.orelse.results[k])
            case Apply("select", (_, *sides)):
                pass
            case _:
                return False
        given = [self.degrees.number(side) for side in sides]
        cond = op.cond if isinstance(op, If) else op.args[0]
        guarded = [n is not None and self._is_guard(cond, k == 0) for k, n in enumerate(given)]
        ones = (n == 1.0 or g or self.is_one(v) for n, g, v in zip(given, guarded, sides, strict=True))
        return all(ones) and None in given

    def _is_guard(self, cond: Value, of_then: bool) -> bool:
        return self._adds_below_maximum and self.maximum.is_guard(cond, of_then)

    def _is_nothing(self, cond: Value, of_then: bool, other: Value) -> bool:
        """A side that stands for a factor of what is nothing yet."""
        return self._is_guard(cond, of_then) and self.is_one(other)

    def is_guarded(self, cond: Value) -> bool:
        """Whether a condition asks for a maximum of nothing, so that it may ask of the last one."""
        return self._adds_below_maximum and self.maximum.tested(cond) is not None

    def cancels(self, op: Op) -> bool:
        """Whether an exponential is of differences of labels alone: 1 where all of them are the same."""
        assert isinstance(op, Apply)
        exponent = self.degrees.exponent(op.args[0])
        if exponent is None or not self._is_pure(op.args[0]):
            return False
        totals: dict[tuple[Value, ...], float] = {}
        for (_, factors), number in exponent.items():
            totals[factors] = totals.get(factors, 0.0) + number
        return not any(totals.values())

    def _is_pure(self, value: Value) -> bool:
        """Made of labels and their factors alone."""
        if value in self.labels.all or self.degrees.alias(value) is not None:
            return True
        op = self.degrees.definition.get(value)
        if value not in self.dependence.found or not isinstance(op, Apply):
            return False
        if op.fn in ("mul", "mul_rn"):
            return any(map(self._is_pure, op.args))
        if op.fn == "fma":
            return any(map(self._is_pure, op.args[:2])) and self._is_pure(op.args[2])
        return all(map(self._is_pure, op.args))


class _Start:
    """What becomes of one value that a loop carries, in an iteration: `made` is all that is computed from it."""

    def __init__(self, of: Rescaled, arg: Value, made: set[Value]):
        self.of, self.own, self.made = of, {arg}, made

    def is_scaled(self, value: Value) -> bool:
        """Whether a value is the carried one, times scales alone, plus others."""
        op = self.of.degrees.definition.get(value)
        if value in self.own or value not in self.made:
            return value in self.own
        match op:
            case If():
                k = op.results.index(value)
                return self.is_scaled(op.then.results[k]) and self.is_scaled(op.orelse.results[k])
            case For() | While():
                k = op.results.index(value)
                self.own.add(carried_args(op)[k])
                return self.is_scaled(op.inits[k]) and self.is_scaled(op.body.results[k])
            case Apply(fn, args):
                return self.is_kept(fn, args)
        return False

    def is_kept(self, fn: str, args: tuple[Value, ...]) -> bool:
        if fn == "select":
            return self.is_scaled(args[1]) and self.is_scaled(args[2])
        found = [k for k, v in enumerate(args) if v in self.made]
        if len(found) != 1 or (fn in ("sub", "sub_rn") and found == [1]) or not self.is_scaled(args[found[0]]):
            return False
        if fn in ("mul", "mul_rn") or (fn == "fma" and found != [2]):
            return self.of.is_one(args[1 - found[0]])
        return fn in ("add", "add_rn", "sub", "sub_rn", "convert", "fma")


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float


# ---- finding and rewriting ------------------------------------------------------------------------------------------


def candidates(function: Function, spans: set[Span], activity: Activity) -> frozenset[Span]:
    """Of the loops at these places, those that this is for."""
    constants = _constants(function)
    loops = (op for op in walk(function.body) if isinstance(op, For | While) and op.span in spans)
    return frozenset(loop.span for loop in loops if find(loop, activity, constants) is not None)


def _constants(function: Function) -> dict[Value, Constant]:
    return {op.result: op for op in walk(function.body) if isinstance(op, Constant)}


def find(loop: For | While, activity: Activity, constants: dict[Value, Constant]) -> Rescaled | None:
    for k, arg in enumerate(carried_args(loop)):
        if arg in activity and _is_float(arg) and loop.body.results[k] is not arg:
            found = Rescaled(loop, k, activity, constants)
            if found.holds:
                return found
    return None


def run(function: Function, chosen: frozenset[Span], activity: Activity) -> Function:
    """The outermost such loops of those at the chosen places."""
    constants = _constants(function)

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            found = find(op, activity, constants) if isinstance(op, For | While) and op.span in chosen else None
            ops += [descend(op, block)] if found is None else all_of(found)
        return Block(b.args, tuple(ops), b.results)

    def all_of(found: Rescaled) -> list[Op]:
        """A loop may have several scales."""
        ops: list[Op] = []
        for op in _Rewrite(found).ops():
            more = find(op, activity, constants) if isinstance(op, For | While) else None
            ops += [op] if more is None else all_of(more)
        return ops

    return with_body(function, block(function.body))


class _Rewrite:
    def __init__(self, of: Rescaled):
        self.of, self.loop, self.labels = of, of.loop, of.labels

    def ops(self) -> list[Op]:
        b, loop = Builder(self.loop.span), self.loop
        raw = {k: Value(loop.results[k].type, loop.results[k].name) for k in self.of.carried}
        inits = [b.apply("detach", v) if k in raw and v in self.of.activity else v for k, v in enumerate(loop.inits)]
        results = tuple(raw.get(k, v) for k, v in enumerate(loop.results))
        b.add(replace(loop, inits=tuple(inits), body=self.block(loop.body), results=results))
        for k, degree in self.of.carried.items():
            self.ended(b, k, raw[k], degree)
        return b.ops

    # ---- in the loop

    def block(self, block: Block) -> Block:
        b = Builder()
        for op in block.ops:
            b.span = op.span
            if self.of.is_scale(op):
                self.scale(b, op)
            else:
                self.chosen(b, descend(op, self.block))
        return Block(block.args, tuple(b.ops), block.results)

    def chosen(self, b: Builder, op: Op) -> None:
        """An operation; factors that it chooses are 1 in the reverse, whatever was chosen."""
        ones = [v for v in op.results if self.of.is_chosen_one(v)] if isinstance(op, If | Apply) else []
        op = self.guarded(b, op)
        raw = {v: Value(v.type, v.name) for v in ones}
        b.add(replace(op, results=tuple(raw.get(v, v) for v in op.results)) if raw else op)
        for value, found in raw.items():
            one = b.constant(1.0, value.type)
            b.add(Apply("in_reverse", (found, one, self.labels.arg), results=(value,), span=op.span))

    def guarded(self, b: Builder, op: Op) -> Op:
        """A choice that asks whether the last maximum is one of nothing, where it asks that of another."""
        if not isinstance(op, If | Apply) or not self.of.are_terms(op.results):
            return op
        if isinstance(op, If) and self.of.is_guarded(op.cond):
            return replace(op, cond=self.asked(b, op.cond))
        if isinstance(op, Apply) and op.fn == "select" and self.of.is_guarded(op.args[0]):
            return replace(op, args=(self.asked(b, op.args[0]), *op.args[1:]))
        return op

    def asked(self, b: Builder, cond: Value) -> Value:
        op = self.of.degrees.definition[cond]
        assert isinstance(op, Apply)
        args = (self.asked(b, v) if op.fn == "not" else self.pinned(b, v) for v in op.args)
        return b.apply(op.fn, *args)

    def scale(self, b: Builder, op: Op) -> None:
        assert isinstance(op, Apply)
        if self.of.cancels(op):
            raw = b.apply(op.fn, *op.args)
            one = b.constant(1.0, raw.type)
            b.add(Apply("in_reverse", (raw, one, self.labels.arg), results=op.results, span=op.span))
        else:
            b.add(replace(op, args=(self.pinned(b, op.args[0]),)))

    def pinned(self, b: Builder, value: Value) -> Value:
        """The sum with the last label for each."""
        if value in self.labels.all:
            return b.apply("at_end", value, self.labels.arg, name=value.name)
        if value not in self.of.dependence.found:
            return value
        op = self.of.degrees.definition[value]
        assert isinstance(op, Apply)
        guarded = op.fn == "select" and self.of.is_guarded(op.args[0])
        args = tuple(self.asked(b, v) if guarded and v is op.args[0] else self.pinned(b, v) for v in op.args)
        return b.apply(op.fn, *args, type=value.type, name=value.name)

    # ---- after it

    def ended(self, b: Builder, k: int, raw: Value, degree: Degree) -> None:
        """Value k as the loop ends, with its derivatives by the scale, and by what both began with."""
        last, first = self.loop.results[self.labels.index], self.loop.inits[self.labels.index]
        parts = [(last, self.times(b, degree, raw))]
        start = self.loop.inits[k]
        if not self.of.degrees.is_zero(start):
            factor = self.since(b, degree, first, last)
            lost = b.apply("neg", self.times(b, degree, b.apply("mul", factor, start)))
            parts += [(x, slope) for x, slope in ((start, factor), (first, lost)) if x in self.of.activity]
        for number, (x, slope) in enumerate(parts, 1):
            following = self.loop.results[k] if number == len(parts) else Value(raw.type, raw.name)
            b.add(Apply("along", (raw, b.convert(x, raw.type), slope), results=(following,), span=b.span))
            raw = following

    def times(self, b: Builder, degree: Degree, value: Value) -> Value:
        """What a value grows by with the label, if it has that degree."""
        total: Value | None = None
        for (_, factors), number in degree.items():
            term = b.apply("mul", value, b.constant(number, value.type))
            for factor in factors:
                term = b.apply("mul", term, b.convert(factor, value.type))
            total = term if total is None else b.apply("add", total, term)
        return b.constant(0.0, value.type) if total is None else total

    def since(self, b: Builder, degree: Degree, first: Value, last: Value) -> Value:
        """By how much the loop has scaled what it began with."""
        steady = b.apply("eq", first, last)
        exponent = self.times(b, degree, b.apply("sub", last, first))
        return b.apply("select", steady, b.constant(1.0, exponent.type), b.apply("exp", exponent))
