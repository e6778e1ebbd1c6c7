"""Loops over a thread's own elements, as blocks of a larger grid (`transforms/turn_blocks`): for gradients in which an
input's elements each collect their adjoints from their neighbours (`gathers`).

    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * blocks) y[i] = x[i - 1] + x[i] + x[i + 1];

Who reads x[j] is one thread or another, in some turn: in the larger grid, simply threads side by side. So where a
gradient would add to memory atomically, the larger launch is planned, too, and taken if it has gathers, adds less and
costs less. What all turns of a thread read (`x[k * n + i]` in turns that are rows of weights) is in its registers or
near them as long as these follow each other; blocks of their own read it from memory again.

Turns that whole blocks take together, as rows of a matrix with sums over each, are blocks of their own, too, where that
costs less: these still have in the reverse what they computed, and trees over shared memory are in no loop.

The turns must have nothing to do with each other. Each carries sums of its number alone; the numbers that it tests do
not come round; all that is written is written in the loops, each element once and by one turn; and what is written is
read, if at all, by that turn before. Where threads meet, all of a block take the same turns, and each turn fills what
it reads of shared memory. All of it is proven of the larger launch, once it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import gt
from typing import TYPE_CHECKING, NamedTuple

from ...analysis import roots, structure
from ...analysis.access.affine import Affine, Basis, Known, Shape
from ...analysis.access.executions import Executions
from ...analysis.block_interpreter.filled_first import is_filled_first
from ...analysis.machine import ATOMIC_INSTRUCTIONS, MEMORY_BYTE
from ...analysis.ownership.private import places_of
from ...analysis.ownership.read_first import is_read_by_its_writer, is_read_first
from ...analysis.ownership.single_stores import is_stored_once
from ...analysis.roots import is_shared
from ...autodiff.accumulate.fewer_blocks import INDICES
from ...autodiff.calculus.shadows import is_dynamic
from ...autodiff.costs.read_again import read_again
from ...autodiff.saving.tape_capacity import by_arithmetic
from ...ir.effects import PURE
from ...ir.ops import (
    Alloca,
    Barrier,
    BarrierReduce,
    Block,
    Builtin,
    For,
    Function,
    If,
    Load,
    Module,
    Op,
    Store,
    Value,
    Warp,
    While,
)
from ...ir.traverse import kinds, uses, walk
from ...ir.types import Pointer
from ...locks import cached_property
from ...runtime.integers import Extents, KnownLaunch, Looking
from ...schedule.rows.turns import TurnSums
from ...transforms import invariant, rotate, simplify
from ...transforms.turn_blocks import Loop, Spread, TurnAxis, TurnBlocks, loops_of, spread, stays_within, steps_of
from .without_copies import Estimate, estimated

if TYPE_CHECKING:
    from .forms import Forms
    from .variant import Variant

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MEETING = (Barrier, BarrierReduce, Warp)
_KNOWN = (*PURE, *_MEETING, If, For, While, Load, Store, Alloca)


class Larger(NamedTuple):
    """A launch's turns as blocks."""

    how: TurnBlocks
    grid: Extents


