"""Plans that a launch cannot carry out."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import UNKNOWN, UnsupportedError
from ...ir.ops import Value
from ..structure import Place, Structure
from .plan import Plan


def refuse_tape(plan: Plan, structure: Structure) -> None:
    """A reverse alone has no forward sweep to tape anything: what it needs must be there or be recomputed (rule 6)."""
    for key, frame in plan.taped.items():
        place: Place | None = structure.places[key]
        while place is not None and not (place.owner is not None and id(place.owner) in plan.rerun):
            place = place.parent
        if place is None and frame:
            value = next(iter(frame))
            op = structure.definition.get(value)
            what = f"'{value.name}'" if value.name else "a value"
            raise UnsupportedError(
                f"with primal=False the reverse cannot get {what} again: the kernel overwrites what it came from",
                op.span if op is not None else UNKNOWN,
                "use kernelgrad.split, which keeps it between the forward and the reverse launch",
            )


def refuse_shadow_pointers(plan: Plan, structure: Structure, shadows: Iterable[Value]) -> None:
    """The forward launch of a split knows no shadows, so pointers into them cannot go on its tape."""
    known = set(shadows)
    for key, frame in plan.taped.items():
        for value in frame:
            if value in known:
                owner = structure.places[key].owner
                raise UnsupportedError(
                    f"split: the pointer '{(value.name or '').removeprefix('_d_')}' changes inside a loop",
                    owner.span if owner is not None else UNKNOWN,
                    "use kernelgrad.gradient, which runs forward and reverse in one launch",
                )
