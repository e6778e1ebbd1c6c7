"""Which inputs get their adjoints by gathers (see `autodiff/accumulate/gather`), and the launches of those."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from ... import pipeline
from ...analysis.access.affine import BytesOf, Sums
from ...analysis.access.executions import Executions, executions
from ...analysis.machine import ATOMIC_INSTRUCTIONS, MEMORY_BYTE
from ...analysis.ownership.private import places_of
from ...analysis.ownership.read_first import is_read_first
from ...analysis.ownership.single_stores import is_stored_once
from ...analysis.roots import Place
from ...analysis.structure import Place as StructurePlace
from ...analysis.structure import analyse
from ...analysis.tuning import PLAIN
from ...autodiff.accumulate.choice import USUAL
from ...autodiff.accumulate.gather.ends import with_bounds
from ...autodiff.accumulate.gather.exact import pairs_in
from ...autodiff.accumulate.gather.kernel import Emitted, emitted_gather
from ...autodiff.accumulate.gather.pattern import Finder
from ...autodiff.accumulate.gather.pieces import has_choices, in_pieces
from ...autodiff.accumulate.gather.plan import WIDTH, Box, Gather, by_axes, shape_of
from ...autodiff.accumulate.gather.rectangles import PREFIX as BOUND
from ...autodiff.accumulate.gather.rectangles import Rectangle, rectangles, told, with_rectangles
from ...autodiff.accumulate.gather.slices import NotSliceable
from ...autodiff.accumulate.gather.staging import staged_names, staging_function
from ...autodiff.accumulate.gather.updates import without_updates
from ...autodiff.calculus.shadows import holds_halves
from ...autodiff.costs.operations import cost
from ...autodiff.prepare.options import Options
from ...autodiff.prepare.prepared import Derivations, Prepared
from ...autodiff.reverse import Derivation
from ...deep import deeply
from ...errors import KernelGradError
from ...ir.ops import Barrier, BarrierReduce, For, Function, If, Load, Value, Warp, While
from ...ir.traverse import kinds, walk
from ...ir.types import F32, F64, Pointer
from ...kernel import Kernel
from ...runtime.arguments import Supplied
from ...runtime.config import Launch, make_launch
from ...runtime.integers import KnownLaunch
from . import gather_parts
from .staging import staged_numbers

_MOST_OPERATIONS = 8000  # that a gather may begin with: a stencil of 27 weighted points has 2,600
_MOST_AGAIN = 4
_FEWEST_USES = 3  # of a value that is staged
_STAGING = 24  # what an execution must save by it, where a thread has no more than the fewest uses
_MOST_STAGED = 1 << 31  # bytes, of values as large as they come
_BLOCKS = ((WIDTH,), (32, 8), (32, 8, 1))
_NARROW = 8  # threads along an axis
_MOST_DEEP = 64  # along the last of a block's axes


Launched = Launch | KnownLaunch
_Rewrite = Callable[[Function, Sums], tuple[Function, tuple[object, ...]]]  # and what of it depends on the launch
Step = tuple[Kernel, Launch, dict[str, Supplied]]  # a launch besides the gradient's own, and what it is told


class PatternKey(NamedTuple):
    """What a pattern is made for: adjoints that are wanted, outputs that are kept, and stores that are apart. `read`:
    outputs that the kernel reads before it stores them: whose adjoints are as they are given, and get nothing. `loops`:
    those that are written anew for all threads to have the same bounds. `written`: choices, by their numbers, for whose
    sides updates are written anew, and comparisons that are written as others."""

    listed: tuple[str, ...]
    kept: tuple[str, ...]
    apart: frozenset[Place]
    read: tuple[str, ...] = ()
    loops: tuple[Rectangle, ...] = ()
    written: tuple[tuple[object, ...], ...] = ()


class Chosen(NamedTuple):
    gather: Gather
    box: Box
    pattern: PatternKey


class _Pattern(NamedTuple):
    """A gradient in which every update is atomic, and what it is made of."""

    function: Function
    derivation: Derivation


class Gathers:
    """Finds and builds the gathers of one kernel's gradients."""

    def __init__(self, kernel: Kernel, derivations: Derivations):
        self.kernel, self.derivations = kernel, derivations
        self._patterns: dict[PatternKey, _Pattern | None] = {}
        self._kernels: dict[tuple[Gather, PatternKey], Kernel | None] = {}
        self._emitted: dict[tuple[Gather, PatternKey], Emitted] = {}
        self._stages: dict[tuple[tuple[int, ...], PatternKey], Kernel] = {}

    def find(
        self,
        options: Options,
        prepared: Prepared,
        sums: Sums,
        sizes: Iterable[tuple[str, int]],
        apart: frozenset[Place],
        assigned: Iterable[str],
        in_blocks: bool = False,
        owned: frozenset[str] = frozenset(),
    ) -> tuple[Chosen, ...]:
        """For one launch. `sizes`: of the buffers that might be gathered, in bytes. `in_blocks`: by blocks of threads
        that add up together, too. `owned`: those whose elements are each read by one thread."""
        candidates = [(name, nbytes) for name, nbytes in sizes if _might(name, prepared, sums)]
        if not candidates or options.may_alias or options.mode == "split":
            return ()
        key = PatternKey(options.listed, kept_outputs(prepared, sums), apart, outputs_read_first(prepared, sums))
        suited = self._suited(key, prepared, sums)
        if suited is None:
            return ()
        pattern, key, own, bounds = suited
        finder = Finder(pattern.function, own, in_blocks, in_parts=not options.deterministic)
        shadows = {p.name: p.value for p in pattern.function.params}
        gathers = list[tuple[Gather, Box]]()
        for name, nbytes in candidates:
            shadow = shadows[pattern.derivation.adjoints[name].name]
            nbytes *= _widening(name, prepared)
            chosen = finder.find(name, shadow, nbytes, name in owned)
            if chosen is not None:
                box = replace(chosen[1], told=(*chosen[1].told, *bounds.items()))
                writes = chosen[0].covers and chosen[0].parts == 1 and name in assigned
                gathers.append((replace(chosen[0], writes=writes), box))
        found = self._paying(gathers, key, own, finder, options.deterministic)
        if not _read_inputs(prepared) <= found.keys():  # the gradient's own launch reads everything once more
            found = self._paying(gathers, key, own, finder, options.deterministic, MEMORY_BYTE)
        return tuple(found[gather.name] for gather, _ in gathers if gather.name in found)

    def _suited(
        self, key: PatternKey, prepared: Prepared, sums: Sums
    ) -> tuple[_Pattern, PatternKey, Executions, dict[str, int]] | None:
        """The pattern, written so that places and conditions are sums in this launch; what is known of it, and what its
        loops are told."""
        pattern = self._pattern(key)
        if pattern is None:
            return None
        own = _sums_of(pattern, prepared, sums)
        loops = rectangles(pattern.function, own)
        bounds = told(loops)
        if loops:
            key = key._replace(loops=tuple(loops))
            pattern = self._patterns[key] = self._patterns.get(key) or self._in_rectangles(pattern, key)
            own = _sums_of(pattern, prepared, sums, bounds)
        rewrites: tuple[_Rewrite, ...] = (in_pieces, with_bounds)
        for rewrite in rewrites:
            function, changed = rewrite(pattern.function, own)
            if changed:
                key = key._replace(written=(*key.written, changed))
                pattern = self._patterns[key] = self._patterns.get(key) or _Pattern(function, pattern.derivation)
                own = _sums_of(pattern, prepared, sums, bounds)
        return pattern, key, own, bounds

    def _paying(
        self,
        gathers: list[tuple[Gather, Box]],
        key: PatternKey,
        sums: Sums,
        finder: Finder,
        at_any_cost: bool,
        byte: float = 0,
    ) -> dict[str, Chosen]:
        """The best form of each that pays. `byte`: what it costs to read one for an element."""
        found, staged = dict[str, Chosen](), set[int]()
        for _ in range(2):  # what one has staged, another may use
            for gather, box in gathers:
                forms = (gather, *self._staged(gather, key, sums, finder.uses[gather.name], staged))
                reading = byte * finder.streamed[gather.name] * gather.span
                cost = partial(self._cost, box=box, key=key, sums=sums, uses=finder.uses[gather.name])
                paying = [form for form in forms if self._pays(form, key, sums, cost, at_any_cost, reading)]
                if paying and gather.name not in found:
                    best = min(paying, key=cost)
                    found[gather.name] = Chosen(best, box, key)
                    staged.update(best.staged)
        return found

    def _staged(self, gather: Gather, key: PatternKey, sums: Sums, uses: int, staged: set[int]) -> Iterator[Gather]:
        """The gather with values that a launch before it computes, where it needs each of them several times, or they
        are `staged` anyway. `uses`: how often each thread reads an element."""
        pattern = self._patterns[key]
        assert pattern is not None
        if not kinds(pattern.function.body).isdisjoint((Barrier, BarrierReduce, Warp, While)):
            return
        shadow = next(p for p in pattern.function.params if p.name == pattern.derivation.adjoints[gather.name].name)
        numbers = staged_numbers(pattern.function, gather, shadow.value)
        nbytes = len(numbers) * F64.size * math.prod(sums.shape.grid) * math.prod(sums.shape.block)
        often = uses >= _FEWEST_USES * len(numbers) and nbytes <= _MOST_STAGED
        if numbers and (often or staged.issuperset(numbers)):
            yield replace(gather, staged=numbers)

    def stages(self, found: tuple[Chosen, ...], launch: Launched) -> Iterator[Step]:
        """The launch that computes what gathers are given, if any is."""
        numbers = tuple(sorted({number for chosen in found for number in chosen.gather.staged}))
        if not numbers:
            return
        key = found[0].pattern
        if (numbers, key) not in self._stages:
            self._stages[numbers, key] = self._staging(numbers, key)
        bounds = {name: Supplied(value % 2**64) for name, value in found[0].box.told if name.startswith(BOUND)}
        yield self._stages[numbers, key], make_launch(launch.grid, launch.block), bounds

    @deeply
    def _staging(self, numbers: tuple[int, ...], key: PatternKey) -> Kernel:
        pattern = self._patterns[key]
        assert pattern is not None
        function = staging_function(pattern.function, numbers, self.kernel.module.globals)
        adjoints = frozenset(p.name for p in pattern.derivation.adjoints.values()) | staged_names(numbers)
        module = pipeline.finish_derivative(function, self.kernel.module, adjoints=adjoints)
        return Kernel(function.name, module, self.kernel.variable)

    def launches(self, chosen: Chosen, launch: Launched, on_cpu: bool) -> Iterator[Step]:
        """The kernels of a gather that was found, and what the launcher supplies to each."""
        gather, box, key = chosen
        if not on_cpu or gather.tile is not None:
            yield self._kernel(gather, key), launch_of(gather, box), numbers(box, launch)
            return
        for part, own in gather_parts.parts(gather, box):
            yield self._kernel(part, key), gather_parts.launch_of(own), numbers(own, launch)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those of all launches so far."""
        return tuple(kernel for kernel in (*self._kernels.values(), *self._stages.values()) if kernel is not None)

    def _kernel(self, part: Gather, key: PatternKey) -> Kernel:
        if (part, key) not in self._kernels:
            self._kernels[part, key] = self._finished(part, key)
        kernel = self._kernels[part, key]
        assert kernel is not None
        return kernel

    def _pays(
        self,
        gather: Gather,
        key: PatternKey,
        sums: Sums,
        cost: Callable[[Gather], float],
        at_any_cost: bool,
        reading: float,
    ) -> bool:
        """False where the gather would compute more than it saves, or cannot. What loops compute again for each
        execution is dear at any cost. `reading`: what it costs to read again what the gradient has read."""
        if not self._can_be_built(gather, key):
            return False
        affordable = (
            ATOMIC_INSTRUCTIONS
            * (gather.taps or sum(not site.rare for site in gather.sites))
            * gather.span
            * math.prod(gather.tile or ())
        )
        if at_any_cost:
            return self._again(gather, key, sums) <= _MOST_AGAIN * affordable
        return cost(gather) + reading <= affordable

    def _cost(self, gather: Gather, box: Box, key: PatternKey, sums: Sums, uses: int) -> float:
        """Of one that can be built: of an execution, with its share of what is staged before. Rare reads cost those
        elements something that are not inside of the domain."""
        whole = self._cost_of(gather, key, sums, uses)
        often = replace(gather, sites=tuple(site for site in gather.sites if not site.rare))
        if often == gather or not often.sites or not self._can_be_built(often, key):
            return whole
        return min(whole, self._cost_of(often, key, sums, uses) + whole * (1 - box.inner_share))

    def _cost_of(self, gather: Gather, key: PatternKey, sums: Sums, uses: int) -> float:
        kernel = self._kernels[gather, key]
        assert kernel is not None
        staging = _STAGING * min(1, _FEWEST_USES * len(gather.staged) / max(1, uses))
        again = self._again(gather, key, sums)
        if again and not self._are_nested(self._emitted[gather, key]):  # for what each thread reads once
            again /= max(1, uses / len(gather.sites))
        return cost(kernel.function.body) + again + staging

    def _are_nested(self, emitted: Emitted) -> bool:
        """Whether loops run again for each iteration of those over what reads an element."""
        over = [op for op in walk(emitted.function.body) if isinstance(op, For) and id(op) not in emitted.again]
        return any(id(inner) in emitted.again for op in over for inner in walk(op.body))

    def _can_be_built(self, gather: Gather, key: PatternKey) -> bool:
        if (gather, key) not in self._kernels:
            self._kernels[gather, key] = self._built(gather, key)
        return self._kernels[gather, key] is not None

    def _again(self, gather: Gather, key: PatternKey, sums: Sums) -> float:
        """What loops of the pattern that run again cost, beyond one iteration of each."""
        body, loops = self._emitted[gather, key].function.body, self._emitted[gather, key].again

        def times(loop: For) -> float:
            if id(loop) not in loops:
                return 1
            counter = loops[id(loop)].body.args[0]
            found = None if sums.of(counter) is None else sums.extents[counter] or sums.most.get(counter)
            return math.inf if found is None else found

        return cost(body, times, integer=1) - cost(body, integer=1) if loops else 0

    def _built(self, gather: Gather, key: PatternKey) -> Kernel | None:
        try:
            return self._finished(gather, key, _MOST_OPERATIONS)
        except NotSliceable:
            return None

    @deeply
    def _finished(self, gather: Gather, key: PatternKey, most: float = math.inf) -> Kernel:
        """`most`: the operations that it may begin with."""
        pattern = self._patterns[key]
        assert pattern is not None
        shadow = pattern.derivation.adjoints[gather.name].name
        param = next(p for p in pattern.function.params if p.name == shadow)
        emitted = self._emitted[gather, key] = emitted_gather(
            pattern.function, gather, param, self.kernel.module.globals, most
        )
        function = emitted.function
        adjoints = frozenset(p.name for p in pattern.derivation.adjoints.values()) | staged_names(gather.staged)
        tuning = replace(PLAIN, totals=gather.totals)
        shadows = frozenset((shadow,))
        module = pipeline.finish_derivative(function, self.kernel.module, shadows, tuning=tuning, adjoints=adjoints)
        return Kernel(function.name, module, self.kernel.variable)

    def _pattern(self, key: PatternKey) -> _Pattern | None:
        if key not in self._patterns:
            self._patterns[key] = self._derive(key)
        return self._patterns[key]

    def _in_rectangles(self, pattern: _Pattern, key: PatternKey) -> _Pattern:
        """With loops of one length for all threads."""
        return _Pattern(with_rectangles(pattern.function, key.loops), pattern.derivation)

    def _derive(self, key: PatternKey) -> _Pattern | None:
        facts = replace(USUAL, private=frozenset(), apart=key.apart)
        options = Options(key.listed, (*key.kept, *key.read), "reverse", facts=facts)
        try:
            derivation = Derivation(self.derivations.prepared(options))
        except KernelGradError:  # the reverse needs what the kernel overwrites
            return None
        if derivation.internal or derivation.won_buffers or derivation.prepared.plan.taped or derivation.prepared.sites:
            return None
        (function,) = derivation.functions
        if key.read:
            function = without_updates(function, frozenset(derivation.adjoints[name].name for name in key.read))
        variables = {**self.kernel.module.globals, **{g.name: g for g in derivation.shared.values()}}
        module = pipeline.finish_derivative(function, replace(self.kernel.module, globals=variables))
        return _Pattern(module.functions[function.name], derivation)


def _sums_of(
    pattern: _Pattern, prepared: Prepared, sums: Sums, bounds: Mapping[str, int] = MappingProxyType({})
) -> Executions:
    """Of a pattern, by what is known of the kernel, and what its loops are told."""
    function, adjoints = pattern.function, {p.name: name for name, p in pattern.derivation.adjoints.items()}
    params = {p.name: p.value for p in prepared.function.params}
    same = {p.value: params[p.name] for p in function.params if p.name in params}
    own = {p.value: bounds[p.name] for p in function.params if p.name in bounds}
    sized = same | {p.value: params[name] for p in function.params if (name := adjoints.get(p.name)) is not None}

    def known(value: Any) -> Any:
        if isinstance(value, BytesOf):
            return sums.known(BytesOf(sized[value.root])) if value.root in sized else None
        return sums.known(same[value]) if value in same else own.get(value)

    return Executions(analyse(function, apart=False), sums.shape, known)


def _read_inputs(prepared: Prepared) -> set[str]:
    """Whose elements have adjoints that are added to."""
    roots = [prepared.memory.of(op.ptr) for op in prepared.memory.loads if prepared.plan.has_adjoint(op)]
    return {p.name for p in prepared.function.params if any(p.value in found for found in roots)}


def _might(name: str, prepared: Prepared, sums: Sums) -> bool:
    """Whether an input is worth a closer look: floats that are read at places known before the launch."""
    root = next(p.value for p in prepared.function.params if p.name == name)
    loads = [op for op in prepared.memory.loads if root in prepared.memory.of(op.ptr) and prepared.plan.has_adjoint(op)]
    if not loads or root in prepared.memory.written() or not isinstance(root.type, Pointer):
        return False
    places, counted = places_of(prepared.structure), executions(sums)
    known = all(
        prepared.memory.of(op.ptr) == {root}
        and (counted.address(op.ptr, root) is not None or _may_be_written_anew(op, places[id(op)], prepared, counted))
        for op in loads
    )
    plain = all(t in (F32, F64) for op in loads for t in _floats(op.result.type))
    return known and (plain or _widening(name, prepared) > 1)


def _widening(name: str, prepared: Prepared) -> int:
    """How many bytes of its adjoint there are for one of a buffer: 2 where that holds nothing but halves."""
    root = next(p.value for p in prepared.function.params if p.name == name)
    if not holds_halves(root.type):
        return 1
    from ...transforms.half_steps import half_of

    return 1 if half_of(root.type) is None else 2


def _may_be_written_anew(load: Load, place: StructurePlace, prepared: Prepared, sums: Sums) -> bool:
    """Whether it is in a loop that starts at no sum, which may be the larger of some; or at a place that is chosen."""
    loops = (around.owner for around in place.around() if isinstance(around.owner, For))
    clamped = any(sums.of(loop.body.args[0]) is None for loop in loops)
    return clamped or has_choices(load.ptr, sums) or bool(pairs_in(sums, _guards_of(place)))


def _guards_of(place: StructurePlace) -> Iterator[tuple[Value, bool]]:
    branches = ((around.owner, around.block) for around in place.around())
    return ((op.cond, block is op.then) for op, block in branches if isinstance(op, If))


def _floats(type: Any) -> Iterable[Any]:
    from ...autodiff.calculus.views import leaves

    return (t for t in leaves(type) if t.is_float)


def kept_outputs(prepared: Prepared, sums: Sums) -> tuple[str, ...]:
    """The outputs whose adjoint can be read without being consumed."""
    memory, places = prepared.memory, places_of(prepared.structure)
    loaded = frozenset().union(*(memory.of(op.ptr) for op in memory.loads)) if memory.loads else frozenset()
    return tuple(
        p.name
        for p in prepared.function.params
        if p.name in prepared.options.listed and p.value in memory.written() and p.value not in loaded
        if is_stored_once(p.value, memory, places, sums)
    )


def outputs_read_first(prepared: Prepared, sums: Sums) -> tuple[str, ...]:
    """Those whose elements the kernel reads before it stores them."""
    memory, function, places = prepared.memory, prepared.function, places_of(prepared.structure)
    listed = [p for p in function.params if p.name in prepared.options.listed and p.value in memory.written()]
    return tuple(p.name for p in listed if is_read_first(p.value, function, memory, places, sums))


# ---- launches -----------------------------------------------------------------------------------------------------


def launch_of(gather: Gather, box: Box) -> Launch:
    """Threads for all elements; its stream is told when it is run."""
    if gather.tile is not None:
        return make_launch(math.prod(box.extents) // math.prod(gather.tile) * gather.parts, shape_of(gather))
    *others, last = by_axes(box.extents)
    threads = (*others, -(-last // gather.span))
    block = _BLOCKS[len(others)] if len(threads) == 1 or threads[0] > _NARROW else _narrow_block(threads)
    grid = tuple(-(-n // b) for n, b in zip(threads, block, strict=True))
    return make_launch(grid, block)


def _narrow_block(threads: tuple[int, ...]) -> tuple[int, ...]:
    """Where a warp would have few threads along the first axis, as for weights of 3 x 3, it has more along others."""
    *others, _ = threads
    block = [1 << (n - 1).bit_length() if n <= _NARROW else _NARROW for n in others]
    return (*block, min(WIDTH // math.prod(block), _MOST_DEEP))


def numbers(box: Box, launch: Launched) -> dict[str, Supplied]:
    """What a gather's kernel is told: its own digits, and the launch of the kernel it belongs to."""
    found: dict[str, Callable[[int], int]] = {
        "_first": lambda k: box.first[k],
        "_extent": lambda k: box.extents[k],
        "_step": lambda k: box.steps[k],
        "_inner_first": lambda k: box.inner[k][0],
        "_inner_last": lambda k: box.inner[k][1],
    }
    given = {f"{name}_{k}": of(k) for name, of in found.items() for k in range(len(box.extents))}
    for axis in range(3):
        given[f"_threads_{axis}"] = launch.grid[axis] * launch.block[axis]
        given[f"_block_{axis}"], given[f"_grid_{axis}"] = launch.block[axis], launch.grid[axis]
    given.update(box.told)
    for axis, digits in enumerate(box.axes):
        for k, (start, extent) in enumerate(digits):
            given[f"_start_{axis}_{k}"], given[f"_digit_{axis}_{k}"] = start, extent
    return {name: Supplied(value % 2**64) for name, value in given.items()}
