"""What check mode found, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import KernelError, Span
from .launch import Dim3

Kind = Literal["promise", "out of bounds", "uninitialised", "race"]


@dataclass(frozen=True)
class Act:
    """One access: what a thread did to an element of a buffer. `buffer` is empty if nothing known is near."""

    span: Span
    verb: str  # read, write, atomic update
    buffer: str
    index: int
    elements: int
    block: Dim3
    thread: Dim3

    @property
    def place(self) -> str:
        return f"'{self.buffer}[{self.index}]'" if self.buffer else "memory of no known buffer"

    @property
    def who(self) -> str:
        return f"thread {self.thread} of block {self.block}"


@dataclass(frozen=True)
class Finding:
    """`act` is the access at fault; of a race, `other` is the access it conflicts with. `count`: how often. Of a
    promise, both read the `value` that was to occur once; or `act` reads what was not to change; or see `problem`."""

    kind: Kind
    act: Act
    other: Act | None = None
    count: int = 1
    value: int | None = None
    problem: str = ""

    @property
    def span(self) -> Span:
        return self.act.span

    @property
    def message(self) -> str:
        act, other = self.act, self.other
        if self.problem:
            return f"a promise is broken: {self.problem}"
        if self.kind == "promise" and other is not None:
            places = f"{act.place}, read by {act.who}, and in {other.place}, read by {other.who}"
            return f"a promise is broken: '{act.buffer}' holds a value twice: {self.value} is in {places}"
        if self.kind == "promise":
            problem = f"{act.place} is not what it was in the forward launch"
            return f"a promise is broken: '{act.buffer}' was to be unchanged, and {problem}"
        if other is not None:
            return f"data race on {act.place}: {act.verb} by {act.who}, {other.verb} by {other.who}"
        if self.kind == "out of bounds":
            extent = f" of {act.elements} elements" if act.buffer else ""
            return f"out-of-bounds {act.verb} of {act.place}{extent} by {act.who}"
        return f"{act.verb} of {act.place}, which nothing has written, by {act.who}"

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        parts = [f"{self.span}: error: {self.message}{times}", self.span.caret()]
        if self.other is not None:
            parts += [f"{self.other.span}: the other access", self.other.span.caret()]
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class CheckReport:
    """True (and `ok`) if nothing is wrong; prints as a list of findings."""

    kernel: str
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> None:
        """KernelError for the first finding, naming how many there are."""
        if self.ok:
            return
        first, *rest = self.findings
        more = f" (and {len(rest)} more findings)" if rest else ""
        raise KernelError(f"{first.message}{more}", first.span)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.kernel}: no problems found"
        count = len(self.findings)
        head = f"{self.kernel}: {count} problem{'s' if count > 1 else ''} found"
        return "\n\n".join([head, *map(str, self.findings)])


@dataclass
class Findings:
    """Findings at the same places are one, with a count."""

    _found: dict[tuple[object, ...], Finding] = field(default_factory=dict)

    def add(
        self, kind: Kind, act: Act, other: Act | None, count: int, value: int | None = None, problem: str = ""
    ) -> None:
        key = (kind, act.span, act.verb, act.buffer, other and (other.span, other.verb), problem)
        known = self._found.get(key)
        found = Finding(kind, act, other, count, value, problem)
        self._found[key] = found if known is None else replace(known, count=known.count + count)

    def merged(self) -> tuple[Finding, ...]:
        """Broken promises first: races follow from them."""
        return tuple(sorted(self._found.values(), key=lambda found: found.kind != "promise"))
