"""How many elements of a tape a thread needs, in words of the source: over its arguments and the launch."""

from __future__ import annotations

from collections import Counter

from ...analysis.structure import Place, Structure
from ...ir.ops import Apply, Builtin, Constant, For, Value, While
from ...ir.types import Scalar, Type
from ..calculus.tape import leaf_types
from ..saving.plan import Plan
from ..saving.tape_capacity import loops_around

_Sum = Counter[str]  # coefficients of symbols; of "": the constant
_EXTENTS = {"block_dim": "blockDim", "grid_dim": "gridDim"}


def elements_per_thread(plan: Plan, type: Type) -> str:
    """A sum over what is taped: how often the loops around it run."""
    terms: Counter[str] = Counter()
    for key, frame in plan.taped.items():
        count = sum(leaf_types(value.type).count(type) for value in frame)
        if count:
            terms[_times(plan.structure.places[key], plan)] += count
    return " + ".join(_multiple(count, text) for text, count in terms.items()) or "1"


def _multiple(count: int, text: str) -> str:
    if text == "1":
        return str(count)
    return text if count == 1 else f"{count} * {text}"


def _times(place: Place, plan: Plan) -> str:
    """How many frames of a block are on the tape at once."""
    found = [_trips(loop, plan.structure) for loop in loops_around(place, plan)]
    return " * ".join(reversed(found)) or "1"


def _trips(loop: For | While, structure: Structure) -> str:
    counted = _counted(loop, structure) if isinstance(loop, For) else None
    return counted or f"(trips of the loop at {loop.span.source.short_name}:{loop.span.line})"


def _counted(loop: For, structure: Structure) -> str | None:
    lower, upper = _sum(loop.lower, structure), _sum(loop.upper, structure)
    if lower is None or upper is None:
        return None
    first, end = (lower, upper) if loop.step > 0 else (upper, lower)
    distance, step = _text(_added(end, first, -1)), abs(loop.step)
    if distance.isdigit():
        return str(-(-int(distance) // step))
    return f"max({distance}, 0)" if step == 1 else f"(max({distance}, 0) + {step - 1}) / {step}"


def _sum(value: Value, structure: Structure) -> _Sum | None:
    """An integer as a sum of arguments and extents with coefficients; None where it is none."""
    match structure.definition.get(value):
        case None:
            given = isinstance(value.type, Scalar) and structure.home[value] is structure.launch
            return Counter({value.name: 1}) if given and value.name else None
        case Constant(number):
            return Counter({"": int(number)})
        case Builtin(name, axis) if name in _EXTENTS:
            return Counter({f"{_EXTENTS[name]}.{'xyz'[axis]}": 1})
        case Apply("convert", (source,)):
            return _sum(source, structure)
        case Apply("add" | "sub" as fn, (left, right)):
            one, other = _sum(left, structure), _sum(right, structure)
            return None if one is None or other is None else _added(one, other, 1 if fn == "add" else -1)
        case Apply("mul", (left, right)):
            return _product(_sum(left, structure), _sum(right, structure))
        case _:
            return None


def _added(one: _Sum, other: _Sum, sign: int) -> _Sum:
    return Counter({key: one[key] + sign * other[key] for key in (*one, *other)})


def _product(one: _Sum | None, other: _Sum | None) -> _Sum | None:
    if one is None or other is None:
        return None
    return Counter({" * ".join(filter(None, (a, b))): one[a] * other[b] for a in one for b in other})


def _text(total: _Sum) -> str:
    parts = [_term(key, number) for key, number in total.items() if number and key]
    constant = total[""]
    text = " + ".join(parts).replace("+ -", "- ")
    if not text:
        return str(constant)
    return text if not constant else f"{text} {'-' if constant < 0 else '+'} {abs(constant)}"


def _term(key: str, number: int) -> str:
    return key if number == 1 else f"-{key}" if number == -1 else f"{number} * {key}"
