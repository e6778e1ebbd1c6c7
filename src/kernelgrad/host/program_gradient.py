"""The gradient of a program (`tape.program`): recording, saving and reversing it are one list, too."""

from __future__ import annotations

from collections.abc import Sequence
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
    """`g(*inputs, *seeds)`, with a seed for each output that holds floating-point numbers, None for zeros: the adjoints
    of a program's inputs, None for those that hold none; a tuple if there are several. What is saved and what is run
    again follows the recording's `tape_budget`, and is the same in each call."""

    def __init__(self, program: Program):
        self.program = program
        trace = Trace(program.device)
        with trace.open():
            self._seeded = [out for out in program.given if transfers.holds_floats(out.dtype)]
            if not self._seeded:
                raise ArgumentError("gradient: none of the outputs holds floating-point numbers")
            self._seeds = [self._seed(trace, out) for out in self._seeded]
            tape = self._recorded()
            tape.backward(list(zip(self._seeded, self._seeds, strict=True)))
            assert tape.shadows is not None
            self._shadows = tape.shadows
            self._adjoints = [self._adjoint(array) for array in program.taken]
        self._trace, self._list = trace, made_list(trace)

    def __repr__(self) -> str:
        return f"<gradient of {self.program!r}>"

    @property
    def nbytes(self) -> int:
        """Of its own memory: saved contents, tapes, shadows."""
        return self._trace.nbytes

    def _seed(self, trace: Trace, out: ArrayView) -> ArrayView:
        if device_of(out) != trace.device:
            raise ArgumentError("gradient: an output is in the CPU's memory, and the program runs on a GPU")
        return out._replace(address=trace.own(out.nbytes), owner=trace, versioned=False, around=(0, 0))

    def _recorded(self) -> Tape:
        tape = Tape(self.program.budget, False)
        with tape.unentered():
            for step in self.program.recorded_steps():
                tape.do(step)
            for array in (*self.program.taken, *self.program.given):
                tape.cells.cover(Span("array", array.address, array.nbytes, device_of(array)))
        return tape

    def _adjoint(self, array: ArrayView) -> ArrayView | None:
        if not transfers.holds_floats(array.dtype):
            return None
        return self._shadows.view(Span("input", array.address, array.nbytes, device_of(array)), array.dtype)

    def __call__(self, *arrays: Any) -> Any:
        pairs = zip(self.program.like[0], self._adjoints, strict=True)
        with self.program.lock:
            self._run(arrays)
            found = tuple([None if adjoint is None else self.program.result(like, adjoint) for like, adjoint in pairs])
            self._add_numbers(found)
        return found[0] if len(found) == 1 else found

    def write(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """A call whose adjoints go to arrays that are there already, None for those that are not wanted."""
        program = self.program
        targets = fitting("adjoint", results, program.inputs)
        with program.lock:
            self._run(arrays)
            for target, adjoint in zip(targets, self._adjoints, strict=True):
                if target is not None and adjoint is not None:
                    program.move(target.address, adjoint.address, target.nbytes, device_of(adjoint))
            self._add_numbers(tuple(results))

    def _run(self, arrays: Sequence[Any]) -> None:
        program, count = self.program, len(self.program.inputs)
        if len(arrays) != count + len(self._seeds):
            raise ArgumentError(f"gradient: takes {count} inputs and {len(self._seeds)} seeds, got {len(arrays)}")
        seeds = fitting("seed", arrays[count:], self._seeded)
        program.begin(arrays[:count])
        self._trace.follow(program.stream)
        for given, to in zip(seeds, self._seeds, strict=True):
            if given is None:
                transfers.zero(to.address, to.nbytes, device_of(to), program.stream)
            else:
                program.move(to.address, given.address, given.nbytes, device_of(to))
        program.run(self._list)

    def _add_numbers(self, results: tuple[Any, ...]) -> None:
        """To adjoints of inputs, what 0-d arrays get that were passed for numbers and lie there: in the CPU's
        memory."""
        moved = self.program.taken
        hosts = [k for k, a in enumerate(moved) if device_of(a) is None and results[k] is not None]
        for array, value in self._shadows.unsettled([moved[k] for k in hosts], self.program.stream):
            for k in hosts:
                at = array.address - moved[k].address
                if 0 <= at < moved[k].nbytes:
                    place = seen("gradient", results[k]).address + at
                    transfers.host_array(place, array.nbytes, array.dtype)[...] += value
