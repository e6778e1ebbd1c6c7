"""What must be the same in the two launches of a split: the numbers among the arguments, always; in check mode, what
buffers hold that are promised not to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analysis.roots import analyse, named_roots
from ..errors import LaunchError, Span
from ..ir.layout import leaves, param_layout
from ..ir.ops import Function
from ..ir.types import Array, Pointer, Type
from ..kernel import Kernel
from ..launches.memory.saved_buffers import Saved, changing, save
from ..runtime.arguments import Placement
from ..runtime.config import Launch
from ..runtime.findings import Act, Finding
from ..runtime.launch import BoundArguments
from ..runtime.reach import alone
from ..runtime.signature import user_params
from .asked.settings import Settings

_NOBODY = (0, 0, 0)


def same_numbers(function: Function, forward: bytes, reverse: bytes) -> None:
    """An error for the first number, also in a struct, that differs between the arguments of the two launches."""
    for param, start in zip(user_params(function), param_layout(function)[0], strict=False):
        for path, offset, type in leaves(param.type, param.name, start):
            end = offset + type.size
            if not isinstance(type, Pointer) and forward[offset:end] != reverse[offset:end]:
                problem = f"'{path}' is not what it was in the forward launch that wrote this tape"
                raise LaunchError(f"{function.name}: {problem}; give the reverse the same numbers")


def same_sizes(function: Function, forward: Mapping[str, int], reverse: Mapping[str, int]) -> None:
    """An error for the first buffer that has more or fewer bytes than the forward launch had, or is missing."""
    for name in (*forward, *reverse):
        if forward.get(name) != reverse.get(name):
            had, has = (f"{sizes[name]:,} bytes" if name in sizes else "null" for sizes in (forward, reverse))
            problem = f"'{name}' was {had} in the forward launch that wrote this tape, and is {has} now"
            raise LaunchError(f"{function.name}: {problem}; its contents may change, its size may not")


@dataclass
class Promised:
    """What the buffers and variables held, when the forward ran, that are promised not to change."""

    names: frozenset[str]
    then: Saved

    @staticmethod
    def of(kernel: Kernel, may_change: frozenset[str], bound: BoundArguments, placement: Placement) -> Promised:
        names = changing(kernel, None) - may_change
        return Promised(names, save(kernel, names, alone(bound), placement, None))

    def broken(self, kernel: Kernel, bound: BoundArguments, placement: Placement) -> tuple[Finding, ...]:
        now = save(kernel, self.names, alone(bound), placement, None)
        return tuple(_finding(kernel.function, *found) for found in self._changed(kernel, now))

    def _changed(self, kernel: Kernel, now: Saved) -> Iterator[tuple[str, int, int]]:
        """The path of each that changed, the first element that did, and how many there are."""
        types = {
            path: type.pointee
            for param in user_params(kernel.function)
            for path, _, type in leaves(param.type, param.name)
            if isinstance(type, Pointer)
        }
        copies: list[tuple[str, Any, Any]] = [
            (path, copy, now.buffers.get((path, at))) for (path, at), copy in self.then.buffers.items()
        ]
        copies += [(name, copy, now.variables.get(name)) for name, copy in self.then.variables.items()]
        types |= {name: _element(kernel.variable(name).type) for name in self.then.variables}
        for path, before, after in copies:
            old, new = (np.frombuffer(b"" if copy is None else copy.read(), np.uint8) for copy in (before, after))
            size = max(1, types[path].size)
            differs = np.flatnonzero(old != new) if old.size == new.size else [0]
            if len(differs):
                yield path, int(differs[0]) // size, old.size // size


def broken_results(kernel: Kernel, settings: Settings, launch: Launch, args: tuple[Any, ...]) -> tuple[Finding, ...]:
    """Of a reverse alone, the first element of each output that does not hold what the kernel makes of the other
    arguments, as promised; but for rounding, since it may have run elsewhere."""
    names = settings.promises.results if settings.mode == "reverse" else ()
    if not names:
        return ()
    copies = tuple(arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args)
    kernel[launch.grid, launch.block, launch.shared_bytes](*copies)
    found = []
    for param, given, made in zip(user_params(kernel.function), args, copies, strict=True):
        if param.name in names and isinstance(given, np.ndarray):
            rounding = 64 * float(np.finfo(given.dtype).eps) ** 0.75
            far = np.abs(given.ravel() - made.ravel()) > rounding * (np.abs(made.ravel()) + 1)
            wrong = np.flatnonzero(far | (np.isnan(given.ravel()) != np.isnan(made.ravel())))
            found += [_unlike(kernel.function, param.name, int(k), given, made, len(wrong)) for k in wrong[:1]]
    return tuple(found)


def _unlike(function: Function, name: str, index: int, given: Any, made: Any, cases: int) -> Finding:
    act = Act(_written_at(function, name), "read", name, index, given.size, _NOBODY, _NOBODY)
    values = f"{given.ravel()[index]:.6g}, where the kernel writes {made.ravel()[index]:.6g}"
    return Finding(
        "promise", act, None, cases, problem=f"'{name}' does not hold the results: '{name}[{index}]' is {values}"
    )


def _written_at(function: Function, name: str) -> Span:
    memory = analyse(function)
    roots = named_roots(function, memory, (name,))
    return next((op.span for op in memory.stores if memory.of(op.ptr) & roots), function.span)  # type: ignore[attr-defined]


def _finding(function: Function, path: str, index: int, elements: int) -> Finding:
    return Finding("promise", Act(_read_at(function, path), "read", path, index, elements, _NOBODY, _NOBODY))


def _read_at(function: Function, path: str) -> Span:
    """Where the kernel reads it."""
    memory = analyse(function)
    roots = named_roots(function, memory, (path.partition(".")[0].partition("[")[0],))
    return next((op.span for op in memory.loads if memory.of(op.ptr) & roots), function.span)


def _element(type: Type) -> Type:
    return _element(type.element) if isinstance(type, Array) else type
