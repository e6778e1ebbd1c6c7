"""`tape.program`: a recorded program as a function that runs its launches again, from one list.

Note [Programs]
A program has memory of its own. What the recorded steps write, and the inputs, are there instead of the user's arrays:
a call copies the inputs in, runs the list, and copies the outputs out. Memory that no step writes and that is no input
is read where it is. Memory that steps write and that is no input begins each call with what it held when the program
was made, after the recording (zeros, if `kg.zeros` made it inside), or with what it held when the recording began,
where that makes a difference (Note [Beginnings]); where a step reads it before any step has written it, that would not
be what was recorded, and is refused.

The list is a trace (`runtime/tracing`): on the CPU a loop in machine code goes through it, on a GPU it is a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import ArgumentError, TapeError
from ..locks import make_lock
from ..runtime.arrays import ArrayView
from ..runtime.graphs import Graph
from ..runtime.native_list import NativeList
from ..runtime.recording import refuse_while_recording
from ..runtime.streams import current_stream, owner_of
from ..runtime.tracing import Trace
from . import transfers
from .arguments import Number
from .arrays import device_of, empty_like, seen
from .derivative_steps import DerivativeStep
from .memory_map import Cell
from .moved_memory import Memory, Place
from .record import Tape
from .steps import ArgumentStep, CopyStep, FillStep, LaunchStep, Step, WatchStep


class Program:
    """`p(*inputs)` gives the outputs: an array for one, else a tuple. See `Tape.program`. `inputs`, `outputs`: the
    user's arrays; `taken`, `given`: where they are in the program's memory."""

    def __init__(self, tape: Tape, inputs: Sequence[Any], outputs: Sequence[Any]):
        self.inputs = [tape.known("program", array) for array in inputs]
        self.outputs = [tape.known_at_end("program", array) for array in outputs]
        self._like = tuple(inputs), tuple(outputs)
        self.budget = tape.store.budget
        self._given_stream: list[int | None] = []
        self.device = _device(tape)
        if self.device is not None:
            transfers.synchronize(self.device)  # what was recorded, on any stream, is done
        _check_inputs(self.inputs)
        _check_variables(tape)
        self._check_beginnings(tape)
        self.memory = Memory([Place(*run, self.stream) for run in self._runs(tape)])
        self.taken, self.given = ([self.memory.moved(a) for a in arrays] for arrays in (self.inputs, self.outputs))
        self._start = self._beginning(tape)
        self._owners = self._read_in_place(tape)
        self.steps = [step for step in (self._moved(step) for step in tape.steps) if step is not None]
        trace = Trace(self.device)
        with trace.open():
            for step in self.steps:
                step.run_again(None)
        self._list = made_list(trace)
        self._trace = trace
        self._used: tuple[int | None, Any] = 0, None  # the stream of the last call, and its owner
        self.lock = make_lock()  # threads take turns: there is one memory

    def __repr__(self) -> str:
        return f"<program of {len(self.steps):,} steps, {len(self.inputs)} inputs, {len(self.outputs)} outputs>"

    @property
    def nbytes(self) -> int:
        """Of its own memory."""
        return sum(p.end - p.start for p in self.memory.places) + self._trace.nbytes

    @property
    def like(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arrays that inputs and outputs are like."""
        return self._like

    def recorded_steps(self) -> Sequence[Step]:
        """As they are reversed."""
        return self.steps

    # ---- how it is made

    @property
    def stream(self) -> int | None:
        """On which the package of the arrays works now; or that was given."""
        if self._given_stream:
            return self._given_stream[-1]
        pairs = zip((*self._like[0], *self._like[1]), (*self.inputs, *self.outputs), strict=True)
        array = next((like for like, found in pairs if device_of(found) is not None), None)
        return None if array is None else current_stream(array)

    def _runs(self, tape: Tape) -> list[tuple[int, int, int | None]]:
        """The memory to move: all that hangs together with something that is written, or an input."""
        spans = [(a.address, a.address + a.nbytes) for a in (*self.inputs, *self.outputs)]

        def is_moved(start: int, end: int) -> bool:
            cells = tape.cells.known(start, end - start) or ()
            return any(cell.is_written for cell in cells) or any(b < end and start < e for b, e in spans)

        return [run for run in tape.cells.runs() if is_moved(*run[:2])]

    def _check_beginnings(self, tape: Tape) -> None:
        for cell in tape.cells:
            if cell.is_written and cell.first == "read" and not self._is_given(tape, cell):
                step, name = _first_reader(tape, cell)
                raise TapeError(
                    f"program: {step} may read '{name}' before any step has written it, and a step overwrites it:"
                    " what it held when the recording began is not known any more; list that array among the inputs,"
                    " or set it inside the recording, with kg.zeros or kg.fill"
                )
            if cell.beginning is not None and cell.beginning.memory is None and not self._is_given(tape, cell):
                by = cell.beginning
                raise TapeError(
                    f"program: {by.step} may write a part of '{by.parameter}', and what the rest held when the"
                    " recording began was not kept, for lack of memory in the budget; list that array among the inputs,"
                    " set all of it inside the recording, with kg.zeros or kg.fill, or record with a larger tape_budget"
                )

    def _is_given(self, tape: Tape, cell: Cell) -> bool:
        spans = [(a.address, a.nbytes) for a in self.inputs] + [(s.address, s.nbytes) for s in tape.zeroed]
        return any(start <= cell.start and cell.end <= start + nbytes for start, nbytes in spans)

    def _beginning(self, tape: Tape) -> NativeList | Graph:
        """What brings memory besides the inputs to where a call begins."""
        trace = Trace(self.device)
        with trace.open():
            for cell in tape.cells:
                place = self.memory.find(cell.start, cell.nbytes)
                if place is None or place.device != self.device or _is_in(cell, self.inputs):
                    continue
                at = place.address + cell.start - place.start
                if any(s.address <= cell.start and cell.end <= s.address + s.nbytes for s in tape.zeroed):
                    trace.fill(at, cell.nbytes, b"\0", self.device)
                elif cell.is_written:
                    kept = trace.own(cell.nbytes)
                    _copy_now(kept, _beginning_of(cell), cell.nbytes, self.device, self.stream)
                    trace.move(at, kept, cell.nbytes, self.device)
                else:
                    trace.move(at, cell.start, cell.nbytes, self.device)
        self._kept = trace
        return made_list(trace)

    def _read_in_place(self, tape: Tape) -> list[Any]:
        """Who owns memory that each call copies from where it is: nobody else may have it after the tape."""
        arrays = {(a.address, a.nbytes): a for step in tape.steps for a, _ in step.arrays if a.nbytes}
        found = {}
        for (address, nbytes), array in arrays.items():
            kept = (cell for cell in tape.cells.within(address, nbytes) if not cell.is_written)
            if any(self.memory.find(cell.start, cell.nbytes) is not None for cell in kept):
                found[id(array.owner)] = array.owner
        return [*found.values(), *(array for _, array in tape.owners)]

    def _moved(self, step: Step) -> Step | None:
        moved = self.memory.moved
        match step:
            case LaunchStep():
                numbers = tuple([self._moved_number(step, number) for number in step.numbers])
                return LaunchStep.again(step, tuple(map(self.memory.moved_all, step.frozen.args)), numbers)
            case DerivativeStep():
                numbers = tuple([self._moved_number(step, number) for number in step.numbers])
                return DerivativeStep.again(step, self.memory.moved_all, numbers)
            case CopyStep():
                if device_of(step.target) != device_of(step.source):
                    raise TapeError("program: it runs on one device, and a step copies between CPU and GPU")
                return CopyStep(moved(step.target), moved(step.source), step.stream)
            case FillStep():
                return FillStep(moved(step.target), step.pattern, step.stream)
            case WatchStep():
                return None
        raise TapeError(f"program: a step '{step.name}' cannot be run again from a list")

    def _moved_number(self, step: ArgumentStep, number: Number) -> Number:
        array = self.memory.moved(number.array)
        dtype = array.dtype
        if array.address != number.array.address and not (
            isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize in (4, 8)
        ):
            raise TapeError(
                f"program: '{number.path}' of {step.name} was passed as a 0-d array of {dtype} that is an input or"
                " written by a step; only numbers of float32 and float64 may change from call to call"
            )
        return Number(number.path, array)

    # ---- calls

    def __call__(self, *arrays: Any) -> Any:
        pairs = zip(self._like[1], self.given, strict=True)
        with self.lock:
            self.begin(arrays)
            self.run(self._list)
            found = tuple([self.result(like, out) for like, out in pairs])
        return found[0] if len(found) == 1 else found

    def write(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """A call whose outputs go to arrays that are there already, None for those that are not wanted."""
        targets = fitting("output", results, self.outputs)
        with self.lock:
            self.begin(arrays)
            self.run(self._list)
            for target, out in zip(targets, self.given, strict=True):
                if target is not None:
                    self.move(target.address, out.address, target.nbytes, device_of(out))

    @contextmanager
    def alone(self, stream: int | None) -> Iterator[None]:
        """For whoever calls it on streams of another package."""
        with self.lock:
            self._given_stream.append(stream)
            try:
                yield
            finally:
                self._given_stream.pop()

    def begin(self, arrays: Sequence[Any]) -> None:
        """Inputs, and what else the steps expect."""
        refuse_while_recording("a program, whose launches were recorded already,")
        if len(arrays) != len(self.inputs):
            raise ArgumentError(f"program: takes {len(self.inputs)} inputs, got {len(arrays)}")
        given = [_fitting(f"input {k}", a, of) for k, (a, of) in enumerate(zip(arrays, self.inputs, strict=True))]
        self._follow(self.stream)
        self.run(self._start)
        for array, to in zip(given, self.taken, strict=True):
            self.move(to.address, array.address, array.nbytes, device_of(to))

    def _follow(self, stream: int | None) -> None:
        """Each call uses the same memory: those on one stream wait for those on another."""
        if self.device is None or stream == self._used[0]:
            return
        transfers.order_after(stream or 0, self._used[0] or 0, self.device)
        self._used = stream, owner_of(stream or 0)
        for trace in (self._trace, self._kept):
            trace.follow(stream)
        for place in self.memory.places:
            place.owner.follow(stream)

    def run(self, operations: NativeList | Graph) -> None:
        if isinstance(operations, Graph):
            operations.run(self.stream)
        else:
            operations.run()

    def move(self, target: int, source: int, nbytes: int, device: int | None) -> None:
        transfers.move(target, source, nbytes, device, None if device is None else self.stream)

    def result(self, like: Any, memory: ArrayView) -> Any:
        """A new array of what the program's memory holds."""
        made, found = empty_like(like)
        self.move(found.address, memory.address, memory.nbytes, device_of(memory))
        return made


def made_list(trace: Trace) -> NativeList | Graph:
    if trace.device is None:
        return NativeList(trace.operations)
    transfers.synchronize(trace.device)  # its memory may be used on any stream now
    return Graph(trace.operations, trace.device)


def _copy_now(target: int, source: int, nbytes: int, device: int | None, stream: int | None) -> None:
    from ..runtime.recording import TRACE

    token = TRACE.set(None)
    try:
        transfers.move(target, source, nbytes, device, stream)
    finally:
        TRACE.reset(token)


def _beginning_of(cell: Cell) -> int:
    """Where what it held when the recording began is, or what does as well."""
    if cell.beginning is None:
        return cell.start
    at: int = cell.beginning.memory.address + cell.start - cell.beginning.start
    return at


def _is_in(cell: Cell, arrays: list[ArrayView]) -> bool:
    return any(a.address <= cell.start and cell.end <= a.address + a.nbytes for a in arrays)


def _device(tape: Tape) -> int | None:
    """The one that all of it is on."""
    found = {step.device for step in tape.steps if not isinstance(step, WatchStep)}
    if len(found) > 1:
        raise TapeError("program: the recorded steps run on more than one device")
    return next(iter(found), None)


def _check_inputs(inputs: list[ArrayView]) -> None:
    ordered = sorted((a.address, a.nbytes) for a in inputs)
    for (start, nbytes), (behind, _) in pairwise(ordered):
        if behind < start + nbytes:
            raise ArgumentError("program: two of the inputs share memory")


def _check_variables(tape: Tape) -> None:
    for step in tape.steps:
        if isinstance(step, ArgumentStep):
            step.check_variables()
            if step.is_opaque:
                problem = "reads through a pointer that lies in memory, and arrays that steps write have copies"
                raise TapeError(f"program: {step.name} {problem} of their own; pass the array itself")
            written = [name for name in step.facts.variables if name in step.facts.writes]
            if written:
                raise TapeError(f"program: {step.name} writes the module variable '{written[0]}', which has no copy")


def _first_reader(tape: Tape, cell: Cell) -> tuple[str, str]:
    for step in tape.steps:
        for span in step.reads:
            if span.address < cell.end and cell.start < span.address + span.nbytes:
                return step.name, span.name
        for span in step.writes:
            if span.address < cell.end and cell.start < span.address + span.nbytes:
                return step.name, span.name
    return "a step", "array"


def fitting(what: str, arrays: Sequence[Any], like: Sequence[ArrayView]) -> list[ArrayView | None]:
    """The memory of arrays that are like others; None stays None."""
    pairs = enumerate(zip(arrays, like, strict=True))
    return [None if array is None else _fitting(f"{what} {k}", array, of) for k, (array, of) in pairs]


def _fitting(what: str, array: Any, of: ArrayView) -> ArrayView:
    found = seen(f"program: {what}", array)
    if found.dtype != of.dtype or found.shape != of.shape:
        raise ArgumentError(
            f"program: {what} is {found.dtype} of shape {found.shape}, and was {of.dtype} of shape {of.shape} when it"
            " was recorded"
        )
    if found.device != of.device:
        raise ArgumentError(f"program: {what} is on {found.device}, and was on {of.device} when it was recorded")
    return found
