"""The tangent of a program (`tape.program`), forward mode: one list, too. Note [Tangents of programs]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..runtime.arrays import ArrayView
from ..runtime.tracing import Trace
from . import transfers
from .arrays import device_of
from .memory_map import Span
from .program import Program, fitting, made_list
from .steps import Step
from .tangent_memory import TangentMemory
from .tangent_steps import Tangents, recorded


class ProgramTangent(Program):
    """`t(*inputs, *tangents)`, with a tangent for each input that holds floating-point numbers, None for zero: the
    outputs, and after them the tangents of those that hold such. It is a program like another, in the memory of the one
    that it is the tangent of; `kg.gradient` of it gives second derivatives."""

    def __init__(self, program: Program):
        self.program, self.device, self.budget = program, program.device, program.budget
        self.lock, self._given_stream = program.lock, program._given_stream
        self._moving = [k for k, array in enumerate(program.inputs) if transfers.holds_floats(array.dtype)]
        moved = [k for k, array in enumerate(program.outputs) if transfers.holds_floats(array.dtype)]
        if not self._moving or not moved:
            which = "outputs" if self._moving else "inputs"
            raise ArgumentError(f"jvp: none of the {which} holds floating-point numbers")
        self.inputs = [*program.inputs, *(program.inputs[k] for k in self._moving)]
        self.outputs = [*program.outputs, *(program.outputs[k] for k in moved)]
        inputs, outputs = program.like
        self._like = (*inputs, *(inputs[k] for k in self._moving)), (*outputs, *(outputs[k] for k in moved))
        self._make([program.taken[k] for k in self._moving], [program.given[k] for k in moved])

    def _make(self, moving: list[ArrayView], moved: list[ArrayView]) -> None:
        program, trace = self.program, Trace(self.device)
        for array in moved:
            if device_of(array) != self.device:
                raise ArgumentError("jvp: an output is in the CPU's memory, and the program runs on a GPU")
        ends = [*map(_span, (*program.taken, *program.given))]
        memory = TangentMemory([*ends, *(span for step in program.steps for span in _spans(step))], trace)
        with trace.open():
            begun = [self._shadow(memory, array) for array in moving]
            for array in moving:
                memory.activate(_span(array))
            made = Tangents(memory, trace)
            for step in program.steps:
                made.add(step)
            ended = [self._shadow(memory, array) for array in moved]
            for step in made.steps:
                step.run_again(None)
        self.taken, self.given = [*program.taken, *begun], [*program.given, *ended]
        self.steps, self._trace, self._list = made.steps, trace, made_list(trace)
        cleared = Trace(self.device)
        memory.clear_all(cleared)
        self._clear = made_list(cleared)

    def _shadow(self, memory: TangentMemory, array: ArrayView) -> ArrayView:
        return memory.view(_span(array), array.dtype)._replace(shape=array.shape)

    def __repr__(self) -> str:
        return f"<jvp of {self.program!r}>"

    @property
    def nbytes(self) -> int:
        """Of its own memory: the tangents."""
        return self._trace.nbytes

    def recorded_steps(self) -> Sequence[Step]:
        return recorded(self.steps)

    def begin(self, arrays: Sequence[Any]) -> None:
        program, count = self.program, len(self.program.inputs)
        if len(arrays) != len(self.inputs):
            raise ArgumentError(f"jvp: takes {count} inputs and {len(self._moving)} tangents, got {len(arrays)}")
        given = fitting("tangent", arrays[count:], self.inputs[count:])
        program.begin(arrays[:count])
        self._trace.follow(program.stream)
        program.run(self._clear)
        for array, to in zip(given, self.taken[count:], strict=True):
            if array is not None:
                program.move(to.address, array.address, array.nbytes, device_of(to))


def _span(array: ArrayView) -> Span:
    return Span("array", array.address, array.nbytes, device_of(array))


def _spans(step: Step) -> list[Span]:
    numbers = [Span(n.path, n.array.address, n.array.nbytes, None) for n in step.numbers]
    return [*step.reads, *step.writes, *step.idle, *(span for _, span in step.arrays), *numbers]
