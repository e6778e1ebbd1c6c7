"""After the launch of a gradient that must be the same from run to run: the updates that its threads logged are sorted
by the element they go to, and those of one element are added up in the order of blocks, slots and threads.

The CPU sorts with NumPy, a GPU with kernels of `ordered_adds.cu`, without a round trip to the host. The sums are the
same tree of additions on both: chunks of sorted neighbours, then the sums of chunks.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ...autodiff.accumulate.logs import Log, Logged
from ...errors import LaunchError
from ...ir.types import Scalar
from ...kernel import Kernel
from ...runtime.arguments import Placement, Supplied
from ...runtime.config import Launch, flat_launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from ...runtime.scratch import Scratch, available_bytes
from ..choice.variant import Variant

# As in ordered_adds.cu.
_CHUNK, _TILE, _DIGIT_BITS, _THREADS, _SCANNERS = 32, 4096, 4, 256, 1024
_UNUSED = np.uint64(2**64 - 1)
_KEY = 8
_SORTING = 32  # bytes per entry that sorting takes for a while: keys and positions, twice
_C_NAMES = {4: "float", 8: "double"}

Entries = dict[Logged, "np.ndarray[Any, np.dtype[np.int64]]"]  # per thread: for all blocks alike, or for each


def add_logs(
    variant: Variant, entries: Entries, launch: Launch, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    """Memory for what the launch will log, with nothing in it."""
    logs = variant.derivative.logs
    counts = {log.of: _total(entries[log.of], launch) for log in logs}
    _check_memory(variant, counts, placement)
    for log in logs:
        count = counts[log.of]
        places = own.add(log.places.name or "", Scratch(log.of.where.size * count, placement.cuda, stream))
        if not log.of.variable:
            places.zero()
        if log.filled is not None:
            threads = _total(np.ones(1, np.int64), launch)
            own.add(log.filled.name or "", Scratch(8 * threads, placement.cuda, stream).zero())
        own.add(log.values.name or "", Scratch(log.of.type.size * count, placement.cuda, stream))
        if log.capacity is not None:
            own.supplied[log.capacity.name or ""] = Supplied(int(entries[log.of].max()))
        if log.segments is not None:
            starts = segment_starts(entries[log.of], launch)
            own.add(log.segments.name or "", Scratch(starts.nbytes, placement.cuda, stream)).write(starts.tobytes())


def logged_in(sizes: Mapping[Any, np.ndarray[Any, np.dtype[np.int64]]]) -> Entries:
    """Of what a launch needs, the logs' part."""
    return {key: size for key, size in sizes.items() if isinstance(key, Logged)}


def segment_starts(
    per_thread: np.ndarray[Any, np.dtype[np.int64]], launch: Launch
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where each block's part begins."""
    x, y, z = launch.grid
    lengths = np.broadcast_to(per_thread, (x * y * z,)) * _block_threads(launch)
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)


def _total(per_thread: np.ndarray[Any, np.dtype[np.int64]], launch: Launch) -> int:
    x, y, z = launch.grid
    return int(np.broadcast_to(per_thread, (x * y * z,)).sum()) * _block_threads(launch)


def _block_threads(launch: Launch) -> int:
    x, y, z = launch.block
    return x * y * z


def _check_memory(variant: Variant, counts: dict[Logged, int], placement: Placement) -> None:
    kept = sum(of.size * count for of, count in counts.items())
    needed = kept + max((_SORTING * count for of, count in counts.items() if not of.variable), default=0)
    free = available_bytes(placement.cuda) if needed else 0
    if needed > free:
        raise LaunchError(
            f"{variant.kernel.name}: deterministic=True needs {needed:,} bytes for the log of its updates and"
            f" {free:,} are free; launch fewer threads at a time, or leave it away"
        )


def finish_logs(
    variant: Variant, bound: BoundArguments, launch: Launch, placement: Placement, own: LaunchMemory
) -> None:
    """After the launch, adds what was logged for global memory to the adjoints."""
    logs = [log for log in variant.derivative.logs if not log.of.variable]
    buffers = _adjoints(variant, bound, own) if logs else []
    for log in logs if buffers else ():
        own.after.append(partial(_finish, log, _Elements.of(buffers, log.of.type), launch, placement, own))


def _adjoints(variant: Variant, bound: BoundArguments, own: LaunchMemory) -> list[tuple[int, int]]:
    """Where adjoints are, in the order of the parameters, and their sizes."""
    names = {param.name for param in variant.derivative.adjoints.values()}
    given = [(b.address, b.nbytes) for b in bound.buffers if b.name.partition(".")[0] in names]
    supplied = (own.supplied[p.name] for p in variant.derivative.internal.values())
    return [*given, *((s.value, s.nbytes) for s in supplied)]


