"""A disk cache of compiled code: safe under concurrent processes, and a damaged entry counts as absent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

_ENVIRONMENT = "KERNELGRAD_CACHE_DIR"
_CHECKSUM_BYTES = 32


def digest(*parts: str | bytes) -> str:
    """A hex key for the parts; their boundaries count, so ("ab", "c") and ("a", "bc") differ."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


@cache
def source_digest(folder: str) -> str:
    """A key for the code of one of this package's folders: what it generates may change when it does, and a version
    number would not say so between releases."""
    root = Path(__file__).parent / folder
    return digest(*(part for path in sorted(root.glob("*.py")) for part in (path.name, path.read_bytes())))


def cache_root() -> Path:
    """$KERNELGRAD_CACHE_DIR, else the user's cache folder."""
    configured = os.environ.get(_ENVIRONMENT)
    if configured:
        return Path(configured)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kernelgrad"


class DiskCache:
    """Entries of one `kind` ("cpu", "cuda", ...), by hex key. A file is a SHA-256 of the payload, then the payload."""

    def __init__(self, kind: str):
        self.kind = kind

    def get(self, key: str) -> bytes | None:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, payload = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
        return payload if hashlib.sha256(payload).digest() == checksum else None

    def put(self, key: str, payload: bytes) -> None:
        """Best effort: a cache that cannot be written (read-only home, full disk) costs time, not the launch."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, hashlib.sha256(payload).digest() + payload)

    def _path(self, key: str) -> Path:
        return cache_root() / self.kind / key[:2] / key[2:]


def _replace(path: Path, data: bytes) -> None:
    """Write through a temporary file, so that readers see the old entry or the whole new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
