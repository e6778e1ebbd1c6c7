"""A trace on the CPU as one native list: a loop in machine code calls the launches' entries one after the other.

Launches that are better shared among the cores, print, or have dynamic shared memory are made as usual, in between. A
list is called in pieces: Python looks for interrupts between them.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..locks import once
from .cpu import CpuExecutable, LaunchStatus
from .tracing import Filled, Launched, LiveNumber, Moved, Operation
from .workers import scratch_memory

_PIECE = 4096  # operations
_ENTRY = struct.Struct("<4Q")
_ALIGN = 64
_PATTERN = 24  # where a fill's pattern begins

_SIGNATURE = "(ptr %args, ptr %launch, i64 %begin, i64 %end, ptr %scratch, ptr %status)"
_SOURCE = f"""
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i64 @"kg.run"(ptr %entries, i64 %begin, i64 %end, ptr %scratch, ptr %status) {{
start:
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %next, label %done
next:
  %k = phi i64 [ %begin, %start ], [ %after, %went ]
  %at = getelementptr {{ ptr, ptr, ptr, i64 }}, ptr %entries, i64 %k
  %entry = load {{ ptr, ptr, ptr, i64 }}, ptr %at
  %code = extractvalue {{ ptr, ptr, ptr, i64 }} %entry, 0
  %args = extractvalue {{ ptr, ptr, ptr, i64 }} %entry, 1
  %launch = extractvalue {{ ptr, ptr, ptr, i64 }} %entry, 2
  %blocks = extractvalue {{ ptr, ptr, ptr, i64 }} %entry, 3
  call void %code(ptr %args, ptr %launch, i64 0, i64 %blocks, ptr %scratch, ptr %status)
  %which = load i32, ptr %status
  %failed = icmp ne i32 %which, 0
  br i1 %failed, label %stop, label %went
went:
  %after = add i64 %k, 1
  %more = icmp slt i64 %after, %end
  br i1 %more, label %next, label %done
stop:
  ret i64 %k
done:
  ret i64 %end
}}

define void @"kg.move"{_SIGNATURE} {{
  %source_at = getelementptr i8, ptr %args, i64 8
  %size_at = getelementptr i8, ptr %args, i64 16
  %target = load ptr, ptr %args
  %source = load ptr, ptr %source_at
  %size = load i64, ptr %size_at
  call void @llvm.memmove.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  ret void
}}

define void @"kg.set"{_SIGNATURE} {{
  %size_at = getelementptr i8, ptr %args, i64 8
  %byte_at = getelementptr i8, ptr %args, i64 {_PATTERN}
  %target = load ptr, ptr %args
  %size = load i64, ptr %size_at
  %byte = load i8, ptr %byte_at
  call void @llvm.memset.p0.i64(ptr %target, i8 %byte, i64 %size, i1 false)
  ret void
}}

define void @"kg.fill"{_SIGNATURE} {{
start:
  %size_at = getelementptr i8, ptr %args, i64 8
  %item_at = getelementptr i8, ptr %args, i64 16
  %pattern = getelementptr i8, ptr %args, i64 {_PATTERN}
  %target = load ptr, ptr %args
  %size = load i64, ptr %size_at
  %item = load i64, ptr %item_at
  br label %next
next:
  %at = phi i64 [ 0, %start ], [ %after, %next ]
  %to = getelementptr i8, ptr %target, i64 %at
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %pattern, i64 %item, i1 false)
  %after = add i64 %at, %item
  %more = icmp slt i64 %after, %size
  br i1 %more, label %next, label %done
done:
  ret void
}}

define void @"kg.narrow"{_SIGNATURE} {{
  %source_at = getelementptr i8, ptr %args, i64 8
  %target = load ptr, ptr %args
  %source = load ptr, ptr %source_at
  %wide = load double, ptr %source
  %number = fptrunc double %wide to float
  store float %number, ptr %target
  ret void
}}

define void @"kg.widen"{_SIGNATURE} {{
  %source_at = getelementptr i8, ptr %args, i64 8
  %target = load ptr, ptr %args
  %source = load ptr, ptr %source_at
  %number = load float, ptr %source
  %wide = fpext float %number to double
  store double %wide, ptr %target
  ret void
}}
"""
_NAMES = ("run", "move", "set", "fill", "narrow", "widen")
_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


@once
def _code() -> dict[str, Any]:
    """By name; loaded once."""
    from ..backends.cpu.native import LoadedCode, compile_object

    made = compile_object(_SOURCE)
    return {name: LoadedCode(made, f"kg.{name}") for name in _NAMES}


def operation(name: str) -> int:
    """The code of an operation besides launches, with the signature of a kernel's entry: move, set, fill."""
    return int(_code()[name].address)


