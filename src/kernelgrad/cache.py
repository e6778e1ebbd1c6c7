"""A disk cache of compiled code: safe under concurrent processes, and never needed. Without it everything takes longer.

Note [Whose entries]
What is read here is run, so it must be ours: every folder from the cache's root down, and the file itself, belong to
this user or to root, and nobody else can write them. The checksum covers the key too, so that an entry is good under
its own name only. Entries are plain bytes or JSON, never pickled objects. A damaged entry is removed and made again;
whatever else goes wrong (a full disk, a folder that is a file, no home) counts as an entry that is not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

V = TypeVar("V")

_ENVIRONMENT = "KERNELGRAD_CACHE_DIR"
_CHECKSUM_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HAS_OWNERS = hasattr(os, "geteuid")  # elsewhere a user's folders are closed to others by default
_IN_FOLDER = os.open in os.supports_dir_fd
_TROUBLE = (OSError, ValueError)  # ValueError: a path that no system can have


def digest(*parts: str | bytes) -> str:
    """A hex key for the parts; their boundaries count, so ("ab", "c") and ("a", "bc") differ."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


@cache
def source_digest(folder: str) -> str:
    """A key for the code of one of this package's folders, with those in it ("." is for the files beside the folders):
    what it generates may change when it does, and a version number would not say so between releases."""
    root = Path(__file__).parent / folder
    files = sorted(root.glob("*.py") if folder == "." else root.rglob("*.py"))
    return digest(*(part for path in files for part in (str(path.relative_to(root)), path.read_bytes())))


def cache_root() -> Path | None:
    """$KERNELGRAD_CACHE_DIR, else the user's cache folder; None where there is no home."""
    configured = os.environ.get(_ENVIRONMENT)
    if configured:
        return Path(configured)
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "kernelgrad"
    except RuntimeError:
        return None


class Recent(dict[str, V]):
    """A cache in memory: at most so many entries, of which the oldest goes. What is in use lives on with its users."""

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def __setitem__(self, key: str, value: V) -> None:
        super().__setitem__(key, value)
        for oldest in list(self)[: max(0, len(self) - self._most)]:
            self.pop(oldest, None)


class DiskCache:
    """Entries of one `kind` ("cpu", "cuda", ...), by hex key. A file is a SHA-256 of kind, key and payload, then the
    payload."""

    def __init__(self, kind: str):
        self.kind = kind

    def get(self, key: str) -> bytes | None:
        with contextlib.suppress(*_TROUBLE), self._folder(key) as folder:
            data = folder.read(key[2:])
            checksum, payload = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
            if checksum == self._checksum(key, payload):
                return payload
            folder.remove(key[2:])
        return None

    def put(self, key: str, payload: bytes) -> None:
        """Best effort: a cache that cannot be written costs time, not the launch."""
        with contextlib.suppress(*_TROUBLE), self._folder(key, make=True) as folder:
            folder.replace(key[2:], self._checksum(key, payload) + payload)

    def remove(self, key: str) -> None:
        """Of an entry that turned out to be of no use."""
        with contextlib.suppress(*_TROUBLE), self._folder(key) as folder:
            folder.remove(key[2:])

    def _checksum(self, key: str, payload: bytes) -> bytes:
        return hashlib.sha256(f"{self.kind}/{key}\n".encode() + payload).digest()

    @contextmanager
    def _folder(self, key: str, make: bool = False) -> Iterator[_Folder]:
        root = cache_root()
        if root is None:
            raise FileNotFoundError("no cache folder")
        with contextlib.ExitStack() as open_folders:
            folder: _Folder | None = None
            for name in (str(root), self.kind, key[:2]):
                folder = open_folders.enter_context(_Folder.opened(name, folder, make))
            assert folder is not None
            yield folder


class _Folder:
    """A folder that is ours. Its files are reached through its descriptor, so that it cannot be exchanged meanwhile."""

    def __init__(self, path: str, descriptor: int | None):
        self._path, self._descriptor = path, descriptor

    @classmethod
    @contextmanager
    def opened(cls, name: str, inside: _Folder | None, make: bool) -> Iterator[_Folder]:
        path = name if inside is None else os.path.join(inside._path, name)
        if not _IN_FOLDER:
            if make:
                _make_folder(path)
            yield cls(path, None)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if inside is None else os.O_NOFOLLOW)
        place = None if inside is None else inside._descriptor
        try:
            descriptor = os.open(name, flags, dir_fd=place)
        except FileNotFoundError:
            if not make:
                raise
            _make_folder(path)
            descriptor = os.open(name, flags, dir_fd=place)
        try:
            _require_ours(os.fstat(descriptor), path)
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    def read(self, name: str) -> bytes:
        with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(name)
            _require_ours(status, os.path.join(self._path, name))
            return file.read()

    def replace(self, name: str, data: bytes) -> None:
        """Through a temporary file, so that readers see the old entry or the whole new one."""
        temporary = f".new-{secrets.token_hex(8)}"
        try:
            with os.fdopen(self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(data)
            if self._descriptor is None:
                os.replace(os.path.join(self._path, temporary), os.path.join(self._path, name))
            else:
                os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        path = name if self._descriptor is not None else os.path.join(self._path, name)
        os.unlink(path, dir_fd=self._descriptor)

    def _open(self, name: str, flags: int) -> int:
        # Without O_NONBLOCK a pipe that lies there would be waited for.
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK if self._descriptor is not None else os.O_BINARY  # type: ignore[attr-defined]
        path = name if self._descriptor is not None else os.path.join(self._path, name)
        return os.open(path, flags, 0o600, dir_fd=self._descriptor)


def _make_folder(path: str) -> None:
    """Nobody else's; those around it are the user's own."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _require_ours(status: os.stat_result, path: str) -> None:
    """Note [Whose entries]."""
    if not _HAS_OWNERS or (status.st_uid in (os.geteuid(), 0) and not status.st_mode & _OTHERS_WRITE):
        return
    _warn_once(os.path.dirname(path) if stat.S_ISREG(status.st_mode) else path)
    raise PermissionError(f"others can write {path}")


@cache
def _warn_once(folder: str) -> None:
    message = (
        f"kernelgrad does not use its cache in {folder}: it belongs to another user, or others can write it; close it"
        f" with chmod -R go-w, or set {_ENVIRONMENT} to a folder of your own"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)
