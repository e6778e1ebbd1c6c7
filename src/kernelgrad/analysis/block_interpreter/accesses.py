"""What threads do to cells of shared memory, as `cells` plays it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...ir.ops import Atomic, Load, Store
from ...ir.types import F32, F64, Array, Type
from .terms import Ids

_MOST_CELLS = 1 << 14


@dataclass(frozen=True, eq=False)
class Access:
    """By the threads in `mask`, to one of the `cells` each. `at`: which operation of the body it is or is in; `phase`:
    how many barriers came before. `sure`: all these threads get there. `found`: of a read, the ids."""

    op: Load | Store | Atomic
    variable: str
    cells: Ids
    mask: Any
    at: int
    phase: int
    sure: bool
    found: Ids | None = None

    @property
    def touched(self) -> Ids:
        return self.cells[self.mask]


@dataclass(frozen=True, eq=False)
class Anything:
    """A part of the kernel that may touch any cell of these variables."""

    variables: frozenset[str]
    at: int
    phase: int


@dataclass(eq=False)
class Addition:
    """What threads add atomically to a cell between two barriers."""

    variable: str
    cell: int
    phase: int
    type: Type
    before: int  # what was there
    atomics: list[Atomic] = field(default_factory=list)
    is_all: bool = True  # nothing else happens to the cell


def playable(variables: dict[str, Type]) -> dict[str, Type]:
    """The shared variables that are arrays of floats, of a size that is known."""
    found = {name: type for name, type in variables.items() if element(type) in (F32, F64)}
    return {n: t for n, t in found.items() if 0 < t.size // element(t).size <= _MOST_CELLS}


def element(type: Type) -> Type:
    return element(type.element) if isinstance(type, Array) else type
