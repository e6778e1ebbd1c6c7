"""Memory that a derivative's launch needs besides what the user passes: shadows of unlisted buffers, and the tape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...autodiff.accumulate.logs import Log, Logged
from ...autodiff.calculus.tape import Stack
from ...errors import LaunchError
from ...ir.ops import SEGMENT, Param
from ...ir.types import Pointer, Type
from ...kernel import stream_of
from ...runtime.arguments import Placement, Supplied
from ...runtime.config import Launch, make_launch
from ...runtime.integers import KnownLaunch, integers_of
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ...runtime.scratch import Scratch, available_bytes, is_captured
from ..choice.binding import RESULT
from ..choice.variant import Variant
from .argument_copies import copy_variables, on_copies
from .buffers import THREADS, Bytes, Expression, Memory, Need, Number, Sized, Value, supply
from .fixed_tape import TAPE_BYTES, mark_starts, require_room, room_of
from .ordered_adds import segment_starts

_SMALL_TAPE = 1 << 22  # bytes: to ask a GPU how much is free would take longer than the launch

_ONE = make_launch(1, 1)  # where the shape does not matter

# Elements of the tape and entries of the logs, per thread: for all blocks alike, or for each.
Sizes = dict[Type | Logged, np.ndarray[Any, np.dtype[np.int64]]]


def shadows(variant: Variant) -> list[Need]:
    """Zeroed shadows of buffers and module variables that are not listed."""
    variables, found = variant.kernel.module.globals, list[Need]()
    by_name = {p.name: p for p in variant.kernel.function.params}
    for name, param in variant.derivative.internal.items():
        nbytes: Expression = Number(variables[name].type.size) if name in variables else Bytes(name)
        # Half precision has floats as shadows.
        nbytes = nbytes * _item_size(param) // _item_size(by_name[name])
        found.append(Memory(param.name, nbytes, 0, f"the adjoint of '{name}', which is not listed"))
    return found


def add_shadows(
    variant: Variant, bound: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    supply(shadows(variant), sized(_ONE, bound), placement, stream, own)


def sized(launch: Launch, bound: BoundArguments) -> Sized:
    """What sizes depend on; buffers of one name count together."""
    nbytes: dict[str, int] = {}
    for buffer in bound.buffers:
        nbytes[buffer.name] = nbytes.get(buffer.name, 0) + buffer.nbytes
    return Sized(launch.grid, launch.block, nbytes)


def tape_needs(variant: Variant, elements: Mapping[Type, Expression] | None) -> list[Need]:
    """The tape, where it is known how much of it a thread needs; else that is counted before the launch."""
    found: list[Need] = []
    for stack in variant.derivative.stacks:
        name = stack.memory.name or ""
        if elements is None or stack.capacity is None:
            found.append(Memory(name, Number(0), None, f"tape of {stack.type}: as much as a launch before counts"))
            continue
        each = elements[stack.type]
        found.append(Value(stack.capacity.name or "", each, "elements of it for each thread"))
        found.append(Memory(name, THREADS * each * stack.type.size, None, f"tape of {stack.type}"))
    return found


def add_tape(
    variant: Variant, sizes: Sizes, launch: Launch, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    stacks = variant.derivative.stacks
    if not stacks:
        return
    threads = _threads(launch)
    nbytes = [_tape_bytes(stack.type, sizes, launch) for stack in stacks]
    if sum(nbytes) > _SMALL_TAPE:
        _check_room(variant, sum(nbytes), threads, placement)
    for stack, size in zip(stacks, nbytes, strict=True):
        per_block = sizes[stack.type]
        own.add(stack.memory.name or "", Scratch(size, placement.cuda, stream))
        if stack.capacity is not None:
            own.supplied[stack.capacity.name or ""] = Supplied(int(per_block[0]))
        if stack.segments is not None:
            blocks = threads // _block_threads(launch)
            memory = own.add(stack.segments.name or "", Scratch(8 * blocks, placement.cuda, stream))
            if TAPE_BYTES.get() is not None:
                step = int(per_block[0]) * _block_threads(launch)
                mark_starts(memory.address, blocks, step, placement, stream)
            else:
                memory.write(segment_starts(per_block, launch).tobytes())
        if stack.tops is not None:
            own.add(stack.tops.name or "", Scratch(8 * threads, placement.cuda, stream))


def _check_room(variant: Variant, total: int, threads: int, placement: Placement) -> None:
    free = available_bytes(placement.cuda)
    if total > free:
        raise LaunchError(
            f"{variant.kernel.name}: the tape needs {total:,} bytes ({total // threads:,} per thread, {threads:,}"
            f" threads) and {free:,} are free; set tape_budget=, or launch fewer threads at a time"
        )


# ---- how much a launch keeps --------------------------------------------------------------------------------------


def elements(
    variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None = None
) -> Sizes:
    """What each thread needs, for each block or for all alike: by arithmetic, else by counting."""
    found = by_arithmetic(variant, launch, integers_of(variant.kernel.function).known(bound.packed, segment))
    return by_counting(variant, launch, bound, placement, segment) if found is None else found


def by_arithmetic(variant: Variant, launch: Launch | KnownLaunch, known: Callable[[Any], Any]) -> Sizes | None:
    """None where it depends on what buffers hold."""
    keys = (*variant.stack_types, *variant.logged)
    if not keys:
        return {}
    found = variant.elements(known, launch)
    return None if found is None else {key: np.array([max(1, found.get(key, 0))], np.int64) for key in keys}


def by_counting(
    variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None
) -> Sizes:
    given = TAPE_BYTES.get()
    if given is not None:
        return _given(variant, launch, bound, placement, segment, given)
    counted = _counted(variant, launch, bound, placement, segment)
    alike = {_key(place) for place in variant.places if place.capacity is not None}
    return {key: np.array([max(1, n.max())]) if key in alike else n for key, n in counted.items()}


def _given(
    variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None, nbytes: int
) -> Sizes:
    """As much as the user gives room for, if it is enough."""
    if variant.logged:
        raise LaunchError(f"{variant.kernel.name}: tape_bytes= does not go with gradients that log what they add")
    types, stream = variant.stack_types, stream_of(launch, placement)
    room = room_of(variant.kernel.name, nbytes, _threads(launch), sum(t.size for t in types))
    counts, _own = _count(variant, launch, bound, placement, segment)
    if is_captured(placement.cuda, stream):
        require_room(counts.address, counts.nbytes // 8, room, placement, stream)
    else:
        most = int(np.frombuffer(counts.read(), np.int64).max())
        if most > room:
            needed = most * _threads(launch) * sum(t.size for t in types)
            raise LaunchError(f"{variant.kernel.name}: tape_bytes={nbytes} is too little, this launch needs {needed:,}")
    return {key: np.array([room], np.int64) for key in types}


def _counted(
    variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None
) -> Sizes:
    if is_captured(placement.cuda, stream_of(launch, placement)):
        raise LaunchError(
            f"{variant.kernel.name}: how long the tape is depends on what arrays hold, and is counted by a launch that"
            " the host waits for, which it cannot while a CUDA graph is captured; give operators tape_bytes="
        )
    types: tuple[Type | Logged, ...] = (*variant.stack_types, *variant.logged)
    counts, _own = _count(variant, launch, bound, placement, segment)
    table = np.frombuffer(counts.read(), np.int64).reshape(-1, len(types))
    return {t: table[:, k] for k, t in enumerate(types)}


def _count(
    variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None
) -> tuple[Scratch, LaunchMemory]:
    """Puts a launch to work that counts; what it needs besides is kept until it is used."""
    kernel, stores = variant.counting
    own = LaunchMemory()
    if segment is not None:
        own.supplied[SEGMENT] = Supplied(segment)
    stream = stream_of(launch, placement)
    if stores:
        bound = on_copies(kernel.function, bound, placement, stream, own)
        copy_variables(variant.kernel, placement, stream, own)
    for param in kernel.function.params:
        if param.variable == RESULT:  # a function's value, which nobody wants of this launch
            own.add(RESULT, Scratch(_item_size(param), placement.cuda, stream))
    kinds = len(variant.stack_types) + len(variant.logged)
    blocks = _threads(launch) // _block_threads(launch)
    counts = own.add("_counts", Scratch(8 * blocks * kinds, placement.cuda, stream).zero())
    kernel.run(launch, bound, placement, own.supplied)
    return counts, own


def tape_bytes(
    variant: Variant, launch: Launch, bound: BoundArguments, placement: Placement, segment: int | None = None
) -> int:
    """What a launch's tape takes in all."""
    return tape_total(elements(variant, launch, bound, placement, segment), launch)


def tape_total(sizes: Sizes, launch: Launch) -> int:
    return sum(_tape_bytes(key, sizes, launch) for key in sizes)


def _key(place: Stack | Log) -> Type | Logged:
    return place.of if isinstance(place, Log) else place.type


def _tape_bytes(key: Type | Logged, sizes: Sizes, launch: Launch) -> int:
    per_block = sizes[key]
    count = (
        int(per_block.sum()) * _block_threads(launch) if len(per_block) > 1 else int(per_block[0]) * _threads(launch)
    )
    return key.size * count


# ---- small things -------------------------------------------------------------------------------------------------


def _threads(launch: Launch) -> int:
    x, y, z = (g * b for g, b in zip(launch.grid, launch.block, strict=True))
    return x * y * z


def _block_threads(launch: Launch) -> int:
    x, y, z = launch.block
    return x * y * z


def _item_size(param: Param) -> int:
    return max(1, param.type.pointee.size) if isinstance(param.type, Pointer) else 1
