"""`kg.checkpoint`: a loop whose body must be run again in Python, reversed from binomial checkpoints of its state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import ArgumentError, TapeError
from ..progress import Steps
from ..runtime.arrays import ArrayView
from ..runtime.recording import RECORDER
from ..runtime.scratch import Scratch
from ..runtime.streams import current_stream
from . import transfers
from .arguments import find_number
from .arrays import device_of, seen, zero_like
from .backward import seed_of
from .fingerprints import LIMITS
from .record import Tape
from .revolve import next_checkpoint
from .states import fitted, leaves, rebuilt
from .steps import ArgumentStep
from .summaries import Summary, differ, summary

State = tuple[Any, ...]
Step = Callable[..., Any]


class Checkpoint:
    """A state: its arrays, and copies of what they held."""

    def __init__(self, number: int, state: State):
        self.number, self.state = number, state
        self._views = [seen("checkpoint", array) for array in state]
        self._copies = [_saved(array, found) for array, found in zip(state, self._views, strict=True)]

    @property
    def nbytes(self) -> int:
        return sum(copy.nbytes for copy in self._copies)

    def restore(self) -> State:
        for array, found, copy in zip(self.state, self._views, self._copies, strict=True):
            transfers.move(found.address, copy.address, found.nbytes, copy.device, current_stream(array))
        return self.state


def _saved(array: Any, found: ArrayView) -> Scratch:
    return Scratch(found.nbytes, device_of(found), current_stream(array)).copy_from(found.address)


class Results:
    """What each step made, in short, and that it makes the same when it runs again, but for the order in which threads
    add. What goes from one step to the next in memory that is no part of the state has other contents by then. Arrays
    of the CPU up to `limit` bytes are looked at, and so is what the last step leaves on a GPU."""

    def __init__(self, n: int, limit: int):
        self._last, self._limit = n - 1, limit
        self._found: dict[int, list[Summary | None]] = {}

    def look(self, state: State, k: int) -> None:
        found = [self._summary(array, k) for array in state]
        if any(map(differ, self._found.setdefault(k, found), found)):
            problem = f"step {k} gives another result when it runs again"
            raise TapeError(f"checkpoint: {problem}: what a step passes on to the next is part of the state")

    def _summary(self, array: Any, k: int) -> Summary | None:
        found = seen("checkpoint", array)
        return None if device_of(found) is not None and k != self._last else summary(found, self._limit)


class Origins:
    """Where a step's results come from: recorded steps, its state or `wrt`. What NumPy made has no reverse."""

    def __init__(self, tape: Tape, state: State, wrt: State, k: int):
        self._tape, self._k = tape, k
        self._given = [seen("checkpoint", array) for array in (*state, *wrt)]
        self._state = self._given[: len(state)]

    def check(self, after: State, adjoints: list[tuple[Any, Any]]) -> None:
        """That no adjoint but zero gets to what nobody recorded."""
        made = [seen("checkpoint", array) for array in after]
        is_used = any(self._is_used(array, made) for array in self._state)
        for array, adjoint in adjoints:
            if (is_used and self._is_recorded(seen("checkpoint", array))) or _is_zero(adjoint):
                continue
            problem = (
                "an array that no recorded launch wrote" if is_used else "what no recorded launch made of its state"
            )
            hint = "what NumPy and other packages compute has no reverse here: use kernels, kg.copy and kg.fill"
            raise TapeError(f"checkpoint: step {self._k} returned {problem}: {hint}")

    def _is_used(self, array: ArrayView, made: list[ArrayView]) -> bool:
        """By a recorded step, or passed on."""
        cells = self._tape.cells.within(array.address, array.nbytes)
        return any(cell.first for cell in cells) or any(_meet(array, other) for other in made)

    def _is_recorded(self, array: ArrayView) -> bool:
        known = self._tape.cells.known(array.address, array.nbytes) if array.nbytes else ()
        zeroed = [(span.address, span.nbytes) for span in self._tape.zeroed]
        given = zeroed + [(other.address, other.nbytes) for other in self._given]
        return known is not None and all(
            cell.is_written or any(at <= cell.start and cell.end <= at + nbytes for at, nbytes in given)
            for cell in known
        )


