"""`g.explain()`: what a gradient does and why, and the bytes it moves; `g.explain(grid, block, ...)`: in one launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..analysis.access.affine import Shape
from ..analysis.roots import is_shared
from ..analysis.trip_counts import Amount
from ..autodiff.costs.traffic import KINDS, Traffic, tape_per_thread, traffic
from ..backends.cpu.atomic_notes import atomic_notes
from ..deep import deeply
from ..ir.ops import BLOCKS, Atomic, For, GlobalRef, Load, Store, While
from ..ir.traverse import walk
from ..kernel import Kernel
from ..launches.choice.variant import Variant
from ..launches.memory.buffers import Copy, Memory
from ..launches.memory.tape_memory import tape_total
from ..launches.plan import LaunchPlan
from ..runtime.config import make_launch
from ..runtime.integers import ANY
from ..schedule.coarsen import block_tiles, unroll_and_jam
from ..schedule.sum_over import lane_sums
from ..schedule.vectorize.proof import find_typical
from ..transforms import rotate
from .words import explain

if TYPE_CHECKING:
    from ..derivatives.differentiated import Differentiated
    from ..derivatives.gradient import Gradient, Planned


@deeply
def explain_any(gradient: Differentiated) -> str:
    """For most launches: formulas for each thread."""
    variant = gradient.variant()
    unknown: dict[str, str] = {}
    columns = _columns(gradient.kernel, variant, (None, None), {}, unknown)
    prepared = variant.derivative.prepared
    kept = tape_per_thread(prepared.plan, prepared.function, unknown)
    rows = [_LARGE_IN_TWO, ""] if _is_in_two(gradient) else []
    rows += _table("bytes for each thread", columns, Amount.text)
    if kept.terms:
        rows += ["", f"tape: {kept.text()} bytes for each thread"]
    return "\n".join([_explained(variant), "", *rows, *_legend(unknown)])


@deeply
def explain_launch(
    gradient: Gradient, grid: Any, block: Any, shared: Any, args: tuple[Any, ...], adjoints: Mapping[str, Any]
) -> str:
    """For one launch: the plan that it gets, and how much that moves."""
    planned = gradient.planned(make_launch(grid, block, shared, of=gradient.kernel.name), args, adjoints)
    copies = _read_directly(gradient.kernel, planned.plan.variant.kernel)
    told = [_explained(planned.plan.variant, planned.plan), *copies, "", *_of_launch(planned)]
    return "\n".join(told)


def _read_directly(kernel: Kernel, reversed: Kernel) -> list[str]:
    """The shared memory that the kernel has, and what is reversed in its place has not (see `without_copies`)."""
    before, after = ({op.name: None for op in _shared(one)} for one in (kernel, reversed))
    names = [f"'{name}'" for name in before if name not in after]
    return ["", f"shared memory: {', '.join(names)} holds copies: the reverse reads what they are of"] if names else []


def _shared(kernel: Kernel) -> Iterator[GlobalRef]:
    return (op for op in walk(kernel.function.body) if isinstance(op, GlobalRef) and is_shared(op.result))


@deeply
def _explained(variant: Variant, plan: LaunchPlan | None = None) -> str:
    """`plan`: of one launch; then nothing is said of what others would get, elsewhere."""
    function, ways = variant.reverse.function, ANY if plan is None else plan.launch.ways
    places, blocks = frozenset[str](), None
    if not ways.on_cpu:
        places = lane_sums.places(function)
        blocks = "tiles" if block_tiles.applies(function) else "pairs" if unroll_and_jam.applies(function) else None
    width, merged = (_elements(variant), variant.merges_rows) if plan is None else _several(plan)
    told = explain(
        variant.derivative, _once(variant), places, blocks, width, _without_memory(variant), merged, _exchanged(variant)
    )
    on_cpu = [] if ways.on_gpu else atomic_notes(function)
    return "\n".join([told, *(["", "on the CPU:", *(f"  {note}" for note in on_cpu)] if on_cpu else [])])


def _exchanged(variant: Variant) -> frozenset[str]:
    """The reads whose adjoints launches of their own sum up over the threads."""
    if not variant.options.facts.exchanged:
        return frozenset()
    parts = variant.exchangeable.parts
    numbers = (number for group in variant.options.facts.exchanged for number in group)
    return frozenset(str(u.atomic.span).partition(" ")[0] for number in numbers for u in parts[number].updates)


def _elements(variant: Variant) -> int | None:
    """How many neighbouring elements a thread does in large launches."""
    vector = find_typical(variant.reverse.function) if len(variant.kernels) == 1 else None
    return None if vector is None else vector.width


def _several(plan: LaunchPlan) -> tuple[int | None, bool]:
    """How many neighbouring elements a thread does, and whether it does several rows of a block."""
    vector = plan.variant.options.facts.vector
    merged = any(plan.variant.started(kernel, plan.launch.block) != plan.launch.block for kernel, _ in plan.kernels)
    return None if vector is None else vector.width, merged


def _without_memory(variant: Variant) -> list[str]:
    """The shared variables of which no adjoints are kept, since all threads have them (`schedule/trees/trees`)."""
    used = {op.name for k in variant.kernels for op in walk(k.function.body) if isinstance(op, GlobalRef)}
    return [name for name, shadow in variant.derivative.shared.items() if shadow.name not in used]


def _once(variant: Variant) -> list[str]:
    """The reads in loops whose updates are not in loops any more, see `transforms.sums`."""
    prepared, function = variant.derivative.prepared, variant.reverse.function
    loops = [op for op in walk(function.body) if isinstance(op, For | While)]
    inside = {str(op.span) for loop in loops for op in walk(loop.body) if isinstance(op, Store | Atomic)}
    left = {str(op.span) for op in walk(function.body) if isinstance(op, Store | Atomic)} - inside
    own = [op for op in walk(prepared.function.body) if isinstance(op, For | While)]
    reads = [op for loop in own for op in walk(loop.body) if isinstance(op, Load) and prepared.plan.has_adjoint(op)]
    return [where for where in dict.fromkeys(str(op.span) for op in reads) if where in left]


def _of_launch(planned: Planned) -> list[str]:
    plan, launch, unknown = planned.plan, planned.launch, dict[str, str]()
    threads = math.prod(launch.grid) * math.prod(launch.block)
    columns = _moved(planned, unknown)
    grid, block = (" x ".join(map(str, _trimmed(extents))) for extents in (launch.grid, launch.block))
    rows = [f"launch: {threads:,} threads, grid {grid}, block {block}", *([_IN_TWO] if plan.then else [])]
    if plan.given != plan.launch.grid:
        rows += [_LARGER if plan.launch.blocks is None else _SMALLER]
    rows += [""]
    rows += [*_steps(plan), "", *_table("bytes moved, estimated", columns, lambda amount: amount.text(size))]
    tape = tape_total(plan.tape_sizes(launch, planned.primal, planned.placement), launch)
    if tape:
        rows += ["", f"tape: {tape // threads:,} bytes for each thread, {size(tape)} in all"]
    if plan.segment is not None:
        length = f"segments of {plan.segment:,} iterations"
        rows += [f"checkpointed to stay within tape_budget: {length} (1 GB is meant where none is given)"]
    return [*rows, *_legend(unknown)]


def _moved(planned: Planned, unknown: dict[str, str]) -> list[Traffic]:
    """By the kernel, and by all that is launched in its place."""
    plan, given = planned.plan, Shape(planned.launch.grid, planned.launch.block)
    shape = Shape(plan.launch.grid, plan.launch.block)
    scalars = planned.gradient.scalars(planned.primal, plan.segment)
    scalars |= {} if plan.launch.blocks is None else {BLOCKS: plan.launch.blocks}
    then = tuple(kernel for kernel, _ in plan.then)
    found = _columns(planned.gradient.kernel, plan.variant, (given, shape), scalars, unknown, then)
    columns = [
        {kind: amount.times(math.prod(of.grid) * math.prod(of.block)) for kind, amount in column.items()}
        for column, of in zip(found, (given, shape), strict=True)
    ]
    for kernel, own, supplied in (*plan.gathers, *plan.keys):
        told = {**scalars, **{name: given.value for name, given in supplied.items()}}
        moved = traffic(kernel.function, set(), Shape(own.grid, own.block), told, unknown)
        for kind, amount in moved.items():
            columns[1][kind] += amount.times(math.prod(own.grid) * math.prod(own.block))
    cleared = sum(nbytes for _, _, nbytes in plan.cleared)
    if cleared:
        columns[1]["cleared"] = Amount.of(cleared)
    return columns


def _steps(plan: LaunchPlan) -> list[str]:
    """What is launched, the atomic additions in its code, and the memory that it is given."""
    on_cpu = plan.launch.ways.on_cpu
    rows = [f"kernels, on a {'CPU' if on_cpu else 'GPU'}:"]
    for step in plan.steps:
        grid, block = (" x ".join(map(str, _trimmed(extents))) for extents in (step.grid, step.block))
        code = (step.kernel.cpu_module if on_cpu else step.kernel.cuda_module).functions[step.kernel.name]
        count = sum(isinstance(op, Atomic) and op.kind == "add" for op in walk(code.body))
        rows.append(f"  {step.kernel.name}: grid {grid}, block {block}: {_counted(count)} in its code")
    rows += [f"  afterwards {addition.describe(plan.sized)}" for addition in plan.additions]
    for need in plan.needs:
        if isinstance(need, Memory | Copy):
            nbytes = need.nbytes.value(plan.sized)
            rows.append(f"  {need.name}: {f'{nbytes:,} bytes: ' if nbytes else ''}{need.role}")
    return rows


def _columns(
    kernel: Kernel,
    variant: Variant,
    shapes: tuple[Shape | None, Shape | None],
    scalars: dict[str, Any],
    unknown: dict[str, str],
    then: tuple[Kernel, ...] = (),
) -> list[Traffic]:
    """Of the kernel, and of all that its gradient launches in its place. `shapes`: of their launches."""
    tape = {p.name for kept in variant.places for p in kept.params}
    found: list[Traffic] = []
    for kernels, shape in zip(((kernel,), (*variant.kernels, *then)), shapes, strict=True):
        total = dict.fromkeys(KINDS, Amount())
        for one in kernels:
            function = rotate.run(one.function, one.module)
            for kind, amount in traffic(function, tape, shape, scalars, unknown).items():
                total[kind] += amount
        found.append(total)
    return found


def _is_in_two(gradient: Differentiated) -> bool:
    """Functions have no launches."""
    planner = getattr(gradient, "planner", None)
    return planner is not None and bool(planner.in_two.is_usual())


_LARGER = "the turns of a thread's loop are threads of their own, in a larger grid"
_SMALLER = "each block does the work of many, in a smaller grid: what a thread adds up for one element it adds once"
_IN_TWO = (
    "two launches, the reverse alone and then the kernel: together they load, store and compute no more than one would"
)
_LARGE_IN_TWO = (
    "large launches that compute much for each byte are two, the reverse alone and then the kernel: together they load,"
    " store and compute no more than one would"
)


def _table(title: str, columns: list[Traffic], show: Callable[[Amount], str]) -> list[str]:
    kinds = [kind for kind in (*KINDS, "cleared") if any(kind in c and c[kind].terms for c in columns)]
    totals = [sum(column.values(), Amount()) for column in columns]
    body = [[kind, *(show(c[kind]) if kind in c and c[kind].terms else "-" for c in columns)] for kind in kinds]
    body.append(["total", *map(show, totals)])
    cells = [[f"{title}:", "kernel", "gradient"], *([f"  {name}", *rest] for name, *rest in body)]
    widths = [max(len(row[k]) for row in cells) for k in range(3)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}".rstrip() for row in cells]
    primal, gradient = (total.number for total in totals)
    if primal and gradient:
        lines[-1] += f"  {gradient / primal:.1f}x"
    return lines


def _legend(unknown: dict[str, str]) -> list[str]:
    """What names of loops stand for."""
    return [f"  {name}: how often the loop at {where} runs" for where, name in unknown.items()]


def size(nbytes: float) -> str:
    """In the unit that a reader takes in at a glance."""
    for unit in ("bytes", "KB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} GB"


def _counted(additions: int) -> str:
    return f"{additions or 'no'} atomic addition{'' if additions == 1 else 's'}"


def _trimmed(extents: tuple[int, ...]) -> tuple[int, ...]:
    while len(extents) > 1 and extents[-1] == 1:
        extents = extents[:-1]
    return extents
