"""A recorded program (`tape.program`) as operators of all frameworks need it: a function of arrays of fixed shapes, the
adjoints of its inputs, the tangents of its outputs, and second derivatives: Note [Second derivatives of operators] in
derived.py. Forward over reverse is the reverse of the program with tangents here, by its inputs, since that is one list
of launches, too, which can be reversed; and Hessians are symmetric."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, TapeError, UnsupportedError
from ..host.arrays import device_of
from ..host.kernel_facts import PRINTS
from ..host.program import Program
from ..host.program_gradient import ProgramGradient
from ..host.program_tangent import ProgramTangent
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
        self.seeded = tuple(k for k, slot in enumerate(self.outputs) if slot.floating)
        self._gradient: ProgramGradient | None = None
        self._tangent: ProgramTangent | None = None
        self._second: ProgramGradient | None = None

    def __repr__(self) -> str:
        taken, given = (", ".join(map(str, slots)) for slots in (self.inputs, self.outputs))
        return f"<op ({taken}) -> ({given})\n  of {self.program!r}>"

    @property
    def gradient(self) -> ProgramGradient:
        if self._gradient is None:
            with COMPILING:
                self._gradient = self._gradient or ProgramGradient(self.program)
        return self._gradient

    @property
    def moving(self) -> ProgramTangent:
        if self._tangent is None:
            with COMPILING:
                self._tangent = self._tangent or ProgramTangent(self.program)
        return self._tangent

    @property
    def curved(self) -> ProgramGradient:
        if self._second is None:
            with COMPILING:
                self._second = self._second or self._make_second()
        return self._second

    def _make_second(self) -> ProgramGradient:
        try:
            return ProgramGradient(self.moving)
        except (TapeError, UnsupportedError) as error:
            reason = error.message if isinstance(error, UnsupportedError) else str(error)
            raise UnsupportedError(f"the recorded program has no second derivatives: {reason}", hint=HINT) from error

    def prepare(self, kind: str) -> None:
        """Here, where what a derivative lacks is told to whoever asks for it, and not in a framework's thread."""
        self._refuse_varying()
        getattr(self, {"backward": "gradient", "tangent": "moving", "second": "curved"}[kind])

    def _refuse_varying(self) -> None:
        """Derivatives run the program again, apart from the run that gave the value."""
        for step in self.program.steps:
            if step.varies is not None and step.varies != PRINTS:
                why = f"{step.name}: {step.varies}, so that a second run may differ"
                raise UnsupportedError(f"the recorded program has no derivatives as an operator: {why}", hint=_ONE_RUN)

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
        """`seeds`: of the floating-point outputs, None for zeros; `adjoints`: where those of the active inputs go, None
        for those that are not wanted."""
        with self.program.alone(stream):
            self.gradient.write((*arrays, *seeds), self._placed(adjoints))

    def tangent(self, arrays: Sequence[Any], tangents: Sequence[Any], results: Sequence[Any], stream: Any) -> None:
        """`tangents`: of the active inputs, None for zeros; `results`: where those of floating-point outputs go."""
        with self.program.alone(stream):
            self.moving.write((*arrays, *tangents), [*[None] * len(self.outputs), *results])

    def second(
        self, arrays: Sequence[Any], seeds: Sequence[Any], tangents: Sequence[Any], adjoints: Sequence[Any], stream: Any
    ) -> None:
        """The tangents of the adjoints along tangents of the inputs."""
        unmoved = [None] * len(self.seeded)
        places = [*self._placed(adjoints), *[None] * len(self.active)]
        with self.program.alone(stream):
            self.curved.write((*arrays, *tangents, *unmoved, *seeds), places)

    def _placed(self, adjoints: Sequence[Any]) -> list[Any]:
        places: list[Any] = [None] * len(self.inputs)
        for k, adjoint in zip(self.active, adjoints, strict=True):
            places[k] = adjoint
        return places

    def no_third_order(self) -> UnsupportedError:
        return UnsupportedError("a recorded program has first and second derivatives, this would be another one")

    def no_forward_over_forward(self, hint: str) -> UnsupportedError:
        return UnsupportedError("a recorded program has no forward mode over forward mode", hint=hint)


_ONE_RUN = (
    "tape.backward reverses the run that was recorded; kg.jvp of the program gives values and tangents of one run"
)
HINT = "operators of its kernels have others: make one of each, and write the loop in the framework"


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