class LargerLaunches:
    """Of one gradient."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._made: dict[TurnBlocks, Forms] = {}

    @cached_property
    def function(self) -> Function:
        return invariant.run(self.forms.kernel.function, self.forms.kernel.module)

    def find(self, launch: KnownLaunch, known: Looking) -> tuple[Forms, Extents] | None:
        """Where it adds less: the forms for the larger launch, and its grid."""
        settings = self.forms.settings
        if settings.mode == "split" or settings.may_alias or launch.ways.single or launch.segment is not None:
            return None
        if not (launch.ways.on_gpu or launch.ways.on_cpu) or not self._may_pay(launch):
            return None
        larger = larger_launch(self.function, self.forms.kernel.module, launch, known)
        if larger is None:
            return None
        forms = self._forms(larger.how)
        return (forms, larger.grid) if self._pays(forms, launch, larger, known) else None

    def _forms(self, how: TurnBlocks) -> Forms:
        """The forms of the kernel for larger launches."""
        if how not in self._made:
            kernel, module = self.forms.kernel, self.forms.kernel.module
            written = spread(self.function, structure.analyse(self.function, apart=False), how).function
            self._made[how] = self.forms.of_kernel(kernel.with_function(simplify.run(written, module)))
        return self._made[how]

    def _may_pay(self, launch: KnownLaunch) -> bool:
        """Where threads meet in turns, blocks of their own keep nothing, and wait for each other in fewer places."""
        variant = self.forms.for_launch(launch)
        return launch.ways.on_gpu or variant.keeps if self._meets else _may_gather(variant)

    @cached_property
    def _meets(self) -> bool:
        return meets(self.function)

    def _pays(self, forms: Forms, launch: KnownLaunch, made: Larger, known: Looking) -> bool:
        larger = launch._replace(grid=made.grid)
        variant = forms.unrefused(larger)
        if variant is None or variant.keeps or not (self._meets or variant.options.facts.gathered):
            return False
        if self._meets and self._counts(launch, known):
            return True
        many, few = (estimated(*own, known, merging=True) for own in ((forms, larger), (self.forms, launch)))
        if many.atomics >= few.atomics and not self._meets:
            return False
        shape, axes = Shape(made.grid, launch.block), turns_of(made.how)
        again = read_again(forms.kernel.function, shape, axes, known) if axes or not self._meets else 0.0
        return many.operations + MEMORY_BYTE * again + _cost(many) < few.operations + _cost(few)

    def _counts(self, launch: KnownLaunch, known: Looking) -> bool:
        """Whether a launch of its own would have to count what is kept."""
        plan = self.forms.for_launch(launch).derivative.prepared.plan
        return by_arithmetic(plan, known, launch.builtin) is None


def meets(function: Function) -> bool:
    return not kinds(function.body).isdisjoint(_MEETING)


def turns_of(how: TurnBlocks) -> frozenset[int]:
    """The axes along which nothing lies but turns."""
    return frozenset(axis.axis for _, axis in how.loops if not axis.continues)


def _cost(found: Estimate) -> float:
    """Of the atomic additions, in operations: 8 bytes are one of a float."""
    return ATOMIC_INSTRUCTIONS * found.atomics / 8


def _may_gather(variant: Variant) -> bool:
    """Whether an input is read at several places, or in a loop in a loop, and its adjoint added to atomically."""
    prepared = variant.derivative.prepared
    how, memory, places = prepared.accumulation, prepared.memory, places_of(prepared.structure)
    loads = [op for op in memory.loads if how.is_atomic(op) and not is_shared(op.ptr)]
    often = Counter(root for op in loads for root in memory.of(op.ptr))
    nested = (sum(isinstance(at.owner, For | While) for at in places[id(op)].around()) for op in loads)
    return any(count > 1 for count in often.values()) or any(depth > 1 for depth in nested)


def larger_launch(function: Function, module: Module, launch: KnownLaunch, known: Known) -> Larger | None:
    """Of a kernel that writes in loops over each thread's elements, in turns that may be threads of their own."""
    if not all(map(_is_known, walk(function.body))):
        return None
    placing = _Placing(function, launch, known)
    placing.place_all()
    if not placing.axes or any(map(gt, placing.grid, _MOST_BLOCKS)):
        return None
    how = TurnBlocks(tuple(placing.axes.items()), tuple(placing.moved))
    grid = (placing.grid[0], placing.grid[1], placing.grid[2])
    made = spread(function, placing.structure, how)
    if not _is_right(made, placing.expected, Shape(grid, launch.block), known):
        return None
    return Larger(how, grid) if _fills_first(made.function, module, launch, known) else None


def _fills_first(function: Function, module: Module, launch: KnownLaunch, known: Known) -> bool:
    """Whether blocks read nothing of shared memory but what they wrote."""
    function = rotate.run(function, module)
    memory, sizes = roots.analyse(function), dict[Value, int]()
    for name, root in memory.global_names.items():
        if is_shared(root):
            variable = module.globals[name]
            sizes[root] = launch.shared_bytes if is_dynamic(variable) else variable.type.size
    return not sizes or is_filled_first(function, memory, sizes, launch.block, known)


