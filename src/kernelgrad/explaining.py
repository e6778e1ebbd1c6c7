"""`g.explain()`: what a gradient does and why, and the bytes it moves; `g.explain(grid, block, ...)`: in one launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .autodiff import rotate
from .autodiff.adding.affine import Shape
from .autodiff.adding.quads import find_typical
from .autodiff.telling.amounts import Amount
from .autodiff.telling.explain import explain
from .autodiff.telling.traffic import KINDS, Traffic, tape_per_thread, traffic
from .backends.cpu.notes import notes
from .deep import deeply
from .errors import ArgumentError
from .hidden import elements, tape_total
from .ir.ops import Atomic, For, GlobalRef, Load, Store, While
from .ir.traverse import walk
from .kernels import Kernel
from .known import integers_of
from .runtime.config import Launch, make_launch
from .runtime.signature import user_params
from .transforms import block_tiles, jam, lane_sums
from .variants import Variant

if TYPE_CHECKING:
    from .gradients import Differentiated, Gradient


class _Launched(NamedTuple):
    """The launch that is explained, its scalar arguments, its tape, adjoints that are cleared before it, gathers (their
    kernels, launches and scalars), and what comes after it."""

    launch: Launch
    scalars: dict[str, Any]
    tape: int
    cleared: int
    gathers: list[tuple[Kernel, Launch, dict[str, Any]]]
    then: tuple[Kernel, ...] = ()

    @property
    def threads(self) -> int:
        return math.prod(self.launch.grid) * math.prod(self.launch.block)


def explain_any(gradient: Differentiated) -> str:
    """For most launches: formulas for each thread."""
    variant = gradient.variant()
    unknown: dict[str, str] = {}
    columns = _columns(gradient.kernel, variant, None, {}, unknown)
    prepared = variant.derivative.prepared
    kept = tape_per_thread(prepared.plan, prepared.function, unknown)
    rows = [_LARGE_IN_TWO, ""] if _is_in_two(gradient) else []
    rows += _table("bytes for each thread", columns, Amount.text)
    if kept.terms:
        rows += ["", f"tape: {kept.text()} bytes for each thread"]
    return "\n".join([_explained(variant), "", *rows, *_legend(unknown)])


def explain_launch(
    gradient: Gradient, grid: Any, block: Any, shared: Any, args: tuple[Any, ...], adjoints: Mapping[str, Any]
) -> str:
    """For one launch: the variant that it gets, and how much it moves."""
    launch = make_launch(grid, block, shared)
    own = len(user_params(gradient.kernel.function))
    wanted = gradient.settings.listed
    if adjoints or len(args) != own:
        given = gradient.separate(args, adjoints)[1]
        wanted = tuple(name for name, adjoint in given.items() if adjoint is not None)
    if not wanted:
        raise ArgumentError(f"{gradient.kernel.name}: no adjoint is wanted, so there is nothing to explain")
    target, segment = gradient._within_budget(launch, args[:own])
    bound, placement = target.kernel.bind(args[:own])
    halves = target.in_two.find(wanted, launch, bound, integers_of(target.kernel.function).known(bound.packed, segment))
    then: tuple[Kernel, ...] = ()
    if halves is not None and segment is None:
        target, then = halves.reverse, (halves.forward,)
    variant = target.variant_for(wanted, launch, bound)
    sizes = elements(variant, launch, bound, placement, segment)
    scalars = target.scalars(bound, segment)
    nbytes = {b.name: b.nbytes for b in bound.buffers}
    cleared = [n for n in target.settings.assigned if n in wanted and n not in variant.options.facts.overwritten]
    gathers = [
        (kernel, own, {**scalars, **{name: given.value for name, given in supplied.items()}})
        for kernel, own, supplied in target.gathers(wanted, launch, bound)
    ]
    total = tape_total(sizes, launch)
    told = _Launched(launch, scalars, total, sum(nbytes.get(n, 0) for n in cleared), gathers, then)
    return "\n".join([_explained(variant), "", *_of_launch(target.kernel, variant, told, segment)])


@deeply
def _explained(variant: Variant) -> str:
    function = variant.reverse.function
    quads = find_typical(function) if len(variant.kernels) == 1 else None
    width = None if quads is None else quads.width
    places = lane_sums.places(function)
    blocks = "tiles" if block_tiles.applies(function) else "pairs" if jam.applies(function) else None
    told = explain(
        variant.derivative, _once(variant), places, blocks, width, _without_memory(variant), variant.merges_rows
    )
    on_cpu = notes(function)
    return "\n".join([told, *(["", "on the CPU:", *(f"  {note}" for note in on_cpu)] if on_cpu else [])])


def _without_memory(variant: Variant) -> list[str]:
    """The shared variables of which no adjoints are kept, since all threads have them (`autodiff/tuning/trees`)."""
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


def _of_launch(kernel: Kernel, variant: Variant, told: _Launched, segment: int | None) -> list[str]:
    unknown: dict[str, str] = {}
    shape = Shape(told.launch.grid, told.launch.block)
    columns = [
        {kind: amount.times(told.threads) for kind, amount in column.items()}
        for column in _columns(kernel, variant, shape, told.scalars, unknown, told.then)
    ]
    for gather, own, scalars in told.gathers:
        threads = math.prod(own.grid) * math.prod(own.block)
        for kind, amount in traffic(gather.function, set(), Shape(own.grid, own.block), scalars, unknown).items():
            columns[1][kind] += amount.times(threads)
    if told.cleared:
        columns[1]["cleared"] = Amount.of(told.cleared)
    grid, block = (" x ".join(map(str, _trimmed(extents))) for extents in (told.launch.grid, told.launch.block))
    rows = [f"launch: {told.threads:,} threads, grid {grid}, block {block}", *([_IN_TWO] if told.then else []), ""]
    rows += _table("bytes moved, estimated", columns, lambda amount: amount.text(size))
    if told.tape:
        rows += ["", f"tape: {told.tape // told.threads:,} bytes for each thread, {size(told.tape)} in all"]
    if segment is not None:
        rows += [f"checkpointed to stay within tape_budget: segments of {segment:,} iterations"]
    return [*rows, *_legend(unknown)]


def _columns(
    kernel: Kernel,
    variant: Variant,
    shape: Shape | None,
    scalars: dict[str, Any],
    unknown: dict[str, str],
    then: tuple[Kernel, ...] = (),
) -> list[Traffic]:
    """Of the kernel, and of all that its gradient launches in its place."""
    tape = {p.name for kept in variant.places for p in kept.params}
    found: list[Traffic] = []
    for kernels in ((kernel,), (*variant.kernels, *then)):
        total = dict.fromkeys(KINDS, Amount())
        for one in kernels:
            function = rotate.run(one.function, one.module)
            for kind, amount in traffic(function, tape, shape, scalars, unknown).items():
                total[kind] += amount
        found.append(total)
    return found


def _is_in_two(gradient: Differentiated) -> bool:
    """Functions have no launches."""
    found = getattr(gradient, "in_two", None)
    return found is not None and bool(found.is_usual())


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


def _trimmed(extents: tuple[int, ...]) -> tuple[int, ...]:
    while len(extents) > 1 and extents[-1] == 1:
        extents = extents[:-1]
    return extents
