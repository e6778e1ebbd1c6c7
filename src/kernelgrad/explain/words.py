"""What a gradient does and why: every accumulation, everything on the tape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ..analysis.promises import told_apart
from ..analysis.tiles import Tile
from ..autodiff.accumulate.choice import HOLDS, Accumulation
from ..autodiff.prepare.prepared import Prepared
from ..autodiff.reverse import Derivation
from ..autodiff.saving.plan import Plan
from ..ir.effects import picks
from ..ir.ops import Apply, Load, Op, Value
from ..ir.traverse import blocks, walk
from ..ir.types import Pointer, Scalar
from ..transforms.block_shape import decided_by
from ..transforms.erase_custom import custom_places


def explain(
    gradient: Derivation,
    once: Iterable[str] = (),
    in_strips: Collection[str] = (),
    blocks: str | None = None,
    vector: int | None = None,
    trees: Iterable[str] = (),
    merged: bool = False,
    exchanged: Collection[str] = (),
) -> str:
    """`once`: the places of updates that were moved out of their loops. On CUDA: `in_strips`: where the reads are whose
    updates lanes add up in strips; `blocks`: which of them go at once; `vector`: how many elements a thread does;
    `merged`: rows of a block go at once. `trees`: the shared variables whose adjoints are in no memory.
    `exchanged`: the reads whose adjoints other launches sum up over the threads."""
    prepared = gradient.prepared
    otherwise = "by way of a log" if prepared.options.deterministic else "atomically"
    sections = {
        "accumulation": _updates(prepared, in_strips),
        "sums": [f"{where}: added up in a register, and added once after the loop" for where in once],
        "proofs that depend on the launch": [
            f"'{name}' is updated plainly in launches whose threads touch different elements of it; else {otherwise}"
            for name in sorted(prepared.accumulation.private)
        ],
        "variants for launches": _variants(gradient),
        "what the threads of a block add up first": _together(prepared, exchanged),
        "loops exchanged for threads": _exchanged(prepared, exchanged),
        "large grids": [
            *([_BLOCKS[blocks]] if blocks else []),
            *([_VECTOR.format(vector)] if vector else []),
            *([_MERGED] if merged else []),
        ],
        "promises": _promises(prepared),
        "tiles": _tiles(prepared.plan),
        "trees": [_AT_ONCE.format(name) for name in trees],
        "winners": _winners(prepared),
        "tape": _tape(prepared.plan),
        "instead of a tape": _along(prepared),
        "reruns": _reruns(prepared),
        "internal shadows": [f"'{name}' is not listed, but derivatives flow through it" for name in gradient.internal],
        "derivatives that end": _ends(prepared),
        "given in the source": custom_places(prepared.function),
    }
    lines = [f"{prepared.function.name}: derivative of {', '.join(prepared.options.listed)}"]
    for title, rows in sections.items():
        if rows:
            # Each iteration of an unrolled loop says the same.
            counts = Counter(rows)
            lines += ["", f"{title}:", *(f"  {row}" + (f" ({n} times)" if n > 1 else "") for row, n in counts.items())]
    return "\n".join(lines)


_AT_ONCE = "'{}': its adjoints need no shared memory; what trees would pass on, all threads get at once"
_TYPICAL = (256, 1, 1)


def _variants(gradient: Derivation) -> list[str]:
    """Besides those whose proofs hold or fail."""
    prepared = gradient.prepared
    fixed = prepared.options.facts.alone or prepared.options.facts.block is not None
    spans = set() if fixed else decided_by(prepared.function, _TYPICAL, prepared.planned.taped_spans())
    rows = sorted(f"{span}: unrolled for each shape of block" for span in spans)
    if gradient.only_sums:
        rows.append("on a GPU, of very many blocks a few thousand are started, and each does the sums of many")
    if gradient.cells and gradient.coarse is not None:
        rows.append(
            "of very many blocks as many are started as the device holds at once, and each does the work of many"
        )
    rows += sorted(f"{span}: the same in all turns of a thread" for span, _ in prepared.options.facts.columns)
    return rows


def _promises(prepared: Prepared) -> list[str]:
    """What rests on them, and which of them are of no use."""
    used, promises = prepared.accumulation.promised, prepared.options.promises
    rows = [f"'{name}' is updated plainly: {HOLDS.format(p)}" for name, found in used.items() for p in found]
    rows += [
        f"{load.span}: {load.result.shown or 'this'} is read from '{_names(prepared, load)}', which holds the results"
        for load in prepared.plan.held.values()
    ]
    read = {_names(prepared, load) for load in prepared.plan.held.values()}
    rows += [f"'{n}' holds the results, but nothing is had by reading it" for n in promises.results if n not in read]
    telling = {p for found in used.values() for p in found}
    rows += [f"{told}, but no update becomes plain by that" for told in told_apart(promises) if told not in telling]
    return rows


def _names(prepared: Prepared, load: Load) -> str:
    return ", ".join(sorted(r.name or "?" for r in prepared.memory.of(load.ptr)))


def _updates(prepared: Prepared, in_strips: Collection[str]) -> list[str]:
    rows = []
    for load in prepared.memory.loads:
        if prepared.plan.has_adjoint(load):
            how = _how(prepared.accumulation, load)
            names = _names(prepared, load)
            why = prepared.accumulation.reasons.get(id(load), "")
            if str(load.span) in in_strips:
                why += "; on a GPU, lanes that share addresses add up eight sums at a time"
            rows.append(f"{load.span}: shadow of {names}: {how}: {why}")
    listed = {p.name: p for p in prepared.function.params}
    for name in prepared.options.listed:
        if listed[name].value in prepared.activity:
            how = "the warps' sums, added by a finishing step" if prepared.options.partials else "one atomicAdd"
            rows.append(f"{prepared.function.span}: parameter {name}: summed in each block, then {how}")
    return rows


def _how(plan: Accumulation, load: Load) -> str:
    if plan.is_logged(load):
        shared = "at the next barrier, in the order of threads and slots"
        return f"logged, and added {shared if plan.logged[id(load)] else _AFTERWARDS}"
    if id(load) in plan.gathered:
        return "gathered by a launch of its own"
    if id(load) in plan.deferred:
        return "added by a launch of its own, when all threads are done"
    if id(load) in plan.in_block:
        wide = "doubles" if plan.in_block[id(load)].wide else "cells"
        return f"added up by each block, in {wide} in shared memory"
    return "atomicAdd" if plan.is_atomic(load) else "plain +="


_BLOCKS = {
    "pairs": "on a GPU, one thread does the work of two neighbouring blocks and adds up what they have for one address",
    "tiles": "on a GPU, one warp does the work of two warps in eight neighbouring blocks and adds up what they have for"
    " one address: where warps share some addresses, blocks the others",
}
_VECTOR = (
    "on a GPU, each thread does {} neighbouring elements and loads and stores 16 bytes at a time, if they are aligned"
)
_MERGED = (
    "on a GPU, one thread does what two, four or eight rows of a block do, or both halves of its only row, and loads"
    " once what they load alike"
)
_AFTERWARDS = "after the launch, in the order of blocks, slots and threads"


def _tape(plan: Plan) -> list[str]:
    rows = []
    for key, frame in plan.taped.items():
        for value in frame:
            op = plan.structure.definition.get(value)
            place = plan.structure.places[key]
            where = op.span if op is not None else place.owner.span if place.owner is not None else ""
            why = "carried from iteration to iteration" if op is None else "cannot be recomputed"
            why = "takes less than what it is computed from" if value in plan.instead else why
            rows.append(f"{where}: {value.shown or 'a value'} ({value.type}): {why}")
    return rows


def _along(prepared: Prepared) -> list[str]:
    """What loops carry, or end with, in place of a tape."""
    ops = [op for op in walk(prepared.function.body) if isinstance(op, Apply)]
    home, settled = prepared.structure.home, [op for op in ops if op.fn in ("at_end", "in_reverse")]
    loops = {str(owner.span) for op in settled if (owner := home[op.args[-1]].owner) is not None}
    taken = dict.fromkeys(
        str(op.span) for op in settled if isinstance(op.result.type, Scalar) and not op.result.type.is_float
    )
    scaled = dict.fromkeys(
        str(owner.span)
        for op in settled
        if str(op.span) not in taken and (owner := home[op.args[-1]].owner) is not None
    )
    rows = [f"{where}: the number of the last iteration that was taken is kept" for where in taken]
    rows += [f"{where}: what the loop sums up by a running scale, the reverse has by the last one" for where in scaled]
    definition = prepared.structure.definition
    bits = (definition[v] for frame in prepared.plan.bits.values() for v in frame if v in definition)
    rows += [f"{op.span}: which way it went is a bit of a register" for op in bits]
    along = (op for op in ops if op.fn == "detach" and str(op.span) not in {*loops, *taken})
    return rows + [
        f"{op.span}: {op.result.shown or 'a value'} ({op.result.type}): its derivative is carried along with the loop"
        for op in along
    ]


def _exchanged(prepared: Prepared, places: Collection[str]) -> list[str]:
    reads = (str(load.span) for load in prepared.memory.loads if str(load.span) in places)
    what = "a launch of its own has a thread for each iteration, which sums up what all threads would add in it"
    return [f"{place}: {what}" for place in reads]


def _together(prepared: Prepared, exchanged: Collection[str]) -> list[str]:
    """What `tune` may do about atomics in loops; that depends on the launch's block and on the loop."""
    rows = []
    plan, home = prepared.accumulation, prepared.structure.home
    for load in prepared.memory.loads:
        if not plan.is_atomic(load) or plan.is_logged(load) or not home[load.result].in_loop:
            continue
        if not prepared.plan.has_adjoint(load) or str(load.span) in exchanged:
            continue
        if id(load) in plan.together:
            rows.append(f"{load.span}: in a block of whole warps that runs the loop, the sums of its rows go round")
        elif all(isinstance(r.type, Pointer) and r.type.space == "shared" for r in prepared.memory.of(load.ptr)):
            rows.append(
                f"{load.span}: in a block of several rows that runs the loop, each thread sums up the cells of one"
                " iteration, if no two threads get the same cell"
            )
    return rows


