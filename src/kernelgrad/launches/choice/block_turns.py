"""Fewer blocks than a launch has, each with the work of many in a loop (`transforms/block_turns`), where a thread then
adds to the same elements in all turns: what it adds up in a register it adds to memory once.

    int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = f(x[i], w[i % C]);

How many blocks are started is chosen for that: `i % C` is what it was after `C / 256` blocks or a multiple, and a
channel `i / HW % C` after `HW * C / 256`. Along another axis of the grid, `w[i]` is the same in all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...analysis.access.affine import Affine, Basis, Looked, Part, Shape
from ...analysis.access.executions import Executions
from ...analysis.access.periods import period
from ...analysis.machine import RESIDENT_THREADS, WARP
from ...analysis.roots import is_shared
from ...autodiff.accumulate.fewer_blocks import INDICES
from ...ir.effects import PURE
from ...ir.ops import BLOCKS, Alloca, Atomic, Builtin, For, Function, If, Load, Op, Store, Value, While
from ...ir.traverse import uses, walk
from ...runtime.integers import KnownLaunch, Looking
from ...transforms import simplify
from ...transforms.block_turns import in_turns

if TYPE_CHECKING:
    from .forms import Forms
    from .variant import Variant

_STARTED_THREADS = RESIDENT_THREADS  # at least
_LESS = 0.25  # of a period that may be missing, rather than one more that few threads find room for
_TURNS = 4  # of each block, at least
_HOISTED = 0.75  # of the additions, that are made once for all turns of a block
_KNOWN = (*PURE, If, For, While, Load, Store, Alloca, Atomic)


class Smaller(NamedTuple):
    """How many blocks are started along an axis."""

    axis: int
    blocks: int

    def of(self, launch: KnownLaunch) -> KnownLaunch:
        grid = list(launch.grid)
        grid[self.axis] = self.blocks
        return launch._replace(grid=(grid[0], grid[1], grid[2]), blocks=launch.grid[self.axis])


class SmallerLaunches:
    """Of one gradient."""

    def __init__(self, forms: Forms):
        self.forms = forms
        self._made: dict[int, Forms] = {}  # by the axis
        self._may_take_turns: bool | None = None

    def find(self, launch: KnownLaunch, known: Looking) -> tuple[Forms, KnownLaunch] | None:
        """Where it adds much less: the forms for the smaller launch, and that."""
        settings = self.forms.settings
        if settings.mode != "reverse" or settings.may_alias or settings.deterministic or settings.report_nan:
            return None
        if not launch.ways.on_gpu or launch.ways.single or launch.segment is not None or launch.blocks is not None:
            return None
        if math.prod(launch.grid) * math.prod(launch.block) < _TURNS * _STARTED_THREADS or not self._may:
            return None
        for smaller in candidates(self.forms.for_launch(launch), launch, known):
            forms, at = self._forms(smaller.axis), smaller.of(launch)
            variant = forms.unrefused(at)  # turns may overwrite what a reverse alone reads, where blocks do not
            if variant is not None and not variant.keeps:
                for value in forms.chooser(at).relevant.parts:
                    known(value)
                return forms, at
        return None

    @property
    def _may(self) -> bool:
        if self._may_take_turns is None:
            kernel = self.forms.kernel
            self._may_take_turns = BLOCKS not in kernel.module.globals and may_take_turns(kernel.function)
        return self._may_take_turns

    def _forms(self, axis: int) -> Forms:
        """The forms of the kernel for smaller launches."""
        if axis not in self._made:
            kernel, module = self.forms.kernel, self.forms.kernel.module
            written = simplify.run(in_turns(kernel.function, axis), module)
            self._made[axis] = self.forms.of_kernel(kernel.with_function(written))
        return self._made[axis]


def may_take_turns(function: Function) -> bool:
    """Whether one block may do what others do, one after the other: its threads do nothing together."""
    if any(BLOCKS in (p.name, p.variable) for p in function.params):
        return False
    used = uses(function.body)
    return all(_may_come_again(op, used) for op in walk(function.body))


def _may_come_again(op: Op, used: Mapping[Value, object]) -> bool:
    if isinstance(op, Builtin):
        return op.name in INDICES
    if isinstance(op, Atomic):
        return not used.get(op.result)
    return isinstance(op, _KNOWN) and not (isinstance(op, Load | Store) and op.volatile)


def candidates(variant: Variant, launch: KnownLaunch, known: Looking) -> Iterator[Smaller]:
    """Which grids might be started, those first after which fewest additions are left."""
    prepared = variant.derivative.prepared
    how, memory = prepared.accumulation, prepared.memory
    sums = Executions(prepared.structure, Shape(launch.grid, launch.block), known)

    def places(loads: Iterable[Load]) -> list[Affine | None]:
        found = [sums.address(op.ptr, root) for op in loads for root in memory.of(op.ptr)]
        return [place for place in found if place is None or place.terms]

    added = places(op for op in memory.loads if how.is_atomic(op) and not is_shared(op.ptr))
    gathered = places(op for op in memory.loads if id(op) in how.gathered)
    found = []
    for axis in (k for k in range(3) if launch.grid[k] > 1 and not variant.keeps):
        chosen = _started([_Place.of(place, axis) for place in (*added, *gathered)], axis, launch)
        if chosen is not None and all(_stays(place, axis, chosen[1]) or _is_lanes(place) for place in gathered):
            found.append((-chosen[0], Smaller(axis, chosen[1])))
    yield from (smaller for _, smaller in sorted(found))


def _stays(place: Affine | None, axis: int, blocks: int) -> bool:
    """Whether an address is the same in all turns of a block: what is gathered otherwise is summed in a register."""
    each = None if place is None else period(place, axis)
    return each is not None and blocks % each == 0


def _is_lanes(place: Affine | None) -> bool:
    """Whether the lanes of a warp are there together, so that one adds for all: that is no dearer than a gather."""
    return _Place.of(place, 0).weight < 1


class _Place(NamedTuple):
    """Of an addition. `period`: in blocks along an axis; None if it is never the same, or moves on in a loop. `weight`:
    what it costs, as much as all lanes' that are at one place together."""

    period: int | None
    weight: float

    @staticmethod
    def of(address: Affine | None, axis: int) -> _Place:
        if address is None or any(isinstance(basis, Value | Looked) for basis in _bases(address)):
            return _Place(None, 1)
        lanes = ("thread_idx", 0) in _bases(address)
        return _Place(period(address, axis), 1 if lanes else 1 / WARP)


def _bases(sum_: Affine) -> set[Basis]:
    """Also of what is divided."""
    inner = (_bases(basis.of) if isinstance(basis, Part) else {basis} for basis, _ in sum_.terms)
    return set[Basis]().union(*inner)


def _started(places: list[_Place], axis: int, launch: KnownLaunch) -> tuple[float, int] | None:
    """The weight of those that stay the same, if it is most, and how many blocks are started: as few as nearly fill the
    machine."""
    others = math.prod(launch.grid) // launch.grid[axis] * math.prod(launch.block)
    for longest in sorted({own.period for own in places if own.period is not None}, reverse=True):
        same = [own for own in places if own.period is not None and own.period <= longest]
        step = math.lcm(*(own.period for own in same if own.period is not None))
        blocks = step * max(1, math.ceil(_STARTED_THREADS / (others * step) - _LESS))
        weight = sum(own.weight for own in same)
        if blocks * _TURNS <= launch.grid[axis] and weight > _HOISTED * sum(own.weight for own in places):
            return weight, blocks
    return None
