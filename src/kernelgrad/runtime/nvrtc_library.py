"""NVRTC's library, of CUDA 12 or 13: where it is, and the few functions of it that are used.

It comes with the extras `cuda12` and `cuda13`, with the CUDA wheels of PyTorch, JAX and CuPy, or with a toolkit. Where
there are several, it is the newest that the driver can load code of.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import DeviceError
from .devices import _INSTALL, driver_version

_FILES = re.compile(r"(libnvrtc\.so\.(\d+)|nvrtc64_(\d+)\d_0\.dll)(\..*)?$")
_MAJORS = (13, 12)


class CompilationFailed(Exception):
    """`status`: as NVRTC calls it."""

    def __init__(self, status: str, log: str):
        self.status = status
        super().__init__(f"{status}\n{log}")


class Nvrtc:
    """One of the libraries."""

    def __init__(self, path: str):
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = major.value, minor.value

    def compile(self, text: str, options: list[str], what: str = "CUBIN") -> bytes:
        """The cubin, or the "PTX"."""
        library, program = self._library, ctypes.c_void_p()
        self._check(library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
        try:
            given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            status = library.nvrtcCompileProgram(program, len(options), given)
            if status:
                raise CompilationFailed(self._name(status), self._bytes("ProgramLog", program).decode(errors="replace"))
            return self._bytes(what, program)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, data))
        return data.raw if what == "CUBIN" else data.value

    def _name(self, status: int) -> str:
        return str(self._library.nvrtcGetErrorString(status).decode())

    def _check(self, status: int) -> None:
        if status:
            raise DeviceError(f"NVRTC failed: {self._name(status)}")


@cache
def nvrtc() -> Nvrtc:
    found = sorted(_candidates(), reverse=True)
    usable = [path for major, path in found if major <= driver_version()[0]] or [path for _, path in found]
    names = [f"libnvrtc.so.{major}" for major in _MAJORS if major <= driver_version()[0]]
    for path in (*usable, *names):
        try:
            return Nvrtc(path)
        except OSError:
            continue
    raise DeviceError(f"compiling for a GPU needs NVRTC, which was not found; {_INSTALL}")


def _candidates() -> Iterator[tuple[int, str]]:
    """Libraries, with the version of CUDA that they are of."""
    for folder in _folders():
        for file in sorted(folder.glob("*nvrtc*")):
            found = _FILES.fullmatch(file.name)
            if found:
                yield int(found[2] or found[3]), str(file)


def _folders() -> Iterator[Path]:
    """Of wheels, and of toolkits that the environment names."""
    for place in dict.fromkeys(sys.path):
        nvidia = Path(place or ".") / "nvidia"
        for version in ("cu13", "cuda_nvrtc"):
            yield from (nvidia / version / "lib", nvidia / version / "bin")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield from (Path(os.environ[name], part) for part in ("lib64", "lib", "bin"))
    yield Path("/usr/local/cuda/lib64")


@cache
def headers(major: int) -> str | None:
    """The folder with cuda_fp16.h of that version of CUDA: of the wheels, or of a toolkit."""
    wheels = {13: "cu13", 12: "cuda_runtime"}
    folders = [Path(place or ".") / "nvidia" / wheels.get(major, "") / "include" for place in sys.path]
    toolkits = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders += [Path(folder, "include") for folder in (*toolkits, "/usr/local/cuda") if folder]
    return next((str(folder) for folder in folders if (folder / HEADER).is_file()), None)


HEADER = "cuda_fp16.h"


def described(found: Nvrtc) -> str:
    """What code that it compiles depends on: the version, and which build of it."""
    size: Any = os.stat(found.path).st_size if os.path.isfile(found.path) else ""
    return f"nvrtc {found.version[0]}.{found.version[1]} {size}"
