"""Small inputs whose adjoints a CPU adds up in registers (Note [Totals] in backends/cpu/totals.py): copies of them
would only get in the way."""

from __future__ import annotations

from ..ir.ops import For
from ..transforms.unroll import constants_of, trips
from .private import places_of
from .reverse import Prepared
from .structure import Place

_MOST_TRIPS = 32


def sums_in_registers(name: str, prepared: Prepared) -> bool:
    """Whether all threads read the same elements of it, in loops of few iterations at most."""
    root = next(p.value for p in prepared.function.params if p.name == name)
    constants, places = constants_of(prepared.function), places_of(prepared.structure)

    def is_short(place: Place | None) -> bool:
        if place is None:
            return True
        count = trips(place.owner, constants) if isinstance(place.owner, For) else 0
        return count is not None and count <= _MOST_TRIPS and is_short(place.parent)

    reads = [op for op in prepared.memory.loads if root in prepared.memory.of(op.ptr) and prepared.plan.has_adjoint(op)]
    return all(id(op) in prepared.accumulation.together and is_short(places[id(op)]) for op in reads)
