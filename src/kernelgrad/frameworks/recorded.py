"""A recorded program (`tape.program`) as operators of all frameworks need it: a function of arrays of fixed shapes, and
the adjoints of its inputs. Its gradient is a list of launches like itself, of which there is no derivative."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..errors import ArgumentError, UnsupportedError
from ..host.arrays import device_of
from ..host.program import Program
from ..host.program_gradient import ProgramGradient
from ..host.transfers import holds_floats
from ..locks import COMPILING
from ..runtime.arrays import ArrayView


@dataclass(frozen=True)
class Slot:
    """An input or an output. `device`: of a GPU, None for the CPU."""

    shape: tuple[int, ...]
    dtype: str
    floating: bool
    device: int | None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Recorded:
    """`name`: another one for each program in each process. What a program reads where it lies is no part of any name,
    so what frameworks keep on disk must not find another program under it."""

    def __init__(self, program: Program):
        self.program = program
        self.inputs, self.outputs = (tuple(map(_slot, arrays)) for arrays in (program.inputs, program.outputs))
        self.active = tuple(k for k, slot in enumerate(self.inputs) if slot.floating)
        self.name = f"program_{uuid.uuid4().hex}"
        self._gradient: ProgramGradient | None = None

    def __repr__(self) -> str:
        taken, given = (", ".join(map(str, slots)) for slots in (self.inputs, self.outputs))
        return f"<op ({taken}) -> ({given})\n  of {self.program!r}>"

    @property
    def gradient(self) -> ProgramGradient:
        if self._gradient is None:
            with COMPILING:
                self._gradient = self._gradient or ProgramGradient(self.program)
        return self._gradient

    def prepare_gradient(self) -> None:
        """Here, where what it lacks is told to whoever asks for it, and not in a framework's thread."""
        _ = self.gradient

    def check_count(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.inputs):
            raise ArgumentError(f"program: takes {len(self.inputs)} arrays, got {len(arrays)}\n  {self!r}")

    def check(self, arrays: Sequence[tuple[tuple[Any, ...], str]]) -> None:
        """Shapes and dtypes of what is given."""
        self.check_count(arrays)
        for k, ((shape, dtype), wanted) in enumerate(zip(arrays, self.inputs, strict=True)):
            if dtype != wanted.dtype or tuple(shape) != wanted.shape:
                got = f"{dtype}{list(shape)}"
                raise ArgumentError(f"program: input {k} is {got}, and was {wanted} when it was recorded")

    def value(self, arrays: Sequence[Any], results: Sequence[Any], stream: int | None) -> None:
        with self.program.alone(stream):
            self.program.write(arrays, results)

    def backward(self, arrays: Sequence[Any], seeds: Sequence[Any], adjoints: Sequence[Any], stream: Any) -> None:
        """`seeds`: of the floating-point outputs; `adjoints`: where those of the active inputs go."""
        places: list[Any] = [None] * len(self.inputs)
        for k, adjoint in zip(self.active, adjoints, strict=True):
            places[k] = adjoint
        with self.program.alone(stream):
            self.gradient.write((*arrays, *seeds), places)

    def refuse(self, what: str) -> NoReturn:
        """`what`: another derivative than the first one in reverse mode."""
        hint = "operators of its kernels have that: make one of each, and write the loop in the framework"
        raise UnsupportedError(f"a recorded program has first derivatives in reverse mode, and no {what}", hint=hint)


def _slot(array: ArrayView) -> Slot:
    if isinstance(array.dtype, np.dtype) and array.dtype.kind not in "fiub":
        raise ArgumentError(f"program: an array of {array.dtype} has no place in an operator")
    return Slot(tuple(array.shape), str(array.dtype), holds_floats(array.dtype), device_of(array))


def recorded_of(program: Program) -> Recorded:
    """One for each program."""
    with COMPILING:
        found = program.__dict__.get("_recorded")
        if found is None:
            found = program.__dict__["_recorded"] = Recorded(program)
        assert isinstance(found, Recorded)
        return found
