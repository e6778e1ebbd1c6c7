"""What a host program does to memory, and its launches: as it is, or each as a step of a recording."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..errors import KernelGradError, ProgramError, SourceError, Span, TapeError, UnsupportedError
from ..host import transfers
from ..host.memory_map import Span as Range
from ..host.record import Tape
from ..host.steps import CopyStep, FillStep, LaunchStep
from ..ir.types import Scalar, Type
from ..kernel import Kernel
from ..runtime.arrays import ArrayView
from ..runtime.config import Launch
from ..runtime.devices import check, current, driver
from .memory import Allocation, Memory, read_bytes, write_bytes
from .values import Cell, build, pack_scalar, parts, unpack

BITS = "the bits of a floating-point number that may have an adjoint are used as something else"
_PAGE = 1 << 20
_BYTE = np.dtype("u1")
_ARENA = 1 << 14
T = TypeVar("T")


class Machine:
    """Runs at once. All work of a GPU goes to one stream, in the order of the program."""

    recorded = False
    has_reals = False  # integers that are differentiated by, as `real_integers` has them

    def __init__(self, memory: Memory):
        self.memory = memory
        self._arenas: list[np.ndarray[Any, Any]] = []
        self._used = _ARENA

    # ---- values

    def load(self, address: int, type: Type, span: Span) -> Any:
        self.memory.check_host(address, type.size, span, "reads")
        return unpack(read_bytes(address, type.size), type)

    def store(self, address: int, value: Any, type: Type, span: Span) -> None:
        self.memory.check_host(address, type.size, span, "writes")
        for part, leaf, at in parts(value, type):
            self.write(address + at, pack_scalar(part, leaf), span)

    def cell(self, type: Scalar) -> Cell:
        """Memory for a number that is none of the program's variables."""
        if self._used + 16 > _ARENA:
            self._arenas.append(np.zeros(_ARENA, np.uint8))
            self._used = 0
        address = int(self._arenas[-1].ctypes.data) + self._used
        self._used += 16
        return Cell(address, type)

    def result(self, at: int, type: Scalar) -> Any:
        """A number that a stretch has put into a cell."""
        return unpack(read_bytes(at, type.size), type)

    # ---- bytes

    def write(self, address: int, data: bytes, span: Span) -> None:
        """To the host's memory."""
        write_bytes(address, data)

    def copy(self, to: int, of: int, nbytes: int, span: Span) -> None:
        devices = self._devices(to, of, nbytes, span)
        if not nbytes or to == of:
            return
        if devices == (None, None):
            ctypes.memmove(to, of, nbytes)
        else:
            self._move(to, of, nbytes, devices)

    def _devices(self, to: int, of: int, nbytes: int, span: Span) -> tuple[int | None, int | None]:
        target = self.memory.check(to, nbytes, span, "copies to")
        source = self.memory.check(of, nbytes, span, "copies from")
        return target.device if target else None, source.device if source else None

    def _move(self, to: int, of: int, nbytes: int, devices: tuple[int | None, int | None]) -> None:
        device = devices[0] if devices[0] is not None else devices[1]
        transfers.move(to, of, nbytes, device, 0)
        if None in devices:
            self.synchronize()

    def fill(self, to: int, byte: int, nbytes: int, span: Span) -> None:
        found = self.memory.check(to, nbytes, span, "sets")
        if found is not None:
            transfers.fill(to, nbytes, bytes([byte & 255]), found.device, 0)

    def synchronize(self) -> None:
        if self.memory.device is not None:
            bindings = driver()
            with current(self.memory.device):
                check(bindings, bindings.cuCtxSynchronize())

    def freed(self, allocation: Allocation) -> None:
        allocation.owner = None

    # ---- launches

    def launch(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], span: Span) -> None:
        given = [_each(a, Cell, lambda cell: cell.number) for a in args]
        if kernel.function.stacks or kernel.function.arena:  # it may be undone, and what it wrote on either side
            given = [_each(a, ArrayView, self._with_what_is_around) for a in given]
        with told_at(span):
            kernel[launch.grid, launch.block, launch.shared_bytes, launch.stream](*given)

    def _with_what_is_around(self, array: ArrayView) -> ArrayView:
        found = self.memory.find(array.address)
        if found is None or not array.nbytes:
            return array
        return array._replace(around=(array.address - found.start, found.end - array.address - array.nbytes))

    def run_native(self, kernel: Kernel, args: tuple[Any, ...], span: Span) -> None:
        """A stretch of the host's own."""
        self.launch(kernel, _ONE, args, span)


