"""What is said of a second derivative: in its text and in `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from .code import Slot
from .second_order import SecondOrder

_BECOMES = {
    "adjoint": "the adjoint of {of}, as of kg.gradient",
    "tangent": "the direction of {of}, which becomes its tangent",
    "second": "the tangent of {of}'s adjoint: the second derivative",
}


def notes(made: SecondOrder) -> Iterator[str]:
    """One line for each argument after the kernel's own."""
    yield f"{made.style.what}: the tangent of the gradient, in one kernel. Hessians are symmetric, so that"
    names = made.usual.names
    for slot in made.slots:
        yield f"  {_named(slot, names[slot])} is {_BECOMES[slot.role].format(of=slot.of)}{_treated(slot)}."
    for slot in made.usual.zeros:
        yield f"  {names[slot]} is as large as {slot.of} and starts as zeros: the first derivative, made on the way."
    for name, tangent in made.usual.tangent.tangents.items():
        yield f"  {tangent.replace('__', '_')} is as large as {name} and starts as zeros: its tangent."


def _named(slot: Slot, name: str) -> str:
    return slot.name if name == slot.name else f"{slot.name} ({name})"


def _treated(slot: Slot) -> str:
    return ", and is left as it is" if slot.spared else ", and is written" if slot.cleared else ""