def _is_right(made: Spread, expected: dict[Value, Affine], shape: Shape, known: Known) -> bool:
    """Whether loops carried what is computed now, and no two threads of the larger launch write what others touch."""
    function = made.function
    own = structure.analyse(function, apart=False)
    sums, memory, places = Executions(own, shape, known), roots.analyse(function), places_of(own)
    for value, sum_ in expected.items():
        now = made.values[value]
        while now in made.values:
            now = made.values[now]
        found = sums.of(now)
        if found is None or (found.const, found.coefficients) != (sum_.const, sum_.coefficients):
            return False
    read = frozenset[Value]().union(*(memory.of(op.ptr) for op in memory.loads))
    return all(
        is_stored_once(root, memory, places, sums)
        and (root not in read or is_read_first(root, function, memory, places, sums))
        and is_read_by_its_writer(root, memory, places, sums)
        for root in memory.written() & memory.lasting()
    )


class _Placing:
    """Of a launch's loops on a grid. `axes`: by the loops' numbers. `moved`: where the launch's blocks lie then."""

    def __init__(self, function: Function, launch: KnownLaunch, known: Known):
        self.function, self.launch = function, launch
        self.structure, self.memory = structure.analyse(function, apart=False), roots.analyse(function)
        self.sums = TurnSums(self.structure, Shape(launch.grid, launch.block), known)
        self.grid, self.moved = list(launch.grid), list[int | None](range(3))
        self.taken = set[int]()  # axes on which turns lie, or blocks that were moved there
        self.continued = set[int]()  # those on which turns follow on the launch's blocks, and move with them
        self.axes: dict[int, TurnAxis] = {}
        self._carried: list[tuple[Value, _Carried, TurnAxis]] = []
        self._used, self.meets = uses(function.body), meets(function)

    def place_all(self) -> None:
        numbers = {id(loop): number for number, loop in enumerate(loops_of(self.function))}
        for loop in self.loops(self.function.body):
            carried = self.carried_by(loop)
            axis = None if carried is None else self.place(loop, tuple(carried.values()))
            if carried is None or axis is None:
                return
            self.axes[numbers[id(loop)]] = axis
            self._carried += [(arg, sums, axis) for arg, sums in carried.items()]

    def loops(self, block: Block) -> Iterator[Loop]:
        """From outside, in which all is that is written."""
        writing = [op for op in block.ops if _writes(op)]
        if len(writing) != 1:
            return
        match writing[0]:
            case If(_, then, orelse):
                sides = [side for side in (then, orelse) if any(map(_writes, side.ops))]
                yield from self.loops(sides[0]) if len(sides) == 1 else ()
            case For() | While() as loop if not any(self._used.get(result) for result in loop.results):
                yield loop
                yield from self.loops(loop.body) if not self.meets else ()

    def carried_by(self, loop: Loop) -> dict[Value, _Carried] | None:
        """None of a loop whose turns carry more than their number to each other."""
        if steps_of(loop, self.structure) is None or self.leaves_behind(loop):
            return None
        found = dict[Value, _Carried]()
        for arg in loop.body.args:
            sum_ = self.sums.of(arg)
            if sum_ is None or arg in self.sums.wrapping:
                return None
            found[arg] = _Carried(*self.sums.per_turn(sum_, loop))
        starts = [basis for sums in found.values() for basis, _ in sums.first.terms]
        if not all(isinstance(basis, tuple) for basis in starts):
            return None
        return found if not self.meets or all(map(_is_of_block, starts)) else None

    def leaves_behind(self, loop: Loop) -> bool:
        """Whether turns may find what others wrote to a thread's own memory."""
        stores = [op for op in walk(loop.body) if isinstance(op, Store) and _is_local(op)]
        return not all(self.structure.is_inside(root, loop) for op in stores for root in self.memory.of(op.ptr))

    def place(self, loop: Loop, carried: tuple[_Carried, ...]) -> TurnAxis | None:
        count = self.sums.count(loop)
        if count is None or (self.meets and not all(_is_of_block(basis) for basis, _ in count.coefficients)):
            return None
        least, most = self.sums.turns(count)
        if most < 1:
            return None
        for axis in range(3):
            if self.continues(axis, carried) and stays_within(self.function, axis, loop):
                self.grid[axis] *= most
                self.taken.add(axis)
                self.continued.add(axis)
                return TurnAxis(axis, True, least < most)
        free = self.made_free(carried)
        if free is None:
            return None
        self.grid[free] = most
        return TurnAxis(free, False, least < most)

    def continues(self, axis: int, carried: tuple[_Carried, ...]) -> bool:
        """Whether a turn takes up along an axis where the launch's blocks end."""
        blocks, threads = self.launch.grid[axis], self.launch.block[axis]
        return (
            axis not in self.taken
            and self.moved[axis] == axis
            and all(of.block(axis) > 0 and of.step == of.block(axis) * blocks for of in carried)
            and all(of.thread(axis) == 0 or of.thread(axis) * threads == of.block(axis) for of in carried)
        )

    def made_free(self, carried: tuple[_Carried, ...]) -> int | None:
        """An axis for turns: that along which a turn takes up where the threads of a block end, from which the launch's
        blocks are moved away; else one that has nothing."""
        grid, block = self.grid, self.launch.block
        wanted = next((k for k in range(3) if all(of.takes_up(k, block[k]) for of in carried)), None)
        free = [axis for axis in range(3) if grid[axis] == 1 and self.is_untouched(axis)]
        if wanted is None:
            return next((self.cleared(axis) for axis in free if block[axis] == 1), None)
        if wanted in free:
            return self.cleared(wanted)
        if not free or not (self.is_untouched(wanted) or wanted in self.continued):
            return None
        self.cleared(free[0])
        self.moved[wanted], self.grid[free[0]] = free[0], self.grid[wanted]
        self.taken.add(wanted)
        return wanted

    def is_untouched(self, axis: int) -> bool:
        return self.moved[axis] == axis and axis not in self.taken

    def cleared(self, axis: int) -> int:
        """Of an axis that has one block: nothing refers to it any more."""
        self.moved[axis] = None
        self.taken.add(axis)
        return axis

    @property
    def expected(self) -> dict[Value, Affine]:
        """What stands for what the loops carried, as sums in the larger launch."""
        return {arg: self.in_larger(carried, axis) for arg, carried, axis in self._carried}

    def in_larger(self, carried: _Carried, axis: TurnAxis) -> Affine:
        moved = Affine(0, tuple((self.at(basis), factor) for basis, factor in carried.first.terms))
        turn = Affine(0, () if axis.continues else ((("block_idx", axis.axis), carried.step),))
        return moved.plus(turn).plus(Affine(carried.first.const))

    def at(self, basis: Basis) -> Basis:
        match basis:
            case ("block_idx", int(axis)) if (to := self.moved[axis]) is not None:
                return "block_idx", to
        return basis