class Checkpointed:
    """What `kg.checkpoint` gives: `state`, the arrays after the last step; `backward`, `grad`, `nbytes`."""

    def __init__(
        self, step: Step, state: Any, n: int, budget: int | None, wrt: Sequence[Any], numbers: Any, check: bool | None
    ):
        self._step, self._n, self._wrt, self._numbers, self._check = step, n, tuple(wrt), numbers, check
        self._like, self._first = state, leaves(state)
        _check_numbers(numbers, n)
        first = Checkpoint(0, self._first)
        self._checkpoints = [first]
        self._slots = max(1, n) if budget is None or not first.nbytes else budget // first.nbytes
        if self._slots < 1:
            raise TapeError(f"checkpoint: a budget of {budget:,} bytes, and the state has {first.nbytes:,}")
        self._sums: dict[tuple[Any, str], float] = {}
        self._launched: dict[Any, None] = {}
        self._adjoints: list[Any] | None = None
        self._of_arrays: list[Any] = []
        self._used, self._results = False, Results(n, LIMITS[check])
        with Steps("checkpoint", n) as progress:
            self._last = self._run(self._first, 0, n, n, progress.at)

    def __repr__(self) -> str:
        kept = f"{len(self._checkpoints)} checkpoints of {self.nbytes:,} bytes"
        return f"<checkpointed loop of {self._n} steps, {'reversed' if self._used else kept}>"

    @property
    def state(self) -> Any:
        """The arrays after the last step, as the state was given."""
        return rebuilt(self._like, self._last)

    @property
    def nbytes(self) -> int:
        """Of the checkpoints."""
        return sum(checkpoint.nbytes for checkpoint in self._checkpoints)

    def _run(self, state: State, start: int, end: int, reversed_from: int, progress: Callable[[int], None]) -> State:
        """Advances to the end, and leaves checkpoints on the way: all steps before `reversed_from` will be reversed."""
        planned = self._next(start, reversed_from)
        for k in range(start, end):
            if k == planned:
                self._checkpoints.append(Checkpoint(k, state))
                planned = self._next(k, reversed_from)
            state = self._one(state, k)
            self._results.look(state, k)
            progress(k + 1)
        return state

    def _next(self, start: int, end: int) -> int:
        """Where the next checkpoint goes, -1 if there is no memory for it."""
        free = self._slots - len(self._checkpoints)
        return -1 if free < 1 or end - start < 2 else start + next_checkpoint(end - start, free + 1)

    def _one(self, state: State, k: int) -> State:
        _require_apart((*state, *self._wrt), k)
        made = self._step(rebuilt(self._like, state), k, *self._numbers_of(k))
        if made is None:
            return state
        is_one = isinstance(self._like, tuple) and len(state) == 1 and not isinstance(made, tuple | list | Mapping)
        return fitted(f"step {k} returned", self._like, (made,) if is_one else made)

    def _numbers_of(self, k: int) -> tuple[Any, ...]:
        if self._numbers is None:
            return ()
        found = self._numbers(k) if callable(self._numbers) else self._numbers[k]
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    # ---- reverse

    def backward(self, *seeds: Any) -> None:
        """The adjoints of the state after the last step, one for each array, None for zero, or all of them as the
        state was given. Once."""
        if self._used:
            raise TapeError("backward: the checkpoints were used already; call kg.checkpoint again")
        if RECORDER.get() is not None:
            raise TapeError("backward: not inside kg.record()")
        if len(seeds) == 1 and isinstance(seeds[0], tuple | list | Mapping):
            seeds = fitted("the seeds are", self._like, seeds[0])
        if len(seeds) != len(self._last):
            raise ArgumentError(f"backward: the state has {len(self._last)} arrays, got {len(seeds)} seeds")
        adjoints, self._of_arrays = list(map(_copied, self._last, seeds)), [None] * len(self._wrt)
        self._used = True
        final = Checkpoint(self._n, self._last)
        try:
            with Steps("backward", self._n) as progress:
                for k in range(self._n - 1, -1, -1):
                    adjoints = self._reverse(self._state_before(k, progress), k, adjoints)
                    progress.at(self._n - k)
        finally:
            final.restore()
            self._checkpoints = []
        self._adjoints = adjoints

    def _state_before(self, k: int, progress: Steps) -> State:
        while self._checkpoints[-1].number > k:
            self._checkpoints.pop()
        last = self._checkpoints[-1]
        return self._run(last.restore(), last.number, k, k + 1, lambda _: progress.still())

    def _reverse(self, state: State, k: int, adjoints: list[Any]) -> list[Any]:
        """The adjoints before a step, of those after it."""
        tape = Tape(None, self._check)
        with tape:
            for array in (*state, *self._wrt):
                tape.see(array)
            after = self._one(state, k)
        self._require_unwritten(tape, k)
        self._results.look(after, k)
        pairs = [pair for pair in zip(after, adjoints, strict=True) if pair[1] is not None]
        Origins(tape, state, self._wrt, k).check(after, pairs)
        for array in after:
            tape.know(array)
        tape.backward(pairs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of the state may be overwritten before they are read
            before = [_adjoint(tape, array) for array in state]
            for number, array in enumerate(self._wrt):
                self._of_arrays[number] = _sum(self._of_arrays[number], tape.grad(array))
        for name, value in tape.numbers().items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._launched |= {step.kernel: None for step in tape.steps if isinstance(step, ArgumentStep)}
        return before

    def _require_unwritten(self, tape: Tape, k: int) -> None:
        """Checkpoints have no copies of `wrt`."""
        for found in (seen("checkpoint", array) for array in self._wrt):
            if any(cell.is_written for cell in tape.cells.within(found.address, found.nbytes)):
                problem = f"step {k} writes an array of wrt, which is to stay as it is"
                raise TapeError(f"checkpoint: {problem}: what a step passes on to the next is part of the state")

    def grad(self, of: Any) -> Any:
        """The adjoint of an array of the first state, of one of `wrt`, or of a number by its name, "step.dt"."""
        if self._adjoints is None:
            raise TapeError("grad: backward failed" if self._used else "grad: call backward(...) first")
        if isinstance(of, str):
            return self._sums.get(find_number(of, self._launched), 0.0)
        asked = seen("grad", of)
        for array, adjoint in (
            *zip(self._first, self._adjoints, strict=True),
            *zip(self._wrt, self._of_arrays, strict=True),
        ):
            found = seen("grad", array)
            if (found.address, found.nbytes) == (asked.address, asked.nbytes):
                return adjoint if adjoint is not None else zero_like(array)
        raise ArgumentError("grad: this array is neither of the first state nor among wrt")


def _require_apart(arrays: State, k: int) -> None:
    """Each has an adjoint of its own: what two of them share would have two."""
    views = (view for view in (seen("checkpoint", array) for array in arrays) if transfers.holds_floats(view.dtype))
    ordered = sorted((view.address, view.nbytes) for view in views if view.nbytes)
    for (start, nbytes), (behind, _) in pairwise(ordered):
        if behind < start + nbytes:
            raise ArgumentError(f"checkpoint: before step {k} two arrays of the state, or of wrt, share memory")


def _meet(a: ArrayView, b: ArrayView) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def _is_zero(array: Any) -> bool:
    found = seen("backward", array)
    return transfers.is_zero(found.address, found.nbytes, device_of(found), current_stream(array))


def _copied(array: Any, seed: Any) -> Any:
    """A seed as an array of ours, like what it is the adjoint of."""
    if seed is None:
        return None
    made = zero_like(array)
    of, (_, given) = seen("backward", made), seed_of(seen("backward", array), seed)
    devices = device_of(of), device_of(given)
    device = devices[0] if devices[0] is not None else devices[1]
    transfers.move(of.address, given.address, of.nbytes, device, current_stream(seed if devices[0] is None else made))
    if device is not None and None in devices:
        transfers.synchronize(device)
    return made


def _check_numbers(numbers: Any, n: int) -> None:
    if numbers is None or callable(numbers):
        return
    if not hasattr(numbers, "__getitem__") or not hasattr(numbers, "__len__"):
        raise ArgumentError(f"checkpoint: numbers is a sequence or a function, got {type(numbers).__name__}")
    if len(numbers) < n:
        raise ArgumentError(f"checkpoint: numbers has {len(numbers)} entries, and there are {n} steps")


def _adjoint(tape: Tape, array: Any) -> Any:
    """None of integers in a state."""
    return tape.grad(array) if transfers.holds_floats(seen("checkpoint", array).dtype) else None


def _sum(a: Any, b: Any) -> Any:
    """Both are ours."""
    if a is not None:
        to, of = seen("grad", b), seen("grad", a)
        transfers.add(to.address, of.address, to.nbytes, to.dtype, device_of(to), current_stream(b))
    return b


def checkpoint(
    step: Step, state: Any, n: int, budget: int | None, wrt: Sequence[Any], numbers: Any, check: bool | None
) -> Checkpointed:
    if RECORDER.get() is not None:
        raise TapeError("kg.checkpoint inside kg.record(): one recording at a time")
    given = state if isinstance(state, tuple | list | Mapping) else (state,)
    return Checkpointed(step, given, n, budget, wrt, numbers, check)
