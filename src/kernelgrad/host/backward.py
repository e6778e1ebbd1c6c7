"""The reverse of a recorded program: its steps backwards, each with memory as it was before the step.

Exact segments are undone step by step. Thin ones (Note [Segments]) are run again from their beginning, with checkpoints
in between where they do not fit the budget. In the end memory holds what it held before, also after an error.

Note [Late numbers]
The adjoint of a number that a launch was given is on the GPU; what computed the number on the host is reversed with it.
To wait for the GPU there, at every launch, is slow. Steps of the host whose reverse reads no memory again are put off
instead, in their order, and steps of the GPU go on: neither touches what the other does. They are caught up with where
a step touches both, or reads the host's memory again, and at the end of a segment: that is one wait for all.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..locks import cached_property
from ..progress import Steps
from ..runtime.arrays import ArrayView, view
from ..runtime.scratch import Scratch
from ..runtime.streams import current_stream
from . import transfers
from .arrays import device_of
from .fingerprints import DeviceChecks, check_again, require_unchanged
from .live_contents import LiveContents
from .memory_map import Cell, Span
from .revolve import next_checkpoint
from .segments import Capture, Piece, Segment, Streams
from .shadow_memory import ShadowMemory, on_device
from .steps import ArgumentStep, CopyStep, FillStep, LaunchStep, Step, WatchStep

if TYPE_CHECKING:
    from .record import Tape

Seeds = list[tuple[ArrayView, ArrayView]]
_NEAR = 8  # steps


class Backward:
    """`keep`: the tape stays as it is."""

    def __init__(self, tape: Tape, keep: bool):
        self.tape, self.keep = tape, keep
        self.steps, self.store, self.cells = tape.steps, tape.store, tape.cells
        self._current = {device: _current(tape, device) for device in tape.streams}
        for device, streams in tape.streams.items():
            for stream in streams:
                transfers.order_after(self._current[device], stream, device)
        self.streams = Streams(self._current)
        self.shadows = ShadowMemory(tape.cells, self._current)
        self._progress = Steps("backward", len(self.steps))
        self._checks = DeviceChecks(tape.watcher, tape.cells)
        self._final: list[Piece] = []
        self._late: list[Step] = []  # of the host, put off
        self._held = self._on_other_streams()
        self._checkpoints: list[Segment] = []  # of this reverse
        self._contents: LiveContents | None = None
        self._needed: set[Cell] = set()  # whose contents reverses of steps that were run again read
        self._changed = self._find_changed()

    def _find_changed(self) -> set[Cell]:
        """What somebody else wrote, where steps run again."""
        runs_again = not all(segment.exact for segment in self.store.segments)
        return self.tape.watcher.changed_cells() if runs_again else set()

    def _on_other_streams(self) -> list[Any]:
        """Memory is freed on the stream it was made on: what other streams made must stay until they have waited for
        this one."""
        if all(streams == {self._current[device]} for device, streams in self.tape.streams.items()):
            return []
        pieces = [list(segment.pieces) for segment in self.store.segments]
        return pieces + [step.tape.again() for step in self.steps if isinstance(step, LaunchStep) and step.tape]

    def split(self, cell: Cell, rest: Cell) -> None:
        """A reverse may tell parts of a cell apart that no step did: what is known of it is known of both."""
        self.shadows.split(cell, rest)
        for segment in self._checkpoints:
            segment.split(cell, rest)
        if self._contents is not None:
            self._contents.split(cell, rest)
        for known in (self._changed, self._needed):
            if cell in known:
                known.add(rest)

    def seed(self, seeds: Seeds) -> None:
        for array, given in seeds:
            span = Span("output", array.address, array.nbytes, device_of(array))
            self.shadows.seed(span, array.dtype, given)

    def run(self) -> None:
        with self._progress:
            self._run()

    def _run(self) -> None:
        segments = self.store.segments
        try:
            self._save_final()
            for segment in reversed(list(segments)):
                self._reverse_segment(segment)
                if not self.keep:
                    self._drop(segment)
                    segments.pop()
            self.shadows.settle_all()
            self._checks.compare()
        finally:
            for piece in self._final:
                piece.restore(self.streams(piece.memory.device))
            self._join()
            self.store.lay_aside(-sum(piece.nbytes for piece in self._final))
            self._final, self._held = [], []

    def _save_final(self) -> None:
        """What memory holds now, of all that may be written until the end."""
        runs_again = any(segment.pieces or not segment.exact for segment in self.store.segments)
        writes = runs_again or any(step.rewrites for step in self.steps)
        written = [cell for cell in self.cells if cell.is_written] if writes else []
        self._bring_variables()
        for start, end, device in self.cells.runs(written):
            memory = Scratch(end - start, device, self.streams(device)).copy_from(start)
            self._final.append(Piece(len(self.steps), start, memory, True))
            self.store.lay_aside(memory.nbytes)

    def _bring_variables(self) -> None:
        """Module variables that the host looked at since are brought back to their device."""
        for step in self.steps:
            if isinstance(step, LaunchStep) and step.device is not None:
                for name in step.facts.variables:
                    step.kernel.variable(name).device_address(step.device, self.streams(step.device) or 0)

    def _join(self) -> None:
        """What was saved on other streams is freed there, when all of this is done."""
        for device, streams in self.tape.streams.items():
            for stream in streams:
                transfers.order_after(stream, self._current[device], device)

    # ---- segments

    def _reverse_segment(self, segment: Segment) -> None:
        if segment.exact:
            self._reverse_exact(segment, self.keep, was_run_again=False)
            return
        segment.restore(self.streams)
        self._note_restored(segment.pieces)
        self._reverse_span(segment, segment.end)
        segment.restore(self.streams)

    def _reverse_exact(self, segment: Segment, keep: bool, was_run_again: bool) -> None:
        at = len(segment.pieces)
        for number in range(segment.end - 1, segment.start - 1, -1):
            begin = at
            while begin and segment.pieces[begin - 1].step == number:
                begin -= 1
            pieces = segment.pieces[begin:at]
            self._reverse_step(number, pieces, was_run_again)
            at = begin
            if not keep:
                self.store.free(segment.drop_step(number))
        if self._late:
            self._catch_up()

    def _reverse_step(self, number: int, pieces: list[Piece], was_run_again: bool) -> None:
        step = self.steps[number]
        if not step.looks_back:
            self._undo(pieces)
        if not was_run_again:
            self._note_restored(pieces)
        self._progress.at(len(self.steps) - number)
        if (self._late or self.shadows.waits) and not on_device(step):
            if _can_wait(step):
                self._late.append(step)
                return
            self._catch_up()
        if self.shadows.is_active(step.writes):
            if was_run_again:
                self._require_unchanged(number, step.reread)
            check_again(step, self.cells, was_run_again)
            self._checks.take(step, self.streams(step.device), was_run_again)
        step.reverse(self.shadows, self.keep)
        if step.rewrites or step.looks_back:
            self._undo(pieces)

    def _catch_up(self) -> None:
        self.shadows.settle_all()
        for step in self._late:
            step.reverse(self.shadows, self.keep)
        self._late = []

    def _undo(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            piece.restore(self.streams(piece.memory.device))

    def _drop(self, segment: Segment) -> None:
        self.store.free(segment.pieces)
        segment.pieces, segment.nbytes = [], 0

    # ---- steps that are run again

    def _reverse_span(self, base: Segment, end: int, outer: tuple[int, ...] = ()) -> None:
        """Reverses the steps from where `base` begins, where memory is now, to `end`. Leaves memory anyhow: `base` has
        what it takes to bring it back. `outer`: where checkpoints of this reverse begin that will be used again."""
        start = base.start
        while (end := self._reverse_blindly(start, end)) > start:
            room = self._room_with(base, start, end)
            if self._fits(start, end, room) or end - start == 1:
                self._run_exact(base, end)
                return
            inner = self._next_checkpoint(start, end, room, outer)
            middle = end - 1 if inner is None else inner.start
            self._run_again(base, start, middle)
            if inner is None:
                self._run_exact(base, end, middle)
            else:
                self._checkpoints.append(inner)
                try:
                    self._reverse_span(inner, end, (*outer, middle))
                    inner.restore(self.streams)
                finally:
                    self._drop(self._checkpoints.pop())
            end = middle
            base.restore(self.streams)

    def _reverse_blindly(self, start: int, end: int) -> int:
        """Reverses the last steps, as long as they do so whatever memory holds; where the others end."""
        k = bisect_left(self._readers, end)
        others = max(start, self._readers[k - 1] + 1 if k else 0)
        for number in range(end - 1, others - 1, -1):
            self._reverse_step(number, [], was_run_again=True)
        if self._late:
            self._catch_up()
        return others

    @cached_property
    def _readers(self) -> list[int]:
        """The steps whose reverse reads, or writes, what steps write."""

        def is_one(step: Step) -> bool:
            return step.rewrites or step.is_opaque or any(cell.is_written for cell in self.cells.covers(step.reread))

        return [number for number, step in enumerate(self.steps) if is_one(step)]

    def _next_checkpoint(self, start: int, end: int, room: int, outer: tuple[int, ...]) -> Segment | None:
        """The next one between two steps, not far from where binomial checkpoints have it; None if there is no room."""

        def size(at: int) -> int:
            return self._live.size(at, end)

        slots = room // max(1, min(map(size, range(start + 1, min(end, start + 2 * _NEAR)))))
        first, last = bisect_left(self._readers, start), bisect_left(self._readers, end)
        if slots < 1 or last - first < 2:
            return None
        best = self._readers[first + next_checkpoint(last - first, slots + 1)]
        near = range(max(start + 1, best - _NEAR), min(end, best + _NEAR))
        middle = min(near, key=lambda at: (size(at), abs(at - best)))
        kept = self._live.kept(middle, end, outer)
        return Segment(middle, False, kept) if sum(cell.nbytes for cell in kept) <= room else None

    @property
    def _live(self) -> LiveContents:
        if self._contents is None:
            self._contents = LiveContents(self.steps, self.cells)
        return self._contents

    def _fits(self, start: int, end: int, room: int) -> bool:
        """The last step is reversed where it would run: nothing is saved before it, but where its reverse writes, or
        it runs before that."""
        needed, last = sum(step.exact_bytes for step in self.steps[start : end - 1]), self.steps[end - 1]
        return needed + (last.exact_bytes if last.rewrites or last.looks_back else 0) <= room

    def _room_with(self, base: Segment, start: int, end: int) -> int:
        """Bytes of the budget that are left when `base` has what these steps overwrite."""
        missing = base.kept.difference(base.captured)
        cells = missing.intersection(self._written(start, end)) if missing else ()
        return self.store.room - sum(cell.nbytes for cell in cells)

    def _written(self, start: int, end: int) -> list[Cell]:
        return self.cells.covers(dict.fromkeys(span for step in self.steps[start:end] for span in step.writes))

    def _run_again(self, base: Segment, start: int, end: int) -> None:
        """`base` captures what it has not."""
        for number in range(start, end):
            self._save_first(base, number)
            self._run_step(number)

    def _run_step(self, number: int) -> None:
        self._progress.still()
        step = self.steps[number]
        if step.logged is not None:
            step.logged.restore(self.streams)
        elif not isinstance(step, WatchStep):
            self._require_unchanged(number, step.reads)
            step.run_again(self.streams(step.device))

    def _note_restored(self, pieces: list[Piece]) -> None:
        """What the recording saved is as it was, whoever changed it since."""
        for piece in pieces if self._changed else ():
            self._changed -= {c for c in self._changed if piece.start <= c.start < piece.start + piece.nbytes}

    def _require_unchanged(self, number: int, spans: tuple[Span, ...]) -> None:
        if self._changed:
            require_unchanged(number, self.steps[number], spans, self.cells, self._changed)

    def _save_first(self, base: Segment, number: int) -> list[Cell]:
        step = self.steps[number]
        written = self.cells.covers(step.writes)
        missing = [cell for cell in written if cell in base.kept and cell not in base.captured]
        self.store.copy(base, number, [(cell, True) for cell in missing], self.streams(step.device))
        for cell in missing:
            base.captured[cell] = Capture(True, True, None, -1, -1)
        return written

    def _save_exact(self, exact: Segment, number: int, written: list[Cell], stream: int | None) -> None:
        self.store.copy(exact, number, [(cell, False) for cell in written if cell in self._needed], stream)
        self._needed.difference_update(written)

    def _run_exact(self, base: Segment, end: int, start: int | None = None) -> None:
        """Runs steps again so that each can be undone, and reverses them. The last one is not run, where its reverse
        takes memory as it was before it."""
        self._needed.clear()
        exact = Segment(base.start if start is None else start)
        exact.end = end
        try:
            self._save_steps(base, exact)
            self._reverse_exact(exact, keep=False, was_run_again=True)
        finally:
            self._drop(exact)

    def _save_steps(self, base: Segment, exact: Segment) -> None:
        end = exact.end
        for number in range(exact.start, end):
            step, is_last = self.steps[number], number == end - 1
            if is_last and not step.rewrites and not step.looks_back:
                break
            self._needed.update(self.cells.covers(step.reread))
            written = self._save_first(base, number)
            if exact.length > 1:
                self._save_exact(exact, number, written, self.streams(step.device))
            if not is_last or step.looks_back:
                self._run_step(number)
            if step.looks_back:
                self._needed.update(written)


def _can_wait(step: Step) -> bool:
    """Whether a step of the host reverses alike at any later time."""
    if isinstance(step, LaunchStep) and (step.tape is not None or step.form.problem is not None or step.versions):
        return False
    kinds = (LaunchStep, CopyStep, FillStep)
    spans = (*step.reads, *step.writes)
    return isinstance(step, kinds) and not (step.reread or step.rewrites or any(s.device is not None for s in spans))


def _current(tape: Tape, device: int) -> int:
    """The stream on which the arrays' package works now."""
    for step in reversed(tape.steps):
        if isinstance(step, ArgumentStep) and step.device == device and step.placement.source is not None:
            return current_stream(step.placement.source) or 0
    return next((current_stream(array) or 0 for on, array in tape.owners if on == device), 0)


def seed_of(array: ArrayView, given: Any) -> tuple[ArrayView, ArrayView]:
    """The output and its seed, as an array like it."""
    if given is None:
        if array.nbytes != (array.dtype.itemsize if isinstance(array.dtype, np.dtype) else 2):
            raise ArgumentError(
                f"backward: an array of shape {array.shape} needs a seed; only one element has 1 for it"
            )
        given = 1.0
    if isinstance(given, int | float) and isinstance(array.dtype, np.dtype):
        given = np.full(array.shape, given, array.dtype)
    found = view(np.ascontiguousarray(given) if isinstance(given, np.ndarray) else given)
    if found is None or not found.contiguous:
        raise ArgumentError(f"backward: a seed is a C-contiguous array like its output, got {type(given).__name__}")
    if found.dtype != array.dtype or found.nbytes != array.nbytes:
        problem = f"the seed is {found.dtype} of shape {found.shape}, its output {array.dtype} of shape {array.shape}"
        raise ArgumentError(f"backward: {problem}")
    if not transfers.holds_floats(array.dtype):
        raise ArgumentError(f"backward: an output of {array.dtype} has no adjoint")
    return array, found
