"""Places in the user's source, and the errors that point at them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple


@dataclass(frozen=True, eq=False)
class Source:
    """One source text. `text` is None when only the name is known (IR read back from a dump)."""

    name: str
    text: str | None = field(default=None, repr=False)
    is_prelude: bool = field(default=False, repr=False)  # nothing of the user's: nobody is pointed at it

    @property
    def short_name(self) -> str:
        """Without folders, so that what is generated from the text does not depend on where it lies."""
        return self.name.replace("\\", "/").rpartition("/")[2]

    def line(self, number: int) -> str | None:
        lines = self.text.splitlines() if self.text is not None else []
        return lines[number - 1] if 0 < number <= len(lines) else None


class Iteration(NamedTuple):
    """Of the loop at a line. `name`: of its counter; without one its iterations are numbered."""

    line: int
    name: str | None
    number: int

    def __str__(self) -> str:
        return f"{f'{self.name} = {self.number}' if self.name else f'iteration {self.number}'} of line {self.line}"


@dataclass(frozen=True)
class Span:
    """Where something stands in the user's source: 1-based line and column, and its length on that line. Code of a
    derivative that is not there is told by `reverse`: it undoes what is; `why`: the reason for how an adjoint is
    updated. `iterations`: of loops that were unrolled, from the outermost."""

    source: Source
    line: int
    column: int
    length: int = 1
    reverse: bool = field(default=False, compare=False)
    why: str = field(default="", compare=False)
    iterations: tuple[Iteration, ...] = field(default=(), compare=False)

    def reversed(self) -> Span:
        return self if self.reverse or not self.line else replace(self, reverse=True)

    def because(self, why: str) -> Span:
        return self if why == self.why or not self.line else replace(self, why=why)

    def within(self, iteration: Iteration) -> Span:
        return replace(self, iterations=(iteration, *self.iterations)) if self.line else self

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def caret(self) -> str:
        """The source line with a caret under the span, or nothing when the text is not at hand."""
        line = self.source.line(self.line)
        if line is None:
            return ""
        lead = "".join("\t" if c == "\t" else " " for c in line[: self.column - 1])
        width = max(1, min(self.length, len(line) - self.column + 1))
        return f"{self.line:5} | {line}\n      | {lead}{'^' * width}"


UNKNOWN = Span(Source("<unknown>"), 0, 0)


class KernelGradError(Exception):
    """Base of every error this package raises."""


class SourceError(KernelGradError):
    """An error at a place in the user's source, with a remedy where there is one."""

    def __init__(self, message: str, span: Span = UNKNOWN, hint: str | None = None):
        self.message, self.span, self.hint = message, span, hint
        super().__init__(self.render())

    def render(self) -> str:
        place = "" if self.span.line == 0 else f"{self.span}: "
        parts = [f"{place}error: {self.message}", self.span.caret()]
        if self.hint:
            parts.append(f"help: {self.hint}")
        return "\n".join(part for part in parts if part)


class ParseError(SourceError):
    """The C++ text is not valid, or the requested function reaches something that is not."""


class UnsupportedError(SourceError):
    """Valid CUDA C++ that kernelgrad does not take."""


class LookupFailed(KernelGradError, KeyError):
    """No such function, kernel or variable in the module."""

    def __str__(self) -> str:
        return str(self.args[0])


class ArgumentError(KernelGradError, TypeError):
    """A launch argument does not fit its parameter. Nothing was launched."""


class LaunchError(KernelGradError, ValueError):
    """A launch configuration that cannot run. Nothing was launched."""


class KernelError(SourceError, RuntimeError):
    """A kernel failed while it ran: an assertion, a trap, a divergent barrier."""


class ProgramError(SourceError, RuntimeError):
    """A host function failed while it ran: memory that is not there, a launch that cannot be, an exit."""


class DeviceError(KernelGradError, RuntimeError):
    """The device, its driver or an optional package needed for it is missing or failed."""


class GradientError(KernelGradError, ArithmeticError):
    """Reverse and forward mode do not agree on a derivative."""


class NotFiniteError(SourceError, ArithmeticError):
    """A derivative that looks for it (`report_nan=True`) has a number that is not finite. It has run to its end."""


class TapeError(KernelGradError, RuntimeError):
    """A recorded program that cannot be recorded or reversed as asked."""


class InternalError(KernelGradError):
    """A defect of kernelgrad itself: please report it with the source that caused it."""
