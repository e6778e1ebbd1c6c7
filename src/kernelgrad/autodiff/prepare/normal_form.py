"""The forms of a kernel that are reversed: what reversal does not know is rewritten, short loops are unrolled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...analysis.structure import Place
from ...errors import Span
from ...ir.effects import has_barrier
from ...ir.ops import For, Function, Module, While
from ...ir.traverse import walk
from ...transforms import cas_loops, converge, invariant, local_arrays, predicate, promote, rotate, simplify
from ...transforms.block_shape import is_short, with_shape
from ...transforms.unroll import constants_of, unroll
from ..accumulate.parameters import is_number
from ..calculus import cooperate
from ..refusals.passing import refuse_waiting

if TYPE_CHECKING:
    from .options import Options


def in_form(function: Function, module: Module, options: Options) -> Function:
    """The function in the form that reversal knows."""
    cooperate.check(function)
    function = local_arrays.run(cas_loops.run(function, module), module)
    if options.facts.block is not None:
        function = with_shape(function, module, options.facts.block, options.mode == "reverse")
    refuse_waiting(function)
    meets_at_end = not options.facts.alone and any(is_number(p) for p in function.params if p.name in options.listed)
    # What is logged at a barrier of the block belongs to all of its threads (see `logs`): none may be gone.
    meets_at_end = meets_at_end or (options.deterministic and any(map(has_barrier, function.body.ops)))
    if predicate.is_needed(function, meets_at_end):
        # The body of a do-while loop is its condition, barriers included, until the loop is rotated.
        function = simplify.run(predicate.run(rotate.run(function, module), module), module)
    function = rotate.run(invariant.run(function, module), module)
    return converge.run(function, module, whole_rows=not options.facts.ragged)


def short_loops(function: Function, taped: Iterable[Place]) -> frozenset[Span]:
    """Loops of constant length that would need a tape, and unrolled need none."""
    constants = constants_of(function)
    short = {op.span for op in walk(function.body) if isinstance(op, For | While) and is_short(op, constants)}
    owners = {place.owner for place in taped}
    return frozenset(loop.span for loop in owners if isinstance(loop, For | While) and loop.span in short)


def unrolled(function: Function, module: Module, chosen: frozenset[Span]) -> Function:
    constants = constants_of(function)
    unrolled = unroll(function, lambda loop: loop.span in chosen and is_short(loop, constants))
    # Simplification drops what a loop carries in vain, its condition too: hence rotated again.
    promoted = promote.run(unrolled, module)  # arrays whose indices are constants now
    return rotate.run(simplify.run(promoted, module), module)
