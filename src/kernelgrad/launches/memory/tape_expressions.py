"""How many elements of a tape a thread needs, as expressions over the arguments and the launch: for launches that are
not there yet. Of one that is, `autodiff/saving/tape_capacity` finds the number."""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.fold import evaluate
from ...analysis.structure import Structure
from ...autodiff.calculus.tape import leaf_types
from ...autodiff.saving.plan import Plan
from ...autodiff.saving.tape_capacity import loops_around
from ...ir.ops import Apply, Builtin, Constant, For, Value
from ...ir.types import Scalar, Type
from .buffers import Expression, Extent, Number, Sized


@dataclass(frozen=True)
class Argument(Expression):
    """An integer argument of the kernel."""

    name: str
    type: Scalar

    def value(self, at: Sized) -> int:
        return at.integers[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal(Expression):
    """A constant of the source, in its own type."""

    number: int
    type: Scalar

    def value(self, at: Sized) -> int:
        return self.number

    def __str__(self) -> str:
        return str(self.number)


@dataclass(frozen=True)
class Computed(Expression):
    """What the kernel computes from integers, in the types that it does so in. `fn`: a row of `ir/functions`."""

    fn: str
    args: tuple[Typed, ...]
    type: Scalar

    def value(self, at: Sized) -> int:
        types = tuple(arg.type for arg in self.args)
        found = evaluate(self.fn, tuple(arg.value(at) for arg in self.args), types, self.type)
        assert found is not None, f"{self} has no value"
        return int(found)

    def __str__(self) -> str:
        return f"{self.fn}({', '.join(map(str, self.args))})"


Typed = Argument | Extent | Literal | Computed


@dataclass(frozen=True)
class Trips(Expression):
    """How often a counted loop runs."""

    lower: Typed
    upper: Typed
    step: int

    def value(self, at: Sized) -> int:
        return len(range(self.lower.value(at), self.upper.value(at), self.step))

    def __str__(self) -> str:
        return f"trips({self.lower}, {self.upper}, {self.step})"


def tape_elements(plan: Plan) -> dict[Type, Expression] | None:
    """Of each stack, per thread; None where a trip count is no such expression, so that a launch must count."""
    found: dict[Type, Expression] = {}
    for key, frame in plan.taped.items():
        types = [type for value in frame for type in leaf_types(value.type)]
        times = _executions(plan, key) if types else None
        if types and times is None:
            return None
        for type in types:
            assert times is not None
            found[type] = found[type] + times if type in found else times
    return {type: total.at_least(1) for type, total in found.items()}


def _executions(plan: Plan, key: int) -> Expression | None:
    """How many frames of a block can be on the tape at once."""
    times: Expression | None = None
    for loop in loops_around(plan.structure.places[key], plan):
        trips = _trips(loop, plan.structure) if isinstance(loop, For) else None
        if trips is None:
            return None
        times = trips if times is None else trips * times
    return Number(1) if times is None else times


def _trips(loop: For, structure: Structure) -> Expression | None:
    lower, upper = _integer(loop.lower, structure), _integer(loop.upper, structure)
    if lower is None or upper is None:
        return None
    if isinstance(lower, Literal) and isinstance(upper, Literal):
        return Number(len(range(lower.number, upper.number, loop.step)))
    return Trips(lower, upper, loop.step)


_PLAIN = frozenset("add sub mul neg min max and or xor not lt le gt ge eq ne select".split())
_DIVIDING = frozenset(("div", "rem"))
_SHIFTING = frozenset(("shl", "shr"))
_EXTENTS = {"block_dim": "block", "grid_dim": "grid"}


def _integer(value: Value, structure: Structure) -> Typed | None:
    """None for what is more than integer arithmetic, or may fail."""
    if not isinstance(value.type, Scalar) or value.type.is_float:
        return None
    match structure.definition.get(value):
        case None:
            given = structure.home[value] is structure.launch and value.name
            return Argument(value.name or "", value.type) if given else None
        case Constant(number):
            return Literal(int(number), value.type)
        case Builtin(name, axis) if name in _EXTENTS:
            return Extent(_EXTENTS[name], axis)
        case Apply(fn, args):
            found = [_integer(arg, structure) for arg in args]
            whole = tuple(arg for arg in found if arg is not None)
            safe = len(whole) == len(found) and _cannot_fail(fn, whole, value.type)
            return Computed(fn, whole, value.type) if safe else None
    return None


def _cannot_fail(fn: str, args: tuple[Typed, ...], type: Scalar) -> bool:
    """On the host as on the device: it divides by what is positive, and shifts by less than the width."""
    if fn in _PLAIN or fn == "convert":
        return True
    second = args[1] if len(args) > 1 else None
    if fn in _DIVIDING:
        return isinstance(second, Extent) or (isinstance(second, Literal) and second.number > 0)
    return fn in _SHIFTING and isinstance(second, Literal) and 0 <= second.number < type.bits