def _tiles(plan: Plan) -> list[str]:
    tiles = (tile for used in plan.refilled.values() for tile in used)
    return [
        f"{tile.fill[0].span}: '{tile.variable}' is filled again in the reverse{_filled_by(tile)}" for tile in tiles
    ]


def _filled_by(tile: Tile) -> str:
    if tile.looks_back:
        return ": what its guards leave out, as earlier iterations left it"
    if tile.earlier is not None:
        return ", as earlier iterations left it if its guards leave out what is read"
    return ", if the fill covers all that is read; otherwise what is read goes on the tape" if tile.barrier else ""


def _winners(prepared: Prepared) -> list[str]:
    rows = []
    for op in walk(prepared.function.body):
        if picks(op) and prepared.plan.has_adjoint(op):
            names = ", ".join(sorted(r.name or "?" for r in prepared.memory.of(op.ptr)))  # type: ignore[attr-defined]
            in_global = prepared.winners.won_buffer(op, prepared.memory) is not None
            how = "a launch between forward and reverse finds it" if in_global else "found at the next barrier"
            rows.append(
                f"{op.span}: the adjoint goes to the execution whose value is in '{names}' at the end, of several to"
                f" the lowest thread: {how}"
            )
    return rows


def _reruns(prepared: Prepared) -> list[str]:
    found = [op for op in walk(prepared.function.body) if id(op) in prepared.plan.rerun and _has_tape(op, prepared)]
    return [
        f"{op.span}: the loop runs again before it is reversed, so that its tape is used once at a time" for op in found
    ]


def _has_tape(op: Op, prepared: Prepared) -> bool:
    inside = [op, *(nested for block in blocks(op) for nested in walk(block))]
    return any(prepared.plan.taped.get(id(block)) for nested in inside for block in blocks(nested))


def _ends(prepared: Prepared) -> list[str]:
    """Rule 15: conversions of active values to integers, whose derivative is zero."""
    return [
        f"{op.span}: converted to an integer, which has derivative zero"
        for op in walk(prepared.function.body)
        if isinstance(op, Apply) and op.fn == "convert" and _cuts(op, op.args[0], prepared)
    ]


def _cuts(op: Op, source: Value, prepared: Prepared) -> bool:
    to_integer = isinstance(op.result.type, Scalar) and not op.result.type.is_float
    is_float = isinstance(source.type, Scalar) and source.type.is_float
    return to_integer and is_float and source in prepared.activity.varied