_ONE = Launch((1, 1, 1), (1, 1, 1))


class Recording(Machine):
    """Records every write, so that all that a reverse reads again is there when it does."""

    recorded = True

    def __init__(self, memory: Memory, tape: Tape):
        super().__init__(memory)
        self.tape = tape
        self._floats: dict[int, list[tuple[int, int]]] = {}  # ranges of addresses, by pages that they touch

    def load(self, address: int, type: Type, span: Span) -> Any:
        self.memory.check_host(address, type.size, span, "reads")
        data = read_bytes(address, type.size)

        def leaf(scalar: Any, at: int) -> Any:
            if isinstance(scalar, Scalar) and scalar.is_float:
                return self._copied(Cell(address + at, scalar))
            self._check_bits(address + at, scalar, span)
            return unpack(data[at : at + scalar.size], scalar)

        return build(type, 0, leaf)

    def _check_bits(self, address: int, type: Any, span: Span) -> None:
        """Integers that floats were stored as have lost their derivatives."""
        if any(start <= address < end for start, end in self._floats.get(address // _PAGE, ())):
            raise UnsupportedError(BITS, span, "compute with the number itself")

    def hold(self, address: int, nbytes: int) -> None:
        """Floats may be there."""
        self._hold(address, nbytes, True)

    def hold_floats(self, argument: Allocation) -> None:
        if argument.nbytes:
            self._hold(argument.start, argument.nbytes, True)

    def _hold(self, address: int, nbytes: int, floats: bool) -> None:
        """Notes where floats are, and where something else."""
        for page in range(address // _PAGE, (address + nbytes - 1) // _PAGE + 1):
            known = self._floats.get(page, [])
            kept = [r for r in known if r[0] < address or address + nbytes < r[1]] if known else []
            parts = [(s, e) for a, b in kept for s, e in ((a, min(b, address)), (max(a, address + nbytes), b)) if s < e]
            if floats:
                parts.append((address, address + nbytes))
            if parts or known:
                self._floats[page] = parts

    def _copied(self, cell: Cell) -> Cell:
        made = self.cell(cell.type)
        self._copy_number(made, cell)
        return made

    def _copy_number(self, to: Cell, of: Cell) -> None:
        dtype = np.dtype(f"f{to.type.size}")
        views = [transfers.raw(c.address, c.type.size, dtype, None) for c in (to, of)]
        self.tape.do(CopyStep(views[0], views[1], None))

    def store(self, address: int, value: Any, type: Type, span: Span) -> None:
        self.memory.check_host(address, type.size, span, "writes")
        for part, leaf, at in parts(value, type):
            if isinstance(part, Cell) and isinstance(leaf, Scalar):
                self._copy_number(Cell(address + at, leaf), part)
                self._hold(address + at, leaf.size, True)
            else:
                self.write(address + at, pack_scalar(part, leaf), span)

    def write(self, address: int, data: bytes, span: Span) -> None:
        if data:
            self._hold(address, len(data), False)
            self.tape.do(FillStep(transfers.raw(address, len(data), _BYTE, None), data, None))

    def copy(self, to: int, of: int, nbytes: int, span: Span) -> None:
        devices = self._devices(to, of, nbytes, span)
        if not nbytes or to == of:
            return
        if to < of + nbytes and of < to + nbytes:
            between = self.memory.allocate(nbytes, "host", span)
            self.copy(between.start, of, nbytes, span)
            self.copy(to, between.start, nbytes, span)
            self.memory.free(between.start, ("host",), span)
            self.freed(between)
            return
        self.tape.do(BytesCopy(to, of, nbytes, devices))
        self._hold_copied(to, of, nbytes)
        if devices != (None, None) and None in devices:
            self.synchronize()

    def _hold_copied(self, to: int, of: int, nbytes: int) -> None:
        floats = {r for page in range(of // _PAGE, (of + nbytes - 1) // _PAGE + 1) for r in self._floats.get(page, ())}
        self._hold(to, nbytes, False)
        for start, end in floats:
            low, high = max(start, of), min(end, of + nbytes)
            if low < high:
                self._hold(to + low - of, high - low, True)

    def fill(self, to: int, byte: int, nbytes: int, span: Span) -> None:
        found = self.memory.check(to, nbytes, span, "sets")
        if found is not None:
            self._hold(to, nbytes, False)
            view = transfers.raw(to, nbytes, _BYTE, found.device)
            self.tape.do(FillStep(view, bytes([byte & 255]), None if found.device is None else 0))

    def freed(self, allocation: Allocation) -> None:
        self.tape.owners.append((allocation.device, allocation.owner))

    def launch(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], span: Span) -> None:
        passed = tuple(_each(a, Cell, lambda cell: cell.array) for a in args)
        with told_at(span):
            step = ProgramLaunch(kernel, launch, passed, self.memory)
            if self.tape.store.budget is None:
                self.tape.launch_tapes.choose(step)
            self.tape.do(step)
        for found in step.writes:
            array = step.frozen.views.get(found.name)
            self._hold(found.address, found.nbytes, array is not None and _are_floats(array.dtype))


def _are_floats(dtype: Any) -> bool:
    """And nothing else, as a struct may hold."""
    return dtype.kind == "f" if isinstance(dtype, np.dtype) else True


def _each(value: Any, kind: type[T], of: Callable[[T], Any]) -> Any:
    """A launch's argument with something in place of what is of a kind."""
    if isinstance(value, kind):
        return of(value)
    if isinstance(value, dict):
        return {name: _each(part, kind, of) for name, part in value.items()}
    return [_each(part, kind, of) for part in value] if isinstance(value, list) else value


class ProgramLaunch(LaunchStep):
    """A pointer into the middle of an allocation may be used backwards, too: what is read and written there is all of
    the allocation."""

    def __init__(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], memory: Memory):
        super().__init__(kernel, launch, args, {})
        self._whole: dict[int, Allocation] = {}
        for span in self.spans.values():
            found = memory.find(span.address)
            if found is not None and found.start < span.address < found.end:
                self._whole[span.address] = found
        if self._whole:
            self.reads, self.writes = self._all_of(self.reads), self._all_of(self.writes)
            self.reread = self._all_of(self.reread)

    def _all_of(self, spans: tuple[Range, ...]) -> tuple[Range, ...]:
        return tuple(self._allocation_of(span) for span in spans)

    def _allocation_of(self, span: Range) -> Range:
        whole = self._whole.get(span.address)
        return span if whole is None else Range(span.name, whole.start, whole.nbytes, span.device)

    def reverse(self, shadows: Any, keep: bool) -> None:
        was_active = shadows.is_active(self.writes)
        super().reverse(shadows, keep)
        for span in self.spans.values() if was_active else ():
            if span.address in self._whole and span.name in self.facts.floats:
                wide = self._allocation_of(span)
                shadows.view(wide, self.frozen.views[span.name].dtype)
                shadows.activate((wide,))

    def use_tape(self) -> bool:
        return False if self._whole else super().use_tape()


class BytesCopy(CopyStep):
    """`memcpy`: what kind of numbers the bytes are, the adjoints of the copy tell."""

    def __init__(self, to: int, of: int, nbytes: int, devices: tuple[int | None, int | None]):
        views = [transfers.raw(at, nbytes, _BYTE, device) for at, device in zip((to, of), devices, strict=True)]
        super().__init__(views[0], views[1], None if devices == (None, None) else 0)

    def reverse(self, shadows: Any, keep: bool) -> None:
        (target,), (source,) = self.writes, self.reads
        for part, dtype in shadows.pieces(target):
            at = Range("source", source.address + part.address - target.address, part.nbytes, source.device)
            shadows.add(shadows.view(at, dtype), shadows.view(part, dtype))
            shadows.activate((at,))
        shadows.clear(target)


class told_at:
    """Errors that have no place in the source get the call's; those of the recording are not the program's."""

    def __init__(self, span: Span):
        self.span = span

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        placed = isinstance(error, SourceError) and error.span.line
        if isinstance(error, KernelGradError) and not isinstance(error, TapeError) and not placed:
            raise ProgramError(str(error), self.span) from error
