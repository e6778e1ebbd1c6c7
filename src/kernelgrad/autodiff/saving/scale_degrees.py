"""How values scale with what a loop carries beside them: by which powers of exp(m) they are multiplied.

    m2 = max(m, s); c = exp(m - m2); l = l * c + exp(s - m2); acc = acc * c + exp(s - m2) * v

Here l and acc scale with exp(-m2) when the iteration ends, as they did with exp(-m) when it began: c takes them from
one to the other. A degree says so: for each such `label` (m, m2, what inner loops and branches make of them) the factor
that it has in the exponent, a number times values from outside of the loop. Products add degrees, sums need equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ...ir.ops import Apply, Block, Constant, For, If, Op, Value, While
from ...ir.traverse import blocks, operands, walk
from ...ir.types import Scalar
from .forward_sweep import carried_args

Key = tuple[Value, tuple[Value, ...]]  # a label, and what it is multiplied with
Degree = Mapping[Key, float]

EXPONENTIALS = {"exp": 1.0, "fast_exp": 1.0, "exp2": math.log(2), "exp10": math.log(10), "fast_exp10": math.log(10)}
_ANY: Degree = {}  # of zero: told from others by identity
_SUMS = ("add", "sub", "add_rn", "sub_rn")
_PRODUCTS = ("mul", "mul_rn")
_UNCHANGED = ("neg", "convert")


def plus(one: Degree, other: Degree, times: float = 1.0) -> Degree:
    total = {key: one.get(key, 0.0) + times * other.get(key, 0.0) for key in (*one, *other)}
    return {key: number for key, number in total.items() if number}


class Labels:
    """What a loop makes of one value that it carries, `m`: in each iteration, inner loop and branch."""

    def __init__(self, loop: For | While, index: int):
        self.loop, self.index = loop, index
        self.all: dict[Value, None] = {self.arg: None, self.following: None}
        self._visit(loop.body)

    @property
    def arg(self) -> Value:
        return carried_args(self.loop)[self.index]

    @property
    def following(self) -> Value:
        return self.loop.body.results[self.index]

    def _visit(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, For | While):
                for k, init in enumerate(op.inits):
                    if init in self.all:
                        self.all |= dict.fromkeys((carried_args(op)[k], op.body.results[k], op.results[k]))
            for inner in blocks(op):
                self._visit(inner)
            if isinstance(op, If):
                for result, sides in zip(op.results, zip(op.then.results, op.orelse.results, strict=True), strict=True):
                    if any(v in self.all for v in sides):
                        self.all |= dict.fromkeys((result, *sides))


class Dependence:
    """What a loop computes from its labels, as far as derivatives are concerned: integers and conditions are not."""

    def __init__(self, labels: Labels):
        self.loop, self.found = labels.loop, set(labels.all)
        size = 0
        while size != len(self.found):  # what is carried comes round
            size = len(self.found)
            self._carry(self.loop)
            self._visit(self.loop.body)

    def _visit(self, block: Block) -> None:
        for op in block.ops:
            for inner in blocks(op):
                self._visit(inner)
            if isinstance(op, For | While):
                self._carry(op, inits=True)
            elif isinstance(op, If):
                for result, *sides in zip(op.results, op.then.results, op.orelse.results, strict=True):
                    self._add(result, any(v in self.found for v in sides))
            else:
                for result in op.results:
                    self._add(result, any(v in self.found for v in operands(op)))

    def _carry(self, loop: For | While, inits: bool = False) -> None:
        for k, arg in enumerate(carried_args(loop)):
            sources = (loop.body.results[k], *((loop.inits[k], loop.results[k]) if inits else ()))
            if arg in self.found or any(v in self.found for v in sources):
                for value in (arg, *((loop.results[k],) if inits else ())):
                    self._add(value, True)

    def _add(self, value: Value, depends: bool) -> None:
        if depends and _is_float(value):
            self.found.add(value)

    def escapes(self) -> bool:
        """Whether more than arithmetic is done with what depends on labels."""
        for op in walk(self.loop.body):
            if any(v in self.found for v in operands(op)) and not isinstance(op, Apply | If | For | While):
                return True
        return False


class Degrees:
    """Of values in a loop. `assumed`: of what loops carry; `None`: nothing that this knows."""

    def __init__(self, labels: Labels, dependence: Dependence):
        self.labels, self.depending = labels, dependence.found
        self.definition: dict[Value, Op] = {v: op for op in walk(labels.loop.body) for v in op.results}
        self.inside = set(self.definition) | set(labels.loop.body.args)
        self.inside |= {a for op in walk(labels.loop.body) for b in blocks(op) for a in b.args}
        self.constants: dict[Value, Constant] = {}
        self.assumed: dict[Value, Degree] = {}
        self.alias: Callable[[Value], Value | None] = lambda value: None  # the label that a value stands for
        # Whether a side of a choice, besides the other, is for where nothing has been added yet.
        self.is_nothing: Callable[[Value, bool, Value], bool] = lambda cond, of_then, other: False
        self._known: dict[Value, Degree | None] = {}

    def of_loop(self) -> dict[int, Degree] | None:
        """The degrees, by the final label, of all that the loop carries beside it and that depends on it; None if one
        has none."""
        loop, index = self.labels.loop, self.labels.index
        found: dict[int, Degree] = {}
        for k, arg in enumerate(carried_args(loop)):
            if k != index and arg in self.depending:
                degree = self._carried(loop, k, index, _ANY)
                if degree is None:
                    return None
                found[k] = self._relabelled(degree, loop.body.results[index], loop.results[index])
        return found

    def _carried(self, loop: For | While, k: int, label: int, init: Degree | None) -> Degree | None:
        """The degree, by the next label, that value k has after each iteration, if it began with it."""
        if init is None:
            return None
        arg, old, new = carried_args(loop)[k], carried_args(loop)[label], loop.body.results[label]
        self._assume(arg, self._moved(init, loop.inits[label], old))
        after = self.of(loop.body.results[k])
        if after is None or (after is _ANY and init is _ANY) or not self._is_by(after, new):
            return None
        self._assume(arg, self._relabelled(after, new, old))
        again = self.of(loop.body.results[k])
        return after if again is not None and _equal(again, after) else None

    def _assume(self, arg: Value, degree: Degree) -> None:
        self.assumed[arg] = degree
        self._known.clear()

    def _is_by(self, degree: Degree, label: Value) -> bool:
        return all(key[0] is label for key in degree)

    def _relabelled(self, degree: Degree, old: Value, new: Value) -> Degree:
        return {(new if label is old else label, factors): number for (label, factors), number in degree.items()}

    # ---- values

    def of(self, value: Value) -> Degree | None:
        if value not in self._known:
            self._known[value] = self._compute(value)
        return self._known[value]

    def _compute(self, value: Value) -> Degree | None:
        if value in self.assumed:
            return self.assumed[value]
        if self.is_zero(value):
            return _ANY
        if value not in self.depending:
            return {}
        op = self.definition.get(value)
        if value in self.labels.all or op is None:
            return None
        match op:
            case Apply(fn, args):
                return self._of_apply(fn, args)
            case If():
                return self._of_if(op, value)
            case For() | While():
                return self._of_inner(op, op.results.index(value))
        return None

    def _of_apply(self, fn: str, args: tuple[Value, ...]) -> Degree | None:
        if fn in EXPONENTIALS:
            exponent = self.exponent(args[0])
            return None if exponent is None else plus({}, exponent, EXPONENTIALS[fn])
        if fn == "select":
            return _same(*self._of_sides(*args))
        if fn in _UNCHANGED:
            return self.of(args[0])
        if fn in _SUMS:
            return self._alike(*args)
        if fn in (*_PRODUCTS, "div", "fast_div"):
            return self._product(args[0], args[1], 1.0 if fn in _PRODUCTS else -1.0)
        if fn == "fma":
            product, rest = self._product(args[0], args[1], 1.0), self.of(args[2])
            return _same(product, rest)
        return None

    def _product(self, left: Value, right: Value, times: float) -> Degree | None:
        one, other = self.of(left), self.of(right)
        if one is None or other is None:
            return None
        return _ANY if one is _ANY or other is _ANY else plus(one, other, times)

    def _alike(self, left: Value, right: Value) -> Degree | None:
        return _same(self.of(left), self.of(right))

    def _of_if(self, op: If, value: Value) -> Degree | None:
        """Each side by its own label, the result by what the branch makes of both."""
        k = op.results.index(value)
        left, right = self._of_sides(op.cond, op.then.results[k], op.orelse.results[k])
        if left is None or right is None:
            return None
        for result, then, orelse in zip(op.results, op.then.results, op.orelse.results, strict=True):
            if result in self.labels.all:
                found = _same(self._moved(left, then, result), self._moved(right, orelse, result))
                if found and self._is_by(found, result):
                    return found
                found = self._of_both((left, right), (then, orelse), result)
                if found is not None:
                    return found
        return _same(left, right)

    def _of_sides(self, cond: Value, then: Value, orelse: Value) -> tuple[Degree | None, Degree | None]:
        """The degrees of both sides of a choice."""
        return (
            _ANY if self.is_nothing(cond, True, orelse) else self.of(then),
            _ANY if self.is_nothing(cond, False, then) else self.of(orelse),
        )

    def _of_both(self, sides: tuple[Degree, Degree], labels: tuple[Value, Value], result: Value) -> Degree | None:
        """A degree that is that of either side, where the branch's label is the side's: `s > m ? exp(m - s) : 1`."""
        if any(side is _ANY for side in sides):
            return None
        for side, label in zip(sides, labels, strict=True):
            found = self._relabelled(side, label, result)
            if all(_equal(_merged(found, result, own), s) for s, own in zip(sides, labels, strict=True)):
                return found
        return None

    def _moved(self, degree: Degree, old: Value, new: Value) -> Degree:
        return degree if degree is _ANY else self._relabelled(degree, old, new)

    def _of_inner(self, loop: For | While, k: int) -> Degree | None:
        label = next((i for i, v in enumerate(loop.inits) if v in self.labels.all), None)
        init = self.of(loop.inits[k])
        if label is None:  # the label is the same in all of its iterations
            return self._steady(loop, k, init)
        degree = self._carried(loop, k, label, init)
        return None if degree is None else self._relabelled(degree, loop.body.results[label], loop.results[label])

    def _steady(self, loop: For | While, k: int, init: Degree | None) -> Degree | None:
        if init is None:
            return None
        arg = carried_args(loop)[k]
        self._assume(arg, init)
        after = self.of(loop.body.results[k])
        if init is _ANY and after is not None:
            self._assume(arg, after)
            return _same(after, self.of(loop.body.results[k]))
        return None if after is None else _same(init, after)

    # ---- exponents

    def exponent(self, value: Value) -> Degree | None:
        """The labels that a sum is made of, each times what; {} where there are none."""
        if value in self.labels.all:
            return {(value, ()): 1.0}
        if (label := self.alias(value)) is not None:
            return {(label, ()): 1.0}
        if value not in self.depending:
            return {}
        op = self.definition.get(value)
        if not isinstance(op, Apply):
            return None
        parts = [self.exponent(arg) for arg in op.args]
        if any(part is None for part in parts):
            return None
        found = [part for part in parts if part is not None]
        match op.fn:
            case "add" | "sub" | "add_rn" | "sub_rn":
                return plus(found[0], found[1], 1.0 if op.fn.startswith("add") else -1.0)
            case "neg":
                return plus({}, found[0], -1.0)
            case "convert":
                return found[0]
            case "mul" | "mul_rn":
                return self._scaled(op.args[0], op.args[1], found)
            case "fma":
                product = self._scaled(op.args[0], op.args[1], found)
                return None if product is None else plus(product, found[2])
        return None

    def _scaled(self, left: Value, right: Value, parts: list[Degree]) -> Degree | None:
        factor, part = (left, parts[1]) if not parts[0] else (right, parts[0])
        if parts[0] and parts[1]:
            return None
        if not part:
            return {}
        constant = self.number(factor)
        if constant is not None:
            return {key: number * constant for key, number in part.items() if constant}
        if factor in self.inside:
            return None
        return {(label, tuple(sorted((*fs, factor), key=id))): number for (label, fs), number in part.items()}

    def number(self, value: Value) -> float | None:
        op = self.definition.get(value) or self.constants.get(value)
        return float(op.value) if isinstance(op, Constant) else None

    def is_zero(self, value: Value) -> bool:
        return self.number(value) == 0.0


def _merged(degree: Degree, old: Value, new: Value) -> Degree:
    """With a label for another, that may be there, too."""
    moved = {key: number for key, number in degree.items() if key[0] is old}
    rest = {key: number for key, number in degree.items() if key[0] is not old}
    return plus(rest, {(new, factors): number for (_, factors), number in moved.items()})


def _same(one: Degree | None, other: Degree | None) -> Degree | None:
    if one is None or other is None:
        return None
    if one is _ANY or other is _ANY:
        return other if one is _ANY else one
    return one if _equal(one, other) else None


def _equal(one: Degree, other: Degree) -> bool:
    return one.keys() == other.keys() and all(math.isclose(one[k], other[k], rel_tol=1e-6) for k in one)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float
