"""What holds for a launch, by the plan of a form and what is known of the launch: which proofs hold (rules 8 and 11),
which updates are gathered or spread over copies, what is tuned for its block. No code is emitted for that, but for the
patterns of gathers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...analysis.access.affine import Shape, Sums
from ...analysis.access.executions import executions
from ...analysis.machine import COPIES, MOST_ADDITIONS, MOST_COPIES, WARP
from ...analysis.ownership.private import places_of, private_roots
from ...analysis.roots import Place, place_of
from ...analysis.tuning import Totals, Tuning, tuning_for
from ...autodiff.accumulate.choice import Facts, in_one_kernel, on_cores
from ...autodiff.calculus.shadows import adjoint_type, holds_halves, is_dynamic
from ...autodiff.prepare.options import promised_roots
from ...autodiff.prepare.planned import of_stores
from ...autodiff.prepare.prepared import Prepared
from ...deep import deeply
from ...ir.ops import Barrier, For, Load, Value, Warp, While
from ...ir.traverse import kinds
from ...ir.types import F32, F64, Pointer, innermost
from ...locks import cached_property
from ...runtime.integers import Growing, KnownLaunch, Looking
from .variant import Variant

if TYPE_CHECKING:
    from ...analysis.access.thread_columns import Column
    from ...analysis.roots import Memory
    from ...analysis.tiles import Tile
    from ...autodiff.accumulate.deferred import Deferred
    from .gathers import Chosen, Gathers

_MANY_BLOCKS = 2048  # that update one address: beyond, a finishing step is faster
_SMALL_BUFFER = 1 << 16  # bytes, of which it is worth having copies
_LARGE_COPIES = 1 << 23  # bytes: beyond, doubles cost less
_LARGE_TAPE = 1 << 26  # bytes: beyond what caches hold
_ROOM = 1 << 29  # bytes that a tape may have room for, of which perhaps few are needed
_CROWD = 64  # threads for each element
_FEW_LOADS = 1 << 12  # whose adjoints a float can hold, if each is added to an element once
_REMEMBERED = 1024  # kinds of launches

Known = Callable[[Any], Any]


class Found(NamedTuple):
    """What holds for a launch, and the gathers that it gets."""

    facts: Facts
    gathers: tuple[Chosen, ...] = ()


class Chooser:
    """Finds what holds for launches, starting from a form that holds for most."""

    def __init__(
        self, variant: Variant, gathers: Callable[[], Gathers], form: Callable[[Facts], Variant], budget: int | None
    ):
        """`form`: the one for what holds for a launch. `budget`: of the tape, if there is one."""
        self.variant, self.options, self._gathers, self._form = variant, variant.options, gathers, form
        self._has_budget = budget is not None
        self.derivation, self.prepared = variant.derivative, variant.derivative.prepared
        self.relevant: Growing[Value] = Growing()  # the scalars that what was found depends on
        self._found: dict[Any, Found] = {}

    @deeply
    def find(self, launch: KnownLaunch, sizes: Mapping[str, int], assigned: tuple[str, ...]) -> Found:
        """`sizes`: of the buffers, in bytes; `assigned`: whose adjoints start at zero."""
        known = launch.answers(self.variant.kernel.function)
        kind = *launch[1:4], launch.blocks, tuple(sizes.items()), launch.ways, launch.parts
        found = self._found.get((kind, tuple(map(known, self.relevant.parts))))
        if found is None:
            looking = Looking(known)
            found = self._with_all(launch, looking, sizes, assigned)
            if found.facts.deferred and not self._defers(found.facts, launch, looking, sizes):
                found = self._with_all(launch, looking, sizes, assigned, deferring=False)
            self.relevant.add(looking.asked)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[kind, tuple(map(known, self.relevant.parts))] = found
        return found

    def _with_all(
        self,
        launch: KnownLaunch,
        known: Known,
        sizes: Mapping[str, int],
        assigned: tuple[str, ...],
        deferring: bool = True,
    ) -> Found:
        found = self._suited(self._find(launch, known, sizes, assigned, deferring), launch)
        found = found._replace(facts=self._with_early_loads(found.facts, launch, known))
        return found._replace(facts=self._exchanging(found.facts, launch, known))

    def _defers(self, facts: Facts, launch: KnownLaunch, known: Known, sizes: Mapping[str, int]) -> bool:
        """Whether of the form that runs the same is true: loops may be others there."""
        from .deferring import deferred_additions

        prepared = self._form(facts).derivative.prepared
        sums = Sums(
            prepared.structure,
            Shape(launch.grid, launch.block),
            known,
            promised_roots(prepared.function, self.options),
        )
        own = {d.name: sizes[d.name] for d in facts.deferred}
        return deferred_additions(prepared, sums, own) == facts.deferred

    def _suited(self, found: Found, launch: KnownLaunch) -> Found:
        """To where it runs."""
        facts = in_one_kernel(found.facts, frozenset(self.options.listed)) if launch.ways.single else found.facts
        facts = on_cores(facts) if launch.ways.on_cpu else facts
        coarse = self._coarse_axes(launch, facts) if launch.ways.on_gpu else 0
        registers = self._in_registers(replace(facts, coarse=coarse, **self._without_cells))
        if not launch.ways.on_gpu or not facts.cells:
            return found._replace(facts=self._in_columns(registers, facts.columns))
        return found._replace(facts=self._in_cells(facts, registers, launch))

    @cached_property
    def _without_cells(self) -> dict[str, Any]:
        return {"cells": frozenset(), "columns": frozenset(), "passed": self.options.facts.passed}

    def _in_columns(self, facts: Facts, columns: frozenset[Column]) -> Facts:
        """With remainders that a thread has all the time, unless it does the work of several blocks."""
        if not columns or (facts.coarse and self._form(facts).derivative.coarse is not None):
            return facts
        return replace(facts, columns=columns, coarse=0)

    def _in_cells(self, facts: Facts, others: Facts, launch: KnownLaunch) -> Facts:
        """Where blocks add up in shared memory: `others` if registers hold the sums."""
        if others.coarse and self._form(others).derivative.coarse is not None:
            return others
        from .block_cells import for_launch

        return for_launch(facts, self.prepared, launch)

    def _exchanging(self, facts: Facts, launch: KnownLaunch, known: Known) -> Facts:
        """With loops that are exchanged for the threads, where that pays."""
        if not launch.ways.on_gpu or not self._has_loops or facts.cells:
            return facts
        from .exchanging import may_exchange, with_exchange

        return with_exchange(self._form, facts, launch, known) if may_exchange(self.variant, launch) else facts

    def _in_registers(self, facts: Facts) -> Facts:
        """Where few blocks do the work of all, their threads add up in registers what they add to copies: floats can
        hold that. Whether they do, the code says, which is the launch's then."""
        narrow = replace(facts, wide=facts.wide - facts.copied)
        if not facts.coarse or narrow == facts:
            return facts
        return narrow if self._form(narrow).derivative.coarse is not None else facts

    def _with_early_loads(self, facts: Facts, launch: KnownLaunch, known: Known) -> Facts:
        """Whether loads that a reverse alone makes again read in this launch what they do in a typical one."""
        if self.options.mode != "reverse":
            return facts
        task = self._form(facts).derivative.prepared.task
        if task.early is None:
            return facts
        from ...analysis.ownership.loads_before_stores import Numbers, still_early

        numbers = Numbers(Shape(launch.grid, launch.block), known)
        early = still_early(task.early, task.function, task.memory, task.may_alias, numbers)
        return facts if early else replace(facts, apart_in_turn=False)

    def _find(
        self,
        launch: KnownLaunch,
        known: Known,
        sizes: Mapping[str, int],
        assigned: tuple[str, ...],
        deferring: bool = True,
    ) -> Found:
        """`deferring`: additions may follow the launch."""
        usual, prepared = self.options.facts, self.prepared
        promised = promised_roots(prepared.function, self.options)
        sums = Sums(prepared.structure, Shape(launch.grid, launch.block), known, promised)
        if usual.alone:
            wide = self._wide(launch, sums, frozenset(sizes), sizes, launch.parts)
            unkept, unheld = self.variant.unkept(sums), self.variant.unheld(sums)
            return Found(replace(usual, unkept=unkept, unheld=unheld, wide=wide))
        private = private_roots(prepared.memory, prepared.structure, prepared.function, prepared.activity.roots, sums)
        exclusive, apart = of_stores(prepared.planned, sums)
        plan, may_alias = prepared.accumulation, self.options.may_alias
        on_gpu = launch.ways.on_gpu
        scattered = private & set(_scattered(prepared, sums)) if _loads_rather(launch) else frozenset[str]()
        others = [(name, nbytes) for name, nbytes in sizes.items() if name not in private - scattered]
        chosen: tuple[Chosen, ...] = ()
        if others and not launch.ways.single and launch.blocks is None:
            find = self._gathers().find
            chosen = find(self.options, prepared, sums, others, apart, assigned, on_gpu, scattered)
        gathered = {c.gather.name for c in chosen}
        deferred: frozenset[Deferred] = frozenset()
        if deferring and not may_alias and not launch.ways.single:
            deferred = self._deferred(sums, {n: k for n, k in sizes.items() if n not in private | gathered})
        followed = {d.name for d in deferred}
        alone, private = private, private | followed
        own = frozenset[str]() if may_alias else private
        memory = _while_running(prepared.memory, deferred)
        written = {n for n in assigned if n in own and _read_whole(n, sizes[n], prepared, memory, sums)}
        last = {n: _read_last(n, sizes[n], prepared, memory, sums) for n in assigned if n in own - written}
        common = {n: nbytes for n, nbytes in sizes.items() if n not in private | gathered}
        few = (n for n in common if n not in launch.parts)
        crowded = frozenset(n for n in few if self._is_crowded(n, sizes[n], launch))
        wide, copies = frozenset[str](), COPIES
        if not may_alias:
            elsewhere, spread = launch.parts | gathered | (written - followed), None if launch.ways.on_cpu else crowded
            wide = self._wide(launch, sums, alone, sizes, elsewhere, spread, exclusive=exclusive)
            if wide & followed:
                return self._find(launch, known, sizes, assigned, deferring=False)
            if spread and wide & spread and MOST_COPIES * sum(sizes[n] for n in spread) <= _LARGE_COPIES:
                narrow = self._wide(launch, sums, alone, sizes, elsewhere, spread, MOST_COPIES, exclusive)
                wide, copies = (wide, COPIES) if narrow & spread else (narrow, MOST_COPIES)
        in_block = self._cells(launch, sums, private, common)
        strips = self._is_long(launch, known)
        told = strips and not may_alias  # of loops in strips, what is typical is found with their own addresses
        facts = replace(
            usual,
            private=private if told else None if may_alias or private == plan.private else private,
            exclusive=exclusive if told else None if may_alias or exclusive == plan.exclusive else exclusive,
            apart=apart if told else None if may_alias or apart == plan.apart else apart,
            **self._refilled(launch, known),
            partials=self._leaves_partials(launch),
            read_last=frozenset(place for places in last.values() for place in places),
            deferred=deferred,
            overwritten=frozenset(written | {c.gather.name for c in chosen if c.gather.writes}),
            strips=strips,
            roomy=self._is_roomy(launch, known, strips),
            unkept=self.variant.unkept(sums),
            unheld=self.variant.unheld(sums),
            copied=crowded,
            copies=copies,
            **in_block,
            wide=wide,
            gathered=frozenset(c.gather for c in chosen),
            tuning=replace(self._tuning(launch), totals=self._totals(launch, known)),
            ragged=self._is_ragged(launch.block),
        )
        return Found(facts, chosen)

    def _deferred(self, sums: Sums, sizes: Mapping[str, int]) -> frozenset[Deferred]:
        """`sizes`: of buffers whose elements may be several threads'."""
        if not sizes:
            return frozenset()
        memory = self.prepared.memory
        reads = [root for op in memory.loads for root in memory.of(op.ptr) if root.name in sizes]
        if len(reads) == len(set(reads)):  # nothing is left if one of them is
            return frozenset()
        from .deferring import deferred_additions

        return deferred_additions(self.prepared, sums, sizes)

    def _cells(
        self, launch: KnownLaunch, sums: Sums, private: frozenset[str], sizes: Mapping[str, int]
    ) -> dict[str, Any]:
        """The small buffers of whose adjoints blocks have cells in shared memory, and what else is known then: at which
        columns of them threads stay, and which early returns are made."""
        small = {n: nbytes for n, nbytes in sizes.items() if self._few_numbers(n, nbytes)}
        divided = self._divided(sizes)
        if not (small or divided) or not launch.ways.on_gpu or self.options.mode == "split":
            return {}
        from .block_cells import Candidates

        candidates = Candidates(self.prepared, self.variant.kernel.function, launch, sums, private)
        cells = candidates.chosen(small, sizes)
        if not cells:
            return {"columns": candidates.columns(divided, of_block=True)}
        columns = candidates.columns((own.name for own in cells), of_block=candidates.turns.each == 1)
        return {"cells": cells, "columns": columns, "passed": self.options.facts.passed | candidates.passed()}

    def _divided(self, names: Iterable[str]) -> list[str]:
        """Buffers of which elements that are remainders may be read in loops: these may be the same in all turns."""
        if self.options.may_alias or self.options.deterministic or not self._has_loops:
            return []
        if kinds(self.prepared.function.body).isdisjoint(("rem", "and")):
            return []
        written, roots = self.prepared.memory.written(), {p.name: p.value for p in self.prepared.function.params}
        return [name for name in names if name in roots and roots[name] not in written]

    def _wide(
        self,
        launch: KnownLaunch,
        sums: Sums,
        private: frozenset[str],
        sizes: Mapping[str, int],
        elsewhere: frozenset[str],
        crowded: frozenset[str] | None = frozenset(),
        copies: int = COPIES,
        exclusive: frozenset[Place] = frozenset(),
    ) -> frozenset[str]:
        """The memory that has adjoints in double precision: not of elements that one thread adds to a few times."""
        prepared = self.prepared
        few = len(prepared.memory.loads) < _FEW_LOADS and not self._has_loops and not prepared.memory.global_names
        if few and private.issuperset(p.name for p in prepared.function.params if p.value in prepared.activity.roots):
            return frozenset()
        from .cell_widths import wide_memory

        return wide_memory(prepared, launch, sums, private, sizes, elsewhere, crowded, copies, exclusive)

    @cached_property
    def _has_loops(self) -> bool:
        return not kinds(self.prepared.function.body).isdisjoint((For, While))

    def _leaves_partials(self, launch: KnownLaunch) -> bool:
        """A deterministic gradient has a finishing step anyway, however few blocks there are."""
        many = math.prod(launch.grid) > min(_MANY_BLOCKS, MOST_ADDITIONS)  # or floats would lose some
        return many and not self.options.deterministic and self.derivation.sums

    def _is_ragged(self, block: tuple[int, int, int]) -> bool:
        """Whether loops part the warps of such a block that those of whole rows go through together."""
        exchanging = not kinds(self.variant.kernel.function.body).isdisjoint((Warp, Barrier))
        return exchanging and block[0] % WARP != 0 and self._parts_ragged_warps

    @cached_property
    def _parts_ragged_warps(self) -> bool:
        from ...transforms import converge

        return converge.is_needed(self.variant.kernel.function, whole_rows=False)

    def _totals(self, launch: KnownLaunch, known: Known) -> Totals | None:
        """How long loops add up pieces of sums, if there are such."""
        if not self._has_loops:
            return None
        from ...analysis.access.contribution_counts import totals_of

        prepared = self.prepared
        return totals_of(prepared.function, prepared.structure, Shape(launch.grid, launch.block), known)

    def _tuning(self, launch: KnownLaunch) -> Tuning:
        usual = self.options.facts
        if not self.variant.adds_in_loops and usual.block is None:
            return tuning_for(launch.block) if self.variant.shares and launch.ways.on_gpu else usual.tuning
        from ...schedule.coarsen.block_rows import rows_for

        return tuning_for(launch.block, rows_for(launch.grid, launch.block) if launch.ways.on_gpu else 1)

    def _coarse_axes(self, launch: KnownLaunch, facts: Facts) -> int:
        """Where nothing but sums may be left to do: what is emitted has the last word."""
        from ...autodiff.accumulate.fewer_blocks import pays
        from ...autodiff.costs.plan_effects import may_only_sum

        crowded = self.options.mode == "reverse" and facts.copied  # with what is known of the launch, perhaps all
        if not pays(launch.grid, launch.block) or not (crowded or may_only_sum(self.prepared)):
            return 0
        return 1 if launch.grid[1:] == (1, 1) else 3

    def _is_crowded(self, name: str, nbytes: int, launch: KnownLaunch) -> bool:
        """Whether so many threads update so few elements that they would wait for each other."""
        numbers, blocks = self._few_numbers(name, nbytes), math.prod(launch.grid)
        return bool(numbers) and blocks >= _MANY_BLOCKS and blocks * math.prod(launch.block) >= _CROWD * numbers

    def _few_numbers(self, name: str, nbytes: int) -> int:
        """How many a small buffer has, of whose adjoint there may be copies; 0 of others."""
        prepared, adjoint = self.prepared, self.derivation.adjoints.get(name)
        if self.options.may_alias or self.options.deterministic or adjoint is None or nbytes > _SMALL_BUFFER:
            return 0
        root = next(p.value for p in prepared.function.params if p.name == name)
        type = innermost(root.type.pointee) if isinstance(root.type, Pointer) else None
        read = any(root in prepared.memory.of(op.ptr) for op in prepared.memory.loads if prepared.plan.has_adjoint(op))
        if not read or root in prepared.memory.written() or type is None:
            return 0
        from ...autodiff.calculus.flat_numbers import flat_adjoint, numbers_in

        if flat_adjoint(type) not in (F32, F64):
            return 0
        return nbytes // type.size * numbers_in(adjoint_type(type))

    def _is_long(self, launch: KnownLaunch, known: Known) -> bool:
        """Whether the tape is so large that running loops again costs less, or to count it takes a launch."""
        if not any(self.prepared.plan.taped.values()):
            return False
        narrow, stripped = self.prepared.planned.long_loops
        nbytes = self._tape_bytes(launch, known)
        if nbytes is None and narrow:
            return True
        most = self._tape_bytes(launch, known, roomy=True) if nbytes is None else nbytes
        return most is not None and most > _LARGE_TAPE and bool(narrow or stripped)

    def _is_roomy(self, launch: KnownLaunch, known: Known, strips: bool) -> bool:
        """Whether there is room for as often as loops run at most, where a launch would have to count that before. Of
        a split, the tape stays until the reverse."""
        prepared = self.prepared
        if self._has_budget or launch.segment is not None or not any(prepared.plan.taped.values()):
            return False
        if not strips and self._tape_bytes(launch, known) is not None:
            return False
        most = self._tape_bytes(launch, known, roomy=True)
        room = _LARGE_TAPE if self.options.mode == "split" else _ROOM
        if strips:
            from ...autodiff.saving.rerun_segments import LENGTH

            room *= LENGTH
        return most is not None and most <= room

    def _tape_bytes(self, launch: KnownLaunch, known: Known, roomy: bool = False) -> int | None:
        """None where it is not known. `roomy`: at most."""
        from ...autodiff.saving import tape_capacity

        sizes = tape_capacity.by_arithmetic(self.prepared.plan, known, launch.builtin, roomy)
        if sizes is None:
            return None
        threads = math.prod(launch.grid) * math.prod(launch.block)
        return threads * sum(type.size * count for type, count in sizes.items())

    def _refilled(self, launch: KnownLaunch, known: Known) -> dict[str, Any]:
        """Whether every tile that the reverse fills again is filled wherever it is read, and which of them only if it
        has what earlier iterations left."""
        prepared = self.prepared
        tiles = [tile for used in prepared.plan.refilled.values() for tile in used if tile.barrier is not None]
        if not tiles:
            return {}
        from ...analysis.block_interpreter.coverage import is_covered, is_stored_apart

        def holds(proof: Callable[..., bool], tile: Tile) -> bool:
            return proof(tile, self._shared_bytes(tile, launch), launch.block, prepared.structure, known)

        others = [tile for tile in tiles if not holds(is_covered, tile)]
        refill = all(tile.earlier is not None and holds(is_stored_apart, tile) for tile in others)
        return {"refill": refill, "looks_back": frozenset(tile.variable for tile in others) if refill else frozenset()}

    def _shared_bytes(self, tile: Tile, launch: KnownLaunch) -> int:
        variable = self.variant.kernel.module.globals[tile.variable]
        return launch.shared_bytes if is_dynamic(variable) else variable.type.size