class _Carried(NamedTuple):
    """By a loop: a sum of indices in its first turn, and what each turn adds."""

    first: Affine
    step: int

    def block(self, axis: int) -> int:
        return self.first.slope(("block_idx", axis))

    def thread(self, axis: int) -> int:
        return self.first.slope(("thread_idx", axis))

    def takes_up(self, axis: int, threads: int) -> bool:
        """Whether a turn begins where the threads of a block end."""
        return threads > 1 and self.step == threads * self.thread(axis) > 0 and not self.block(axis)


def _is_of_block(basis: Basis) -> bool:
    """Whether it is the same for all threads of a block."""
    return isinstance(basis, tuple) and basis[0] == "block_idx"


def _writes(op: Op) -> bool:
    inside = walk(Block((), (op,), ()))
    return any(isinstance(inner, Store) and not _is_local(inner) for inner in inside)


def _is_local(op: Store) -> bool:
    return isinstance(op.ptr.type, Pointer) and op.ptr.type.space == "local"


def _is_known(op: Op) -> bool:
    if isinstance(op, Barrier):
        return op.scope == "block" and not op.args
    if isinstance(op, Builtin):
        return op.name in INDICES
    return isinstance(op, _KNOWN) and not (isinstance(op, Load | Store) and op.volatile)
