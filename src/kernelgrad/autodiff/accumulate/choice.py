"""The accumulation plan: how each read's adjoint is added to the shadow of what it read.

Memory of this thread alone is updated plainly: local arrays, and buffers of which no two threads touch the same element
(`private`). That proof depends on the launch (rule 11): a launch for which it fails uses the variant in which such
updates are atomic too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...analysis.access.affine import Basis, Part, Sums
from ...analysis.access.executions import executions
from ...analysis.machine import COPIES, VECTOR_BYTES, WARP
from ...analysis.promises import NOTHING
from ...analysis.roots import Memory, Place, is_shared, place_of
from ...analysis.structure import Structure
from ...analysis.tuning import USUAL as USUAL_TUNING
from ...analysis.tuning import KeptRows, Tuning, Vectorization
from ...ir.ops import Alloca, Load, Store, Value

if TYPE_CHECKING:
    from ...analysis.access.outcomes import Outcome
    from ...analysis.access.thread_columns import Column
    from .block_cells import InBlock
    from .deferred import Deferred
    from .gather.plan import Gather

HOLDS = "{}, as promised"


@dataclass(frozen=True)
class Facts:
    """What is known of a launch. `private`: the buffers and shared variables whose elements are touched by one thread
    each (rule 11); None for those of a typical launch. `exclusive`: the same of cells of shared memory between
    two barriers (rule 17), by where they are read. `apart`: the stores by which no two threads write the same
    element. `refill`: the tiles' fills cover what is read (rule 8), but for those in `looks_back`: these have
    what earlier iterations left in some cells. `partials`: the warps leave their sums for a
    finishing step, since so many blocks would wait for each other at one address. `coarse`: along so many axes
    there are so many blocks that fewer may be started, each for many of the launch's. `overwritten`: inputs all
    of whose elements are read once each, so that their adjoints can be written instead of cleared first and added
    to. `read_last`: by where, reads after all others of an input that read each element once: they write, others add.
    `deferred`: additions that follow the launch: without them, elements are one thread's.
    `copied`: small inputs that very many threads read: each block adds to one of several copies of their
    adjoints; `copies`: how many. `cells`: small inputs of whose adjoints each block has cells in shared memory (see
    `block_cells`).
    `columns`: remainders that a thread has all the time (see `analysis/access/thread_columns`). `wide`: memory to whose
    cells so much is added that it is added to doubles (see `prepare/double_cells`).
    `gathered`: inputs whose adjoints launches of their own gather. `strips`: the tape would be large, and loops go in
    strips. `unkept`: outputs to be kept whose elements may be stored more than once: their adjoints are consumed, on
    copies. `unheld`: the same of outputs that are promised to hold the results: those are not read then. `taped`:
    buffers that may change before the reverse runs, of which what is read is kept on the tape, and not
    a copy of all. `block`: its shape, where loops depend on it. `passed`: branches around barriers that all blocks take
    or none. `tuning`: its shape, for what its threads add up together. `vector`: threads do several neighbouring
    elements each. `rows`: elements stay in registers from loop to loop. `alone`: there is one thread. `inlined`: it is
    part of a thread of another kernel, whose own is what it is given by value; `stacks`: and keeps more than a constant
    number of values; `arena`: in a frame of any size. `ragged`: the rows of a block are not whole warps, and lanes may
    leave a loop at different times for it. `apart_in_turn`: loops of a reverse alone go to other elements in every
    iteration, as they do in a typical launch. `exchanged`: loops whose updates launches of their own sum up over the
    threads, by the numbers that `schedule/exchange` gives them. `aligned`: the buffers of which neighbours may be
    loaded sixteen bytes at a time. `halves`: whose adjoints are halves as they are, not copies in float. `interleaved`:
    adjoints that are added to side by side, in memory of their own (see `schedule/interleave`). `batched`: loops load
    for several turns at once. `slow`: places that stay for some turns of a loop are added to when they change.
    `roomy`: the tape has room for as often as loops run at most, where to count that takes a launch."""

    private: frozenset[str] | None = None
    exclusive: frozenset[Place] | None = None
    apart: frozenset[Place] | None = None
    refill: bool = True
    looks_back: frozenset[str] = frozenset()
    partials: bool = False
    coarse: int = 0
    overwritten: frozenset[str] = frozenset()
    read_last: frozenset[Place] = frozenset()
    deferred: frozenset[Deferred] = frozenset()
    copied: frozenset[str] = frozenset()
    copies: int = COPIES
    cells: frozenset[InBlock] = frozenset()
    columns: frozenset[Column] = frozenset()
    wide: frozenset[str] = frozenset()
    gathered: frozenset[Gather] = frozenset()
    strips: bool = False
    unkept: frozenset[str] = frozenset()
    unheld: frozenset[str] = frozenset()
    taped: frozenset[str] = frozenset()
    block: tuple[int, int, int] | None = None
    passed: frozenset[Outcome] = frozenset()
    tuning: Tuning = USUAL_TUNING
    vector: Vectorization | None = None
    rows: KeptRows | None = None
    alone: bool = False
    inlined: bool = False
    stacks: bool = False
    arena: bool = False
    ragged: bool = False
    apart_in_turn: bool = True
    exchanged: tuple[tuple[int, ...], ...] = ()
    aligned: frozenset[str] = frozenset()
    halves: frozenset[str] = frozenset()
    interleaved: tuple[tuple[str, ...], ...] = ()
    batched: bool = False
    slow: bool = False
    roomy: bool = False


USUAL = Facts()  # of most launches
_LOCAL = "a local array of this thread"


def on_cores(facts: Facts) -> Facts:
    """The same on a CPU, whose few cores hardly wait for each other, and where a block's sum costs less than those of
    its warps. Each core has copies of what many threads add to (Note [Worker sums] in backends/cpu/worker_sums.py)."""
    return replace(facts, partials=False, copied=frozenset(), cells=frozenset(), tuning=facts.tuning.on_cpu)


def in_one_kernel(facts: Facts, listed: frozenset[str]) -> Facts:
    """The same without what the launcher adds to the adjoints of the listed parameters after the kernel."""
    return replace(facts, partials=False, copied=frozenset(), cells=frozenset(), wide=facts.wide - listed)


@dataclass
class Accumulation:
    atomic: set[int] = field(default_factory=set)  # loads whose update is atomic
    logged: dict[int, str] = field(
        default_factory=dict
    )  # loads whose update is logged: for this shared variable, or ""
    taken: dict[int, tuple[str, ...]] = field(default_factory=dict)  # stores before them that want to see the log
    reasons: dict[int, str] = field(default_factory=dict)
    private: frozenset[str] = frozenset()  # what is updated plainly, by a proof that depends on the launch
    exclusive: frozenset[Place] = frozenset()
    apart: frozenset[Place] = frozenset()
    contested: set[int] = field(default_factory=set)  # stores by which several threads may write the same element
    together: set[int] = field(default_factory=set)  # of the atomic ones, those that a warp may make as one
    writes: set[int] = field(default_factory=set)  # loads whose adjoint is written, not added to
    gathered: set[int] = field(default_factory=set)  # loads whose update another launch makes
    in_block: dict[int, InBlock] = field(default_factory=dict)  # loads whose update is made to cells of the block
    copied: set[int] = field(default_factory=set)  # loads whose update is made to one of several copies
    deferred: dict[int, Deferred] = field(default_factory=dict)  # of the atomic ones, loads whose update follows
    promised: dict[str, tuple[str, ...]] = field(default_factory=dict)  # for private buffers: by promises of which

    def is_atomic(self, op: Load) -> bool:
        return id(op) in self.atomic

    def is_logged(self, op: Load) -> bool:
        return id(op) in self.logged

    def why(self, op: Load) -> str:
        """The reason for how the update is made, as the emitted text gives it beside the statement."""
        reason = self.reasons.get(id(op), "").partition("; ")[0]
        if self.is_logged(op):
            return f"{reason}: logged, to be added in a fixed order"
        if id(op) in self.in_block:
            return f"{reason}: added up in shared memory, which the block adds once when it is done"
        if id(op) in self.deferred:
            return f"{reason}: added after the launch"
        if id(op) in self.copied:
            return f"{reason}: of several copies, each is some blocks' alone; they are added up after the launch"
        if reason == _LOCAL:
            return ""
        if id(op) in self.writes:
            return f"{reason}, and reads it once: written, not added"
        return f"atomic: {reason}" if self.is_atomic(op) else reason


def plan_updates(
    memory: Memory,
    structure: Structure,
    active: frozenset[Value],
    private: frozenset[str],
    exclusive: frozenset[Place],
    apart: frozenset[Place],
    facts: Facts,
    sums: Sums,
) -> Accumulation:
    plan = Accumulation(private=private, exclusive=exclusive, apart=apart)
    gathered = {gather.name: gather for gather in facts.gathered}
    names = {root: name for name, root in memory.global_names.items()}
    if sums.promised is not NOTHING:
        from ...analysis.ownership.promises import relied_on

        plan.promised = {n: found for n, found in relied_on(memory, structure, sums.promised).items() if n in private}
    for store in memory.stores:
        roots = memory.of(store.ptr) & active if isinstance(store, Store) else frozenset()
        if any(not _is_local(r, structure) and place_of(store, names.get(r, r.name or "")) not in apart for r in roots):
            plan.contested.add(id(store))
    if facts.deferred:
        from .deferred import reads_of

        plan.deferred = reads_of(memory, facts.deferred)
    for load in memory.loads:
        roots = memory.of(load.ptr) & active
        if not roots:
            continue
        if all(_is_local(root, structure) for root in roots):
            plan.reasons[id(load)] = _LOCAL
        elif all(names.get(root, root.name) in gathered for root in roots):
            plan.gathered.add(id(load))
            plan.reasons[id(load)] = "each element collects its adjoint from the threads that read it"
            spans = {how for root in roots if (how := _span(gathered[names.get(root, root.name or "")]))}
            plan.reasons[id(load)] += "".join(sorted(spans))
        elif id(load) in plan.deferred:
            plan.atomic.add(id(load))
            plan.reasons[id(load)] = "the element may be another thread's"
        elif all(names.get(root, root.name) in private for root in roots) and len(memory.of(load.ptr)) == 1:
            plan.reasons[id(load)] = "only this thread touches the element"
            for promise in (p for root in roots for p in plan.promised.get(names.get(root, root.name or ""), ())):
                plan.reasons[id(load)] += f", since {HOLDS.format(promise)}"
            if all(_is_written(load, root, facts) for root in roots):
                plan.writes.add(id(load))
        elif is_exclusive(load, [names.get(root, "") for root in memory.of(load.ptr)], exclusive):
            plan.reasons[id(load)] = "only this thread touches the cell between two barriers"
        else:
            plan.atomic.add(id(load))
            plan.reasons[id(load)] = "other threads may read the element too"
            if any(root.name in facts.copied for root in roots):
                plan.copied.add(id(load))
            own = next((own for own in facts.cells for root in roots if own.name == root.name), None)
            if own is not None:
                plan.in_block[id(load)] = own
            if all(_lanes_agree(load, root, sums) for root in roots) and not (own is not None and own.apart):
                plan.together.add(id(load))
                plan.reasons[id(load)] += "; one for a warp whose lanes all read the same"
        if any(names.get(root, root.name) in facts.wide or f"shared {names.get(root)}" in facts.wide for root in roots):
            plan.reasons[id(load)] += "; in double precision, since very many may meet there"
    return plan


def is_exclusive(op: Load | Store, names: Iterable[str], places: frozenset[Place]) -> bool:
    return all(place_of(op, name) in places for name in names)


def _is_written(load: Load, root: Value, facts: Facts) -> bool:
    return root.name in facts.overwritten or place_of(load, root.name or "") in facts.read_last


def _span(gather: Gather) -> str:
    if gather.tile is not None:
        return "; on a GPU, the threads of a block add up together"
    if gather.span == 1:
        return ""
    wide = f"neighbouring elements, {VECTOR_BYTES} bytes at a time" if gather.taps else "elements"
    return f"; on a GPU, each thread does {gather.span} {wide}"


def _lanes_agree(load: Load, root: Value, sums: Sums) -> bool:
    """Whether neighbouring threads may read the same element; in shared memory, where atomics are cheap, for sure."""
    address = executions(sums).address(load.ptr, root)
    if address is None:
        return not is_shared(root)
    return not any(map(_moves_with_lanes, address.coefficients))


def _moves_with_lanes(basis: Basis) -> bool:
    """Not the number of a warp, or of more threads."""
    if isinstance(basis, Part):
        return any(map(_moves_with_lanes, basis.of.coefficients)) and not (basis.is_quotient and basis.by >= WARP)
    return basis == ("thread_idx", 0)


def _is_local(root: Value, structure: Structure) -> bool:
    return isinstance(structure.definition.get(root), Alloca)
