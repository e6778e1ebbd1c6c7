"""Kernels on the CPU: compiled on first launch, cached in memory and on disk, blocks spread over the cores."""

from __future__ import annotations

import ctypes
import json
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import KernelError
from ..ir.ops import Assert, Module
from ..ir.printer import print_module
from ..ir.traverse import walk
from ..cache import DiskCache, digest, source_digest
from .launch import BoundArguments, Dim3, LaunchConfig
from .workers import run_chunks, scratch_memory

if TYPE_CHECKING:
    from ..backends.cpu.kernel import Variant

_ENTRY_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
_SLOT_ALIGN = 64
_LAUNCH = struct.Struct("<6I2Q")  # see backends.cpu.kernel
_INLINE_THREADS = 1 << 14  # launches of fewer threads are not worth waking other cores for
_CHUNKS_PER_WORKER = 8  # so that uneven blocks even out


def compile_cpu(module: Module, kernel: str) -> CpuExecutable:
    """`kernel` as an executable. Its module has no calls left and no module variables but shared ones."""
    return CpuExecutable(module, kernel)


class CpuExecutable:
    """A kernel for this computer's CPU. Code is made when a launch first needs it; launches share nothing mutable."""

    def __init__(self, module: Module, kernel: str):
        self.module, self.kernel = module, kernel
        self._printed = print_module(module)
        self._loaded: dict[Variant, _Loaded] = {}

    def launch(self, config: LaunchConfig, arguments: BoundArguments) -> None:
        loaded = self._code_for(config)
        status = _Status()
        run = loaded.runner(config, arguments, status)
        blocks = _volume(config.grid)
        if blocks == 1 or blocks * _volume(config.block) < _INLINE_THREADS:
            run(0, blocks)
        else:
            run_chunks(run, blocks, _CHUNKS_PER_WORKER)
        if loaded.prints:
            _flush_stdout()
        if status.which:
            raise self._failure(loaded, config, status)

    def _code_for(self, config: LaunchConfig) -> _Loaded:
        from ..backends.cpu.kernel import Variant

        variant = Variant(small=all(g * b < 2**31 for g, b in zip(config.grid, config.block, strict=True)))
        loaded = self._loaded.get(variant)
        if loaded is None:
            loaded = self._loaded[variant] = _load(self.module, self.kernel, self._printed, variant)
        return loaded

    def _failure(self, loaded: _Loaded, config: LaunchConfig, status: _Status) -> KernelError:
        from ..backends.cpu.frame import Failure

        kind, number = loaded.failing[status.which - 1]
        op = list(walk(self.module.functions[self.kernel].body))[number]
        words = {
            Failure.ASSERT: f"assertion failed: {op.message}" if isinstance(op, Assert) else "assertion failed",
            Failure.TRAP: "trap",
            Failure.DIVERGENT_BARRIER: "divergent barrier: this thread of the block is still running but does not reach it",
        }
        block, thread = _unflatten(status.block, config.grid), _unflatten(status.thread, config.block)
        return KernelError(f"{words[Failure(kind)]} (block {block}, thread {thread})", op.span)


# ---- a launch -----------------------------------------------------------------------------------------------------


class _Status(ctypes.Structure):
    """Which place failed first, from 1 (see backends.cpu.frame)."""

    _fields_ = (("which", ctypes.c_int32), ("thread", ctypes.c_int64), ("block", ctypes.c_int64))


@dataclass(frozen=True)
class _Loaded:
    entry: Callable[..., None]
    static_shared: int
    slot_bytes: int
    failing: tuple[tuple[int, int], ...]
    prints: bool
    keep_alive: object

    def runner(self, config: LaunchConfig, arguments: BoundArguments, status: _Status) -> Callable[[int, int], None]:
        """A function that runs a range of blocks; several threads may call it at once."""
        shared = _round_up(self.static_shared + config.shared_bytes)
        slot_length = _round_up(_volume(config.block))
        launch = _LAUNCH.pack(*config.grid, *config.block, shared, slot_length)
        scratch_bytes = shared + self.slot_bytes * slot_length
        where = ctypes.addressof(status)

        def run(begin: int, end: int) -> None:
            self.entry(arguments.packed, launch, begin, end, scratch_memory(scratch_bytes), where)

        return run


def _volume(dims: Dim3) -> int:
    return dims[0] * dims[1] * dims[2]


def _round_up(size: int) -> int:
    return -(-size // _SLOT_ALIGN) * _SLOT_ALIGN


def _unflatten(linear: int, dims: Dim3) -> Dim3:
    row, x = divmod(linear, dims[0])
    return x, row % dims[1], row // dims[1]


def _flush_stdout() -> None:
    ctypes.CDLL(None).fflush(None)


# ---- code ---------------------------------------------------------------------------------------------------------

_memory: dict[str, _Loaded] = {}
_compiling = threading.Lock()


def _load(module: Module, kernel: str, printed: str, variant: Variant) -> _Loaded:
    from ..backends.cpu.native import target_id

    key = digest(printed, kernel, repr(variant), target_id(), source_digest("backends/cpu"))
    with _compiling:
        if key not in _memory:
            _memory[key] = _from_disk(key) or _compile(module, kernel, variant, key)
        return _memory[key]


def _from_disk(key: str) -> _Loaded | None:
    payload = DiskCache("cpu").get(key)
    return None if payload is None else _unpack(payload)


def _compile(module: Module, kernel: str, variant: Variant, key: str) -> _Loaded:
    from ..backends.cpu.kernel import lower
    from ..backends.cpu.native import compile_object

    code = lower(module, kernel, variant)
    facts = [code.static_shared, code.slot_bytes, code.failing, code.prints]
    payload = json.dumps(facts).encode() + b"\n" + compile_object(code.text)
    DiskCache("cpu").put(key, payload)
    return _unpack(payload)


def _unpack(payload: bytes) -> _Loaded:
    from ..backends.cpu.native import ENTRY, LoadedCode

    facts, _, object_code = payload.partition(b"\n")
    static_shared, slot_bytes, failing, prints = json.loads(facts)
    code = LoadedCode(object_code, ENTRY)
    places = tuple((kind, number) for kind, number in failing)
    return _Loaded(_ENTRY_TYPE(code.address), static_shared, slot_bytes, places, prints, code)
