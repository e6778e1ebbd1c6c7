"""How a function is nested: which block defines a value, which operation a block belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..ir.ops import Block, For, Function, If, Op, Value, While
from ..ir.traverse import blocks

Kind = Literal["top", "joint", "branch", "loop", "inner"]


@dataclass
class Place:
    """A block: the operation it belongs to, the block around that, and what its reverse can see of its forward.

    top: the function's body, whose values are still in scope in the reverse sweep. joint: a branch of an If at the very
    end, whose reverse follows its forward in the same branch. branch: another branch outside loops. loop: a loop's
    body. inner: a branch inside a loop.

    Where forward and reverse are apart (two launches, or a reverse alone), the body counts as a loop of one iteration.
    """

    block: Block
    kind: Kind
    owner: Op | None = None
    parent: Place | None = None

    @property
    def in_scope(self) -> bool:
        return self.kind in ("top", "joint")

    @property
    def in_loop(self) -> bool:
        return self.kind in ("loop", "inner")

    def around(self) -> Iterator[Place]:
        """The block itself and those around it."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.parent


@dataclass
class Structure:
    top: Place
    launch: Place
    places: dict[int, Place] = field(default_factory=dict)  # by id of the block
    home: dict[Value, Place] = field(default_factory=dict)
    definition: dict[Value, Op] = field(default_factory=dict)  # absent for block arguments and parameters
    around: dict[int, Place] = field(default_factory=dict)  # where an operation with regions stands

    def place(self, block: Block) -> Place:
        return self.places[id(block)]

    def place_of(self, op: Op) -> Place:
        """Where an operation that has regions stands."""
        return self.around[id(op)]

    def is_inside(self, value: Value, op: Op) -> bool:
        """Whether a value is defined in a region of the operation."""
        place: Place | None = self.home[value]
        while place is not None:
            if place.owner is op:
                return True
            place = place.parent
        return False

    def argument_sources(self, arg: Value) -> list[Value]:
        """What a loop's argument comes from; a parameter comes from nowhere."""
        place = self.home[arg]
        owner, block = place.owner, place.block
        if owner is None:
            return []
        if isinstance(owner, For):
            if arg is block.args[0]:
                return [owner.lower]
            k = block.args.index(arg) - 1
            return [owner.inits[k], block.results[k], owner.lower, owner.upper]
        assert isinstance(owner, While)
        if block is owner.before:
            return list(owner.inits)
        k = block.args.index(arg)
        return [owner.inits[k], block.results[k], block.results[0]]


def analyse(function: Function, apart: bool) -> Structure:
    launch = Place(Block((), (), ()), "top")  # where the parameters are: in scope in every sweep
    top = Place(function.body, "loop", parent=launch) if apart else Place(function.body, "top", parent=launch)
    structure = Structure(top, launch)
    for param in function.params:
        structure.home[param.value] = launch
    _visit(top, structure)
    return structure


def _visit(place: Place, structure: Structure) -> None:
    block = place.block
    structure.places[id(block)] = place
    for arg in block.args:
        structure.home[arg] = place
    for k, op in enumerate(block.ops):
        for result in op.results:
            structure.home[result] = place
            structure.definition[result] = op
        if blocks(op):
            structure.around[id(op)] = place
        last = k == len(block.ops) - 1
        for inner in blocks(op):
            _visit(Place(inner, _kind(op, place, last), op, place), structure)


def _kind(op: Op, around: Place, last: bool) -> Kind:
    if isinstance(op, For | While):
        return "loop"
    assert isinstance(op, If)
    if around.in_loop:
        return "inner"
    joint = last and around.in_scope and not op.results
    return "joint" if joint else "branch"


def is_rotated(loop: While) -> bool:
    """Whether the condition is a carried bool and all work is in the body (see `rotate`)."""
    return not loop.before.ops and loop.before.results == (loop.before.args[:1] + loop.before.args)


def carried_as(loop: For | While, position: int) -> int | None:
    """Which of the values that a loop carries an argument of its body is; none, if it is computed before the body."""
    if isinstance(loop, For):
        return position - 1
    forwarded, carried = loop.before.results[position + 1], loop.before.args
    return carried.index(forwarded) if forwarded in carried else None
