"""Trees over shared memory, in reverse: sums that all threads would pass on, level by level, to all others.

The reverse of a tree that adds up cells copies one cell to all of them, in log2(n) steps with a barrier each; and its
first cell is often one that all threads add to. `cells` plays a finished gradient through for a block's shape. What it
finds to be the same number for all threads that read it is not read from the cell that a tree has copied it to:

- what every thread can compute for itself, such as an element of an adjoint that the block picks, it does (`common`);
- what all threads added up atomically is a sum over the block, without a cell;
- what a tree combined, forward, is combined in one step, and of a maximum the winner gets the adjoint (`reductions`);
- what lies in another cell as well, for as long, is read there.

The same of numbers that lanes pass on by shuffles. Stores that nobody reads then go, and with them their barriers
(`transforms/barriers`). It is done only if some do.
"""

from __future__ import annotations

from ...analysis.block_interpreter.accesses import playable
from ...analysis.block_interpreter.cells import Play, Unplayable
from ...ir.ops import Barrier, BarrierReduce, Function, GlobalRef, Module, Warp
from ...ir.traverse import walk
from ...ir.types import Type
from ...transforms import barriers, dce, loops, promote, simplify
from ...transforms.block_shape import unhurried, with_extents
from .choice import Choice
from .common import Common
from .guarded import within
from .rewrite import Rewrite

_ROUNDS = 3


def run(function: Function, module: Module, block: tuple[int, int, int], gathering: frozenset[str]) -> Function:
    """`gathering`: the variables that hold adjoints. What the kernel itself adds up keeps its order."""

    def change(given: Function) -> Function:
        return _without_trees(given, module, block, gathering)

    guarded = within(function, change)
    return change(function) if guarded is None else guarded


def _without_trees(
    function: Function, module: Module, block: tuple[int, int, int], gathering: frozenset[str]
) -> Function:
    given, function = function, loops.run(function, module)
    shared = {n: g.type for n, g in module.globals.items() if g.space == "shared"}
    changed = function
    for _ in range(_ROUNDS):
        used = {op.name for op in walk(changed.body) if isinstance(op, GlobalRef)}
        variables = playable({n: t for n, t in shared.items() if n in used})
        lanes = any(isinstance(op, Warp) for op in changed.body.ops)
        following = _once(changed, variables, block, gathering) if variables or lanes else changed
        if following is changed:
            break
        for step in (promote.run, simplify.run, dce.without_unread, barriers.run):
            following = step(following, module)
        changed = following
    if changed is function:
        return given
    changed = with_extents(changed, block)
    return unhurried(changed) if 2 * _meetings(changed) <= _meetings(given) else changed


def _meetings(function: Function) -> int:
    return sum(
        isinstance(op, BarrierReduce) or (isinstance(op, Barrier) and op.scope == "block") for op in walk(function.body)
    )


def _once(
    function: Function, variables: dict[str, Type], block: tuple[int, int, int], gathering: frozenset[str]
) -> Function:
    try:
        play = Play(function, variables, block, gathering)
    except Unplayable:
        return function
    choice = Choice(play, Common(function, play))
    return Rewrite(function, choice).run() if choice.pays else function
