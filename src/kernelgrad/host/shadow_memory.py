"""Shadows of all memory that a recording knows: the adjoint of what is at an address lies at the same place in the
shadow of its region. Regions get their shadow when an adjoint first comes there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TapeError
from ..runtime.arrays import ArrayView, DType
from ..runtime.recording import TRACE, refuse_look
from ..runtime.scratch import Scratch
from . import transfers
from .arguments import number_dtype, number_leaves
from .arrays import empty_like
from .memory_map import Cell, MemoryMap, Span

if TYPE_CHECKING:
    from .steps import ArgumentStep

_ALIGNED = 256  # a shadow begins as its region does, modulo this
_SLOT = 16
_NUMBERS = 1 << 14  # bytes of adjoints of numbers, and so often, until they are added up
_CHUNKS = 4


class Region:
    __slots__ = ("start", "end", "device", "memory", "address")

    def __init__(self, start: int, end: int, device: int | None):
        self.start, self.end, self.device = start, end, device
        self.memory: Scratch | None = None
        self.address = 0

    def allocate(self, stream: int | None) -> None:
        self.memory = Scratch(self.end - self.start + _ALIGNED, self.device, stream).zero()
        self.address = self.memory.address + (self.start - self.memory.address) % _ALIGNED


class ShadowMemory:
    """`streams`: on which each device works now."""

    def __init__(self, cells: MemoryMap, streams: dict[int, int]):
        self._map, self._streams = cells, streams
        self._regions = [Region(*run) for run in cells.runs()]
        self._starts = [region.start for region in self._regions]
        self._active: set[Cell] = set()
        self._dtypes: dict[Cell, DType] = {}
        self._numbers: list[NumberSlots] = []
        self.sums: dict[tuple[Any, str], float] = {}  # of numbers, by kernel and path
        self.waits = False  # whether adjoints of numbers are on a GPU, and not yet in their shadows

    def stream_on(self, device: int | None) -> int | None:
        return None if device is None else self._streams.get(device, 0)

    def _region(self, address: int, nbytes: int) -> Region:
        region = self._regions[bisect_right(self._starts, address) - 1]
        assert region.start <= address and address + nbytes <= region.end
        if region.memory is None:
            region.allocate(self.stream_on(region.device))
        return region

    def split(self, cell: Cell, rest: Cell) -> None:
        """What is known of a cell is known of both its parts."""
        if cell in self._dtypes:
            self._dtypes[rest] = self._dtypes[cell]
        if cell in self._active:
            self._active.add(rest)

    # ---- where there are adjoints

    def is_active(self, spans: Iterable[Span]) -> bool:
        """Whether an adjoint other than zero may be there."""
        return any(cell in self._active for span in spans for cell in self._map.cover(span))

    def activate(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._active.update(self._map.cover(span))

    def is_zero(self, span: Span) -> bool:
        if not self.is_active((span,)):
            return True
        return transfers.is_zero(self._address(span), span.nbytes, span.device, self.stream_on(span.device))

    def _address(self, span: Span) -> int:
        region = self._region(span.address, span.nbytes)
        return region.address + span.address - region.start

    def view(self, span: Span, dtype: DType, around: tuple[int, int] = (0, 0)) -> ArrayView:
        """The shadow of a span, as numbers of that dtype. `around`: what is used besides, before and behind it."""
        if not span.nbytes:
            return transfers.raw(span.address, 0, dtype, span.device)
        before, behind = around
        wide = Span(span.name, span.address - before, before + span.nbytes + behind, span.device)
        self._check_dtype(wide, dtype)
        memory = self._region(wide.address, wide.nbytes).memory
        found = transfers.raw(self._address(span), span.nbytes, dtype, span.device, memory)
        return found._replace(around=around)

    def cells(self, spans: Iterable[Span]) -> list[tuple[int, int, int | None]]:
        """The runs of memory that spans lie in."""
        return list(self._map.runs(self._map.covers(spans)))

    def pieces(self, span: Span) -> list[tuple[Span, DType]]:
        """Where a span may have adjoints other than zero, and of which dtype they are."""
        cells = [cell for cell in self._map.cover(span) if cell in self._active and cell in self._dtypes]
        found = [(Span(span.name, cell.start, cell.nbytes, cell.device), self._dtypes[cell]) for cell in cells]
        return [(part, _flat(dtype)) for part, dtype in found]

    def _check_dtype(self, span: Span, dtype: DType) -> None:
        """Memory may hold floats at one time and doubles at another, if no adjoint goes from one to the other."""
        for cell in self._map.cover(span):
            before = self._dtypes.setdefault(cell, dtype)
            if before != dtype and transfers.float_kinds(before) != transfers.float_kinds(dtype):
                if not self.is_zero(Span(span.name, cell.start, cell.nbytes, cell.device)):
                    problem = f"memory of '{span.name}' is used as {before} and as {dtype}"
                    raise TapeError(f"{problem}: adjoints of one are no adjoints of the other")
                self._dtypes[cell] = dtype

    # ---- arithmetic

    def clear(self, span: Span) -> None:
        if self.is_active((span,)):
            transfers.zero(self._address(span), span.nbytes, span.device, self.stream_on(span.device))
            self._active.difference_update(self._map.cover(span))

    def add(self, target: ArrayView, source: ArrayView) -> None:
        """Also from one device to another."""
        devices = [a.device[1] if isinstance(a.device, tuple) else None for a in (target, source)]
        on, other = devices
        stream = self.stream_on(on if on is not None else other)
        if on == other:
            transfers.add(target.address, source.address, target.nbytes, target.dtype, on, stream)
            return
        staged = Scratch(target.nbytes, on, stream)
        if on is None:
            data = transfers.read(source.address, source.nbytes, other, stream)
            staged.write(data.tobytes())
        else:
            transfers.move(staged.address, source.address, target.nbytes, on, stream)
        transfers.add(target.address, staged.address, target.nbytes, target.dtype, on, stream)

    def seed(self, span: Span, dtype: DType, seed: ArrayView) -> None:
        if span.nbytes:
            self.add(self.view(span, dtype), seed)
            self.activate((span,))

    def copy_of(self, array: Any, view: ArrayView) -> Any:
        """The adjoint as an array of the same package, shape and dtype."""
        made, memory = empty_like(array)
        if not view.nbytes:
            return made
        device = view.device[1] if isinstance(view.device, tuple) else None
        stream, parts = self.stream_on(device), self._parts(view.address, view.address + view.nbytes)
        if sum(end - start for start, end in parts) < view.nbytes:
            transfers.zero(memory.address, view.nbytes, device, stream)
        for start, end in parts:
            shadow = self.view(Span("array", start, end - start, device), view.dtype)
            transfers.move(memory.address + start - view.address, shadow.address, end - start, device, stream)
        return made

    def _parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Where a range has shadows: it may reach over several regions, and over memory that nobody knew."""
        found = []
        for region in self._regions[max(0, bisect_right(self._starts, start) - 1) :]:
            if region.start >= end:
                break
            if region.end > start:
                found.append((max(start, region.start), min(end, region.end)))
        return found

    # ---- numbers

    def number(self, step: ArgumentStep, path: str, type: Any) -> ArrayView:
        """Memory for the adjoint of a number of a launch."""
        if not self._numbers or self._numbers[-1].device != step.device or self._numbers[-1].is_full(type.size):
            self._numbers.append(NumberSlots(step.device, self.stream_on(step.device), type.size))
        slots = self._numbers[-1]
        address = slots.take(step, path, type)
        return transfers.raw(address, type.size, number_dtype(type), step.device, slots)

    def settle(self, step: ArgumentStep) -> None:
        """After the reverse of a launch. Adds up where there is much, or where the 0-d arrays that were passed for
        numbers are written by steps, whose reverse comes later; of a GPU's launch, before that (Note [Late numbers] in
        `backward`)."""
        written = any(cell.is_written for n in step.numbers for cell in self._map.cover(number_span(n.array)))
        if TRACE.get() is not None:
            if written:
                self._add_numbers(step)
            return
        self.waits = self.waits or (written and on_device(step))
        if (written and not self.waits) or len(self._numbers) > _CHUNKS:
            self.settle_all()

    def _add_numbers(self, step: ArgumentStep) -> None:
        """In a trace: by operations on memory."""
        for slots in self._numbers:
            for path, type, address in slots.give(step):
                for number in step.numbers:
                    span, dtype = number_span(number.array), number.array.dtype
                    if number.path != path:
                        continue
                    if step.device is not None or number_dtype(type) != dtype:
                        refuse_look()
                    target = self.view(span, dtype)
                    transfers.add(target.address, address, target.nbytes, dtype, None, None)
                    self.activate((span,))

    def unsettled(self, wanted: list[ArrayView], stream: int | None) -> Iterable[tuple[ArrayView, float]]:
        """Of a trace that has run on that stream: what 0-d arrays in that memory get."""

        def is_wanted(array: ArrayView) -> bool:
            return any(w.address <= array.address < w.address + w.nbytes for w in wanted)

        for slots in self._numbers:
            slots.follow(stream)
            if any(is_wanted(n.array) for step in slots.steps for n in step.numbers):
                for _, _, arrays, value in slots.values():
                    yield from ((array, value) for array in arrays if is_wanted(array))

    def settle_all(self) -> None:
        if TRACE.get() is not None:
            return  # whoever runs the trace does it
        for slots in self._numbers:
            for kernel, path, arrays, value in slots.values():
                self.sums[kernel, path] = self.sums.get((kernel, path), 0.0) + value
                for array in arrays:
                    self._add_number(array, value)
        self._numbers.clear()
        self.waits = False

    def _add_number(self, array: ArrayView, value: float) -> None:
        span = number_span(array)
        if not isinstance(array.dtype, np.dtype):
            raise TapeError(f"the adjoint of a 0-d array of {array.dtype} cannot be had: pass one of float32")
        if array.dtype.kind != "f":
            return  # integers have no adjoint
        target = self.view(span, array.dtype)
        transfers.host_array(target.address, target.nbytes, array.dtype)[...] += array.dtype.type(value)
        self.activate((span,))


