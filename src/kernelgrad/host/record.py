"""`kg.record`: launches as they are made, and what their reverse will need of what they overwrite."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, TapeError
from ..kernel import Kernel
from ..runtime.arrays import ArrayView
from ..runtime.config import Launch
from ..runtime.recording import RECORDER, Recorder, refuse_while_recording
from ..runtime.streams import current_stream
from ..runtime.variables import Variable
from . import transfers
from .arguments import element_dtype, find_number
from .arrays import device_of, seen
from .beginnings import Beginnings
from .coverage import find_coverage
from .fingerprints import LIMITS, UnseenStep, Watcher, unseen
from .launch_tapes import LaunchTapes
from .memory_map import Cell, MemoryMap, Need, OnSplit, Span
from .segments import Pattern
from .shadow_memory import ShadowMemory
from .steps import ArgumentStep, CopyStep, FillStep, LaunchStep, Step, WatchStep
from .versions import Store

if TYPE_CHECKING:
    from ..derivatives.gradient import Gradient
    from ..derivatives.jvp import Tangent
    from .backward import Backward
    from .program import Program


class Watched:
    """A point whose adjoint is wanted: `tape.grad(point)` after `tape.backward`."""

    def __init__(self, step: WatchStep):
        self._step = step

    def __repr__(self) -> str:
        found = self._step.view
        return f"<watched point of an array of {found.dtype}, shape {found.shape}>"


class Tape:
    """A recorded program: `with kg.record() as tape: ...`, then `tape.backward(u, d_u)`, `tape.grad(u0)`."""

    def __init__(self, budget: int | None, check: bool | None, *, may_be_program: bool = False):
        self.steps: list[Step] = []
        self.store = Store(budget)
        self._beginnings = Beginnings(self.store) if may_be_program else None
        self.cells = MemoryMap(_unowned(self._split))
        self.watcher = Watcher(self.cells, LIMITS[check])
        self._token: Token[Recorder | None] | None = None
        self._state = "new"
        self._one_at_a_time = RLock()
        self._shadows: ShadowMemory | None = None
        self._reversing: Backward | None = None
        self.launch_tapes = LaunchTapes()
        self._keepers: list[Step] = []  # that have a tape of their own, or a log
        self.streams: dict[int, set[int]] = {}
        self.zeroed: list[Span] = []  # made by kg.zeros inside
        self.owners: list[tuple[int | None, Any]] = []  # with their devices
        self._changed: list[tuple[int, int]] = []  # by something that was not recorded, when recording ended
        self.saves: dict[tuple[str, str, str], list[int]] = {}  # reader, parameter, writer -> [times, bytes]

    def __repr__(self) -> str:
        return f"<tape of {len(self.steps)} steps, {self.nbytes:,} bytes saved, {self._state}>"

    def _repr_html_(self) -> str:
        from ..runtime.notebook import text_html

        return text_html(repr(self), "what was saved, and why", self.explain())

    # ---- recording

    def __enter__(self) -> Tape:
        if RECORDER.get() is not None:
            raise TapeError("kg.record() inside kg.record(): one recording at a time")
        if self._state != "new":
            raise TapeError("a tape records once: make another with kg.record()")
        self._state = "recording"
        self._token = RECORDER.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._token is not None
        RECORDER.reset(self._token)
        self._token = None
        if kind is not None:
            self._close(f"its recording ended with {kind.__name__}")
        elif self._state == "recording":
            self._end()
            self._changed = self.watcher.changed()

    def _end(self) -> None:
        self._state = "recorded"
        try:
            self.store.require_enough()
        except TapeError:
            self._close("its budget was too small")
            raise

    def launch(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """What a kernel's launch does while it is recorded."""
        step = LaunchStep(kernel, launch, args, keywords)
        if self.store.budget is None:
            self.launch_tapes.choose(step)
        self.do(step)

    def derivative(
        self, target: Gradient | Tangent, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        """What the launch of a gradient or a jvp does while it is recorded: it is reversed by its second derivative."""
        from .derivative_steps import DerivativeStep

        self.do(DerivativeStep(target, launch, *target.separate(args, keywords)))

    def do(self, step: Step) -> None:
        """Runs a step and records it: one at a time, also where threads share the context (`asyncio.to_thread`)."""
        with self._one_at_a_time:
            self._do(step)

    def _do(self, step: Step) -> None:
        if self._state != "recording":
            raise TapeError(f"this tape cannot record: {self._state}")
        self.watcher.before(step)
        changed = self.watcher.find_overwritten(step, self.store.budget is not None)
        if changed and not isinstance(step, UnseenStep):
            self._do(UnseenStep(step.name, changed))
        number = len(self.steps)
        self._note_reads(step, number)
        written = self.cells.covers(step.writes)
        self._note_saves(step, written)
        if self._beginnings is not None:
            self._beginnings.before(step, written)
        self._reserve(written)
        patterns = self._patterns(step, written)
        try:
            step.prepare(lambda nbytes: self._keep(nbytes, number))
            step.exact_bytes = self.store.save(number, written, patterns, step.stream)
            step.run()
        except BaseException as error:
            self._close(f"{step.name} failed while it ran: {type(error).__name__}")
            raise
        self._note_bits(step)
        self._note_writes(step, written)
        self.watcher.after(step)
        self.launch_tapes.done(step)
        self.steps.append(step)
        self.store.step_done(number)
        if step.varies and self.store.budget is not None:
            step.logged = self.store.log(number, written, step.stream)
        if step.tape_bytes or step.logged is not None:
            self._keepers.append(step)
        if self.store.is_short:
            self._forget()

    def _keep(self, nbytes: int, number: int) -> None:
        self.store.keep(nbytes, number)
        if self.store.is_short:
            self._forget()

    def _forget(self) -> None:
        """What steps keep, besides what is in the store."""
        for step in self._keepers:
            step.forget()
        self._keepers = []

    def _note_reads(self, step: Step, number: int) -> None:
        for span in step.idle:
            self.cells.cover(span)  # is known, too: its adjoint stays as it is
        for span in step.reads:
            for cell in self.cells.cover(span):
                cell.first = cell.first or "read"
                cell.is_read = cell.is_read_since = True
                cell.read = number
        if step.is_opaque:
            self.store.opaque = number
        for span in step.reread:
            for cell in self.cells.cover(span):
                cell.read = number
                cell.is_shared = cell.need is not None and cell.need.step != number
                cell.need = cell.need or Need(number, step.name, span.name)

    def _patterns(self, step: Step, written: list[Cell]) -> dict[Cell, Pattern]:
        if self.store.budget is None:
            return {}
        find_coverage(step, self.store)
        return {cell: step.stores_to(cell) for cell in written}

    def _reserve(self, written: list[Cell]) -> None:
        for cell in written:
            if not cell.is_written:
                cell.is_written = True
                self.store.reserve(cell.nbytes)

    def _note_saves(self, step: Step, written: list[Cell]) -> None:
        self.launch_tapes.overwritten(self.steps, step, written)
        for cell in written:
            if cell.need is not None:
                entry = self.saves.setdefault((cell.need.kernel, cell.need.parameter, step.name), [0, 0])
                entry[0] += 1
                entry[1] += cell.nbytes

    def _note_bits(self, step: Step) -> None:
        """Where bits of floats are, in memory of integers: see bit_traffic.py."""
        if isinstance(step, LaunchStep):
            read, written = step.bits_read(self._holds_bits), step.bits_written(self._holds_bits)
            step.bits_problem = None if read is None else step.refuse_bits(read)
            for cell in self.cells.covers(written):
                cell.holds_bits = True
        elif isinstance(step, CopyStep | FillStep):
            held = any(map(self._holds_bits, step.reads))
            for cell in self.cells.covers(step.writes):
                cell.holds_bits = held

    def _holds_bits(self, span: Span) -> bool:
        return any(cell.holds_bits for cell in self.cells.cover(span))

    def _note_writes(self, step: Step, written: list[Cell]) -> None:
        for cell in written:
            cell.first = cell.first or ("read" if step.writes_outside(cell) else "written")
            cell.need, cell.is_read, cell.made = None, False, len(self.steps)
        if step.looks_back:
            self._note_left(step, len(self.steps))
        if step.device is not None:
            self.streams.setdefault(step.device, set()).add(step.stream or 0)

    def _note_left(self, step: Step, number: int) -> None:
        """What it left is read by its reverse."""
        for span in step.writes:
            for cell in self.cells.cover(span):
                cell.need, cell.is_shared = Need(number, step.name, span.name), False

    def _split(self, cell: Cell, rest: Cell, print: int | None) -> None:
        self.store.split(cell, rest)
        if self._state in ("recording", "recorded"):
            self.watcher.split(cell, rest, print)
        if self._reversing is not None:
            self._reversing.split(cell, rest)
        if self._shadows is not None:
            self._shadows.split(cell, rest)

    def know(self, array: Any) -> Span:
        """All of an array's memory, be it used by steps, in parts, or not. It stays."""
        found = seen("record", array)
        span = Span("array", found.address, found.nbytes, device_of(found))
        if span.nbytes:
            self.cells.cover(span)
            self.owners.append((span.device, array))
        if span.device is not None:
            self.streams.setdefault(span.device, set()).add(current_stream(array) or 0)
        return span

    def know_zeros(self, array: Any) -> None:
        """The same of an array that `kg.zeros` made: programs begin with that."""
        span = self.know(array)
        self.zeroed.append(span)
        for cell in self.cells.cover(span) if span.nbytes else ():
            cell.is_settled = True

    def see(self, array: Any) -> None:
        """Knows an array, and that from now on only recorded steps write it."""
        span = self.know(array)
        if span.nbytes:
            self.watcher.see(span)

    def watch(self, array: Any) -> Watched:
        """Marks this point of the program: `tape.grad` of the result is the adjoint of what the array holds now."""
        step = WatchStep(array, seen("watch", array))
        self.do(step)
        return Watched(step)

    def _close(self, reason: str) -> None:
        self._state = reason
        self.steps, self._shadows = [], None
        self._forget()
        for cell in self.cells:
            cell.beginning = None
        self.store.give_up()
        self.store.clear()

    # ---- afterwards

    @property
    def nbytes(self) -> int:
        """What is saved: contents and tapes of launches."""
        return self.store.nbytes

    def explain(self) -> str:
        """What was saved, for which launches, why, in bytes."""
        from .explain import explain

        return explain(self)

    def backward(self, outputs: Any, seed: Any = None, *, keep: bool = False) -> None:
        """Reverses the program: `backward(u, d_u)`, `backward([(u, d_u), (w, d_w)])`, or `backward(loss)`, where loss
        has one element. Seeds are copied. Buffers hold afterwards what they held before. `keep=True`: it can be
        reversed again, and starts from zero then."""
        from .backward import Backward, seed_of

        if self._state == "recording":
            raise TapeError("backward: the recording is still going on: call it after the with block")
        if self._state != "recorded":
            raise TapeError(f"backward: the tape cannot be reversed: {self._state}")
        refuse_while_recording("backward of another tape")
        seeds = [seed_of(self._as_it_ended("backward", array), given) for array, given in pairs(outputs, seed)]
        self.watcher.look_at_the_end()
        run, self._shadows = Backward(self, keep), None
        self._state = "it was reversed already, without keep=True"
        self._reversing = run
        try:
            run.seed(seeds)
            run.run()
        finally:
            self._reversing = None
            if keep:
                self._state = "recorded"
                self.watcher.count_again()
            else:
                self.store.clear()
                self._forget()
        self._shadows = run.shadows

    def _as_it_ended(self, what: str, array: Any) -> ArrayView:
        """The memory of an array in which recorded steps, and nobody else, left what was there at the end."""
        found = self._whole(what, array)
        if any(start < found.address + found.nbytes and found.address < end for start, end in self._changed):
            raise unseen(what, "output", "was changed since the last recorded step that used it")
        return found

    def grad(self, of: Any) -> Any:
        """The adjoint of what an array held when recording began, as an array like it, with zeros where no recorded
        step used it; of a `tape.watch` point; or, of a number, by its name, as in "step.dt", the sum over all
        launches."""
        if self._shadows is None:
            raise TapeError("grad: call tape.backward(...) first")
        if isinstance(of, str):
            return self._grad_of_number(of)
        if isinstance(of, Watched):
            if of._step not in self.steps:
                raise TapeError("grad: this point was watched by another tape")
            return of._step.result
        array = self._seen("grad", of)
        if not transfers.holds_floats(array.dtype):
            raise ArgumentError(f"grad: {array.dtype} has no adjoint")
        self._warn_if_overwritten(array)
        if isinstance(of, Variable):
            of = np.asarray(of)
        return self._shadows.copy_of(of, array)

    def _grad_of_number(self, name: str) -> float:
        launched = {step.kernel: None for step in self.steps if isinstance(step, ArgumentStep)}
        return self.numbers().get(find_number(name, launched), 0.0)

    def known(self, what: str, array: Any) -> ArrayView:
        """The memory of an array that recorded steps use, all or some of it, for `what`."""
        if isinstance(array, Variable):
            raise ArgumentError(f"{what}: '{array.name}' is a module variable, no array")
        return self._whole(what, array)

    def known_at_end(self, what: str, array: Any) -> ArrayView:
        """The same of an output."""
        self.known(what, array)
        return self._as_it_ended(what, array)

    @property
    def shadows(self) -> ShadowMemory | None:
        return self._shadows

    @contextmanager
    def unentered(self) -> Iterator[None]:
        """Records what `do` gets, and nothing that is launched."""
        self._state = "recording"
        yield
        self._end()

    def program(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Program:
        """The recorded program as a function: `p = tape.program(inputs=(u0, kappa), outputs=(u,))`, then
        `u1 = p(other_u0, other_kappa)`; `kg.gradient(p)(u0, kappa, d_u)` gives the adjoints of its inputs.

        It runs the launches, copies and fills that were recorded, with the same numbers, from one native list on the
        CPU and as a CUDA graph on a GPU, in memory of its own: arrays of the recording are left alone, the tape can
        still be reversed. `inputs`: arrays whose contents when the recording began are its arguments; a call takes
        arrays of the same shapes and dtypes. A 0-d array of float32 or float64 that was passed for a number is one,
        too. `outputs`: arrays whose contents when the recording ended are its results, in new arrays; a tuple if there
        are several.

        Other memory: what no step writes is read where it is at the time of the call. What steps write begins each call
        as it was when the program was made, or with zeros if `kg.zeros` made it inside; an error where a step reads it
        before any step writes it. A launch may write a part of an array: the rest begins as it was recorded (Note
        [Beginnings] in host/beginnings.py). What Python decided while it was recorded, from results that it read back,
        stays as it was decided: nobody can know. Threads that call it take turns: a program has one memory."""
        from .program import Program

        if self._state == "recording":
            raise TapeError("program: the recording is still going on: call it after the with block")
        if not self.steps:
            raise TapeError(f"program: the tape has no steps: {self._state}")
        return Program(self, _listed("inputs", inputs), _listed("outputs", outputs))

    def knows(self, array: Any) -> bool:
        """Whether a recorded step uses all of its memory."""
        found = seen("grad", array)
        return not found.nbytes or self.cells.known(found.address, found.nbytes) is not None

    def numbers(self) -> dict[tuple[Any, str], float]:
        """The adjoints of all numbers, after `backward`, by kernel and path."""
        return {} if self._shadows is None else self._shadows.sums

    def _seen(self, what: str, array: Any) -> ArrayView:
        """The memory of an array, if the tape knows some of it: an array may be used in part."""
        if isinstance(array, Variable):
            return self._variable(what, array)
        found = seen(what, array)
        if found.nbytes and not self.cells.within(found.address, found.nbytes):
            raise ArgumentError(f"{what}: no recorded step uses the memory of this array of shape {found.shape}")
        return found

    def _whole(self, what: str, array: Any) -> ArrayView:
        """The same; from now on the tape knows all of it."""
        found = self._seen(what, array)
        if found.nbytes:
            self.cells.cover(Span("array", found.address, found.nbytes, device_of(found)))
        return found

    def _variable(self, what: str, variable: Variable) -> ArrayView:
        for step in self.steps:
            if isinstance(step, LaunchStep) and variable.name in step.facts.variables:
                span = step.spans[variable.name]
                if step.kernel.variable(variable.name) is variable:
                    return transfers.raw(span.address, span.nbytes, element_dtype(variable.type), span.device)
        raise ArgumentError(f"{what}: no recorded step uses the variable '{variable.name}'")

    def _warn_if_overwritten(self, array: ArrayView) -> None:
        cells = self.cells.within(array.address, array.nbytes)
        if cells and all(cell.first == "written" for cell in cells):
            warnings.warn(
                "grad: this memory was written before any recorded step read it, and what it held when recording began"
                " has no adjoint but where nothing was written; is it the buffer you mean?",
                stacklevel=3,
            )


def _unowned(method: OnSplit) -> OnSplit:
    """Calls a method of an object as long as it lives: what a tape saved is freed with it, not when Python next looks
    for cycles."""
    found = weakref.WeakMethod(method)

    def call(cell: Cell, rest: Cell, print: int | None) -> None:
        bound = found()
        if bound is not None:
            bound(cell, rest, print)

    return call


def _listed(what: str, arrays: Any) -> tuple[Any, ...]:
    if isinstance(arrays, list | tuple) and (arrays or what == "inputs"):
        return tuple(arrays)
    raise ArgumentError(f"program: {what} are arrays in a tuple")


def pairs(outputs: Any, seed: Any) -> Sequence[tuple[Any, Any]]:
    if isinstance(outputs, list | tuple):
        if seed is not None or not all(isinstance(p, tuple) and len(p) == 2 for p in outputs):
            raise ArgumentError("backward: wants (array, seed) pairs in a list, or an array and its seed")
        return list(outputs)
    return [(outputs, seed)]
