"""The plan: for every forward value that the reverse sweep needs, where it gets it.

- still in scope (the function's own block, and the last If's branches): use it;
- recomputed: entering the reverse of a block, the pure slice of its forward that its reverse needs is run again;
- exported: a value of a branch outside loops that cannot be recomputed becomes a result of its If;
- taped: in loops, what is carried from iteration to iteration, and what cannot be recomputed, or what is computed from
  these, where that is smaller (`min_cut`).

A loop inside another loop is *rerun* where that is possible: its carried values are not taped by the forward sweep, but
by a second run of the loop just before it is reversed. So the tape holds one level of iterations at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...analysis.structure import Structure
from ...ir.ops import For, Op, Value, While

if TYPE_CHECKING:
    from ...analysis.induction import Induction
    from ...analysis.tiles import Tile


@dataclass
class Plan:
    structure: Structure
    needed: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> values its reverse needs, in order
    taped: dict[int, dict[Value, None]] = field(default_factory=dict)  # block -> its frame on the tape
    exported: dict[int, dict[Value, Value]] = field(default_factory=dict)  # block -> value -> result of its If
    rerun: set[int] = field(default_factory=set)  # loops run again before their reverse
    counts: dict[int, Value] = field(default_factory=dict)  # While -> its number of iterations, a value of its block
    reversed_ops: set[int] = field(default_factory=set)  # operations that have an adjoint
    silent: frozenset[int] = frozenset()  # operations that the forward sweep leaves out
    inductions: dict[Value, Induction] = field(default_factory=dict)  # loop arguments known in every iteration
    choices: dict[Value, Value] = field(default_factory=dict)  # of maxima and minima that are kept, by their results
    refilled: dict[int, list[Tile]] = field(default_factory=dict)  # block -> tiles filled again before its reverse
    lost: dict[Value, None] = field(default_factory=dict)  # what adjoints need, or come from, and cannot be had again
    instead: dict[Value, None] = field(default_factory=dict)  # taped to save bytes, though it could be recomputed
    is_sound: bool = True  # nothing is kept that is something else in the reverse (see `in_reverse`)
    # What of an operation must run to get some of its values again: nothing else of it may, since that could read what
    # was overwritten since and, with it, read out of bounds or loop forever.
    slice_of: Callable[..., set[Value]] = lambda values, op, inner=frozenset(): set()
    wanted_of: Callable[[For | While], list[Value]] = lambda loop: []  # what the reverse of a loop may need from inside

    def has_adjoint(self, op: Op) -> bool:
        return id(op) in self.reversed_ops
