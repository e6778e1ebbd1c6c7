"""Python functions whose reverse is the user's: each call is one step of a recording.

The function runs, and is run again, as it is; what it launches is not recorded. Its reverse gets the arguments, which
hold what they held before the call, and adjoints as arrays like them, in place of which it leaves others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

from ..errors import ArgumentError, TapeError
from ..runtime.arrays import ArrayView, view
from ..runtime.config import Launch
from ..runtime.recording import RECORDER
from ..runtime.streams import current_stream
from . import transfers
from .arrays import device_of, seen
from .memory_map import Span
from .record import Tape
from .shadow_memory import ShadowMemory
from .steps import Step

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
        bound = self.signature.bind(*args, **keywords)
        bound.apply_defaults()
        step = CustomStep(self, tuple(bound.arguments.values()), tape)
        tape.do(step)
        return step.returned


class CustomStep(Step):
    def __init__(self, function: CustomFunction, args: tuple[Any, ...], tape: Tape):
        super().__init__()
        self.function, self.args, self.name, self._tape = function, args, function.name, tape
        self.returned: Any = None
        names = function.signature.parameters
        self.views: dict[str, ArrayView] = {
            name: seen(self.name, value) for name, value in zip(names, args, strict=True) if view(value) is not None
        }
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

    def _check_overlap(self) -> None:
        for written in self.writes:
            for other in self.spans.values():
                if other is not written and _meet(written, other):
                    raise ArgumentError(f"{self.name}: '{written.name}' shares memory with '{other.name}'")

    def run(self) -> None:
        token = RECORDER.set(_Inside(self, self._tape))
        try:
            self.returned = self.function.function(*self.args)
        finally:
            RECORDER.reset(token)

    def run_again(self, stream: int | None) -> None:
        self.function.function(*self.args)

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        if not shadows.is_active(self.writes):
            return
        assert self.function.reverse_function is not None
        floats = {n: a for n, a in self.views.items() if transfers.holds_floats(a.dtype)}
        arguments = dict(zip(self.function.signature.parameters, self.args, strict=True))
        adjoints = {name: shadows.copy_of(arguments[name], found) for name, found in floats.items()}
        self.function.reverse_function(*self.args, *adjoints.values())
        for name, adjoint in adjoints.items():
            if name not in self.spans:
                continue
            if name in self.function.writes:
                shadows.clear(self.spans[name])
            else:
                self._put_back(shadows, self.spans[name], floats[name], adjoint)

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
            if buffer.name.partition(".")[0].partition("[")[0] in kernel.written and buffer.nbytes:
                self.check(kernel.name, Span(buffer.name, buffer.address, buffer.nbytes, placement.cuda))
        kernel.run(launch, bound, placement, {})

    def check(self, kernel: str, span: Span) -> None:
        own = {cell for written in self.step.writes for cell in self.tape.cells.cover(written)}
        known = [c for c in self.tape.cells if c.start < span.address + span.nbytes and span.address < c.end]
        if any(cell not in own for cell in known):
            problem = f"{kernel} writes '{span.name}', which the recording knows and which is not among what it writes"
            raise TapeError(f"{self.step.name}: {problem}: list it in writes= or updates= of kg.custom_gradient")


def _span(name: str, array: ArrayView) -> Span:
    return Span(name, array.address, array.nbytes, device_of(array))


def _meet(a: Span, b: Span) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes
