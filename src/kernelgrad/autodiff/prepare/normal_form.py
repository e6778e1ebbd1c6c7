"""The forms of a kernel that are reversed: what reversal does not know is rewritten, short loops are unrolled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...analysis.structure import Place
from ...errors import Span, UnsupportedError
from ...ir.ops import (
    Alloca,
    Atomic,
    Barrier,
    BarrierReduce,
    Fence,
    For,
    Function,
    GlobalRef,
    Leave,
    Load,
    Member,
    Module,
    PtrCast,
    Store,
    Warp,
    While,
)
from ...ir.traverse import kinds, walk
from ...transforms import simplify
from ...transforms.passes import TIES, Pass, applied
from ..accumulate.parameters import is_number

if TYPE_CHECKING:
    from .options import Options


_CAS_LOOPS = Pass("cas_loops", "transforms.cas_loops", (Atomic,))
_BIT_MOVES = Pass("bit_moves", "transforms.bit_moves", (PtrCast, Member, "bitcast"))
_LOCAL_ARRAYS = Pass("local_arrays", "transforms.local_arrays", (Alloca, GlobalRef))
_LOADS = Pass("loads", "transforms.loads:with_arguments_apart", (Load,))
_LOOP_REGISTERS = Pass("loop_registers", "transforms.loop_registers", (For, While))
_REREADS = Pass("rereads", "transforms.rereads", (For,))
_STORED_VALUES = Pass("stored_values", "transforms.stored_values", (For, While, Barrier))
_ROTATE = Pass("rotate", "transforms.rotate", (While,))
_LOOP_ENDS = Pass("loop_ends", "transforms.loop_ends", (While,))
_INVARIANT = Pass("invariant", "transforms.invariant", (For, While))


def in_form(function: Function, module: Module, options: Options) -> Function:
    """The function in the form that reversal knows."""
    facts = options.facts
    refuse_fences(function)
    function = applied(TIES, function, module)
    if not options.may_alias:
        function = applied(_LOOP_REGISTERS, applied(_LOADS, function, module), module)
    if not options.may_alias and options.mode != "split" and {Load, Store} <= kinds(function.body):
        function = applied(_STORED_VALUES, function, module)
    if any(isinstance(op, Load | Store) and op.volatile for op in walk(function.body)):
        volatile = Pass("volatile", "transforms.volatile_accesses", (), (not facts.ragged,))
        function = applied(volatile, function, module)
    function = applied(_BIT_MOVES, function, module)
    if facts.passed:
        function = applied(Pass("decided", "transforms.decided", (), (facts.passed,)), function, module)
    if facts.columns:
        columns = Pass("thread_columns", "transforms.thread_columns", (), (facts.columns,))
        function = applied(columns, function, module)
    function = applied(_LOCAL_ARRAYS, applied(_CAS_LOOPS, function, module), module)
    if not options.may_alias:
        function = applied(_REREADS, function, module)
    if facts.block is not None:
        shape = Pass("shape", "transforms.block_shape:with_shape", (), (facts.block, options.mode == "reverse"))
        function = applied(shape, function, module)
    if While in kinds(function.body):
        from ..refusals.passing import refuse_waiting

        refuse_waiting(function)
    function = _predicated(function, module, options)
    function = applied(_ROTATE, applied(_INVARIANT, function, module), module)
    function = applied(_LOOP_ENDS, function, module)
    return applied(Pass("converge", "transforms.converge", (Warp, Barrier), (not facts.ragged,)), function, module)


def refuse_fences(function: Function) -> None:
    """Refuses cooperation that has no reverse here."""
    for op in walk(function.body):
        if isinstance(op, Fence) and op.scope != "block":
            reason = "a fence passes values between blocks inside one launch: that has no gradient"
            raise UnsupportedError(reason, op.span, "use two launches")


def _predicated(function: Function, module: Module, options: Options) -> Function:
    """With early returns as predicates, where threads that return would have to come back."""
    if kinds(function.body).isdisjoint((Leave, Barrier, BarrierReduce, Warp)):
        return function
    from ...ir.effects import has_barrier
    from ...transforms import predicate, rotate

    facts = options.facts
    numbers = any(is_number(p) for p in function.params if p.name in options.listed)
    meets_at_end = numbers and not (facts.alone or facts.inlined)
    meets_at_end = meets_at_end or bool(facts.cells)
    # What is logged at a barrier of the block belongs to all of its threads (see `logs`): none may be gone.
    meets_at_end = meets_at_end or (options.deterministic and any(map(has_barrier, function.body.ops)))
    if not predicate.is_needed(function, meets_at_end):
        return function
    # The body of a do-while loop is its condition, barriers included, until the loop is rotated.
    return simplify.run(predicate.run(rotate.run(function, module), module), module)


def short_loops(function: Function, taped: Iterable[Place]) -> frozenset[Span]:
    """Loops of constant length that would need a tape, and unrolled need none."""
    from ...transforms.block_shape import is_short
    from ...transforms.unroll import constants_of

    constants = constants_of(function)
    short = {op.span for op in walk(function.body) if isinstance(op, For | While) and is_short(op, constants)}
    owners = {place.owner for place in taped}
    return frozenset(loop.span for loop in owners if isinstance(loop, For | While) and loop.span in short)


def unrolled(function: Function, module: Module, chosen: frozenset[Span]) -> Function:
    from ...transforms import promote, rotate
    from ...transforms.block_shape import is_short
    from ...transforms.unroll import constants_of, unroll

    constants = constants_of(function)
    unrolled = unroll(function, lambda loop: loop.span in chosen and is_short(loop, constants))
    # Simplification drops what a loop carries in vain, its condition too: hence rotated again.
    promoted = promote.run(unrolled, module)  # arrays whose indices are constants now
    return rotate.run(simplify.run(promoted, module), module)
