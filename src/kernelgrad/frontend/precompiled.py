"""The prelude as a precompiled header, for libclang to load: a file of this process alone.

The bytes come from the disk cache, where they are checked like all that is run (Note [Whose entries] in `cache`), or
are made. libclang reads them from memory of ours that has a path, so nobody can change them in between, and nothing is
missing when the cache is cleared or its disk is full. They are made in a process of their own, since LLVM ends the one
that cannot write its file. Where all that fails, the prelude is parsed as text, each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import clang.cindex as ci

from ..cache import DiskCache, cache_root, digest
from ..locks import COMPILING
from .prelude import parse_arguments, prelude_dir

_SECONDS = 60
_PARSE = 0x2 | 0x4  # incomplete unit, precompiled preamble
_MAKER = """
import sys
import clang.cindex as ci
library, header, target, *arguments = sys.argv[1:]
ci.Config.set_library_file(library)
unit = ci.Index.create(excludeDecls=True).parse(header, args=arguments, options={options})
if any(d.severity >= ci.Diagnostic.Error for d in unit.diagnostics):
    sys.exit(1)
unit.save(target)
"""

_headers: dict[str, _Header | None] = {}  # None where there can be none
_refused: set[str] = set()


def prelude_arguments(std: str) -> list[str]:
    """What tells clang to have the prelude before a text."""
    with COMPILING:
        header = _headers.get(std)
        if std not in _headers or (header is not None and not header.is_there()):
            header = _headers[std] = _header(std)
        return ["-include", str(_main_header())] if header is None else ["-include-pch", header.path]


def refuse(std: str) -> None:
    """Of a header that clang would not load: it is made anew, once."""
    with COMPILING:
        DiskCache("prelude").remove(_key(std))
        _key.cache_clear()
        if std in _refused:
            _headers[std] = None
        else:
            _headers.pop(std, None)
        _refused.add(std)


def _main_header() -> Path:
    return prelude_dir() / "kernelgrad.h"


def _header(std: str) -> _Header | None:
    disk, key = DiskCache("prelude"), _key(std)
    data = disk.get(key)
    if data is None:
        data = _make(std)
        if data is None:
            return None
        disk.put(key, data)
    with suppress(OSError):
        return _Header(data)
    return None


@lru_cache(16)
def _key(std: str) -> str:
    """The prelude's files and libclang's, as they are now."""
    files = [path for path in (*sorted(prelude_dir().rglob("*")), Path(ci.conf.get_filename())) if path.is_file()]
    stamps = [f"{path}:{(status := path.stat()).st_mtime_ns}:{status.st_size}" for path in files]
    return digest(std, repr(parse_arguments(std)), *stamps)


# ---- a file of this process ---------------------------------------------------------------------------------------


class _Header:
    """The bytes at a path: in memory where the system has that, else in a temporary file."""

    def __init__(self, data: bytes):
        self._status: os.stat_result | None = None
        self.path = ""
        if hasattr(os, "memfd_create"):
            with suppress(OSError):
                self._in_memory(data)
        if not self.is_there():
            self._in_file(data)

    def _in_memory(self, data: bytes) -> None:
        descriptor = os.memfd_create("kernelgrad prelude", os.MFD_CLOEXEC)
        weakref.finalize(self, _close, descriptor, os.fstat(descriptor))
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)
        self.path, self._status = f"/proc/self/fd/{descriptor}", os.fstat(descriptor)

    def _in_file(self, data: bytes) -> None:
        folder = tempfile.TemporaryDirectory(prefix="kernelgrad-", ignore_cleanup_errors=True)
        weakref.finalize(self, folder.cleanup)
        self.path = os.path.join(folder.name, "prelude.pch")
        Path(self.path).write_bytes(data)
        self._status = os.stat(self.path)

    def is_there(self) -> bool:
        """Whether the file is still what it was: somebody may have closed all descriptors, or tidied up."""
        try:
            return self._status is not None and _same(os.stat(self.path), self._status)
        except OSError:
            return False


def _same(found: os.stat_result, expected: os.stat_result) -> bool:
    numbers = [(s.st_dev, s.st_ino, s.st_size) for s in (found, expected)]
    return numbers[0] == numbers[1]


def _close(descriptor: int, status: os.stat_result) -> None:
    with suppress(OSError):
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino):
            os.close(descriptor)


# ---- making it ----------------------------------------------------------------------------------------------------


def _make(std: str) -> bytes | None:
    """The header's bytes; None where there is no place to make them or no way."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    return next((data for data in (_make_in(folder, std) for folder in _places()) if data), None)


def _places() -> Iterator[str]:
    yield from (str(path) for path in (Path("/dev/shm"),) if path.is_dir())
    with suppress(OSError):
        yield tempfile.gettempdir()
    if (root := cache_root()) is not None and root.is_dir():
        yield str(root)


def _make_in(place: str, std: str) -> bytes | None:
    with (
        suppress(OSError, subprocess.SubprocessError),
        tempfile.TemporaryDirectory(prefix="kernelgrad-", dir=place, ignore_cleanup_errors=True) as folder,
    ):
        target = os.path.join(folder, "prelude.pch")
        command = [sys.executable, "-P", "-c", _MAKER.format(options=_PARSE), ci.conf.get_filename()]
        command += [str(_main_header()), target, *parse_arguments(std)]
        done = subprocess.run(
            command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
        return Path(target).read_bytes() if done.returncode == 0 else None
    return None


def _environment() -> dict[str, Any]:
    """The same packages as here."""
    folders = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": folders, "PYTHONDONTWRITEBYTECODE": "1"}