class NativeList:
    """`run()` does all operations of a trace, in order."""

    def __init__(self, operations: Iterable[Operation]):
        self._sections: list[Callable[[], None]] = []
        section = _Section()
        for operation in operations:
            if not self._add(operation, section):
                assert isinstance(operation, Launched)
                self._close(section)
                self._sections.append(_alone(operation))
                section = _Section()
        self._close(section)

    def run(self) -> None:
        for section in self._sections:
            section()

    def _close(self, section: _Section) -> None:
        if section.entries:
            section.close()
            self._sections.append(section.run)

    def _add(self, operation: Operation, section: _Section) -> bool:
        match operation:
            case Moved(target, source, nbytes):
                section.add("move", struct.pack("<3Q", target, source, nbytes))
            case Filled(target, nbytes, pattern):
                name = "set" if len(set(pattern)) == 1 else "fill"
                section.add(name, struct.pack("<3Q", target, nbytes, len(pattern)) + pattern)
            case Launched():
                return section.launch(operation)
        return True


def _alone(operation: Launched) -> Callable[[], None]:
    """A launch as any other."""
    executable, config, arguments, numbers = operation

    def run() -> None:
        packed = bytearray(arguments.packed)
        for number in numbers:
            found = ctypes.string_at(number.array.address, number.array.nbytes)
            packed[number.offset : number.offset + number.size] = _as_size(found, number.size)
        executable.launch(config, arguments._replace(packed=bytes(packed)))

    return run


def _as_size(number: bytes, size: int) -> bytes:
    codes = {4: "<f", 8: "<d"}
    return number if len(number) == size else struct.pack(codes[size], *struct.unpack(codes[len(number)], number))


class _Bytes:
    """Bytes that machine code reads and writes, aligned as arguments are."""

    def __init__(self, data: bytes):
        self._memory = np.empty(len(data) + _ALIGN, np.uint8)
        self.address = -(-self._memory.ctypes.data // _ALIGN) * _ALIGN
        ctypes.memmove(self.address, data, len(data))


class _Section:
    """Operations that machine code does without coming back."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Any, Any, int]] = []
        self._checks: dict[int, Callable[[LaunchStatus], None]] = {}
        self._scratch_bytes = 0
        self._table: Any = None
        self._same: dict[bytes, Any] = {}

    def add(self, name: str, args: bytes) -> None:
        self.entries.append((operation(name), _Bytes(args), None, 0))

    def launch(self, operation: Launched) -> bool:
        """False if it is not for a section."""
        executable, config, arguments, numbers = operation
        found = executable.entry(config, arguments) if isinstance(executable, CpuExecutable) else None
        if found is None or found.guard is not None or found.prints or found.is_large:
            return False
        packed = _Bytes(arguments.packed)
        for number in numbers:
            self._tell(number, packed.address)
        launch = self._same.get(found.launch) or self._same.setdefault(found.launch, _Bytes(found.launch))
        self._checks[len(self.entries)] = found.check
        self._scratch_bytes = max(self._scratch_bytes, found.scratch_bytes)
        self.entries.append((found.address, packed, launch, found.blocks))
        self._same[b"code %d" % found.address] = found.check  # keeps the code
        return True

    def _tell(self, number: LiveNumber, packed: int) -> None:
        """Before a launch: a number among its arguments."""
        sizes = number.array.nbytes, number.size
        name = {(8, 4): "narrow", (4, 8): "widen"}.get(sizes, "move")
        self.add(name, struct.pack("<3Q", packed + number.offset, number.array.address, number.size))

    def close(self) -> None:
        parts = [
            _ENTRY.pack(code, args.address, launch.address if launch is not None else 0, blocks)
            for code, args, launch, blocks in self.entries
        ]
        self._table = ctypes.create_string_buffer(b"".join(parts))
        self._run = _RUN(_code()["run"].address)

    def run(self) -> None:
        status, count = LaunchStatus(), len(self.entries)
        scratch = scratch_memory(self._scratch_bytes)
        for begin in range(0, count, _PIECE):
            end = min(begin + _PIECE, count)
            stopped = self._run(self._table, begin, end, scratch, ctypes.addressof(status))
            if stopped < end:
                self._checks[stopped](status)
