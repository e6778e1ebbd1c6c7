"""Which values to keep, so that the tape is small: a minimum cut.

What the adjoints need is computed, in steps, from what cannot be had again: what a loop carries, what memory held
before it was overwritten. To keep any set of values that lies on every way from one to the other is enough.

    s = s1 + s2 + s3; e = exp(s); ... needs e alone: keeps e          needs exp(s), sin(s), s * s: keeps s

So each value is an edge as wide as it has bytes, times the iterations of the loops around it. Of cuts that are equally
narrow, it is the one behind which there is less to compute again, and of these the one nearest to what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...analysis.roots import holds_pointers
from ...analysis.structure import Place, Structure
from ...ir.ops import Constant, For, Value, While
from ..calculus.tape import leaf_types
from .costs import effort
from .max_flow import Network
from .plan import Plan

Inputs = Mapping[Value, tuple[Value, ...] | None]

_TRIPS = 16  # of a loop of which nothing is known
_LOST, _NEEDED = "lost", "needed"


def smaller(
    plan: Plan,
    inputs_of: Inputs,
    asked: Collection[Value],
    replan: Callable[[Collection[Value]], Plan],
    altered: Collection[Value] = (),
) -> Plan:
    """The plan, or a better one that keeps other values. `inputs_of`: from what those that it needs are computed; of
    those that must be kept, None. `altered`: what must not be kept."""
    if not any(plan.taped.values()):
        return plan
    saved = narrowest(plan.structure, inputs_of, asked, altered)
    if all(inputs_of[value] is None for value in saved):
        return plan
    other = replan(saved)
    if _cost(other) >= _cost(plan):
        return plan
    taped = {value for frame in other.taped.values() for value in frame}
    other.instead = {value: None for value in saved if value in taped and inputs_of[value] is not None}
    return other


def narrowest(
    structure: Structure, inputs_of: Inputs, asked: Collection[Value], altered: Collection[Value] = ()
) -> dict[Value, None]:
    """The values of a minimum cut."""
    efforts = {v: effort(structure.definition.get(v)) * _times(v, structure) for v in inputs_of}
    unit = 1 + sum(efforts.values())  # so that no effort is worth a byte
    widths = {v: _bytes(v) * _times(v, structure) * unit for v in inputs_of}
    endless = unit + sum(widths.values())
    network = Network()
    for value, inputs in inputs_of.items():
        # In at the front, out at the back: what is between them is kept.
        front, back = (value, 0), (value, 1)
        can_keep = value not in altered and _can_keep(value, structure)
        network.add(front, back, widths[value] if inputs is None or can_keep else endless)
        network.add(_LOST, front, endless if inputs is None else efforts[value])
        if value in asked:
            network.add(back, _NEEDED, endless)
        for found in inputs or ():
            if found in inputs_of:
                network.add((found, 1), front, endless)
    lost = network.source_side(_LOST, _NEEDED)
    return {v: None for v in inputs_of if (v, 0) in lost and (v, 1) not in lost}


def _can_keep(value: Value, structure: Structure) -> bool:
    """Pointers are no part of a tape that another launch reads; outside loops there is no tape."""
    return structure.home[value].in_loop and not holds_pointers(value.type)


def _cost(plan: Plan) -> tuple[int, int]:
    """Bytes on the tape, and what there is to compute again."""
    structure = plan.structure
    taped = {v for frame in plan.taped.values() for v in frame}
    again = (v for values in plan.needed.values() for v in values if v not in taped)
    efforts = (effort(structure.definition.get(v)) * _times(v, structure) for v in again)
    return sum(_bytes(v) * _times(v, structure) for v in taped), sum(efforts)


def _bytes(value: Value) -> int:
    return sum(type.size for type in leaf_types(value.type))


def _times(value: Value, structure: Structure) -> int:
    """How often it is computed."""
    times = 1
    place: Place | None = structure.home[value]
    while place is not None:
        if isinstance(place.owner, For | While):
            times *= _trips(place.owner, structure)
        place = place.parent
    return times


def _trips(loop: For | While, structure: Structure) -> int:
    if isinstance(loop, While):
        return _TRIPS
    lower, upper = (structure.definition.get(v) for v in (loop.lower, loop.upper))
    if not (isinstance(lower, Constant) and isinstance(upper, Constant)):
        return _TRIPS
    return max(1, len(range(int(lower.value), int(upper.value), loop.step)))
