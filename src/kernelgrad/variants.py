"""One form of a derivative: which adjoints are wanted, and what is known of the launches it is for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from . import pipeline
from .autodiff import converge, members, ordered
from .autodiff.adding.accumulate import Facts, on_cores
from .autodiff.adding.affine import Shape, Sums
from .autodiff.adding.apart import stores_apart
from .autodiff.adding.coarse import pays
from .autodiff.adding.exclusive import exclusive_loads
from .autodiff.adding.once import is_consumed, is_stored_once
from .autodiff.adding.private import places_of, private_roots, typical
from .autodiff.adding.promises import HOLDS
from .autodiff.adding.quads import find as find_quads
from .autodiff.adding.whole import bytes_read_once
from .autodiff.cooperate import SHARED_BYTES
from .autodiff.keeping import capacity
from .autodiff.keeping.coverage import Threads, is_covered
from .autodiff.keeping.tape import Stack
from .autodiff.keeping.tiles import Tile
from .autodiff.logs import Log, Logged
from .autodiff.reverse import Gradient as Derivative
from .autodiff.reverse import Options, Prepared, gradient, long_loops, unique_roots
from .autodiff.shadows import adjoint_type, is_dynamic
from .autodiff.tuning import rows
from .autodiff.tuning.long_loops import has_long_loops
from .autodiff.tuning.shapes import decided_by
from .autodiff.tuning.tune import Tuning, tuning_for
from .deep import deeply
from .extra_parameters import parameter_notes
from .gathers import Chosen, Gathers, Step
from .ir.ops import Atomic, Function, Module, Print, Store, Value
from .ir.traverse import walk
from .ir.types import F32, F64, Pointer, Type
from .kernels import Kernel
from .known import Growing, Looking
from .locks import cached_property
from .runtime.config import Launch
from .transforms.machine import VECTOR_BYTES, WARP
from .transforms.quads import GRID
from .widths import wide_memory

RESULT = "_result"  # the parameter through which a function's value leaves
_MANY_BLOCKS = 2048  # that update one address: beyond, a finishing step is faster
_SMALL_BUFFER = 1 << 16  # bytes, of which it is worth having copies
_LARGE_TAPE = 1 << 26  # bytes: beyond what caches hold
_CROWD = 64  # threads for each element
_REMEMBERED = 1024  # kinds of launches


class Ways(NamedTuple):
    """How a launch may be carried out. `single`: by one kernel alone. `on_cpu`, `on_gpu`: by what is fastest there,
    with another number of blocks perhaps."""

    single: bool = False
    on_cpu: bool = False
    on_gpu: bool = False


ANY = Ways()


class Found(NamedTuple):
    """What holds for a launch, and the gathers that it gets."""

    facts: Facts
    gathers: tuple[Chosen, ...] = ()


class Variant:
    """The code for one choice of wanted adjoints and one accumulation plan."""

    def __init__(self, kernel: Kernel, options: Options):
        self.kernel, self.options = kernel, options
        self._found: dict[Any, Found] = {}
        self.relevant: Growing[Value] = Growing()  # the scalars that what was found depends on
        self._in_quads: dict[Any, Facts | None] = {}
        self._gathers = Gathers(kernel, options)
        self._shaped: dict[tuple[int, int, int], bool] = {}
        self.derivative: Derivative = gradient(kernel.function, kernel.module, options)
        self._functions = tuple(_with_hidden(f, self.derivative) for f in self.derivative.functions)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Finished when they are needed: a launch may turn out to need another variant."""
        return tuple(map(self._finished, self._functions))

    @cached_property
    def binder(self) -> Kernel:
        """The kernel that takes the adjoints, as far as its arguments go."""
        function = self._functions[0 if len(self._functions) == 1 else 1]
        return self._as_kernel(function, replace(self.kernel.module, functions={function.name: function}))

    def _finished(self, function: Function, each: int | None = None) -> Kernel:
        """`each`: how many rows a thread does at most, where that is not what the facts say."""
        shadows = frozenset(p.name for p in self.derivative.adjoints.values())
        hidden = (
            *self.derivative.internal.values(),
            *(p for own in self.derivative.copies.values() for p in own.params),
            *self.derivative.wide.values(),
        )
        gathering = shadows | {p.name for p in hidden} | {g.name for g in self.derivative.shared.values()}
        variables = {**self.kernel.module.globals, **{g.name: g for g in self.derivative.shared.values()}}
        known = replace(self.kernel.module, globals=variables)
        refilled = frozenset(tile.variable for used in self.derivative.prepared.plan.refilled.values() for tile in used)
        tuning = replace(self.options.facts.tuning, refilled=refilled)
        tuning = replace(tuning, each=tuning.each if each is None else each)
        module = pipeline.finish_derivative(
            function,
            known,
            shadows,
            gathering,
            tuning,
            self.derivative.coarse is not None,
            self.options.facts.quads,
            gathering | {SHARED_BYTES},
        )
        return self._as_kernel(function, module)

    def _as_kernel(self, function: Function, module: Module) -> Kernel:
        derivative = self.derivative
        later = {*derivative.logged, *derivative.partials, *derivative.copies, *derivative.wide}
        given = {p.name for p in function.params}
        written = (p.name for name, p in self.derivative.adjoints.items() if name in later)
        return Kernel(function.name, module, self.kernel.variable, frozenset(written) & given)

    def source(self, number: int) -> str:
        """One of its kernels as CUDA C++, with what its launches must be like."""
        kernel = self.kernels[number]
        head, _, rest = kernel.source.partition("\n")
        notes = self._notes(rest) if kernel is self.reverse and not self.options.facts.alone else ()
        function, variables = kernel._cuda_module.functions[kernel.name], self.kernel.module.globals
        extra = parameter_notes(self.derivative, function, variables)
        return "\n".join((head, *notes, *extra, rest))

    def _notes(self, text: str) -> Iterator[str]:
        plan = self.derivative.prepared.accumulation
        names = sorted(plan.private | {name for name, _ in plan.exclusive})
        shadows = [f"_d_{name}" for name in names if f"_d_{name}" in text]
        if self.options.facts.tuning.block is not None:
            yield f"// For blocks of {' x '.join(map(str, self.options.facts.tuning.block))} threads."
            started = self.started(self.reverse, self.options.facts.tuning.block)
            if started != self.options.facts.tuning.block:
                yield f"// Each thread does what several do there: {' x '.join(map(str, started))} threads are started."
        if self.options.facts.quads is not None:
            width = self.options.facts.quads.width
            yield f"// Each thread does what {width} threads of the kernel do, each row of a block what one of {GRID}"
            yield f"// blocks does. Buffers begin at multiples of {VECTOR_BYTES} bytes."
        if shadows:
            yield f"// Without atomics, for launches whose threads touch different elements: {', '.join(shadows)}."
        for name, promises in plan.promised.items():
            if f"_d_{name}" in shadows:
                holding = " and ".join(HOLDS.format(promise) for promise in promises)
                yield f"// _d_{name} is among them since {holding}."
        for name in sorted(self.options.facts.unkept):
            yield f"// _d_{name} is consumed: what is to be kept is given as a copy."
        for log in self.derivative.logs:
            if not log.of.variable:
                yield f"// After the launch, {log.values.name} is to be added in order where {log.places.name} says."

    @property
    def reverse(self) -> Kernel:
        """The kernel that takes the adjoints."""
        return self.kernels[0 if len(self.kernels) == 1 else 1]

    @cached_property
    def is_idle(self) -> bool:
        """Whether gathers do all there is to do."""
        gathered = self.options.facts.gathered
        return bool(gathered) and not any(
            isinstance(op, Store | Atomic | Print) for k in self.kernels for op in walk(k.function.body)
        )

    @property
    def doubles_shared(self) -> bool:
        """Whether the shadow of dynamic shared memory needs as many bytes again."""
        return any(map(is_dynamic, self.derivative.shared.values()))

    @property
    def stack_types(self) -> tuple[Type, ...]:
        return tuple(s.type for s in self.derivative.stacks)

    @property
    def logged(self) -> tuple[Logged, ...]:
        return tuple(log.of for log in self.derivative.logs)

    @property
    def places(self) -> tuple[Stack | Log, ...]:
        """Where threads put what they keep, each on its own part of it."""
        return (*self.derivative.stacks, *self.derivative.logs)

    @deeply
    def elements(self, known: Callable[[Any], Any], launch: Launch) -> dict[Type | Logged, int] | None:
        """What each thread needs of the tape and of the logs, by arithmetic; None where it must be counted."""
        prepared = self.derivative.prepared
        extents = {"block_dim": launch.block, "grid_dim": launch.grid}

        def builtin(name: str, axis: int) -> int:
            return extents[name][axis]

        tape = capacity.by_arithmetic(prepared.plan, known, builtin)
        logs = ordered.by_arithmetic(prepared.sites, prepared.structure, known, builtin)
        found: dict[Type | Logged, int] = {}
        for part in (tape, logs):
            if part is None:
                return None
            found |= dict(part.items())
        return found

    def needs_shape(self, block: tuple[int, int, int]) -> bool:
        """Whether launches with such blocks are to have a variant of their own."""
        if block not in self._shaped:
            prepared, facts = self.derivative.prepared, self.options.facts
            taped = prepared.taped_spans()
            fixed = facts.alone or facts.block is not None
            self._shaped[block] = not fixed and bool(decided_by(self.kernel.function, block, taped))
        return self._shaped[block]

    def facts_of(
        self,
        launch: Launch,
        known: Callable[[Any], Any],
        sizes: Mapping[str, int],
        assigned: tuple[str, ...],
        ways: Ways = ANY,
    ) -> Facts:
        """What holds for a launch. `sizes`: of the buffers, in bytes; `assigned`: whose adjoints start at zero."""
        return self._find(launch, known, sizes, assigned, ways).facts

    def gathers(
        self,
        launch: Launch,
        known: Callable[[Any], Any],
        sizes: Mapping[str, int],
        assigned: tuple[str, ...],
        ways: Ways = ANY,
    ) -> Iterator[Step]:
        """The launches that collect adjoints, and what the launcher supplies to each."""
        for chosen in self._find(launch, known, sizes, assigned, ways).gathers:
            yield from self._gathers.launches(chosen, launch, ways.on_cpu)

    @deeply
    def _find(
        self,
        launch: Launch,
        known: Callable[[Any], Any],
        sizes: Mapping[str, int],
        assigned: tuple[str, ...],
        ways: Ways,
    ) -> Found:
        kind = launch.grid, launch.block, launch.shared_bytes, tuple(sizes.items()), ways
        found = self._found.get((kind, tuple(map(known, self.relevant.parts))))
        if found is None:
            looking = Looking(known)
            found = self._find_facts(launch, looking, sizes, assigned, ways)
            facts = on_cores(found.facts) if ways.on_cpu else found.facts
            facts = replace(facts, coarse=self._coarse_axes(launch, facts) if ways.on_gpu else 0)
            found = Found(self._in_registers(facts), found.gathers)
            self.relevant.add(looking.asked)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[kind, tuple(map(known, self.relevant.parts))] = found
        return found

    def facts_in_quads(self, launch: Launch, known: Callable[[Any], Any]) -> Facts | None:
        """The same for threads that do several elements each, if they can in that launch."""
        scalars = {p.name: known(p.value) for p in self.kernel.function.params}
        key = launch.grid, launch.block, *scalars.values()
        if key not in self._in_quads:
            shape = Shape(launch.grid, launch.block)
            found = find_quads(self.reverse.function, shape, scalars) if len(self.kernels) == 1 else None
            self._in_quads[key] = None if found is None else replace(self.options.facts, quads=found)
        return self._in_quads[key]

    def _find_facts(
        self,
        launch: Launch,
        known: Callable[[Any], Any],
        sizes: Mapping[str, int],
        assigned: tuple[str, ...],
        ways: Ways,
    ) -> Found:
        usual, prepared = self.options.facts, self.derivative.prepared
        unique = unique_roots(prepared.function, self.options)
        sums = Sums(prepared.structure, Shape(launch.grid, launch.block), known, unique)
        if usual.alone:
            wide = wide_memory(prepared, launch, sums, frozenset(sizes), sizes)
            return Found(replace(usual, unkept=self._unkept(sums), wide=wide))
        private = private_roots(prepared.memory, prepared.structure, prepared.function, prepared.activity.roots, sums)
        always = self.options.deterministic  # has a finishing step, however few blocks there are
        partials = self.derivative.sums and math.prod(launch.grid) > _MANY_BLOCKS and not always
        threads = Threads(launch.block, prepared.structure, known)
        exclusive = exclusive_loads(prepared.function, prepared.memory, prepared.activity.roots, threads)
        apart = stores_apart(
            prepared.function, prepared.memory, prepared.structure, prepared.activity.roots, sums, threads
        )
        plan, may_alias = prepared.accumulation, self.options.may_alias
        others = [(name, nbytes) for name, nbytes in sizes.items() if name not in private]
        chosen = () if ways.single else self._gathers.find(prepared, sums, others, apart, assigned)
        gathered = {c.gather.name for c in chosen}
        own = frozenset[str]() if may_alias else private
        written = {n for n in assigned if n in own and _read_whole(n, sizes[n], prepared, sums)}
        few = (n for n in sizes if n not in private | gathered)
        crowded = frozenset(n for n in few if self._is_crowded(n, sizes[n], launch))
        wide = frozenset[str]()
        if not may_alias:
            elsewhere = frozenset(gathered | written)
            wide = wide_memory(prepared, launch, sums, private, sizes, elsewhere, None if ways.on_cpu else crowded)
        facts = replace(
            usual,
            private=None if may_alias or private == plan.private else private,
            exclusive=None if may_alias or exclusive == plan.exclusive else exclusive,
            apart=None if may_alias or apart == plan.apart else apart,
            refill=self.can_refill(launch, known),
            partials=partials,
            overwritten=frozenset(written | {c.gather.name for c in chosen if c.gather.writes}),
            strips=self._is_long(launch, known),
            unkept=self._unkept(sums),
            copied=crowded,
            wide=wide,
            gathered=frozenset(c.gather for c in chosen),
            tuning=replace(self._tuning(launch, ways), long_sums=self._has_long_loops(launch, known)),
            ragged=self._is_ragged(launch.block),
        )
        return Found(facts, chosen)

    def _is_ragged(self, block: tuple[int, int, int]) -> bool:
        """Whether loops part the warps of such a block that those of whole rows go through together."""
        return block[0] % WARP != 0 and self._parts_ragged_warps

    @cached_property
    def _parts_ragged_warps(self) -> bool:
        return converge.is_needed(self.kernel.function, whole_rows=False)

    def _has_long_loops(self, launch: Launch, known: Callable[[Any], Any]) -> bool:
        prepared = self.derivative.prepared
        return has_long_loops(prepared.function, prepared.structure, Shape(launch.grid, launch.block), known)

    def _tuning(self, launch: Launch, ways: Ways) -> Tuning:
        usual = self.options.facts
        if not self._adds_in_loops and usual.block is None:
            return usual.tuning
        return tuning_for(launch.block, rows.rows_for(launch.grid, launch.block) if ways.on_gpu else 1)

    def started(self, kernel: Kernel, block: tuple[int, int, int]) -> tuple[int, int, int]:
        """The block that is started of one of its kernels, for a launch with such blocks. Those that are larger than
        the user allows stay what they are, and are refused."""
        allowed = self.kernel.function.launch_bounds[:1]
        merges = self.options.facts.tuning.each > 1 and not any(n < math.prod(block) for n in allowed)
        return rows.started(kernel.function, block) if merges else block

    @property
    def merges_rows(self) -> bool:
        """Whether launches get code in which a thread does several rows of a block."""
        return self._adds_in_loops and len(self.kernels) == 1 and rows.applies(self.reverse.function)

    @property
    def _adds_in_loops(self) -> bool:
        """Whether threads may add to the same elements in loops."""
        prepared = self.derivative.prepared
        places = places_of(prepared.structure)
        return any(places[id(op)].in_loop for op in prepared.memory.loads if prepared.accumulation.is_atomic(op))

    def _coarse_axes(self, launch: Launch, facts: Facts) -> int:
        crowded = self.options.mode == "reverse" and facts.copied  # with what is known of the launch, perhaps all
        if not (self.derivative.only_sums or crowded) or not pays(launch.grid, launch.block):
            return 0
        return 1 if launch.grid[1:] == (1, 1) else 3

    def _in_registers(self, facts: Facts) -> Facts:
        """Where few blocks do the work of all, their threads add up in registers what they add to copies: floats can
        hold that."""
        narrow = replace(facts, wide=facts.wide - facts.copied)
        if not facts.coarse or narrow == facts:
            return facts
        options = replace(self.options, facts=narrow)
        return facts if gradient(self.kernel.function, self.kernel.module, options).coarse is None else narrow

    def _is_crowded(self, name: str, nbytes: int, launch: Launch) -> bool:
        """Whether so many threads update so few elements that they would wait for each other."""
        prepared, adjoint = self.derivative.prepared, self.derivative.adjoints.get(name)
        if self.options.may_alias or self.options.deterministic or adjoint is None:
            return False
        root = next(p.value for p in prepared.function.params if p.name == name)
        type = root.type.pointee if isinstance(root.type, Pointer) else None
        read = any(root in prepared.memory.of(op.ptr) for op in prepared.memory.loads if prepared.plan.has_adjoint(op))
        if not read or root in prepared.memory.written() or type not in (F32, F64):
            return False
        blocks = math.prod(launch.grid)
        few = nbytes <= _SMALL_BUFFER and blocks * math.prod(launch.block) >= _CROWD * (nbytes // type.size)
        return few and blocks >= _MANY_BLOCKS

    @cached_property
    def typically_unkept(self) -> frozenset[str]:
        """Those of a launch like the ones the kernel is made for."""
        prepared = self.derivative.prepared
        unique = unique_roots(prepared.function, self.options)
        return (
            self._unkept(typical(prepared.structure, prepared.function, unique)) if self.options.kept else frozenset()
        )

    def _unkept(self, sums: Sums) -> frozenset[str]:
        """The outputs to be kept whose adjoints the reverse takes, perhaps more than once."""
        prepared, places = self.derivative.prepared, places_of(self.derivative.prepared.structure)
        roots = {p.name: p.value for p in prepared.function.params}
        return frozenset(
            name
            for name in (*self.options.kept, *self.options.facts.unkept)
            if is_consumed(roots[name], prepared.memory)
            and not is_stored_once(roots[name], prepared.memory, places, sums)
        )

    def _is_long(self, launch: Launch, known: Callable[[Any], Any]) -> bool:
        """Whether the tape is so large that running loops again costs less, or to count it takes a launch."""
        prepared = self.derivative.prepared
        extents = {"block_dim": launch.block, "grid_dim": launch.grid}
        sizes = capacity.by_arithmetic(prepared.plan, known, lambda name, axis: extents[name][axis])
        narrow, stripped = long_loops(prepared)
        if sizes is None:
            return bool(narrow)
        threads = math.prod(launch.grid) * math.prod(launch.block)
        large = threads * sum(type.size * count for type, count in sizes.items()) > _LARGE_TAPE
        return large and bool(narrow or stripped)

    def can_refill(self, launch: Launch, known: Callable[[Any], Any]) -> bool:
        """Whether every tile that the reverse fills again is filled wherever it is read."""
        prepared = self.derivative.prepared
        tiles = [tile for used in prepared.plan.refilled.values() for tile in used]
        return all(
            is_covered(tile, self._shared_bytes(tile, launch), launch.block, prepared.structure, known)
            for tile in tiles
        )

    def _shared_bytes(self, tile: Tile, launch: Launch) -> int:
        variable = self.kernel.module.globals[tile.variable]
        return launch.shared_bytes if is_dynamic(variable) else variable.type.size

    @cached_property
    def counting(self) -> tuple[Kernel, bool]:
        """The kernel that counts, and whether it must run on copies."""
        prepared = self.derivative.prepared
        logs = [{key: counts.get(of, 0) for key, counts in prepared.sites.items()} for of in self.logged]
        counted = capacity.counting_function(prepared.function, prepared.plan, prepared.memory, self.stack_types, logs)
        *params, counts = counted.function.params
        function = replace(counted.function, params=(*params, replace(counts, variable="_counts")))
        function = members.bound(function, prepared.function)
        return self._finished(function, each=1), counted.stores


def _read_whole(name: str, nbytes: int, prepared: Prepared, sums: Sums) -> bool:
    """Whether every element of an input is read, each once; of halves, whose adjoints are floats, nothing is said."""
    root = next(p.value for p in prepared.function.params if p.name == name)
    if not isinstance(root.type, Pointer) or adjoint_type(root.type) != root.type:
        return False
    loads = [op for op in prepared.memory.loads if root in prepared.memory.of(op.ptr)]
    if not all(map(prepared.plan.has_adjoint, loads)):  # what has no adjoint writes none
        return False
    return bytes_read_once(root, prepared.memory, places_of(prepared.structure), sums) == nbytes


def _with_hidden(function: Function, derivative: Derivative) -> Function:
    """Marks the parameters that the launcher supplies: shadows of unlisted buffers, the tape."""
    ours = {p.name for p in derivative.internal.values()}
    supplied = {p.name for p in function.params if p.variable == RESULT}
    ours |= {p.name for name, p in derivative.adjoints.items() if name in supplied}
    ours |= {p.name for p in derivative.partials.values()}
    ours |= {p.name for own in derivative.copies.values() for p in own.params}
    ours |= {p.name for p in derivative.wide.values()}
    ours |= {p.name for p in (derivative.coarse.extents if derivative.coarse is not None else ())}
    ours |= {p.name for s in derivative.stacks for p in s.params}
    ours |= {p.name for log in derivative.logs for p in log.params}
    ours |= {p.name for c in derivative.claims for p in c.params}
    params = [replace(p, variable=p.name) if p.name in ours else p for p in function.params]
    return replace(function, params=tuple(sorted(params, key=lambda p: p.variable is not None)))
