"""Machine code that goes through a list of operations whose arrays lie somewhere else each time.

Note [Programs]
A program is a template of all arguments of its operations, a list of the words in it that are addresses (which buffer,
how far in it), and a list of entries. To run it is to copy the template, to write the addresses of this call's buffers
into the copy, and to call one operation after another, each with the signature of a kernel's entry on the CPU: kernels
there, launches, copies and fills on a GPU (`operations.ll`). Nothing is shared between calls, and no Python runs.

XLA calls programs (`jax/handler`), and so do launches that come again (`replay`).

XLA's threads flush denormal numbers to zero. Kernels do not: the usual environment is set around them.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

from ..locks import once

# The words of a program and of its entries, 8 bytes each: `program.buffers` in `operations.ll` is where in it that is.
PROGRAM = """buffers template template_bytes relocation_count relocations entry_count entries
    memory_buffer memory_offset scratch_bytes workers batch strides describe number traits alignment on_gpu
    numbers pair_count pairs context_of context""".split()
ENTRY = "code arguments launch blocks chunk guard prints unused".split()

GPU_OPERATIONS = tuple(f"gpu.{name}" for name in "launch move set8 set16 set32 set64 fetch".split())
OTHER_CONTEXT, OVERLAP = -2, -3  # what `kg.replay` gives where nothing ran
_NAMES = ("replay", "tell", *GPU_OPERATIONS)
_DECLARED = "declare i32 @{}(ptr)"
_DEFINED = "define internal i32 @{}(ptr %_) {{\n  ret i32 0\n}}"


def filled(text: str) -> str:
    """With the places of words. What stands for the usual environment is known for Linux alone."""
    text = text.replace("entry.words", str(len(ENTRY)))
    for kind, words in (("program", PROGRAM), ("entry", ENTRY)):
        for k, word in enumerate(words):
            text = re.sub(rf"\b{kind}\.{word}\b", str(8 * k), text)
    for name in ("fegetenv", "fesetenv") if sys.platform != "linux" else ():
        text = text.replace(_DECLARED.format(name), _DEFINED.format(name))
    return text


def source() -> str:
    return Path(__file__).with_suffix(".ll").read_text()


@once
def code() -> dict[str, Any]:
    """By name; loaded once, for as long as the process lives."""
    from ..backends.cpu.native import LoadedCode, compile_object, target_id
    from ..cache import DiskCache, digest

    text = filled(source())
    key = digest("operations", text, target_id())
    made = DiskCache("cpu").get(key)
    if made is None:
        made = compile_object(text)
        DiskCache("cpu").put(key, made)
    return {name: LoadedCode(made, f"kg.{name}") for name in _NAMES}


class Status(ctypes.Structure):
    """As `runtime.cpu.LaunchStatus`, with how far behind dynamic shared memory was written."""

    _fields_ = (
        ("which", ctypes.c_int32),
        ("thread", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("overrun", ctypes.c_int64),
    )
