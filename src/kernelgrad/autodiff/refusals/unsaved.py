"""Plans of a reverse alone (`primal=False`) that would need a tape, which only a forward sweep fills, are refused, and
those of two launches that would need pointers on the tape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from ...analysis.ownership.loads_before_stores import Before
from ...analysis.roots import UNKNOWN as ANYWHERE
from ...analysis.roots import Roots, holds_pointers
from ...analysis.structure import Place, Structure
from ...errors import UNKNOWN, Span, UnsupportedError
from ...ir.ops import Load, Op, Value, While
from ...ir.traverse import walk
from ..saving.plan import Plan, Task, make_plan
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


def split_plan(task: Task, shadows: Iterable[Value], altered: Roots) -> Plan:
    """Without pointers on the tape that mean nothing to another launch: what is read through them is kept instead.
    `altered`: memory that may hold something else then, or lie elsewhere."""
    memory, known = task.memory, set(shadows)
    lasting = memory.lasting() - altered
    if not memory.escaped <= lasting:
        lasting -= {ANYWHERE}
    while True:
        plan = make_plan(task)
        pointers = [(v, key) for key, frame in plan.taped.items() for v in frame if holds_pointers(v.type)]
        lost = [(v, key) for v, key in pointers if v in known or not memory.of(v) <= lasting]
        roots = frozenset[Value]().union(*(memory.of(v) - lasting for v, _ in lost if v not in known))
        if roots <= task.changing:
            for value, key in lost:
                _refuse_pointer(value, task.structure.places[key].owner)
            return plan
        task = replace(task, changing=task.changing | roots)


def _refuse_pointer(value: Value, owner: Op | None) -> NoReturn:
    """The forward launch of a split knows no shadows; a thread's own memory, and a block's, are gone after it; what may
    change is read from a copy."""
    raise UnsupportedError(
        f"split: the pointer '{(value.name or '').removeprefix('_d_')}' changes inside a loop",
        owner.span if owner is not None else UNKNOWN,
        "use kernelgrad.gradient, which runs forward and reverse in one launch",
    )
