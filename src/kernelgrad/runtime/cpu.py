"""Kernels on the CPU: compiled on first launch, cached in memory and on disk, blocks spread over the cores."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..cache import DiskCache, Recent, digest, source_digest
from ..errors import KernelError, LaunchError
from ..ir.ops import Assert, For, Module, Op, While
from ..ir.printer import print_module
from ..ir.traverse import walk
from ..locks import COMPILING, cached_property
from . import guard
from .launch import BoundArguments, Dim3, LaunchConfig
from .worker_code import Job
from .workers import core_count, run_job, scratch_memory

if TYPE_CHECKING:
    from ..backends.cpu.indexing import IndexArithmetic, Variant
    from ..backends.cpu.worker_sums import Candidate

ENTRY_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
Places = tuple[tuple[int, int], ...]  # see backends.cpu.kernel.KernelCode.failing

NULL_USED = "is used here, and None was passed for it"  # what `nulls` has asserted ends with it

_SLOT_ALIGN = 64
_LAUNCH = struct.Struct("<6I3Q")  # see backends.cpu.kernel
_OWN_SUM = struct.Struct("<2Q")
_INLINE_THREADS = 1 << 14  # launches of fewer threads are not worth waking other cores for
_SHAPES = 4  # block shapes a kernel gets code of its own for; more get code for any shape
_PIECE_THREADS = 1 << 20  # without loops in them, so many do not take long
_CHUNKS_PER_WORKER = 8  # so that uneven blocks even out


def compile_cpu(module: Module, kernel: str) -> CpuExecutable:
    """`kernel` as an executable. Its module has no calls left and no module variables but shared ones."""
    # What launches import, under the caller's lock: a child that is forked meanwhile would wait for the import forever.
    from ..analysis.access import ranges  # noqa: F401
    from ..backends.cpu import indexing, native, worker_sums  # noqa: F401

    return CpuExecutable(module, kernel)


class CpuExecutable:
    """A kernel for this computer's CPU. Code is made when a launch first needs it; launches share nothing mutable."""

    def __init__(self, module: Module, kernel: str):
        self.module, self.kernel = module, kernel
        self._printed = print_module(module)
        self._loaded: dict[Variant, _Loaded] = {}
        self._last: tuple[tuple[Dim3, Dim3, tuple[str, ...], tuple[str, ...]], _Loaded] | None = None
        self._last_bounds: tuple[object, tuple[str, ...]] | None = None

    def launch(self, config: LaunchConfig, arguments: BoundArguments) -> None:
        loaded, worker_sums = self._ready(config, arguments)
        status = LaunchStatus()
        blocks, threads = volume(config.grid), volume(config.block)
        first = 1 if self._has_loops else max(1, _PIECE_THREADS // threads)
        shared = blocks > 1 and blocks * threads >= _INLINE_THREADS
        if blocks <= first and not shared and not loaded.dynamic:
            loaded.run(config, arguments, status, worker_sums)
        else:
            helpers = min(core_count(), blocks) - 1 if shared else 0
            job = loaded.job(config, arguments, status, worker_sums)
            job.first, job.chunk = first, max(1, -(-blocks // ((helpers + 1) * _CHUNKS_PER_WORKER)))
            run_job(job, helpers)
            status.overrun = job.overrun
        if loaded.prints:
            _flush_stdout()
        self.check(config, loaded, status)

    def check(self, config: LaunchConfig, loaded: _Loaded, status: LaunchStatus) -> None:
        """An error for a launch that failed."""
        if status.overrun:
            raise _too_little_shared(self.module.functions[self.kernel].called, config, status.overrun)
        if status.which:
            raise kernel_failure(self.module, self.kernel, loaded.failing, config, status)

    def _ready(self, config: LaunchConfig, arguments: BoundArguments) -> tuple[_Loaded, tuple[int, ...]]:
        """The code for a launch, and the bytes of the buffers that each worker gets memory of its own for."""
        worker_sums = self._worker_sums(config, arguments)
        checked = self._unbounded(config, arguments, worker_sums) if worker_sums else ()
        return self._code_for(config, tuple(worker_sums), checked), tuple(worker_sums.values())

    def entry(self, config: LaunchConfig, arguments: BoundArguments) -> Entry:
        """A launch as its code is called."""
        blocks, threads = volume(config.grid), volume(config.block)
        loaded, worker_sums = self._ready(config, arguments)
        launch, scratch_bytes = loaded.packed_launch(config, worker_sums)
        guard = loaded.static_shared + config.shared_bytes if loaded.dynamic else None
        is_large = blocks > 1 and blocks * threads >= _INLINE_THREADS
        address: int = loaded.keep_alive.address  # type: ignore[attr-defined]
        check = partial(self.check, config, loaded)
        return Entry(address, launch, blocks, scratch_bytes, guard, loaded.prints, is_large, check)

    def _code_for(self, config: LaunchConfig, worker_sums: tuple[str, ...], checked: tuple[str, ...]) -> _Loaded:
        """The code for a launch; the last launch's shape is likely to come again."""
        shape = config.grid, config.block, worker_sums, checked
        last = self._last
        if last is None or last[0] != shape:
            last = self._last = shape, self._variant_for(config, worker_sums, checked)
        return last[1]

    def _worker_sums(self, config: LaunchConfig, arguments: BoundArguments) -> dict[str, int]:
        """The parameters whose buffers each worker gets memory of its own for, and the bytes of it."""
        if not self._candidates:
            return {}
        threads = volume(config.grid) * volume(config.block)
        sizes = {b.name: b.nbytes for b in arguments.buffers if b.name in self._candidates}
        found = (name for name, own in self._candidates.items() if own.pays(sizes.get(name, 0), threads))
        return {name: sizes[name] for name in found}

    def _unbounded(self, config: LaunchConfig, arguments: BoundArguments, sizes: dict[str, int]) -> tuple[str, ...]:
        """Those of them that threads of this launch might add to outside of the buffer."""
        from ..analysis.access.ranges import Ranges

        indices = next(iter(self._candidates.values())).indices
        ints = indices.ints(arguments.packed)
        key = config.grid, config.block, tuple(ints.values()), tuple(sizes.items())
        last = self._last_bounds
        if last is None or last[0] != key:
            ranges = Ranges(indices, config.grid, config.block, ints)
            found = (name for name, size in sizes.items() if not self._candidates[name].stays_inside(ranges, size))
            last = self._last_bounds = key, tuple(found)
        return last[1]

    @cached_property
    def _has_loops(self) -> bool:
        return any(isinstance(op, For | While) for op in walk(self.module.functions[self.kernel].body))

    @cached_property
    def _candidates(self) -> dict[str, Candidate]:
        from ..backends.cpu.worker_sums import all_candidates

        return all_candidates(self.module.functions[self.kernel])

    def _variant_for(self, config: LaunchConfig, worker_sums: tuple[str, ...], checked: tuple[str, ...]) -> _Loaded:
        from ..backends.cpu.indexing import Variant

        small = self._arithmetic.stays_small(config.grid, config.block)
        variant = Variant(small, self._shape(config.block), worker_sums=worker_sums, checked=checked)
        loaded = self._loaded.get(variant)
        if loaded is None:
            loaded = self._loaded[variant] = _load(self.module, self.kernel, self._printed, variant)
        return loaded

    @cached_property
    def _arithmetic(self) -> IndexArithmetic:
        from ..backends.cpu.indexing import IndexArithmetic

        return IndexArithmetic(self.module.functions[self.kernel])

    def _shape(self, block: Dim3) -> Dim3 | None:
        """The block's shape if code is to be made for it: for the first few shapes a kernel is launched with."""
        shapes = {v.block for v in self._loaded}
        return block if block in shapes or len(shapes) < _SHAPES else None


class Entry(NamedTuple):
    """A launch as its code is called. `guard`: where in the scratch memory dynamic shared memory ends, if there is any
    (see `guard`). `prints`: stdout is to be flushed. `is_large`: better shared among the cores. `check`: raises what
    its status says."""

    address: int
    launch: bytes
    blocks: int
    scratch_bytes: int
    guard: int | None
    prints: bool
    is_large: bool
    check: Callable[[LaunchStatus], None]


# ---- a launch -----------------------------------------------------------------------------------------------------


class LaunchStatus(ctypes.Structure):
    """Which place failed first, from 1 (see backends.cpu.frame). `overrun`: how far behind the dynamic shared memory
    some block wrote, in bytes."""

    _fields_ = (("which", ctypes.c_int32), ("thread", ctypes.c_int64), ("block", ctypes.c_int64))
    overrun = 0


def kernel_failure(
    module: Module, kernel: str, failing: Places, config: LaunchConfig, status: LaunchStatus
) -> KernelError:
    """The error for a launch whose status is not zero."""
    from ..backends.cpu.frame import Failure, failing_ops

    kind, number = failing[status.which - 1]
    op = failing_ops(module.functions[kernel].body)[number]
    words = {
        Failure.ASSERT: _asserted(op),
        Failure.TRAP: "trap",
        Failure.DIVERGENT_BARRIER: "divergent barrier: this thread of the block is still running but does not reach it",
        Failure.OTHER_MASK: "lanes out of step: this one's mask names a lane that is here with another mask; a GPU has "
        "it wait, but the CPU runs a loop's k-th iteration for all lanes together",
    }
    block, thread = unflatten(status.block, config.grid), unflatten(status.thread, config.block)
    return KernelError(f"{words[Failure(kind)]} (block {block}, thread {thread})", op.span)


def _asserted(op: Op) -> str:
    message = op.message if isinstance(op, Assert) else ""
    return message if message.endswith(NULL_USED) else f"assertion failed: {message}"


def _too_little_shared(kernel: str, config: LaunchConfig, overrun: int) -> LaunchError:
    given = config.shared_bytes - config.shadow_bytes
    bytes_per_byte = config.shadow_bytes // given if config.shadow_bytes else 1  # a shadow lies last, and may be wider
    needed = given + -(-overrun // bytes_per_byte)
    return LaunchError(f"shared memory: {kernel} needs at least {needed} bytes of dynamic shared memory, got {given}")


def pack_launch(
    config: LaunchConfig, static_shared: int, slot_bytes: int, watch: int = 0, room: int = 0
) -> tuple[bytes, int, int]:
    """The launch as the entry wants it, and the scratch memory a worker needs: bytes of shared memory (with `room` for
    more behind it), and in all."""
    shared = _round_up(static_shared + config.shared_bytes + room)
    slot_length = _round_up(volume(config.block))
    launch = _LAUNCH.pack(*config.grid, *config.block, shared, slot_length, watch)
    return launch, shared, shared + slot_bytes * slot_length


@dataclass(frozen=True)
class _Loaded:
    entry: Callable[..., None]
    static_shared: int
    slot_bytes: int
    failing: Places
    prints: bool
    dynamic: bool
    keep_alive: object

    def packed_launch(self, config: LaunchConfig, worker_sums: tuple[int, ...]) -> tuple[bytes, int]:
        """The launch as the entry wants it, and the bytes of scratch memory that it needs."""
        room = guard.ROOM if self.dynamic else 0
        launch, _, scratch_bytes = pack_launch(config, self.static_shared, self.slot_bytes, room=room)
        for nbytes in worker_sums:
            launch += _OWN_SUM.pack(scratch_bytes, nbytes)
            scratch_bytes += _round_up(nbytes) + _round_up(2 * nbytes)  # sums, and doubles behind them
        return launch, scratch_bytes

    def run(
        self, config: LaunchConfig, arguments: BoundArguments, status: LaunchStatus, worker_sums: tuple[int, ...]
    ) -> None:
        """All blocks, in this thread."""
        launch, scratch_bytes = self.packed_launch(config, worker_sums)
        scratch, where = scratch_memory(scratch_bytes), ctypes.addressof(status)
        self.entry(arguments.packed, launch, 0, volume(config.grid), scratch, where)

    def job(
        self, config: LaunchConfig, arguments: BoundArguments, status: LaunchStatus, worker_sums: tuple[int, ...]
    ) -> Job:
        """All blocks, for several threads."""
        launch, scratch_bytes = self.packed_launch(config, worker_sums)
        behind = self.static_shared + config.shared_bytes if self.dynamic else -1
        entry, where = self.keep_alive.address, ctypes.addressof(status)  # type: ignore[attr-defined]
        return Job(
            entry, arguments.packed, launch, where, volume(config.grid), scratch_bytes=scratch_bytes, behind=behind
        )


def volume(dims: Dim3) -> int:
    return dims[0] * dims[1] * dims[2]


def _round_up(size: int) -> int:
    return -(-size // _SLOT_ALIGN) * _SLOT_ALIGN


def unflatten(linear: int, dims: Dim3) -> Dim3:
    row, x = divmod(linear, dims[0])
    return x, row % dims[1], row // dims[1]


def _flush_stdout() -> None:
    ctypes.CDLL(None).fflush(None)


# ---- code ---------------------------------------------------------------------------------------------------------

_memory: Recent[_Loaded] = Recent(512)


def _load(module: Module, kernel: str, printed: str, variant: Variant) -> _Loaded:
    from ..backends.cpu.native import target_id

    key = digest(printed, kernel, repr(variant), target_id(), source_digest("analysis"), source_digest("backends/cpu"))
    with COMPILING:
        if key not in _memory:
            _memory[key] = _from_disk(key) or _compile(module, kernel, variant, key)
        return _memory[key]


def _from_disk(key: str) -> _Loaded | None:
    disk = DiskCache("cpu")
    payload = disk.get(key)
    if payload is None:
        return None
    try:
        return _unpack(payload)
    except (ValueError, RuntimeError):  # of another version, or not what LLVM takes
        disk.remove(key)
        return None


def _compile(module: Module, kernel: str, variant: Variant, key: str) -> _Loaded:
    from ..backends.cpu.kernel import lower
    from ..backends.cpu.native import compile_object

    code = lower(module, kernel, variant)
    facts = [code.static_shared, code.slot_bytes, code.failing, code.prints, code.dynamic]
    payload = json.dumps(facts).encode() + b"\n" + compile_object(code.text)
    DiskCache("cpu").put(key, payload)
    return _unpack(payload)


def _unpack(payload: bytes) -> _Loaded:
    from ..backends.cpu.native import ENTRY, LoadedCode

    facts, _, object_code = payload.partition(b"\n")
    static_shared, slot_bytes, failing, prints, dynamic = json.loads(facts)
    code = LoadedCode(object_code, ENTRY)
    places = tuple((kind, number) for kind, number in failing)
    return _Loaded(ENTRY_TYPE(code.address), static_shared, slot_bytes, places, prints, dynamic, code)