def _flat(dtype: DType) -> DType:
    """Of structs with one kind of floats: that kind, since a part need not be whole structs. Integers' adjoints are
    zeros, of whatever kind."""
    kinds = transfers.float_kinds(dtype)
    structured = isinstance(dtype, np.dtype) and dtype.fields is not None
    return np.dtype(next(iter(kinds))) if structured and len(kinds) == 1 else dtype


def on_device(step: Any) -> bool:
    """Whether a step touches the memory of a GPU, and of nobody else, but for the numbers that a launch is given."""
    numbers = {n.array.address for n in step.numbers}
    spans = [s for s in (*step.reads, *step.writes) if s.device is not None or s.address not in numbers]
    return step.device is not None and all(span.device is not None for span in spans)


def number_span(array: ArrayView) -> Span:
    return Span("number", array.address, array.nbytes, None)


class NumberSlots:
    """Adjoints of numbers, one for each launch, on one device. They are added up in double precision."""

    def __init__(self, device: int | None, stream: int | None, at_least: int):
        self.device = device
        self._memory = Scratch(max(_NUMBERS, at_least + _SLOT), device, stream).zero()
        self._base = -self._memory.address % _SLOT
        self._used = 0
        self._taken: list[tuple[ArgumentStep, str, Any, int]] = []

    def follow(self, stream: int | None) -> None:
        self._memory.follow(stream)

    def is_full(self, size: int) -> bool:
        return self._base + self._used + size > self._memory.nbytes

    def take(self, step: ArgumentStep, path: str, type: Any) -> int:
        at = self._base + self._used
        self._taken.append((step, path, type, at))
        self._used += -(-type.size // _SLOT) * _SLOT
        return self._memory.address + at

    def give(self, step: ArgumentStep) -> list[tuple[str, Any, int]]:
        """Those of a step, which are forgotten here."""
        found = [(path, type, self._memory.address + at) for of, path, type, at in self._taken if of is step]
        self._taken = [taken for taken in self._taken if taken[0] is not step]
        return found

    @property
    def steps(self) -> Iterable[ArgumentStep]:
        return (taken[0] for taken in self._taken)

    def values(self) -> Iterable[tuple[Any, str, tuple[ArrayView, ...], float]]:
        data = self._memory.read() if self._taken else b""
        for step, path, type, at in self._taken:
            for leaf, offset, scalar in number_leaves(type, path):
                found = np.frombuffer(data, f"f{scalar.size}", 1, at + offset)[0]
                yield step.kernel, leaf, tuple(n.array for n in step.numbers if n.path == leaf), float(found)
