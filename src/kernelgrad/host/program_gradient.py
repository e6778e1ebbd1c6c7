"""The gradient of a program (`tape.program`): recording, saving and reversing it are one list, too."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..runtime.arrays import ArrayView
from ..runtime.tracing import Trace
from . import transfers
from .arrays import device_of, seen
from .memory_map import Span
from .program import Program, fitting, made_list
from .record import Tape


class ProgramGradient:
    """`g(*inputs, *seeds)`: the adjoints of a program's inputs, None for those that hold no floating-point numbers; a
    tuple if there are several. What is saved and what is run again follows the recording's `tape_budget`, and is the
    same in each call."""

    def __init__(self, program: Program):
        self.program = program
        trace = Trace(program.device)
        with trace.open():
            self._seeds = [self._seed(trace, out) for out in program.outputs]
            tape = self._recorded()
            outputs = [program.memory.moved(out) for out in program.outputs]
            tape.backward(list(zip(outputs, self._seeds, strict=True)))
            assert tape.shadows is not None
            self._shadows = tape.shadows
            self._adjoints = [self._adjoint(array) for array in program.inputs]
        self._trace, self._list = trace, made_list(trace)

    def __repr__(self) -> str:
        return f"<gradient of {self.program!r}>"

    @property
    def nbytes(self) -> int:
        """Of its own memory: saved contents, tapes, shadows."""
        return self._trace.nbytes

    def _seed(self, trace: Trace, out: ArrayView) -> ArrayView:
        if not transfers.holds_floats(out.dtype):
            raise ArgumentError(f"gradient: an output of {out.dtype} has no adjoint")
        return out._replace(address=trace.own(out.nbytes), owner=trace, versioned=False, around=(0, 0))

    def _recorded(self) -> Tape:
        tape = Tape(self.program.budget, False)
        with tape.unentered():
            for step in self.program.steps:
                tape.do(step)
            for array in (*self.program.inputs, *self.program.outputs):
                moved = self.program.memory.moved(array)
                tape.cells.cover(Span("array", moved.address, moved.nbytes, device_of(moved)))
        return tape

    def _adjoint(self, array: ArrayView) -> ArrayView | None:
        if not transfers.holds_floats(array.dtype):
            return None
        moved = self.program.memory.moved(array)
        span = Span("input", moved.address, moved.nbytes, device_of(moved))
        return self._shadows.view(span, moved.dtype)

    def __call__(self, *arrays: Any) -> Any:
        program, count = self.program, len(self.program.inputs)
        if len(arrays) != count + len(self._seeds):
            raise ArgumentError(f"gradient: takes {count} inputs and {len(self._seeds)} seeds, got {len(arrays)}")
        seeds = fitting("seed", arrays[count:], program.outputs)
        program.begin(arrays[:count])
        self._trace.follow(program.stream)
        for given, to in zip(seeds, self._seeds, strict=True):
            program.move(to.address, given.address, given.nbytes, device_of(to))
        program.run(self._list)
        numbers = self._numbers(program)
        found = tuple(
            [
                self._result(like, adjoint, numbers)
                for like, adjoint in zip(program.like_inputs, self._adjoints, strict=True)
            ]
        )
        return found[0] if len(found) == 1 else found

    def _numbers(self, program: Program) -> dict[int, float]:
        """The adjoints of 0-d arrays that were passed for numbers, by their addresses."""
        found: dict[int, float] = {}
        wanted = {program.memory.moved(a).address for a in program.inputs}
        for array, value in self._shadows.unsettled(wanted, program.stream):
            found[array.address] = found.get(array.address, 0.0) + value
        return found

    def _result(self, like: Any, adjoint: ArrayView | None, numbers: dict[int, float]) -> Any:
        if adjoint is None:
            return None
        made = self.program.result(like, adjoint)
        more = numbers.get(self.program.memory.moved(seen("gradient", like)).address)
        if more:
            made += more
        return made