def _loads_rather(launch: KnownLaunch) -> bool:
    """Whether loads that go all over memory are faster than stores."""
    return launch.ways.on_gpu


def _scattered(prepared: Prepared, sums: Sums) -> Iterator[str]:
    """The inputs of which neighbouring threads read an element each, once, that are not neighbours."""
    reads = [op for op in prepared.memory.loads if prepared.plan.has_adjoint(op)]
    for param in prepared.function.params:
        loads = [op for op in reads if param.value in prepared.memory.of(op.ptr)]
        address = executions(sums).address(loads[0].ptr, param.value) if len(loads) == 1 else None
        if address is not None and address.coefficients.get(("thread_idx", 0)) != loads[0].result.type.size:
            yield param.name


def _while_running(memory: Memory, deferred: frozenset[Deferred]) -> Memory:
    if not deferred:
        return memory
    from .deferring import but_deferred

    return but_deferred(memory, deferred)


def _read_whole(name: str, nbytes: int, prepared: Prepared, memory: Memory, sums: Sums) -> bool:
    """Whether every element of an input is read, each once."""
    root = _plain_root(name, prepared)
    loads = [op for op in memory.loads if root in memory.of(op.ptr)]
    if root is None or not _have_adjoints(loads, prepared):
        return False
    from ...analysis.ownership.whole import bytes_read_once

    return bytes_read_once(root, memory, places_of(prepared.structure), sums) == nbytes


