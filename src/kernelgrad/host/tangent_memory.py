"""Tangents of all memory that a program uses: that of what is at an address lies at the same place in the shadow of its
region. All shadows are on the program's device, also those of numbers that the CPU passes to launches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ..errors import TapeError
from ..runtime.arrays import ArrayView, DType
from ..runtime.tracing import Trace
from . import transfers
from .memory_map import Cell, MemoryMap, Span

_ALIGNED = 256  # a shadow begins as its region does, modulo this


class TangentMemory:
    """`spans`: all that will be asked for. Where no tangent but zero can be is known (`is_active`)."""

    def __init__(self, spans: Iterable[Span], trace: Trace):
        self._trace, self._map = trace, MemoryMap(self._split)
        self._active: set[Cell] = set()
        self._dtypes: dict[Cell, DType] = {}
        self.bits: set[Cell] = set()  # of numbers with tangents, in memory of integers
        for span in spans:
            if span.nbytes:
                self._map.cover(span)
        self._runs = list(self._map.runs())
        self._starts = [start for start, _, _ in self._runs]
        self._shadows: dict[int, int] = {}  # of runs that have one, by their start

    def _split(self, cell: Cell, rest: Cell, _: int | None) -> None:
        """What is known of a cell is known of both its parts."""
        if cell in self._active:
            self._active.add(rest)
        if cell in self.bits:
            self.bits.add(rest)
        if cell in self._dtypes:
            self._dtypes[rest] = self._dtypes[cell]

    def is_active(self, spans: Iterable[Span]) -> bool:
        return any(cell in self._active for span in spans if span.nbytes for cell in self._map.cover(span))

    def cells(self, span: Span) -> tuple[Cell, ...]:
        return self._map.cover(span) if span.nbytes else ()

    def activate(self, span: Span) -> None:
        self._active.update(self._map.cover(span) if span.nbytes else ())

    def deactivate(self, span: Span) -> None:
        """Its tangent is zero from now on."""
        self._active.difference_update(self._map.cover(span))

    def view(self, span: Span, dtype: DType, around: tuple[int, int] = (0, 0)) -> ArrayView:
        """The tangent of a span, as numbers of that dtype. `around`: what is used besides, before and behind it."""
        if not span.nbytes:
            return transfers.raw(span.address, 0, dtype, self._trace.device)
        before, behind = around
        wide = Span(span.name, span.address - before, before + span.nbytes + behind, span.device)
        self._check_dtype(wide, dtype)
        found = transfers.raw(self._address(span.address), span.nbytes, dtype, self._trace.device, self._trace)
        return found._replace(around=around)

    def _address(self, address: int) -> int:
        start, end, _ = self._runs[bisect_right(self._starts, address) - 1]
        assert start <= address < end
        if start not in self._shadows:
            made = self._trace.own(end - start + _ALIGNED)
            self._shadows[start] = made + (start - made) % _ALIGNED
        return self._shadows[start] + address - start

    def _check_dtype(self, span: Span, dtype: DType) -> None:
        """Memory may hold floats at one time and doubles at another, if no tangent goes from one to the other."""
        for cell in self._map.cover(span):
            before = self._dtypes.get(cell, dtype)
            if cell in self._active and transfers.float_kinds(before) != transfers.float_kinds(dtype):
                problem = f"memory of '{span.name}' is used as {before} and as {dtype}"
                raise TapeError(f"{problem}: tangents of one are no tangents of the other")
            self._dtypes[cell] = dtype

    def clear_all(self, trace: Trace) -> None:
        """Has a trace write zeros to all shadows."""
        for start, end, _ in self._runs:
            if start in self._shadows:
                trace.fill(self._shadows[start], end - start, b"\0", trace.device)
