"""Python functions whose reverse is the user's: each call is one step of a recording.

The function runs, and is run again, as it is; what it launches is not recorded. Its reverse gets the arguments, which
hold what they held before the call, and adjoints as arrays like them, in place of which it leaves others. It may write
what the function writes, as a gradient does that it launches: that is put back.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from ..errors import ArgumentError, TapeError
from ..runtime.arrays import ArrayView, view
from ..runtime.config import Launch
from ..runtime.recording import RECORDER
from ..runtime.streams import current_stream
from . import transfers
from .arrays import device_of, seen, zero_like
from .captured import Captured, captured, changed
from .lost_adjoints import lost_parameters
from .memory_map import Span
from .record import Tape
from .shadow_memory import ShadowMemory
from .states import leaves
from .steps import Step, meet
from .summaries import Summary, differ, summary

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CustomFunction:
    """`writes`: parameters for arrays that it writes whole and does not read. `updates`: that it reads and writes."""

    def __init__(self, function: Callable[..., Any], writes: tuple[str, ...], updates: tuple[str, ...]):
        update_wrapper(self, function)
        self.function, self.writes, self.updates = function, writes, updates
        self.name = getattr(function, "__name__", "function")
        self.signature = inspect.signature(function)
        self.reverse_function: Callable[..., Any] | None = None
        known = self.signature.parameters
        if not writes and not updates:
            raise ArgumentError(f"custom_gradient: say which arrays '{self.name}' writes: writes=..., updates=...")
        if set(writes) & set(updates):
            raise ArgumentError(f"custom_gradient: '{min(set(writes) & set(updates))}' is in writes and in updates")
        if any(p.kind not in _POSITIONAL for p in known.values()):
            raise ArgumentError(f"custom_gradient: '{self.name}' must have plain parameters, no * and no keyword-only")
        for name in (*writes, *updates):
            if name not in known:
                raise ArgumentError(f"custom_gradient: '{self.name}' has no parameter '{name}'; it has: {self.listed}")

    def __repr__(self) -> str:
        return f"<custom gradient of {self.name}{self.signature}>"

    @property
    def listed(self) -> str:
        return ", ".join(self.signature.parameters)

    def reverse(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The decorator of its reverse, a function of all arguments and the adjoints of the arrays of floats among
        them: it adds to those of what was read, from those of what was written, which it may leave."""
        if not callable(function):
            raise ArgumentError("custom_gradient: the reverse is a function")
        self.reverse_function = function
        return function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        tape = RECORDER.get()
        if not isinstance(tape, Tape):
            return self.function(*args, **keywords)
        if self.reverse_function is None:
            raise TapeError(f"{self.name}: give its reverse first, with @{self.name}.reverse")
        step = CustomStep(self, self.in_order(args, keywords), tape)
        tape.do(step)
        return step.returned

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, whose object is its first argument."""
        return self if instance is None else partial(self, instance)

    def in_order(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            bound = self.signature.bind(*args, **keywords)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{self.signature}: {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def check_reverse(self, floats: Iterable[str]) -> None:
        """That the reverse takes the arguments and the adjoints of these, and leaves what it makes of them there."""
        assert self.reverse_function is not None
        floats = tuple(floats)
        lost, first = lost_parameters(self.reverse_function), len(self.signature.parameters)
        for k, name in enumerate(floats, first):
            if k in lost and name not in self.writes:
                own, place = lost[k]
                problem = f"its reverse makes '{own}' a new array ({place}), and the adjoint stays as it is"
                raise ArgumentError(f"{self.name}: {problem}; write into it: `{own} += ...` or `{own}[...] = ...`")
        names = (*self.signature.parameters, *(f"d_{name}" for name in floats))
        try:
            inspect.signature(self.reverse_function).bind(*names)
        except ValueError:
            return  # it does not tell
        except TypeError as error:
            problem = f"its reverse is called with ({', '.join(names)}), which it does not take: {error}"
            raise ArgumentError(f"{self.name}: {problem}") from None


class CustomStep(Step):
    rewrites = True  # perhaps
    writes_all = True

    def __init__(self, function: CustomFunction, args: tuple[Any, ...], tape: Tape):
        super().__init__()
        self.function, self.args, self.name = function, args, function.name
        self._tape = weakref.ref(tape)  # which has this step
        self.returned: Any = None
        self._made: list[Summary | None] = []  # what it wrote, where it may be run again
        self.read_inside: dict[Span, None] = {}  # by launches, and no argument
        self._captured: Captured | None = None  # when it ran
        names = function.signature.parameters
        self.views: dict[str, ArrayView] = {
            name: seen(self.name, value) for name, value in zip(names, args, strict=True) if view(value) is not None
        }
        for name, value in zip(names, args, strict=True):
            if name not in self.views and any(view(part) is not None for part in leaves(value)):
                problem = f"'{name}' holds arrays, whose adjoints its reverse would not get"
                raise ArgumentError(f"{self.name}: {problem}: pass each as an argument of its own")
        for name in (*function.writes, *function.updates):
            if name not in self.views:
                raise ArgumentError(f"{self.name}: '{name}' is written, and wants an array")
        spans = {name: _span(name, found) for name, found in self.views.items() if found.nbytes}
        self.spans = spans
        self.writes = tuple(s for n, s in spans.items() if n in function.writes or n in function.updates)
        self.reads = self.reread = tuple(s for n, s in spans.items() if n not in function.writes)
        self.device = next((s.device for s in spans.values() if s.device is not None), None)
        arrays = (a for a in args if view(a) is not None)
        self.stream = None if self.device is None else next(filter(None, map(current_stream, arrays)), 0)
        self._check_overlap()
        self._floats = {n: a for n, a in self.views.items() if transfers.holds_floats(a.dtype)}
        function.check_reverse(self._floats)

    @property
    def arrays(self) -> Iterable[tuple[ArrayView, Span]]:
        return ((self.views[name], span) for name, span in self.spans.items())

    def _check_overlap(self) -> None:
        for written in self.writes:
            for other in self.spans.values():
                if other is not written and meet(written, other):
                    raise ArgumentError(f"{self.name}: '{written.name}' shares memory with '{other.name}'")

    def run(self) -> None:
        tape = self._tape()
        assert tape is not None
        self._captured = self._find_captured()
        token = RECORDER.set(_Inside(self, tape))
        try:
            self.returned = self.function.function(*self.args)
        finally:
            RECORDER.reset(token)
        if tape.store.budget is not None:
            limit = tape.watcher.limit  # on a GPU nobody waits for results
            self._made = [summary(self.views[s.name], limit) if s.device is None else None for s in self.writes]

    def run_again(self, stream: int | None) -> None:
        self.function.function(*self.args)
        looked_at = [(span, once) for span, once in zip(self.writes, self._made, strict=False) if once is not None]
        if any(differ(once, summary(self.views[span.name], span.nbytes)) for span, once in looked_at):
            problem = "what it writes is something else when it runs again, within a tape_budget"
            raise TapeError(f"{self.name}: {problem}: have all that it depends on among its arguments")

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        if not shadows.is_active(self.writes):
            return
        self._check_captured()
        floats = self._floats
        arguments = dict(zip(self.function.signature.parameters, self.args, strict=True))
        shared = self._find_shared()
        adjoints = {
            name: zero_like(arguments[name]) if name in shared else shadows.copy_of(arguments[name], found)
            for name, found in floats.items()
        }
        self._call_reverse(arguments, adjoints)
        for name, adjoint in adjoints.items():
            if name not in self.spans:
                continue
            if name in self.function.writes:
                shadows.clear(self.spans[name])
            elif name in shared:
                self._add(shadows, self.spans[name], floats[name], adjoint)
            else:
                self._put_back(shadows, self.spans[name], floats[name], adjoint)

    def _find_captured(self) -> Captured:
        functions = (self.function.function, self.function.reverse_function)
        given = zip(self.function.signature.parameters, self.args, strict=True)
        others = {name: value for name, value in given if name not in self.views}
        return captured([f for f in functions if f is not None], others)

    def _check_captured(self) -> None:
        """What it reads besides its arguments is not as it was, where steps write it or its name stands for something
        else by now, and has no adjoint here."""
        tape, before, now = self._tape(), self._captured, self._find_captured()
        assert tape is not None and before is not None
        found = [_span(*pair) for of in (before, now) for pair in of.arrays]
        own = set(tape.cells.covers(self.spans.values()))
        for span in (*found, *self.read_inside):
            cells = tape.cells.within(span.address, span.nbytes)
            if any(cell.is_written and cell not in own for cell in cells):
                problem = f"it uses '{span.name}', which recorded steps write and which is not among its arguments"
                raise TapeError(f"{self.name}: {problem}: pass it, so that its reverse gets it as it was")
        another = changed(before, now)
        if another is not None:
            problem = f"it uses '{another}', which is something else by now and not among its arguments"
            raise TapeError(f"{self.name}: {problem}: pass it, so that its reverse gets what the step got")

    def _find_shared(self) -> set[str]:
        """Arrays that are read and share memory: each has a part of the adjoint there, and these are added."""
        spans = [self.spans[name] for name in self._floats if name in self.spans]
        return {a.name for a in spans for b in spans if a is not b and meet(a, b)}

    def _call_reverse(self, arguments: dict[str, Any], adjoints: dict[str, Any]) -> None:
        assert self.function.reverse_function is not None
        written = (*self.function.writes, *self.function.updates)
        given = [value if name in written else _read_only(value) for name, value in arguments.items()]
        before = [_version(value) for value in given]
        returned = self.function.reverse_function(*given, *adjoints.values())
        if returned is not None and all(returned is not adjoint for adjoint in adjoints.values()):
            told = f"it adds to {', '.join(f'd_{name}' for name in adjoints)} in place, and returns nothing"
            raise TapeError(f"{self.name}: its reverse returned {type(returned).__name__}: {told}")
        for name, value, version in zip(arguments, given, before, strict=True):
            if name not in written and _version(value) != version:
                raise TapeError(f"{self.name}: its reverse wrote '{name}', which is to stay as it is")

    def _add(self, shadows: ShadowMemory, span: Span, array: ArrayView, adjoint: Any) -> None:
        shadows.add(shadows.view(span, array.dtype), seen(self.name, adjoint))
        shadows.activate((span,))

    def _put_back(self, shadows: ShadowMemory, span: Span, array: ArrayView, adjoint: Any) -> None:
        target, source = shadows.view(span, array.dtype), seen(self.name, adjoint)
        transfers.move(target.address, source.address, span.nbytes, span.device, shadows.stream_on(span.device))
        shadows.activate((span,))


class _Inside:
    """What takes part in a step: that it writes nothing else that the recording knows."""

    is_open = True  # whatever it does, the user gives the reverse of it all

    def __init__(self, step: CustomStep, tape: Tape):
        self.step, self.tape = step, tape

    def launch(self, kernel: Any, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        bound, placement = kernel.bind(args, keywords)
        for buffer in bound.buffers:
            span = Span(buffer.name, buffer.address, buffer.nbytes, placement.cuda)
            if not buffer.nbytes:
                continue
            if buffer.name.partition(".")[0].partition("[")[0] in kernel.written:
                self.check(kernel.name, span)
            else:
                self.step.read_inside[span] = None
        kernel.run(launch, bound, placement, {})

    def derivative(self, target: Any, launch: Launch, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        raise NotImplementedError  # they run as they are

    def check(self, kernel: str, span: Span) -> None:
        own = {cell for written in self.step.writes for cell in self.tape.cells.cover(written)}
        known = [c for c in self.tape.cells if c.start < span.address + span.nbytes and span.address < c.end]
        if any(cell not in own for cell in known):
            problem = f"{kernel} writes '{span.name}', which the recording knows and which is not among what it writes"
            raise TapeError(f"{self.step.name}: {problem}: list it in writes= or updates= of kg.custom_gradient")


def _read_only(value: Any) -> Any:
    """NumPy's arrays can be had so."""
    if not isinstance(value, np.ndarray):
        return value
    made = value.view()
    made.flags.writeable = False
    return made


def _version(value: Any) -> Any:
    """PyTorch's count of the writes to a tensor."""
    array = view(value)
    return value._version if array is not None and array.versioned and not value.is_inference() else None


def _span(name: str, array: ArrayView) -> Span:
    return Span(name, array.address, array.nbytes, device_of(array))
