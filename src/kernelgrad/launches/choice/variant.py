"""One form of a derivative: which adjoints are wanted, and what is known of the launches it is for. Its plan is made at
once, its code when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ... import pipeline
from ...analysis.access.affine import Sums
from ...analysis.machine import VECTOR_BYTES
from ...analysis.ownership.private import places_of, typical
from ...analysis.roots import is_shared
from ...autodiff.accumulate.choice import HOLDS
from ...autodiff.calculus.shadows import SHARED_BYTES, is_dynamic
from ...autodiff.prepare.options import Options, promised_roots
from ...autodiff.prepare.prepared import Derivations
from ...autodiff.reverse import Derivation
from ...deep import deeply
from ...errors import Span
from ...ir.ops import Atomic, For, Function, Global, Load, Module, Param, Print, Store, While
from ...ir.traverse import kinds, walk
from ...ir.types import Type
from ...kernel import Kernel
from ...locks import cached_property
from ...runtime.config import Launch
from ...runtime.integers import ANY as ANY
from ...runtime.integers import Extents, KnownLaunch
from ...runtime.integers import Ways as Ways
from .binding import binder, parameter_notes, supplied_names, with_supplied

if TYPE_CHECKING:
    from ...autodiff.accumulate.logs import Log, Logged
    from ...autodiff.calculus.tape import Stack
    from ...schedule.exchange.exchanged import Exchangeable, Exchanged


def with_halves(kernel: Kernel, params: dict[str, Param]) -> Kernel | None:
    """With adjoints that are halves, see `schedule/half_adjoints`; None where they cannot be."""
    given = {p.name for p in kernel.function.params}
    module = pipeline.with_half_adjoints(kernel.module, {n: p for n, p in params.items() if n in given})
    return None if module is None else Kernel(kernel.name, module, kernel.variable, kernel.written_later)


_ONE_OF_A_NAME = "// With other settings its text defines the same name: a file has room for one of them."


class Variant:
    """The code for one choice of wanted adjoints and one accumulation plan."""

    def __init__(
        self,
        kernel: Kernel,
        options: Options,
        derivations: Derivations,
        base: Variant | None = None,
        rows: Extents | None = None,
    ):
        """`base`: the same where threads do one element each, of whose code this one's is made. `rows`: the block that
        it is for, where that is another than the launch's, of as many threads."""
        self.kernel, self.options, self.base, self.rows = kernel, options, base, rows
        self._shaped: dict[tuple[int, int, int], bool] = {}
        self.halved: dict[Kernel, Kernel] = {}  # by what they are made of
        self.derivative: Derivation = Derivation(derivations.prepared(options)) if base is None else base.derivative

    @cached_property
    def _functions(self) -> tuple[Function, ...]:
        """With the launcher's parameters last."""
        derivation = self.derivative
        return tuple(with_supplied(f, supplied_names(f, derivation)) for f in derivation.functions)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Finished when they are needed: a launch may turn out to need another variant."""
        if self.options.facts.halves:
            return tuple(map(self.in_halves, self.plainer.kernels))
        modules = (self._in_loops(self._interleaved(self._with_rows(self._laid_out(m)))) for m in self._modules)
        return tuple(self._as_kernel(f, m) for f, m in zip(self._functions, modules, strict=True))

    @property
    def plainer(self) -> Variant:
        return self if self.base is None else self.base

    def in_halves(self, kernel: Kernel) -> Kernel:
        """A kernel of its own, or one that runs before or after, with the adjoints that it takes as halves."""
        if kernel not in self.halved:
            found = with_halves(kernel, self.half_params(self.options.facts.halves))
            assert found is not None
            self.halved[kernel] = found
        return self.halved[kernel]

    def takes_halves(self, kernel: Kernel) -> bool:
        return with_halves(kernel, self.half_params(self.options.facts.halves)) is not None

    def half_params(self, names: frozenset[str]) -> dict[str, Param]:
        """What the adjoints of these belong to, by the names of the adjoints."""
        params = {p.name: p for p in self.kernel.function.params}
        return {adjoint.name: params[n] for n, adjoint in self.derivative.adjoints.items() if n in names}

    def _with_rows(self, module: Module) -> Module:
        rows = self.options.facts.rows
        return module if rows is None else pipeline.with_kept_rows(module, rows)

    def _in_loops(self, module: Module) -> Module:
        if self.options.facts.slow:
            module = pipeline.with_slow_places(module)
        return pipeline.with_batched_loads(module) if self.options.facts.batched else module

    def _interleaved(self, module: Module) -> Module:
        groups = self.options.facts.interleaved
        return pipeline.with_interleaved(module, groups) if groups else module

    @cached_property
    def _modules(self) -> tuple[Module, ...]:
        """The functions after all passes that do not depend on how many elements a thread does."""
        if self.base is not None:
            return self.base._modules
        if self.options.facts.exchanged:
            return (self._finished(self.exchanged.rows),)
        return tuple(map(self._finished, self._functions))

    # ---- loops that are exchanged for threads

    @cached_property
    def exchangeable(self) -> Exchangeable:
        """What could be exchanged of its code; there is one function."""
        if self.base is not None:
            return self.base.exchangeable
        from ...schedule.exchange.exchanged import Exchangeable

        (function,), adding = self._functions, self._adding
        module = pipeline.cleaned_derivative(function, self._known, adding, self._wide)
        return Exchangeable(module.functions[function.name], module, adding | {SHARED_BYTES}, self._wide)

    @cached_property
    def exchanged(self) -> Exchanged:
        return self.base.exchanged if self.base is not None else self.exchangeable.code(self.options.facts.exchanged)

    @cached_property
    def keys_kernels(self) -> tuple[Kernel, ...]:
        """Those that sum up over the threads, after the gradient's own."""
        if not self.options.facts.exchanged:
            return ()
        left = frozenset(buffer.name for buffer in self.exchanged.buffers if buffer.adjoint)
        finished = ((f, self._finished_keys(f, own, left)) for f, own in self.exchanged.keys)
        return tuple(self._as_kernel(f, self._with_wide_loads(module)) for f, module in finished)

    def _with_wide_loads(self, module: Module) -> Module:
        aligned = self.options.facts.aligned
        return pipeline.with_wide_loads(module, aligned) if aligned else module

    def _finished_keys(self, function: Function, variables: dict[str, Global], left: frozenset[str]) -> Module:
        module = replace(self._known, globals={**self._known.globals, **variables})
        shadows, adding = self._shadows, self._adding
        known = {"adjoints": adding | left, "filled": frozenset(variables), "wide": self._wide}
        return pipeline.finish_derivative(function, module, shadows, adding, **known)

    def _laid_out(self, module: Module) -> Module:
        """For threads that do several elements each, or warps that do the work of several blocks."""
        facts = self.options.facts
        if facts.vector is not None:
            return pipeline.vectorized(module, facts.vector)
        return pipeline.in_tiles(self._with_wide_loads(module), facts.tuning)

    @cached_property
    def binder(self) -> Kernel:
        """The kernel that takes the adjoints, as far as its arguments go."""
        return binder(self.kernel, self.derivative)

    def _finished(self, function: Function, each: int | None = None) -> Module:
        """`each`: how many rows a thread does at most, where that is not what the facts say."""
        tiles = (tile for used in self.derivative.prepared.plan.refilled.values() for tile in used)
        refilled = frozenset(tile.variable for tile in tiles if tile.barrier is not None)
        tuning = replace(self.options.facts.tuning, refilled=refilled)
        tuning = replace(tuning, each=tuning.each if each is None else each)
        only_sums = self.derivative.coarse is not None and self.derivative.only_sums
        adding = self._adding
        known = {"adjoints": adding | {SHARED_BYTES}, "wide": self._wide}
        return pipeline.finish_derivative(function, self._known, self._shadows, adding, tuning, only_sums, **known)

    @cached_property
    def _shadows(self) -> frozenset[str]:
        return frozenset(p.name for p in self.derivative.adjoints.values())

    @cached_property
    def _wide(self) -> frozenset[str]:
        """Doubles in place of floats."""
        return frozenset(p.name for p in self.derivative.wide.values())

    @cached_property
    def _adding(self) -> frozenset[str]:
        """All memory in which adjoints are added up."""
        added_to = (
            *self.derivative.internal.values(),
            *(p for own in self.derivative.copies.values() for p in own.params),
            *(own.values for own in self.derivative.deferred.values()),
            *self.derivative.wide.values(),
        )
        return self._shadows | {p.name for p in added_to} | {g.name for g in self.derivative.shared.values()}

    @cached_property
    def _known(self) -> Module:
        """The kernel's module, with the shadows of shared memory."""
        variables = {**self.kernel.module.globals, **{g.name: g for g in self.derivative.shared.values()}}
        return replace(self.kernel.module, globals=variables)

    def _as_kernel(self, function: Function, module: Module) -> Kernel:
        derivative = self.derivative
        later = {*derivative.logged, *derivative.partials, *derivative.copies, *derivative.wide}
        later |= {own.of.name for own in derivative.deferred.values()}
        given = {p.name for p in function.params}
        written = {p.name for name, p in self.derivative.adjoints.items() if name in later}
        written.update(name for group in self.options.facts.interleaved for name in group)
        return Kernel(function.name, module, self.kernel.variable, frozenset(written) & given)

    def source(self, number: int) -> str:
        """One of its kernels as CUDA C++, with what its launches must be like."""
        kernel = self.kernels[number]
        head, _, rest = kernel.source.partition("\n")
        notes = self._notes(rest) if kernel is self.reverse and not self.options.facts.alone else ()
        function, variables = kernel.cuda_module.functions[kernel.name], self.kernel.module.globals
        extra = parameter_notes(self.derivative, self.options.facts.interleaved, function, variables)
        return "\n".join((head, _ONE_OF_A_NAME, *notes, *extra, rest))

    def _notes(self, text: str) -> Iterator[str]:
        plan = self.derivative.prepared.accumulation
        names = sorted(plan.private | {name for name, _ in plan.exclusive})
        shadows = [f"_d_{name}" for name in names if f"_d_{name}" in text]
        if self.options.facts.tuning.block is not None:
            yield f"// For blocks of {' x '.join(map(str, self.options.facts.tuning.block))} threads."
            started = self.started(self.reverse, self.options.facts.tuning.block)
            if started != self.options.facts.tuning.block:
                yield f"// Each thread does what several do there: {' x '.join(map(str, started))} threads are started."
        if self.options.facts.vector is not None:
            from ...schedule.vectorize.rewrite import GRID

            width = self.options.facts.vector.width
            yield f"// Each thread does what {width} threads of the kernel do, each row of a block what one of {GRID}"
            yield f"// blocks does. Buffers begin at multiples of {VECTOR_BYTES} bytes."
            if self.options.facts.vector.turns:
                yield "// The turns of a thread's loop are blocks along the second axis."
        if self.options.facts.rows is not None:
            yield f"// Threads keep elements of a row {self.options.facts.rows.text}."
        if shadows:
            yield f"// Without atomics, for launches whose threads touch different elements: {', '.join(shadows)}."
        for name, promises in plan.promised.items():
            if f"_d_{name}" in shadows:
                holding = " and ".join(HOLDS.format(promise) for promise in promises)
                yield f"// _d_{name} is among them since {holding}."
        early = self.derivative.prepared.task.early
        if early is not None and early.numbers is not None:
            yield "// For launches in which no thread reads what it wrote before, in another iteration or row."
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
        """Of what is on the tape."""
        frames = self.derivative.prepared.plan.taped.values()
        if not frames:
            return ()
        from ...autodiff.calculus.tape import leaf_types

        return tuple(dict.fromkeys(type for frame in frames for value in frame for type in leaf_types(value.type)))

    @property
    def logged(self) -> tuple[Logged, ...]:
        if not self.derivative.prepared.sites:
            return ()
        from ...autodiff.accumulate.ordered import logs_of

        return logs_of(self.derivative.prepared.sites)

    @property
    def keeps(self) -> bool:
        """Whether threads keep anything, as the plan has it: no code is needed to know."""
        prepared = self.derivative.prepared
        return any(map(bool, prepared.plan.taped.values())) or bool(prepared.sites)

    @property
    def places(self) -> tuple[Stack | Log, ...]:
        """Where threads put what they keep, each on its own part of it."""
        return (*self.derivative.stacks, *self.derivative.logs)

    @deeply
    def elements(self, known: Callable[[Any], Any], launch: Launch | KnownLaunch) -> dict[Type | Logged, int] | None:
        """What each thread needs of the tape and of the logs, by arithmetic; None where it must be counted."""
        from ...autodiff.accumulate import ordered
        from ...autodiff.saving import tape_capacity

        prepared = self.derivative.prepared
        extents = {"block_dim": launch.block, "grid_dim": launch.grid}

        def builtin(name: str, axis: int) -> int:
            return extents[name][axis]

        tape = tape_capacity.by_arithmetic(prepared.plan, known, builtin)
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
            taped = prepared.planned.taped_spans()
            fixed = facts.alone or facts.block is not None
            self._shaped[block] = not fixed and self._is_decided_by(block, taped)
        return self._shaped[block]

    def _is_decided_by(self, block: tuple[int, int, int], taped: set[Span]) -> bool:
        """Whether the block's shape tells how often loops run."""
        if kinds(self.kernel.function.body).isdisjoint((For, While)):
            return False
        from ...transforms.block_shape import decided_by

        return bool(decided_by(self.kernel.function, block, taped))

    def started(self, kernel: Kernel, block: tuple[int, int, int]) -> tuple[int, int, int]:
        """The block that is started of one of its kernels, for a launch with such blocks. Those that are larger than
        the user allows stay what they are, and are refused."""
        block = self.rows or block
        allowed = self.kernel.function.launch_bounds[:1]
        merges = self.options.facts.tuning.each > 1 and not any(n < math.prod(block) for n in allowed)
        if not merges:
            return block
        from ...schedule.coarsen import block_rows

        return block_rows.started(kernel.function, block)

    @property
    def merges_rows(self) -> bool:
        """Whether launches get code in which a thread does several rows of a block."""
        from ...schedule.coarsen import block_rows

        return self.adds_in_loops and len(self.kernels) == 1 and block_rows.applies(self.reverse.function)

    @property
    def adds_in_loops(self) -> bool:
        """Whether threads may add to the same elements in loops."""
        prepared = self.derivative.prepared
        if kinds(prepared.function.body).isdisjoint((For, While)):
            return False
        places = places_of(prepared.structure)
        return any(places[id(op)].in_loop for op in prepared.memory.loads if prepared.accumulation.is_atomic(op))

    @property
    def shares_in_loops(self) -> bool:
        """Whether threads may add to the same elements of shared memory in loops."""
        places = places_of(self.derivative.prepared.structure)
        return any(places[id(op)].in_loop for op in self._shared_additions)

    @property
    def shares(self) -> bool:
        """Whether threads may add to the same elements of shared memory."""
        return any(True for _ in self._shared_additions)

    @property
    def _shared_additions(self) -> Iterator[Load]:
        memory, how = self.derivative.prepared.memory, self.derivative.prepared.accumulation
        if memory.global_names:
            yield from (o for o in memory.loads if how.is_atomic(o) and any(map(is_shared, memory.of(o.ptr))))

    @cached_property
    def counting(self) -> tuple[Kernel, bool]:
        """The kernel that counts, and whether it must run on copies."""
        from ...autodiff.calculus import struct_members
        from ...autodiff.saving import tape_capacity

        prepared = self.derivative.prepared
        logs = [{key: counts.get(of, 0) for key, counts in prepared.sites.items()} for of in self.logged]
        counted = tape_capacity.counting_function(
            prepared.function, prepared.plan, prepared.memory, self.stack_types, logs
        )
        *params, counts = counted.function.params
        function = replace(counted.function, params=(*params, replace(counts, variable="_counts")))
        function = struct_members.bound(function, prepared.function)
        return self._as_kernel(function, self._laid_out(self._finished(function, each=1))), counted.stores

    # ---- outputs whose adjoints are to be kept

    @cached_property
    def typically_unkept(self) -> frozenset[str]:
        """Those of a launch like the ones the kernel is made for."""
        return self.unkept(self._typical_sums) if self.options.kept else frozenset()

    @cached_property
    def typically_unheld(self) -> frozenset[str]:
        return self.unheld(self._typical_sums) if self.options.promises.results else frozenset()

    @property
    def _typical_sums(self) -> Sums:
        prepared = self.derivative.prepared
        return typical(prepared.structure, prepared.function, promised_roots(prepared.function, self.options))

    def unheld(self, sums: Sums) -> frozenset[str]:
        """The outputs that hold the results, as promised, but where an element may be stored more than once."""
        if not self.options.promises.results:
            return frozenset()
        from ...analysis.ownership.single_stores import is_stored_once

        prepared, places = self.derivative.prepared, places_of(self.derivative.prepared.structure)
        roots = {p.name: p.value for p in prepared.function.params}
        names = self.options.promises.results
        return frozenset(n for n in names if not is_stored_once(roots[n], prepared.memory, places, sums))

    def unkept(self, sums: Sums) -> frozenset[str]:
        """The outputs to be kept whose adjoints the reverse takes, perhaps more than once."""
        names = (*self.options.kept, *self.options.facts.unkept)
        if not names:
            return frozenset()
        from ...analysis.ownership.single_stores import is_consumed, is_stored_once

        prepared, places = self.derivative.prepared, places_of(self.derivative.prepared.structure)
        roots = {p.name: p.value for p in prepared.function.params}
        return frozenset(
            name
            for name in names
            if is_consumed(roots[name], prepared.memory)
            and not is_stored_once(roots[name], prepared.memory, places, sums)
        )
