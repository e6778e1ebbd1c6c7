"""Numbers of the machine, in one place: what CUDA fixes for all devices, and what was measured on an H200.

The second kind decides between forms of the same code; other devices want others, and none makes a result wrong.
"""

from __future__ import annotations

from ..ir.types import BF16, F16, F32, F64, I32, U32, Field, Scalar, Struct

# ---- fixed by CUDA ------------------------------------------------------------------------------------------------

WARP = 32  # threads
FULL_WARP = 2**WARP - 1  # the mask of all of them
VECTOR_BYTES = 16  # that one thread loads or stores at once, at most
REGISTERS = 1 << 16  # that the threads of a multiprocessor share
REGISTER_STEP = 8  # a thread gets a multiple of these
MULTIPROCESSOR_THREADS = 2048  # at once, at most


def vector(name: str, element: Scalar, count: int) -> Struct:
    """So many neighbours, that are loaded and stored at once."""
    fields = tuple(Field("xyzwabcd"[k], element, k * element.size) for k in range(count))
    return Struct(name, fields, count * element.size, count * element.size)


def halves(element: Scalar, count: int) -> Struct:
    """CUDA has no vectors of so many halves."""
    return vector(f"~{element.name}x{count}", element, count)


VECTORS = {
    element: vector(name, element, VECTOR_BYTES // element.size)
    for name, element in (("float4", F32), ("double2", F64), ("int4", I32), ("uint4", U32))
} | {element: halves(element, VECTOR_BYTES // element.size) for element in (F16, BF16)}

# ---- measured on an H200, of 132 multiprocessors ------------------------------------------------------------------

FILLING_THREADS = 1 << 15  # with fewer, it waits for memory
FILLING_BLOCKS = 1 << 14  # of which half, or a sixteenth of large ones, still fill it
MULTIPROCESSORS = 132
RESIDENT_THREADS = MULTIPROCESSORS * MULTIPROCESSOR_THREADS  # that it holds at once
SHARED_BYTES = 227 << 10  # of a block, and of all blocks of a multiprocessor
CACHED_BYTES = 40 << 20  # that are still in its cache when they are read again
BUSY_THREADS = 256  # of a multiprocessor, that keep memory busy if each has many loads under way
LOOP_SUMS = 16  # registers that sums of one loop may take
ONLY_SUMS = 32  # the same of a gradient that does nothing but sum up
ATOMIC_INSTRUCTIONS = 44  # of a thread, that pass while memory does one atomic addition
MEMORY_BYTE = 6  # operations of a thread, that pass while memory moves a byte
COPIES = 256  # of a small adjoint that very many threads add to
MOST_COPIES = 1024  # the threads that add them up are a block

# ---- of numbers ---------------------------------------------------------------------------------------------------

MOST_ADDITIONS = 320  # of floats to a cell, after which a sum of equal ones is off by 4.8e-6 at most
