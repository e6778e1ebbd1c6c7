"""Compiles emitted CUDA C++ with g++ against `cuda_emulation.h` and runs it on NumPy arrays."""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_HERE = Path(__file__).parent
_FLAGS = ["-std=c++17", "-O1", "-w", "-fPIC", "-ffp-contract=off", "-frounding-math"]
# A kernel may be called like something in the C library: its own library's name comes first.
_LINK = ["-shared", "-Wl,-Bsymbolic"]
# A static array is one per block, since blocks run one after another; the dynamic one is the emulation's own.
_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?(.+?)(\w+)\[\];")
_AS_ARRAY = r"\1(&\2)[0x10000] = *(\1(*)[0x10000])emulation::dynamic_shared;"
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
_LAUNCH = """
extern "C" const char *emulation_launch(const unsigned int *grid, const unsigned int *block,
                                        const unsigned char *packed, const size_t *offsets)
{{
    return emulation::launch({kernel}, grid, block, packed, offsets);
}}
"""


class EmulationError(Exception):
    """A kernel failed: an assertion, a trap, a deadlock."""


def run_emitted(
    text: str, kernel: str, grid: Sequence[int] | int, block: Sequence[int] | int, arguments: Sequence[Any]
) -> None:
    """Runs `kernel` of `text`. Arrays go in as pointers and are written in place; the rest are NumPy scalars."""
    packed, offsets = _packed(arguments)
    run_packed(text, kernel, grid, block, packed, offsets)


def run_packed(
    text: str,
    kernel: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    packed: bytes,
    offsets: Sequence[int],
    constants: Mapping[str, bytes] | None = None,
) -> None:
    """Runs `kernel` on arguments that lie in `packed` at `offsets`, after setting its `__constant__` variables."""
    library = _build(text)
    for name, data in (constants or {}).items():
        ctypes.memmove(ctypes.addressof(ctypes.c_char.in_dll(library, name)), data, len(data))
    launch = getattr(library, _launcher(kernel))
    launch.restype = ctypes.c_char_p
    error = launch(_three(grid), _three(block), packed, (ctypes.c_size_t * max(1, len(offsets)))(*offsets))
    if error is not None:
        raise EmulationError(error.decode())


def _three(size: Sequence[int] | int) -> Any:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (ctypes.c_uint * 3)(*sizes, *(1,) * (3 - len(sizes)))


def _packed(arguments: Sequence[Any]) -> tuple[bytes, list[int]]:
    data, offsets = b"", []
    for argument in arguments:
        value = np.uint64(argument.ctypes.data) if isinstance(argument, np.ndarray) else argument
        align = np.dtype(value.dtype).alignment
        data += bytes(-len(data) % align)
        offsets.append(len(data))
        data += value.tobytes()
    return data, offsets


@cache
def _precompiled(name: str = "cuda_emulation.h") -> Path:
    """A header that includes the one of that name, with what the compiler has made of it beside it: most of the time
    goes into the standard library."""
    folder = Path(tempfile.mkdtemp(prefix="kernelgrad-emulation-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    header = folder / f"all_of_{name}"
    header.write_text(f'#include "{_HERE / name}"\n')
    subprocess.run(["g++", *_FLAGS, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    return header


@cache
def _threads() -> Path:
    """What runs the threads, compiled."""
    target = _precompiled().parent / "threads.o"
    subprocess.run(["g++", *_FLAGS, "-c", str(_HERE / "cuda_emulation_threads.cpp"), "-o", str(target)], check=True)
    return target


def _launcher(kernel: str) -> str:
    return f"emulation_launch_{kernel}"


@cache
def _build(text: str) -> ctypes.CDLL:
    """All kernels of the text, each with its launcher."""
    launchers = (
        _LAUNCH.format(kernel=k).replace("emulation_launch", _launcher(k)) for k in dict.fromkeys(_KERNEL.findall(text))
    )
    source = _DYNAMIC.sub(_AS_ARRAY, text)
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        file.write_text(f'#include "{_precompiled()}"\n#line 1 "kernel.cu"\n{source}{"".join(launchers)}')
        command = ["g++", *_FLAGS, *_LINK, f"-I{_HERE}", "-o", str(library), str(file), str(_threads())]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            raise AssertionError(f"g++ refuses the emitted text:\n{built.stderr[:3000]}\n{text}")
        return ctypes.CDLL(str(library))
