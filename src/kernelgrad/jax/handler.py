"""What XLA calls: machine code that takes a call frame and runs a program.

Note [Handlers]
XLA's foreign functions take one argument, a call frame (`xla/ffi/api/c_api.h`, which jaxlib brings); `handler.ll` reads
it by its offsets, which have been the same since JAX 0.5. A program (`programs`) has a handler of its own, a few
instructions that pass the frame and the program on to `kg.call`. That one answers the question for metadata, leaves all
stages but the last alone, and then runs the program (Note [Programs] in runtime/operations.py) on the frame's buffers.
XLA may make several calls at once, and no Python runs. What fails is an error that is returned: an exception would end
the process.

Large launches on the CPU are shared with XLA's own threads: these are asked to help, and take pieces of the grid while
there are any. The caller does so too, and waits for pieces that somebody has begun, never for a helper to come: that
one may wait for the caller's thread. Whoever is last frees what they share.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from ..locks import once
from ..runtime import operations
from ..runtime.operations import Status

STACK_BYTES = 1 << 13  # memory for a call that need not come from XLA
OVERRUN, RAISED = -1, -2  # statuses besides the numbers of failing places: see `kg.blocks`; a Python exception

_STUB = """
define ptr @"kg.handler"(ptr %frame) {{
  %found = tail call ptr inttoptr (i64 {call} to ptr)(ptr %frame, ptr inttoptr (i64 {program} to ptr))
  ret ptr %found
}}
"""


def source() -> str:
    """The code that all programs share."""
    return operations.filled(operations.source() + Path(__file__).with_suffix(".ll").read_text())


@once
def code() -> Any:
    """Loaded once, for as long as the process lives."""
    from ..backends.cpu.native import LoadedCode, compile_object

    made = compile_object(source())
    return LoadedCode(made, "kg.call")


def handler_of(program: int) -> Any:
    """Code that calls this program; its `address` is what XLA calls."""
    from ..backends.cpu.native import LoadedCode, compile_object

    return LoadedCode(compile_object(_STUB.format(call=code().address, program=program)), "kg.handler")


DESCRIBE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
OPERATION = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)

__all__ = ["DESCRIBE", "OPERATION", "OVERRUN", "RAISED", "STACK_BYTES", "Status", "handler_of"]
