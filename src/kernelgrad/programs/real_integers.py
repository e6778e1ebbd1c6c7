"""Integers that a host program is differentiated by, as the real numbers that they stand for.

Note [Twins]
While such a program is recorded, memory that holds these integers has a twin: one double for each of its integers.
What the program does to that memory is recorded as done to the twin: copies, fills, launches, which run with doubles
(`autodiff/integers`). Memory gets a twin when numbers that are computed from others with twins are put there. Integers
in memory that the host may look at are made from the twin after each write; a number that fits none is an error.
Integers that the host itself loads are `RealInteger`s: it may add, subtract, multiply, store, pass and print them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import pipeline
from ..analysis.roots import holds_pointers
from ..autodiff.integers import HINT, MORE, as_reals, is_integer
from ..errors import Span, UnsupportedError
from ..host import transfers
from ..host.record import Tape
from ..ir.types import F64, Pointer, Scalar, Type
from ..kernel import Kernel
from ..runtime.arrays import ArrayView
from ..runtime.config import Launch
from ..runtime.variables import Variable
from .machine import Recording
from .memory import Allocation, Memory, write_bytes
from .real_buffers import are_inexact, as_doubles, as_integers
from .values import Cell, build, pack_scalar, parts

_DOUBLE = np.dtype("f8")


class RealInteger(Cell):
    """An integer that the host has, as a double in memory of its own."""

    @property
    def number(self) -> int:
        return int(super().number)


class Twin(NamedTuple):
    """Of an allocation that holds integers of this kind. `inexact`: those that no double held."""

    of: Allocation
    dtype: np.dtype[Any]
    reals: Allocation
    inexact: Any

    def at(self, address: int, nbytes: int, span: Span) -> tuple[int, int]:
        """The same elements of the twin."""
        size = self.dtype.itemsize
        if (address - self.of.start) % size or nbytes % size:
            raise UnsupportedError("parts of integers that are differentiated by", span, HINT)
        return self.reals.start + (address - self.of.start) // size * 8, nbytes // size * 8


class RealRecording(Recording):
    """Records a program with twins."""

    has_reals = True

    def __init__(self, memory: Memory, tape: Tape):
        super().__init__(memory, tape)
        self._twins: dict[int, Twin] = {}  # by where what they are of begins
        self._all: list[Twin] = []  # also of memory that is gone
        self._variants: dict[tuple[int, frozenset[str]], tuple[Kernel, frozenset[str], Kernel]] = {}
        self._numbers: dict[int, RealInteger] = {}  # results of stretches, by where they were to go

    # ---- twins

    def follow(self, address: int, dtype: Any, span: Span) -> Twin:
        """Gives the allocation there a twin, unless it has one."""
        argument = self.memory.at(address, span, "uses")
        found = self.twin(address)
        if found is not None:
            if found.dtype != dtype:
                raise UnsupportedError("integers that are differentiated by are used as another type", span, HINT)
            return found
        if isinstance(argument.owner, Variable):
            raise UnsupportedError("integers that are differentiated by, in a variable of the device", span, HINT)
        dtype = np.dtype(dtype)
        reals = self.memory.allocate(argument.nbytes // dtype.itemsize * 8, _kind(argument), span)
        reals.owner = (reals.owner, argument.owner)
        data = transfers.read(argument.start, argument.nbytes // dtype.itemsize * dtype.itemsize, argument.device, 0)
        numbers = as_doubles(data.view(dtype))
        made = self._twins[argument.start] = Twin(argument, dtype, reals, are_inexact(numbers))
        self._all.append(made)
        transfers.move(reals.start, numbers.ctypes.data, numbers.nbytes, reals.device, 0)
        self.synchronize()
        return made

    def twin(self, address: Any) -> Twin | None:
        allocation = self.memory.find(address) if isinstance(address, int) and self._twins else None
        found = self._twins.get(allocation.start) if allocation is not None else None
        return found if found is not None and found.of is allocation else None

    def view(self, twin: Twin, address: int, nbytes: int, span: Span) -> ArrayView:
        start, size = twin.at(address, nbytes // twin.dtype.itemsize * twin.dtype.itemsize, span)
        return transfers.raw(start, size, _DOUBLE, twin.reals.device, twin.reals.owner)

    def show(self, twin: Twin, span: Span) -> None:
        """Lets the host see what there is now."""
        if twin.of.kind != "device":
            self.bring_back(twin, span)

    def bring_back(self, twin: Twin, span: Span) -> None:
        """The integers that the twin's numbers are."""
        count = twin.of.nbytes // twin.dtype.itemsize
        reals = transfers.read(twin.reals.start, 8 * count, twin.reals.device, 0).view(_DOUBLE)
        known = twin.inexact & are_inexact(reals)  # nobody has written there
        integers = transfers.read(twin.of.start, count * twin.dtype.itemsize, twin.of.device, 0).view(twin.dtype).copy()
        integers[~known] = as_integers(reals[~known], twin.dtype, span)
        transfers.move(twin.of.start, integers.ctypes.data, integers.nbytes, twin.of.device, 0)
        self.synchronize()

    def end(self, span: Span) -> None:
        """Twins are gone; what is left of the program has the integers."""
        for twin in self._all:
            if twin.of.freed is None and any(a is twin.of for a in self.memory):
                self.bring_back(twin, span)
            self.memory.remove(twin.reals)

    # ---- what the host does

    def load(self, address: int, type: Type, span: Span) -> Any:
        twin = self.twin(address)
        if twin is None:
            return super().load(address, type, span)
        self.memory.check_host(address, type.size, span, "reads")

        def leaf(scalar: Any, at: int) -> Any:
            self._check_kind(twin, scalar, span)
            made = self.cell(F64)
            self._copy_number(made, Cell(twin.at(address + at, scalar.size, span)[0], F64))
            return RealInteger(made.address, F64)

        return build(type, 0, leaf)

    def _check_kind(self, twin: Twin, type: Any, span: Span) -> None:
        if not is_integer(type) or _dtype(type) != twin.dtype:
            raise UnsupportedError(MORE, span, HINT)

    def store(self, address: int, value: Any, type: Type, span: Span) -> None:
        found = parts(value, type)
        twin = self.twin(address)
        if twin is None and any(isinstance(part, RealInteger) for part, _, _ in found):
            first = next(leaf for part, leaf, _ in found if isinstance(part, RealInteger))
            assert isinstance(first, Scalar)
            twin = self.follow(address, _dtype(first), span)
        if twin is None:
            super().store(address, value, type, span)
            return
        self.memory.check_host(address, type.size, span, "writes")
        for part, leaf, at in found:
            self._check_kind(twin, leaf, span)
            place = Cell(twin.at(address + at, leaf.size, span)[0], F64)
            if isinstance(part, RealInteger):
                self._copy_number(place, Cell(part.address, F64))
            else:
                super().write(place.address, pack_scalar(float(part), F64), span)
        self.show(twin, span)

    def write(self, address: int, data: bytes, span: Span) -> None:
        twin = self.twin(address) if data else None
        super().write(address, data, span)
        if twin is not None:
            self._assign(twin, address, np.frombuffer(data, twin.dtype), span)

    def _assign(self, twin: Twin, address: int, integers: Any, span: Span) -> None:
        """Numbers that have no derivative."""
        start, nbytes = twin.at(address, integers.nbytes, span)
        between = self.memory.allocate(nbytes, "host", span)
        write_bytes(between.start, integers.astype(_DOUBLE).tobytes())
        super().copy(start, between.start, nbytes, span)
        self.memory.free(between.start, ("host",), span)
        self.freed(between)

    def copy(self, to: int, of: int, nbytes: int, span: Span) -> None:
        source, target = self.twin(of), self.twin(to)
        super().copy(to, of, nbytes, span)
        apart = to >= of + nbytes or of >= to + nbytes  # others are copied in two steps, and come here again
        if not nbytes or not apart or (source is None and target is None):
            return
        if source is None:
            assert target is not None
            found = self.memory.at(of, span, "copies from")
            self._assign(target, to, transfers.read(of, nbytes, found.device, 0).view(target.dtype), span)
            return
        if target is None:
            target = self.follow(to, source.dtype, span)
        one, other = target.at(to, nbytes, span), source.at(of, nbytes, span)
        super().copy(one[0], other[0], one[1], span)
        self.show(target, span)

    def fill(self, to: int, byte: int, nbytes: int, span: Span) -> None:
        super().fill(to, byte, nbytes, span)
        twin = self.twin(to) if nbytes else None
        if twin is not None:
            self._assign(twin, to, np.frombuffer(bytes([byte & 255]) * nbytes, twin.dtype), span)

    def freed(self, allocation: Allocation) -> None:
        twin = self._twins.get(allocation.start)
        if twin is not None and twin.of is allocation:
            super().freed(twin.reals)
        super().freed(allocation)

    # ---- launches

    def launch(self, kernel: Kernel, launch: Launch, args: tuple[Any, ...], span: Span) -> None:
        params = kernel.function.params
        given = dict(zip((p.name for p in params), args, strict=True))
        self._check_tables(kernel, given, span)
        names = frozenset(name for name, arg in given.items() if self._is_real(arg, span))
        if not names:
            super().launch(kernel, launch, args, span)
            return
        variant, names = self._variant(kernel, names, span)
        twins = []
        for param in params:
            if param.name in names:
                given[param.name], twin = self._real(param.type, given[param.name], span)
                twins += [] if twin is None else [twin]
        super().launch(variant, launch, tuple(given[p.name] for p in params), span)
        for twin in twins:
            self.show(twin, span)

    def _check_tables(self, kernel: Kernel, given: dict[str, Any], span: Span) -> None:
        """Pointers that a kernel finds in memory may lead to integers that have twins."""
        for param in kernel.function.params:
            type = param.type.pointee if isinstance(param.type, Pointer) else None
            if (
                type is not None
                and given[param.name] is not None
                and (isinstance(type, Pointer) or holds_pointers(type))
            ):
                problem = f"'{param.name}' leads to pointers, in a program that is differentiated by integers"
                raise UnsupportedError(f"{problem}: not supported", span, HINT)

    def _is_real(self, arg: Any, span: Span) -> bool:
        if isinstance(arg, dict | list):
            inside = arg.values() if isinstance(arg, dict) else arg
            if any(self._is_real(part, span) for part in inside):
                raise UnsupportedError("integers that are differentiated by, in a struct that is passed", span, HINT)
            return False
        return isinstance(arg, RealInteger) or (isinstance(arg, ArrayView) and self.twin(arg.address) is not None)

    def _variant(self, kernel: Kernel, names: frozenset[str], span: Span) -> tuple[Kernel, frozenset[str]]:
        key = id(kernel), names
        if key not in self._variants:
            reals = as_reals(kernel.module, kernel.name, names)
            module = pipeline.compile_kernel(reals.module, kernel.name)
            self._variants[key] = Kernel(kernel.name, module, kernel.variable), reals.names, kernel
        found = self._variants[key]
        return found[0], found[1]

    def _real(self, type: Type, arg: Any, span: Span) -> tuple[Any, Twin | None]:
        """An argument as the variant takes it."""
        if not isinstance(type, Pointer):
            return (Cell(arg.address, F64) if isinstance(arg, RealInteger) else float(arg)), None
        if arg is None:
            return None, None
        allocation = self.memory.find(arg.address)
        if allocation is None or arg.address + arg.nbytes > allocation.end:  # a result of a stretch
            made = self.cell(F64)
            self._numbers[arg.address] = RealInteger(made.address, F64)
            return transfers.raw(made.address, 8, _DOUBLE, None), None
        twin = self.follow(arg.address, arg.dtype, span)
        return self.view(twin, arg.address, arg.nbytes, span), twin

    def result(self, at: int, type: Scalar) -> Any:
        found = self._numbers.pop(at, None)
        return super().result(at, type) if found is None else found


def _kind(of: Allocation) -> Any:
    return "device" if of.device is not None or of.kind == "device" else "host"


def _dtype(type: Scalar) -> np.dtype[Any]:
    return np.dtype(f"{'i' if type.kind == 'int' else 'u'}{type.size}")