@dataclass(frozen=True)
class _Elements:
    """The adjoints, as floats of one type that are counted through all buffers."""

    type: Scalar
    starts: np.ndarray[Any, np.dtype[np.uint64]]  # addresses
    lengths: np.ndarray[Any, np.dtype[np.uint64]]

    @staticmethod
    def of(buffers: list[tuple[int, int]], type: Scalar) -> _Elements:
        starts, sizes = (np.array(column, np.uint64) for column in zip(*buffers, strict=True))
        return _Elements(type, starts, sizes // np.uint64(type.size))

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def keys(self, addresses: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
        found = np.full(addresses.shape, _UNUSED)
        first = np.uint64(0)
        for start, length in zip(self.starts, self.lengths, strict=True):
            number = (addresses - start) // np.uint64(self.type.size)
            found = np.where((found == _UNUSED) & (addresses >= start) & (number < length), first + number, found)
            first += length
        return found


def _finish(log: Log, elements: _Elements, launch: Launch, placement: Placement, own: LaunchMemory) -> None:
    addresses, values = (own.supplied[v.name or ""] for v in (log.places, log.values))
    count = addresses.nbytes // _KEY
    device = _Device(launch, placement, own)
    starts, lengths = (device.copy(array) for array in (elements.starts, elements.lengths))
    if placement.cuda is None:
        keys, positions, count = _sorted_on_host(addresses.value, count, elements, device)
    else:
        table = (starts, lengths, len(elements.starts), elements.type.size)
        digits = -(-(elements.count + 1).bit_length() // _DIGIT_BITS)
        keys, positions = _sorted_on_device(addresses.value, count, table, digits, device)
    name = _C_NAMES[log.of.type.size]
    ordered = device.memory(log.of.type.size * count)
    device.run(f"take_values<{name}>", count, values.value, positions, ordered, count)
    while count:
        chunks = -(-count // _CHUNK)
        last = chunks == 1
        next_keys = 0 if last else device.memory(_KEY * 2 * chunks)
        next_values = 0 if last else device.memory(log.of.type.size * 2 * chunks)
        chunk = (keys, ordered, next_keys, next_values, count, int(last))
        device.run(f"add_runs<{name}>", chunks, starts, lengths, *chunk)
        keys, ordered, count = next_keys, next_values, 0 if last else 2 * chunks


class _Device:
    """Runs support kernels behind a launch; their memory lives as long as the launch's own."""

    def __init__(self, launch: Launch, placement: Placement, own: LaunchMemory):
        self.placement, self.own = placement, own
        self.launch = launch
        self.stream = next((m.stream for m in own.kept), 0)

    def memory(self, nbytes: int) -> int:
        made = Scratch(nbytes, self.placement.cuda, self.stream)
        self.own.kept.append(made)
        return made.address

    def copy(self, array: np.ndarray[Any, Any]) -> int:
        address = self.memory(array.nbytes)
        self.own.kept[-1].write(array.tobytes())
        return address

    def run(self, name: str, threads: int, *args: int, block: int = _THREADS) -> None:
        if threads:
            packed = struct.pack(f"<{len(args)}Q", *args)
            plain = flat_launch(-(-threads // block), block, self.launch.stream)
            _kernel(name).run(plain, BoundArguments(packed, ()), self.placement, {})


@cache
def _kernel(name: str) -> Kernel:
    found = _module()[name]
    assert isinstance(found, Kernel)
    return found


@cache
def _module() -> Any:
    from ...api import load

    return load(Path(__file__).with_suffix(".cu"))


# ---- sorting ------------------------------------------------------------------------------------------------------


def _sorted_on_host(addresses: int, count: int, elements: _Elements, device: _Device) -> tuple[int, int, int]:
    """Keys in order, their positions in the log, and how many there are: unused slots are left out."""
    logged = np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(addresses))
    used = np.flatnonzero(logged)
    keys = elements.keys(logged[used])
    order = np.argsort(keys, kind="stable")
    return device.copy(keys[order]), device.copy(used[order].astype(np.int64)), len(used)


def _sorted_on_device(
    addresses: int, count: int, table: tuple[int, ...], digits: int, device: _Device
) -> tuple[int, int]:
    """From the lowest digit of the keys to the highest; unused slots come last. The addresses are overwritten."""
    keys, positions = addresses, device.memory(_KEY * count)
    device.run("make_keys", count, keys, positions, count, *table)
    blocks = -(-count // _TILE)
    counts = device.memory(8 * blocks << _DIGIT_BITS)
    other_keys, other_positions = device.memory(_KEY * count), device.memory(_KEY * count)
    for shift in range(0, digits * _DIGIT_BITS, _DIGIT_BITS):
        device.run("count_digits", blocks * _THREADS, keys, counts, count, shift)
        device.run("scan_counts", _SCANNERS, counts, blocks << _DIGIT_BITS, block=_SCANNERS)
        device.run(
            "move_by_digit", blocks * _THREADS, keys, positions, other_keys, other_positions, counts, count, shift
        )
        keys, other_keys, positions, other_positions = other_keys, keys, other_positions, positions
    return keys, positions
