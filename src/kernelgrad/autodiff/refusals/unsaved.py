"""Refuses plans of a reverse alone (`primal=False`) that would need a tape, which only a forward sweep fills."""

from __future__ import annotations

from collections.abc import Iterable

from ...analysis.ownership.loads_before_stores import Before
from ...analysis.structure import Place, Structure
from ...errors import UNKNOWN, Span, UnsupportedError
from ...ir.ops import Load, Value, While
from ...ir.traverse import walk
from ..saving.plan import Plan
from ..saving.recompute import dependencies


def refuse_tape(plan: Plan, structure: Structure, before: Before, ever: bool = True) -> None:
    """A reverse alone has no forward sweep to tape anything: what it needs must be there or be recomputed (rule 6).
    `ever`: in any launch, not only in the one that is asked for."""
    for key, frame in plan.taped.items():
        place: Place | None = structure.places[key]
        while place is not None and not (place.owner is not None and id(place.owner) in plan.rerun):
            place = place.parent
        if place is None and frame:
            value = next(iter(frame))
            what = f"'{value.shown}'" if value.shown else "a value"
            raise UnsupportedError(
                f"with primal=False the reverse cannot get {what} again: the kernel {_OVERWRITES[ever]}",
                _lost_at(value, plan, structure, before),
                "use kernelgrad.split, which keeps it between the forward and the reverse launch",
            )


_OVERWRITES = {
    True: "overwrites what it came from",
    False: "may overwrite what it came from, since rows may overlap or repeat in a launch like this",
}


def _lost_at(value: Value, plan: Plan, structure: Structure, before: Before) -> Span:
    """The store that something a value comes from was loaded after; else where the value is computed."""
    loops = (op for op in walk(structure.top.block) if isinstance(op, While) and plan.counts.get(id(op)) is value)
    todo = next(([op.inits[0], op.body.results[0]] for op in loops), [value])  # what decides how often one runs
    seen = set[Value]()
    while todo:
        found = todo.pop()
        if found in seen:
            continue
        seen.add(found)
        op = structure.definition.get(found)
        store = before.store_before(op) if isinstance(op, Load) else None
        if store is not None:
            return store.span
        todo += structure.argument_sources(found) if op is None else dependencies(op, found)
    op = structure.definition.get(value)
    return op.span if op is not None else _first_overwritten(before)


def _first_overwritten(before: Before) -> Span:
    """A store that something was loaded after."""
    return next((op.span for op in map(before.store_before, before.memory.loads) if op is not None), UNKNOWN)


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
