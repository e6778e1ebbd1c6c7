"""Compiles whole CUDA C++ files, host code included, with g++ against the emulation: calls a host function on NumPy
arrays, or runs the program."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from run_text import _AS_ARRAY, _DYNAMIC, _FLAGS, _HERE, _LINK, _packed, _precompiled, _threads

_LAUNCH = re.compile(r"([\w:]+(?:<[^<>;]*>)?)\s*<<<(.*?)>>>", re.S)
_CALL = """
template <typename... Parameters, size_t... k>
cudaError_t emulation_call(cudaError_t (*f)(Parameters...), const unsigned char *packed, const size_t *offsets,
                           std::index_sequence<k...>)
{{
    auto read = [&](auto *type, size_t at) {{
        std::remove_pointer_t<decltype(type)> value;
        std::memcpy((void *)&value, packed + at, sizeof(value));
        return value;
    }};
    return f(read((std::remove_cv_t<Parameters> *)nullptr, offsets[k])...);
}}
template <typename... Parameters>
cudaError_t emulation_call(cudaError_t (*f)(Parameters...), const unsigned char *packed, const size_t *offsets)
{{
    return emulation_call(f, packed, offsets, std::index_sequence_for<Parameters...>{{}});
}}
extern "C" int emulation_host(const unsigned char *packed, const size_t *offsets, long fails_at, long *left)
{{
    emulation::fails_at = fails_at;
    int error = emulation_call({function}, packed, offsets);
    *left = emulation::allocated.size();
    return error;
}}
"""


def dim3(*extents: int) -> Any:
    """As an argument."""
    return np.array([(*extents, *(1,) * (3 - len(extents)))], np.dtype("u4, u4, u4"))[0]


def call_host(text: str, function: str, arguments: Sequence[Any], fails_at: int = -1) -> int:
    """Calls a host function that returns a cudaError_t, which this returns. Nothing that it allocates may be left.
    `fails_at`: the number of the allocation that fails."""
    library = _build(text + _CALL.format(function=function))
    packed, offsets = _packed(arguments)
    left = ctypes.c_long()
    error = library.emulation_host(packed, (ctypes.c_size_t * len(offsets))(*offsets), ctypes.c_long(fails_at), left)
    assert left.value == 0, f"{left.value} allocations of {function} are not freed"
    return int(error)


def run_program(text: str) -> str:
    """What the program prints."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program")
        _compile(text, program, [])
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@cache
def _build(text: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "host.so")
        _compile(text, library, _LINK)
        found = ctypes.CDLL(str(library))
        found.emulation_host.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_long, ctypes.POINTER(ctypes.c_long)]
        return found


def _compile(text: str, target: Path, flags: list[str]) -> None:
    source = _DYNAMIC.sub(_AS_ARRAY, text)
    source = _LAUNCH.sub(r"emulation::configured(\1, \2)", source)
    file = target.with_suffix(".cpp")
    file.write_text(f'#include "{_precompiled("cuda_runtime.h")}"\n#line 1 "file.cu"\n{source}')
    command = ["g++", *_FLAGS, *flags, f"-I{_HERE}", "-o", str(target), str(file), str(_threads())]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise AssertionError(f"g++ refuses the text:\n{built.stderr[:3000]}\n{text}")
