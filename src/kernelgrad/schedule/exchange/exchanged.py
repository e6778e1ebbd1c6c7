"""Which loops of a gradient are exchanged (see `row_exchange`) in which launches, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...analysis import structure as structure_analysis
from ...analysis.access.affine import Shape
from ...analysis.access.executions import Executions
from ...analysis.access.intervals import Intervals
from ...analysis.adjoint_values import adjoint_values
from ...analysis.machine import FILLING_THREADS
from ...analysis.roots import Memory, is_shared
from ...analysis.roots import analyse as roots_of
from ...analysis.structure import Structure
from ...autodiff.costs.operations import cost
from ...autodiff.costs.traffic import Sample
from ...deep import deeply
from ...ir.ops import Atomic, Block, For, Function, Global, Load, Module, Value
from ...ir.traverse import operands, walk
from ...locks import cached_property
from ...transforms import loads, simplify, sums
from ...transforms.unroll import constants_of, copies_of, trips, unroll
from . import taken_once
from .key_kernels import BLOCK, KeysKernel
from .row_exchange import Dependence, Part, find, loops_of, merged
from .row_kernels import Buffer, Left, count_of, first_of, rows_function
from .row_values import left_by_rows

_MOST_REGISTERS = 150  # sums and numbers of a key that parts have together
_MOST_OF_ONE = 208  # that a part alone may have
_UPDATE = 10  # instructions that an addition takes whose lanes add up first
_SCATTERED = 32  # the same of a load by lanes that are far from each other
_SECTOR = 32  # bytes that memory moves at least
_MOST_LEFT = 64  # bytes of a row
_ENOUGH = 1 << 24  # additions that are saved
FEWEST = BLOCK  # keys: a thread has one
_CHUNKS = (128, 512)  # rows that a block sums up: a float can hold as many
_MOST_NUMBER = 2**31 - 1
_SHORT = 64  # iterations that are written out
_MOST_COPIES = 1 << 13  # operations
_MOST_GRID = 65535  # blocks along all axes but the first

Dim3 = tuple[int, int, int]
Groups = tuple[tuple[int, ...], ...]  # the numbers of parts that launches have together


class Keys(NamedTuple):
    """Those of a loop in one launch: the first counter, and how many there are."""

    first: int
    number: int


@dataclass(frozen=True)
class KeysLaunch:
    """Of the keys of some parts, for a launch of the kernel."""

    grid: Dim3
    told: dict[str, int]


class Exchangeable:
    """What can be exchanged in a function. `memory`: the parameters that hold adjoints; `wide`: in doubles in place of
    floats."""

    def __init__(self, function: Function, module: Module, memory: frozenset[str], wide: frozenset[str] = frozenset()):
        self.function, self.module = taken_once.run(_written_out(function, module, memory, wide)), module
        self.memory = memory
        self.parts = find(self.function)
        self._known: dict[For, Dependence] = {}

    @cached_property
    def adjoints(self) -> set[Value]:
        return adjoint_values(self.function, self.memory)

    def known(self, loop: For) -> Dependence:
        if loop not in self._known:
            self._known[loop] = Dependence(self.function, self._roots, loop)
        return self._known[loop]

    @cached_property
    def _roots(self) -> Memory:
        return roots_of(self.function)

    # ---- the choice

    @deeply
    def groups(self, grid: Dim3, block: Dim3, numbers: Callable[[str], int | None]) -> Groups:
        """The parts that are worth it in a launch, by the launches that they are summed up in."""
        keys = {part.loop: self.keys(part, grid, block, numbers) for part in self.parts}
        rows = _product(grid) * _product(block)
        chosen = list[list[int]]()
        for number, part in enumerate(self.parts):
            found = keys[part.loop]
            kept = _product(tuple(grid[a] for a in part.axes))
            if found is None or kept > _MOST_GRID or not self.is_possible(part):
                continue
            shape, known = Shape(grid, block), self._numbers(numbers)
            sums, each = Executions(self._structure, shape, known), self.keys_of_a_row(part.loop, found, shape, known)
            if not self.pays(part, found, rows, sums, each):
                continue
            for group in chosen:
                together = self.together([*group, number])
                if together is not None and registers(together) <= _MOST_REGISTERS:
                    group.append(number)
                    break
            else:
                chosen.append([number])
        return tuple(map(tuple, chosen))

    def together(self, numbers: Iterable[int]) -> Part | None:
        first, *others = (self.parts[n] for n in numbers)
        part: Part | None = first
        for other in others:
            part = merged(part, other, self.known(first.loop)) if part is not None else None
        return part

    def is_possible(self, part: Part) -> bool:
        left = left_by_rows(part.wanted, self.known(part.loop))
        return left is not None and sum(v.type.size for v in left) <= _MOST_LEFT + 4 * len(part.updates)

    @cached_property
    def _structure(self) -> Structure:
        return structure_analysis.analyse(self.function, apart=False)

    def _numbers(self, known: Callable[[str], int | None]) -> Callable[[Any], Any]:
        names = {p.value: p.name for p in self.function.params}
        return lambda value: known(names[value]) if value in names else None

    def keys_of_a_row(self, loop: For, keys: Keys, shape: Shape, known: Callable[[Any], Any]) -> float:
        """How many a row has, of all there are: windows and triangles have some each."""
        sample = Sample(shape, self._structure, known)
        lower, upper = sample.value(loop.lower), sample.value(loop.upper)
        if lower is None or upper is None:
            return keys.number
        trips = np.maximum(0, -((lower - upper) // loop.step))
        return float(np.broadcast_to(trips, sample.count).mean())

    def pays(self, part: Part, keys: Keys, rows: int, sums: Executions, each: float) -> bool:
        """Less is computed again than additions by all rows take, and there is enough of that. What neighbouring keys
        read in other sectors is a transfer for each of them. `each`: the keys of a row."""
        if keys.number < FEWEST or each * rows * len(part.updates) < _ENOUGH:
            return False
        if registers(part) > _MOST_OF_ONE:
            return False
        own = {id(op) for op in (*part.early, *part.own)}
        work = Block((), tuple(op for op in part.loop.body.ops if op in part.needs.ops and id(op) not in own), ())
        scattered = sum(isinstance(op, Load) and self.is_scattered(op, part.loop, sums) for op in work.ops)
        started = -(-keys.number // BLOCK) * BLOCK
        return (cost(work) + _SCATTERED * scattered) * started < _UPDATE * len(part.updates) * each

    def is_scattered(self, load: Load, loop: For, sums: Executions) -> bool:
        places = [sums.address(load.ptr, root) for root in self._roots.of(load.ptr) if not is_shared(root)]
        counter = loop.body.args[0]
        return any(place is not None and abs(place.slope(counter)) >= _SECTOR for place in places)

    # ---- launches

    def keys(self, part: Part, grid: Dim3, block: Dim3, numbers: Callable[[str], int | None]) -> Keys | None:
        """None where they are not known, or nobody has any."""
        loop = part.loop
        intervals = Intervals(self.function, grid, block, numbers)
        with ExitStack() as places:
            if not all(places.enter_context(intervals.assuming(op.cond, side)) for op, side in part.path):
                return None
            lower, upper = intervals.of(loop.lower), intervals.of(loop.upper)
        if abs(loop.step) != 1:
            if lower[0] != lower[1] or upper[0] != upper[1]:
                return None
            first, count = lower[0], len(range(lower[0], upper[0], loop.step))
        else:
            first, last = (lower[0], upper[1] - 1) if loop.step > 0 else (upper[0] + 1, lower[1])
            count = last - first + 1
        return Keys(first, count) if 0 < count <= _MOST_NUMBER - BLOCK else None

    def launch(
        self, group: tuple[int, ...], grid: Dim3, block: Dim3, numbers: Callable[[str], int | None]
    ) -> KeysLaunch:
        part = self.parts[group[0]]
        keys = self.keys(part, grid, block, numbers)
        assert keys is not None
        kept = _product(tuple(grid[a] for a in part.axes))
        rows = _product(grid) * _product(block) // kept
        blocks = -(-keys.number // BLOCK) * kept
        chunk = min(max(rows * blocks * BLOCK // (4 * FILLING_THREADS), _CHUNKS[0]), _CHUNKS[1])
        chunk = max(-(-chunk // BLOCK) * BLOCK, -(-rows // _MOST_GRID))
        told = {"_chunk": chunk, "_rows": rows, "_threads": _product(grid) * _product(block)}
        told |= {f"_block_{a}": block[a] for a in range(3)} | {f"_grid_{a}": grid[a] for a in range(3)}
        told["_threads_of_block"] = _product(block)
        return KeysLaunch((-(-keys.number // BLOCK), -(-rows // chunk), kept), told)

    def told(self, groups: Groups, grid: Dim3, block: Dim3, numbers: Callable[[str], int | None]) -> dict[str, int]:
        """What all of them are told, and the rows' launch: of each loop, its keys."""
        found: dict[str, int] = {}
        for number, loop in enumerate(self.loops(groups)):
            part = next(p for p in self.parts if p.loop is loop)
            keys = self.keys(part, grid, block, numbers)
            assert keys is not None
            found |= {first_of(number): keys.first % 2**64, count_of(number): keys.number}
        return found

    # ---- code

    def loops(self, groups: Groups) -> list[For]:
        return list(dict.fromkeys(self.parts[n].loop for group in groups for n in group))

    @deeply
    def code(self, groups: Groups) -> Exchanged:
        parts = [part for group in groups if (part := self.together(group)) is not None]
        wanted = {loop: dict[Value, None]() for loop in self.loops(groups)}
        for part in parts:
            wanted[part.loop].update(part.wanted)
        values = {loop: left_by_rows(found, self.known(loop)) or () for loop, found in wanted.items()}
        left = Left(values, self.adjoints)
        rows = rows_function(self.function, parts, left)
        kernels = []
        for number, part in enumerate(parts):
            made = KeysKernel(self.function, part, self.known(part.loop), left, self.adjoints, self.module.globals)
            function = made.run(f"{self.function.name}_keys{f'_{number}' if number else ''}")
            kernels.append((function, made.variables))
        return Exchanged(rows, tuple(kernels), tuple(left.buffers.values()))


