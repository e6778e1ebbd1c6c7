"""CUDA C++ text to machine code with NVRTC. Needs no GPU."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from ..cache import DiskCache, Recent, digest, source_digest
from ..errors import DeviceError, InternalError
from ..progress import doing
from .devices import _INSTALL

_STANDARD = "c++17"
_HEADER = "cuda_fp16.h"
_memory: Recent[bytes] = Recent(256)


def compile_only(text: str, arch: str, registers: int | None = None) -> bytes:
    """The cubin of `text` for `arch` ("sm_90"), from memory or disk where it was compiled before. `registers`: at most
    so many for each thread."""
    key = digest("cubin", text, arch, str(registers), _STANDARD, *_versions())
    found = _memory.get(key)
    if found is None:
        disk = DiskCache("cuda")
        found = disk.get(key)
        if found is None:
            found = _compile(text, arch, registers)
            disk.put(key, found)
        _memory[key] = found
    return found


@doing(lambda text, *_: f"compiling {text.count(chr(10))} lines of CUDA C++")
def _compile(text: str, arch: str, registers: int | None) -> bytes:
    core = _cuda_core()
    includes = [text_path] if (text_path := _include_dir()) else []
    options = core.ProgramOptions(
        arch=arch,
        std=_STANDARD,
        include_path=includes or None,
        name="kernel.cu",
        max_register_count=registers,
    )
    try:
        return bytes(core.Program(text, "c++", options).compile("cubin").code)
    except Exception as error:
        raise _explained(error, text, arch) from error


def _explained(error: Exception, text: str, arch: str) -> Exception:
    log = str(error)
    if "gpu-architecture" in log or "NVRTC_ERROR_INVALID_OPTION" in log:
        return DeviceError(f"the installed NVRTC cannot compile for {arch}: {log}")
    if _HEADER in log and "could not open" in log:
        return DeviceError(f"CUDA's headers were not found: {_INSTALL}, or set CUDA_HOME")
    if "NVRTC_ERROR_COMPILATION" in log:
        return InternalError(f"NVRTC refuses code that kernelgrad wrote.\n{log}\n{_numbered(text)}")
    return DeviceError(f"NVRTC failed: {log}")


def _numbered(text: str) -> str:
    return "\n".join(f"{k:4} | {line}" for k, line in enumerate(text.splitlines(), 1))


@cache
def _cuda_core() -> Any:
    try:
        import cuda.core as core
    except ImportError as error:
        raise DeviceError(f"compiling for a GPU needs the package cuda-core ({error}); {_INSTALL}") from error
    return core


@cache
def _include_dir() -> str | None:
    """The folder with cuda_fp16.h: of the wheels, or of a toolkit."""
    candidates = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [_wheel_include(), *(f"{c}/include" for c in candidates if c), "/usr/local/cuda/include"]
    return next((f for f in folders if f and (Path(f) / _HEADER).is_file()), None)


def _wheel_include() -> str | None:
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return None
    found = find_nvidia_header_directory("cudart")
    return str(found) if found else None


@cache
def _versions() -> tuple[str, ...]:
    """What the compiled code depends on besides the text."""
    from importlib import metadata

    _cuda_core()
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    build = next((d.version for d in metadata.distributions(name="nvidia-cuda-nvrtc")), "")
    return f"nvrtc {major}.{minor} {build}", source_digest("backends/cuda")