def _read_last(name: str, nbytes: int, prepared: Prepared, memory: Memory, sums: Sums) -> set[Place]:
    """Where the last reads of an input are, if they read every element, each once."""
    from ...analysis.ownership.whole import bytes_read_last, last_loads

    root = _plain_root(name, prepared)
    if root is None:
        return set()
    last = last_loads(root, memory, prepared.structure.top.block)
    others = [op for op in memory.loads if root in memory.of(op.ptr) and not any(op is found for found in last)]
    places = {place_of(op, name) for op in last}
    if not _have_adjoints(last, prepared) or places & {place_of(op, name) for op in others}:
        return set()
    return places if bytes_read_last(root, memory, places_of(prepared.structure), sums) == nbytes else set()


def _plain_root(name: str, prepared: Prepared) -> Value | None:
    """None of records with halves among other numbers: nothing is said of them."""
    root = next(p.value for p in prepared.function.params if p.name == name)
    if not isinstance(root.type, Pointer) or not holds_halves(root.type):
        return root if isinstance(root.type, Pointer) else None
    from ...transforms.half_steps import half_of

    return root if half_of(root.type) is not None else None


def _have_adjoints(loads: list[Load], prepared: Prepared) -> bool:
    """What has none writes none."""
    return all(map(prepared.plan.has_adjoint, loads))
