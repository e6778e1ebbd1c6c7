"""CUDA C++ text to machine code with NVRTC. Needs no GPU."""

from __future__ import annotations

from functools import cache

from ..cache import DiskCache, Recent, digest, source_digest
from ..errors import DeviceError, InternalError
from ..progress import doing
from .devices import _INSTALL
from .nvrtc_library import HEADER, CompilationFailed, described, headers, nvrtc

_STANDARD = "c++17"
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


def ptx_of(text: str, arch: str) -> str:
    """What `text` becomes before it is machine code, for `arch` ("compute_90")."""
    return nvrtc().compile(text, _options(nvrtc().version[0], arch, None), "PTX").decode()


@doing(lambda text, *_: f"compiling {text.count(chr(10))} lines of CUDA C++")
def _compile(text: str, arch: str, registers: int | None) -> bytes:
    try:
        return nvrtc().compile(text, _options(nvrtc().version[0], arch, registers))
    except CompilationFailed as error:
        raise _explained(error, text, arch) from error


def _options(major: int, arch: str, registers: int | None) -> list[str]:
    """`major`: of the CUDA whose headers are wanted."""
    options = [f"--gpu-architecture={arch}", f"--std={_STANDARD}"]
    if folder := headers(major):
        options.append(f"--include-path={folder}")
    return options if registers is None else [*options, f"--maxrregcount={registers}"]


def _explained(error: CompilationFailed, text: str, arch: str) -> Exception:
    log = str(error)
    if "gpu-architecture" in log or "NVRTC_ERROR_INVALID_OPTION" in log:
        return DeviceError(f"the installed NVRTC cannot compile for {arch}: {log}")
    if HEADER in log and "could not open" in log:
        return DeviceError(f"CUDA's headers were not found: {_INSTALL}, or set CUDA_HOME")
    if "NVRTC_ERROR_COMPILATION" in log:
        return InternalError(f"NVRTC refuses code that kernelgrad wrote.\n{log}\n{_numbered(text)}")
    return DeviceError(f"NVRTC failed: {log}")


def _numbered(text: str) -> str:
    return "\n".join(f"{k:4} | {line}" for k, line in enumerate(text.splitlines(), 1))


@cache
def _versions() -> tuple[str, ...]:
    """What the compiled code depends on besides the text."""
    return described(nvrtc()), source_digest("backends/cuda")