@dataclass(frozen=True)
class Exchanged:
    """`rows`: the gradient without what the others do. `keys`: a function for each launch, and its shared memory.
    `buffers`: what rows leave."""

    rows: Function
    keys: tuple[tuple[Function, dict[str, Global]], ...]
    buffers: tuple[Buffer, ...]


def registers(part: Part) -> int:
    """Numbers that a thread has all the time: its sums, and what depends on its key."""
    used = {v for op in part.needs.ops for v in operands(op)}
    own = [v for op in part.early for v in op.results if v in used and _is_float(v)]
    return sum(max(1, u.value.type.size // 4) for u in part.updates) + sum(max(1, v.type.size // 4) for v in own)


def _is_float(value: Value) -> bool:
    return bool(getattr(value.type, "is_float", False))


def _product(extents: tuple[int, ...]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def _written_out(function: Function, module: Module, memory: frozenset[str], wide: frozenset[str]) -> Function:
    """With the short loops in which long ones add to elements written out, so that registers can hold the sums."""
    constants, chosen = constants_of(function), set[int]()
    for loop, _ in loops_of(function.body):
        inner = [op for op in walk(loop.body) if isinstance(op, For)]
        short = [op for op in inner if (trips(op, constants) or _SHORT + 1) <= _SHORT]
        adding = any(isinstance(op, Atomic) for found in short for op in walk(found.body))
        copies = sum(copies_of(op, trips(op, constants) or 0) for op in short)
        is_long = (trips(loop, constants) or _SHORT + 1) > _SHORT
        chosen |= {id(op) for op in short} if is_long and adding and copies <= _MOST_COPIES else set()
    if not chosen:
        return function
    plain = simplify.run(unroll(function, lambda op: id(op) in chosen, _MOST_COPIES), module)
    return sums.at_most(simplify.run(loads.run(plain, module), module), module, memory, _SHORT, wide)
