"""What XLA calls: machine code that goes through a program's list of operations.

Note [Handlers]
XLA's foreign functions take one argument, a call frame (`xla/ffi/api/c_api.h`, which jaxlib brings); `handler.ll` reads
it by its offsets, which have been the same since JAX 0.5. A program (`programs`) has a handler of its own, a few
instructions that pass the frame and the program on to `kg.call`. That one answers the question for metadata, leaves all
stages but the last alone, and then, for each entry of a batch: copies the template of all arguments, writes the
addresses of this call's buffers into the copy, and calls one operation after another, each with the signature of a
kernel's entry on the CPU. Nothing is shared between calls, so XLA may make several at once, and
no Python runs. What fails is an error that is returned: an exception would end the process.

Large launches on the CPU are shared with XLA's own threads: these are asked to help, and take pieces of the grid while
there are any. The caller does so too, and waits for pieces that somebody has begun, never for a helper to come: that
one may wait for the caller's thread. Whoever is last frees what they share.

XLA's threads flush denormal numbers to zero. Kernels do not: the usual environment is set around them.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

from ..locks import once

STACK_BYTES = 1 << 13  # memory for a call that need not come from XLA
OVERRUN, RAISED = -1, -2  # statuses besides the numbers of failing places: see `kg.blocks`; a Python exception
MESSAGE_BYTES = 4096

# The words of a program and of its entries, 8 bytes each: `program.buffers` in `handler.ll` is where in it that is.
PROGRAM = """buffers template template_bytes relocation_count relocations entry_count entries
    memory_buffer memory_offset scratch_bytes workers batch strides describe number traits alignment on_gpu""".split()
ENTRY = "code arguments launch blocks chunk guard prints unused".split()

GPU_OPERATIONS = tuple(f"gpu.{name}" for name in "launch move set8 set16 set32 set64 fetch".split())
_STUB = """
define ptr @"kg.handler"(ptr %frame) {{
  %found = tail call ptr inttoptr (i64 {call} to ptr)(ptr %frame, ptr inttoptr (i64 {program} to ptr))
  ret ptr %found
}}
"""
_DECLARED = "declare i32 @{}(ptr)"
_DEFINED = "define internal i32 @{}(ptr %_) {{\n  ret i32 0\n}}"


def source() -> str:
    """The code that all programs share. What stands for the usual environment is known for Linux alone."""
    text = Path(__file__).with_suffix(".ll").read_text().replace("entry.words", str(len(ENTRY)))
    for kind, words in (("program", PROGRAM), ("entry", ENTRY)):
        for k, word in enumerate(words):
            text = re.sub(rf"\b{kind}\.{word}\b", str(8 * k), text)
    for name in ("fegetenv", "fesetenv") if sys.platform != "linux" else ():
        text = text.replace(_DECLARED.format(name), _DEFINED.format(name))
    return text


@once
def code() -> dict[str, Any]:
    """By name; loaded once, for as long as the process lives."""
    from ..backends.cpu.native import LoadedCode, compile_object

    made = compile_object(source())
    return {name: LoadedCode(made, f"kg.{name}") for name in ("call", "tell", *GPU_OPERATIONS)}


def handler_of(program: int) -> Any:
    """Code that calls this program; its `address` is what XLA calls."""
    from ..backends.cpu.native import LoadedCode, compile_object

    return LoadedCode(compile_object(_STUB.format(call=code()["call"].address, program=program)), "kg.handler")


class Status(ctypes.Structure):
    """As `runtime.cpu.LaunchStatus`, with how far behind dynamic shared memory was written."""

    _fields_ = (
        ("which", ctypes.c_int32),
        ("thread", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("overrun", ctypes.c_int64),
    )


DESCRIBE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
OPERATION = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
