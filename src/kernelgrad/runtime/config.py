"""Launch configurations: `kernel[grid, block, shared_bytes, stream]`, checked as CUDA does."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import index
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import LaunchError
from .launch import Dim3

MAX_THREADS = 1024
MAX_BLOCK: Dim3 = (1024, 1024, 64)
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)

# What one block may use in all: Hopper's limit, which the CPU backend takes as its own.
MAX_SHARED_BYTES = 227 * 1024


class Launch(NamedTuple):
    """A checked configuration; `stream` is still the user's object. `shadow_bytes` of the shared ones are for a
    shadow."""

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    stream: Any = None
    shadow_bytes: int = 0

    def on(self, stream: Any) -> Launch:
        return Launch(self.grid, self.block, self.shared_bytes, stream, self.shadow_bytes)


Result = TypeVar("Result")
_LAUNCHERS = 64


class Launchers(Generic[Result]):
    """What stands before the arguments: `kernel[grid, block, shared_bytes, stream]`. Parsed configurations are
    remembered, since loops repeat them. `of`: what is launched, for errors."""

    def __init__(self, launch: Callable[[Launch, tuple[Any, ...], dict[str, Any]], Result], of: str):
        self._launch, self._of = launch, of
        self._parsed: dict[Any, Callable[..., Result]] = {}

    def __getitem__(self, key: Any) -> Callable[..., Result]:
        try:
            found = self._parsed.get(key)
        except TypeError:  # an unhashable stream, say, or lists
            return self._made(key)[0]
        if found is None:
            found, launch = self._made(key)
            if launch.stream is None and len(self._parsed) < _LAUNCHERS:
                self._parsed[key] = found
        return found

    def _made(self, key: Any) -> tuple[Callable[..., Result], Launch]:
        launch = parse_launch(key, self._of)

        def run(*args: Any, **keywords: Any) -> Result:
            return self._launch(launch, args, keywords)

        run.__qualname__ = f"{self._of}[{', '.join(map(repr, key))}]"
        return run, launch


def parse_launch(key: Any, of: str = "") -> Launch:
    """The configuration in `kernel[key]`; LaunchError says what is wrong with it, and `of` which kernel."""
    if not isinstance(key, tuple) or not 2 <= len(key) <= 4:
        count = len(key) if isinstance(key, tuple) else 1
        forms = "kernel[grid, block] or kernel[grid, block, shared_bytes, stream]"
        raise LaunchError(f"{_before(of)}a launch is {forms}; got {count}")
    return make_launch(*key, of=of)


def make_launch(grid: Any, block: Any, shared: Any = 0, stream: Any = None, *, of: str = "") -> Launch:
    """Checked; `of`: what is launched, for errors."""
    try:
        return _checked(grid, block, shared, stream)
    except LaunchError as error:
        raise LaunchError(f"{_before(of)}{error}") from None


def _before(name: str) -> str:
    return f"{name}: " if name else ""


def _checked(grid: Any, block: Any, shared: Any, stream: Any) -> Launch:
    grid3 = _extents("grid", grid, MAX_GRID)
    block3 = _extents("block", block, MAX_BLOCK)
    threads = block3[0] * block3[1] * block3[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"block: at most {MAX_THREADS} threads, got {threads} (block={block!r})")
    return Launch(grid3, block3, check_shared(shared, MAX_SHARED_BYTES), stream)


def flat_launch(blocks: int, threads: int, stream: Any) -> Launch:
    """Of a kernel of our own, with the same numbers again and again."""
    return _flat_launch(blocks, threads).on(stream)


@lru_cache(256)
def _flat_launch(blocks: int, threads: int) -> Launch:
    return make_launch(blocks, threads)


def check_shared(shared: Any, limit: int, static: int = 0) -> int:
    """The dynamic shared memory of a launch, as an int, if it and the kernel's `static` shared arrays fit the limit."""
    size = 0 if shared is None else _integer("shared memory", shared)
    if size < 0:
        raise LaunchError(f"shared memory: wants a number of bytes, got {size}")
    if size + static > limit:
        parts = f"{size} bytes and the kernel's own {static}" if static else f"{size} bytes"
        raise LaunchError(f"shared memory: at most {limit} bytes per block, got {parts}")
    return size


def check_launch_bounds(name: str, bounds: tuple[int, ...], block: Dim3) -> None:
    """`__launch_bounds__(n)` promises the compiler that no block has more threads."""
    threads = block[0] * block[1] * block[2]
    if bounds and 0 < bounds[0] < threads:
        raise LaunchError(f"block: {name} has __launch_bounds__({bounds[0]}), got {threads} threads (block={block})")


def _extents(what: str, given: Any, limits: Dim3) -> Dim3:
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"{what}: wants an integer or a tuple of 1 to 3 of them, got {given!r}")
    extents = [_integer(what, part, given) for part in parts] + [1] * (3 - len(parts))
    for axis, extent, limit in zip("xyz", extents, limits, strict=True):
        if extent < 1:
            raise LaunchError(f"{what}: the {axis} extent must be positive, got {extent} ({what}={given!r})")
        if extent > limit:
            raise LaunchError(f"{what}: the {axis} extent is at most {limit}, got {extent} ({what}={given!r})")
    return extents[0], extents[1], extents[2]


def _integer(what: str, value: Any, given: Any = None) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        shown = value if given is None else given
        raise LaunchError(f"{what}: wants integers, got {type(value).__name__} in {what}={shown!r}")
    try:
        return index(value)
    except TypeError:
        raise LaunchError(f"{what}: wants integers, got {value!r}") from None
