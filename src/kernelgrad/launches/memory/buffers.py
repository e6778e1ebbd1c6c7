"""What a launch of a derivative needs besides its kernel and its arguments, as data: scratch memory and numbers, whose
sizes are expressions over the launch and its arguments. Python evaluates them before a launch; as text they are C++."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from ...ir.types import U32, Scalar
from ...runtime.arguments import Placement, Supplied
from ...runtime.launch_memory import LaunchMemory
from ...runtime.scratch import Scratch

Extents = tuple[int, int, int]


class Sized(NamedTuple):
    """What expressions are evaluated with: the launch's shape, the bytes of buffers by name, integer arguments, and
    the bytes of dynamic shared memory."""

    grid: Extents
    block: Extents
    nbytes: Mapping[str, int]
    integers: Mapping[str, int] = MappingProxyType({})
    shared: int = 0


class Expression:
    """A non-negative integer that is known when a launch is."""

    def value(self, at: Sized) -> int:
        raise NotImplementedError

    def __str__(self) -> str:
        raise NotImplementedError

    def __add__(self, other: Expression | int) -> Expression:
        return Operation("+", self, _lifted(other))

    def __mul__(self, other: Expression | int) -> Expression:
        return Operation("*", self, _lifted(other))

    def __floordiv__(self, other: Expression | int) -> Expression:
        return Operation("/", self, _lifted(other))

    def rounded_up(self, by: Expression | int) -> Expression:
        """The quotient, rounded up."""
        return Operation("up", self, _lifted(by))

    def at_most(self, other: Expression) -> Expression:
        return Operation("min", self, other)

    def at_least(self, other: Expression | int) -> Expression:
        return Operation("max", self, _lifted(other))


@dataclass(frozen=True)
class Number(Expression):
    number: int

    def value(self, at: Sized) -> int:
        return self.number

    def __str__(self) -> str:
        return str(self.number)


@dataclass(frozen=True)
class Bytes(Expression):
    """Of a buffer that is an argument, or an adjoint; of those behind a struct's pointers, all together."""

    buffer: str

    def value(self, at: Sized) -> int:
        return sum(nbytes for name, nbytes in at.nbytes.items() if name == self.buffer)

    def __str__(self) -> str:
        return f"bytes({self.buffer})"


@dataclass(frozen=True)
class Extent(Expression):
    """Of the launch's grid or block, along an axis."""

    of: str
    axis: int
    type: ClassVar[Scalar] = U32  # as kernels read it

    def value(self, at: Sized) -> int:
        return int(getattr(at, self.of)[self.axis])

    def __str__(self) -> str:
        return f"{self.of}.{'xyz'[self.axis]}"


@dataclass(frozen=True)
class SharedBytes(Expression):
    """Of dynamic shared memory, as the launch asks for it."""

    def value(self, at: Sized) -> int:
        return at.shared

    def __str__(self) -> str:
        return "shared"


@dataclass(frozen=True)
class StartedBlocks(Expression):
    """How many blocks are started in place of very many, by the shape of a block."""

    count: Callable[[Extents], int]

    def value(self, at: Sized) -> int:
        return self.count(at.block)

    def __str__(self) -> str:
        return "started_blocks"


@dataclass(frozen=True)
class Operation(Expression):
    kind: str
    first: Expression
    second: Expression

    def value(self, at: Sized) -> int:
        first, second = self.first.value(at), self.second.value(at)
        return _OPERATIONS[self.kind](first, second)

    def __str__(self) -> str:
        if self.kind == "up":
            return f"({self.first} + {self.second} - 1) / {_grouped(self.second)}"
        if self.kind in ("min", "max"):
            return f"std::{self.kind}({self.first}, {self.second})"
        return f"{_grouped(self.first)} {self.kind} {_grouped(self.second)}"


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "*": operator.mul,
    "/": operator.floordiv,
    "up": lambda first, second: -(-first // second),
    "min": min,
    "max": max,
}


def _grouped(expression: Expression) -> str:
    plain = not isinstance(expression, Operation) or expression.kind in ("min", "max", "*")
    return str(expression) if plain else f"({expression})"


def _lifted(value: Expression | int) -> Expression:
    return Number(value) if isinstance(value, int) else value


def extents(of: str) -> Expression:
    """The product of a grid's or block's extents."""
    x, y, z = (Extent(of, axis) for axis in range(3))
    return x * y * z


BLOCKS, BLOCK_THREADS = extents("grid"), extents("block")
THREADS = BLOCKS * BLOCK_THREADS


# ---- memory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """A buffer of the launch's own, under the name of the parameter that takes it. `fill`: the byte that it is filled
    with first, None where it may hold anything. `role`: what it is for."""

    name: str
    nbytes: Expression
    fill: int | None
    role: str


@dataclass(frozen=True)
class Copy:
    """A buffer that begins as a copy of another, which is an argument."""

    name: str
    of: str
    nbytes: Expression
    role: str


@dataclass(frozen=True)
class Alias:
    """A parameter that is given another's address too."""

    name: str
    of: str
    nbytes: Expression
    role: str


@dataclass(frozen=True)
class Value:
    """A number that a parameter is given."""

    name: str
    value: Expression
    role: str


Need = Memory | Copy | Alias | Value
Address = Callable[[str], int]  # of an argument, by name


def _of_no_argument(name: str) -> int:
    raise KeyError(name)


def supply(
    needs: Iterable[Need],
    at: Sized,
    placement: Placement,
    stream: int | None,
    own: LaunchMemory,
    address: Address = _of_no_argument,
) -> None:
    """Makes the memory, and notes what parameters are given."""
    for need in needs:
        if isinstance(need, Value):
            own.supplied[need.name] = Supplied(need.value.value(at))
            continue
        nbytes = need.nbytes.value(at)
        if isinstance(need, Alias):
            own.supplied[need.name] = Supplied(address(need.of), nbytes)
            continue
        memory = own.add(need.name, Scratch(nbytes, placement.cuda, stream))
        if isinstance(need, Copy):
            memory.copy_from(address(need.of))
        elif need.fill == 0:
            memory.zero()
        elif need.fill is not None:
            memory.fill(need.fill)
