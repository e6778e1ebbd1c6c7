"""The reverse of a kernel that reads memory itself where it reads copies of it, in shared memory
(`transforms/tile_copies`) or in registers that a loop carries along (`transforms/rolled_loads`), where that does less
than the reverse of the kernel as it is.

Who reads an element is known of it, so that a gather may collect the element's adjoint: then threads neither wait for
each other nor add to what others add to. Where there is no gather, each of them would add to memory what a block had
added up in its tile, or a thread in its register. So both are planned, and what they do is estimated from the plans and
the gathers' code: without copies it has to be less, and no more that is added to memory atomically; and without a tile
neighbours must read neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...analysis import roots, structure
from ...analysis.access.affine import Affine, Basis, Part, Shape, Sums
from ...analysis.access.executions import Executions
from ...analysis.machine import WARP
from ...analysis.roots import is_shared
from ...analysis.trip_counts import Amount
from ...autodiff.costs.plan_effects import is_idle
from ...autodiff.costs.plan_work import planned_traffic
from ...autodiff.costs.traffic import ATOMIC
from ...autodiff.costs.work import rough_work, work
from ...ir.ops import Function, GlobalRef, Value
from ...ir.traverse import walk
from ...kernel import Kernel
from ...locks import cached_property
from ...runtime.integers import Extents, Growing, KnownLaunch, Looking
from ...transforms import local_arrays, rolled_loads, rotate, tile_copies
from ...transforms.rolled_loads import Rolled

if TYPE_CHECKING:
    from .forms import Forms
    from .gathers import Step

_REMEMBERED = 1024  # launches
_SCATTERED = 8  # elements between those of neighbouring threads: each is a sector of its own


class WithoutCopies:
    """Those of one kernel's reverses. `made`: the forms of another kernel, as these are."""

    def __init__(self, forms: Forms, made: Callable[[Kernel], Forms]):
        self.forms, self._made = forms, made
        self.relevant: Growing[Value] = Growing()  # the integers that the choice depends on
        self._without_tiles: dict[Extents, Function | None] = {}  # by the block
        self._by_copies: dict[tuple[Function, frozenset[Rolled]], Forms] = {}
        self._chosen: dict[KnownLaunch, Forms | None] = {}

    def choose(self, launch: KnownLaunch) -> Forms | None:
        """None where the launch had better get what it would get otherwise."""
        if launch not in self._chosen:
            if len(self._chosen) >= _REMEMBERED:
                self._chosen.clear()
            self._chosen[launch] = None  # while that is looked at
            looking = Looking(launch.answers(self.forms.kernel.function))
            direct = self._direct(launch, looking)
            if direct is not None and self._pays(direct, launch, looking):
                self._chosen[launch] = direct
            self.relevant.add(looking.asked)
        return self._chosen[launch]

    @cached_property
    def may_have_copies(self) -> bool:
        """In shared memory, or in what loops carry."""
        body = self.forms.kernel.function.body
        shared = any(isinstance(op, GlobalRef) and is_shared(op.result) for op in walk(body))
        return shared or bool(rolled_loads.found(self._in_values))

    @cached_property
    def _in_values(self) -> Function:
        """The kernel whose local arrays are values."""
        return local_arrays.run(self.forms.kernel.function, self.forms.kernel.module)

    def _pays(self, direct: Forms, launch: KnownLaunch, known: Looking) -> bool:
        tiles = self._without_tiles[launch.block] is not None
        if tiles and not reads_neighbours(direct.kernel.function, launch, known):
            return False
        return estimated(direct, launch, known).is_less_than(estimated(self.forms, launch, known))

    def _direct(self, launch: KnownLaunch, known: Looking) -> Forms | None:
        kernel = self.forms.kernel
        if launch.block not in self._without_tiles:
            self._without_tiles[launch.block] = tile_copies.run(kernel.function, kernel.module, launch.block)
        without = self._without_tiles[launch.block]
        function = self._in_values if without is None else without
        shape = Shape(launch.grid, launch.block)
        rolled = rolled_loads.found(function, Executions(structure.analyse(function, apart=False), shape, known))
        if without is None and not rolled:
            return None
        if (function, rolled) not in self._by_copies:
            changed = rolled_loads.run(function, kernel.module, rolled) if rolled else function
            self._by_copies[function, rolled] = self._made(kernel.with_function(changed))
        return self._by_copies[function, rolled]


def reads_neighbours(function: Function, launch: KnownLaunch, known: Looking) -> bool:
    """Whether neighbouring threads read what lies side by side, as far as that is known. A tile may be there for that,
    as where a matrix is transposed."""
    memory = roots.analyse(function)
    sums = Sums(structure.analyse(function, apart=False), Shape(launch.grid, launch.block), known)
    lane = next((axis for axis, extent in enumerate(launch.block) if extent > 1), 0)
    for load in memory.loads:
        places = (sums.address(load.ptr, root) for root in memory.of(load.ptr))
        steps = (_step(place, lane) for place in places if place is not None)
        if any(step >= _SCATTERED * load.result.type.size for step in steps):
            return False
    return True


def _step(place: Affine, lane: int) -> int:
    """About how much more it is for the next thread."""
    return abs(sum(factor * _step_of(basis, lane) for basis, factor in place.terms))


def _step_of(basis: Basis, lane: int) -> int:
    if isinstance(basis, Part):
        return 0 if basis.is_quotient and basis.by >= WARP else min(1, _step(basis.of, lane))
    return int(basis == ("thread_idx", lane))


class Estimate(NamedTuple):
    """Of a launch and of the gathers before it. `atomics`: bytes of memory that are added to atomically."""

    operations: float
    atomics: float

    def is_less_than(self, other: Estimate) -> bool:
        return self.operations < other.operations and self.atomics <= other.atomics


def estimated(forms: Forms, launch: KnownLaunch, known: Looking, merging: bool = False) -> Estimate:
    """`merging`: what all lanes of a warp add to is added to once."""
    variant, shape = forms.for_launch(launch), Shape(launch.grid, launch.block)
    for value in forms.chooser(launch).relevant.parts:
        known(value)
    gathers = sum(_operations(step, variant.kernel.function, known) for step in forms.gathers(launch))
    prepared = variant.derivative.prepared
    if is_idle(prepared):
        return Estimate(gathers, 0)
    found = planned_traffic(prepared, shape, known, merging)
    atomics = rough_work({ATOMIC: found.get(ATOMIC, Amount())}, shape).moved
    return Estimate(gathers + rough_work(found, shape).operations, atomics)


def _operations(step: Step, function: Function, known: Looking) -> float:
    """Of a gather. `function`: the kernel's, whose arguments it has."""
    kernel, launch, told = step
    params = {p.name: p.value for p in function.params}

    def number(name: str) -> Any:
        return told[name].value if name in told else known(params.get(name))

    return work(rotate.run(kernel.function, kernel.module), Shape(launch.grid, launch.block), number).operations
