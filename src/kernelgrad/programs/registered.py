"""Calls of functions whose augmented forward and reverse passes the program gives: as they are, or as one step of a
recording.

While it is recorded, the augmented pass runs in place of the function, with null for shadows, which nobody has yet; the
reverse pass gets them, and what the other one returned. What both launch and copy is their own. Memory that they get
holds for the reverse pass what the augmented one left there: no derivative but theirs puts anything else there in
between, and what later steps overwrite is put back.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autodiff.calculus.activity import holds_floats
from ..host.memory_map import Span as Range
from ..host.shadow_memory import ShadowMemory
from ..host.steps import Step
from ..ir.ops import Registered
from ..ir.types import Pointer
from ..runtime.recording import unrecorded
from .machine import Machine, Recording
from .memory import Allocation
from .values import Cell, is_float, plain, pointee_dtype

if TYPE_CHECKING:
    from .interpreter import Interpreter


def run(at: Interpreter, op: Registered) -> None:
    given = [at.values[v] for v in op.args]
    args = [plain(value) for value in given]
    if not isinstance(at.machine, Recording):
        called(at, op.fn, args, at.machine)
        return
    step = RegisteredStep(at, op, args, [v if isinstance(v, Cell) else None for v in given])
    at.machine.tape.do(step)
    for span in step.writes:
        at.machine.hold(span.address, span.nbytes)


def called(at: Interpreter, name: str, args: list[Any], machine: Machine) -> Any:
    """The value of another function of the program."""
    from .interpreter import Interpreter as Another

    inner = Another(at.program.of(name), machine, at.state)
    try:
        return plain(inner.run(args))
    finally:
        inner.end()


class RegisteredStep(Step):
    """What it reads and writes: all that it gets pointers to. Adjoints of numbers are what the reverse returns."""

    varies = "its passes are the program's own"
    looks_back = True

    def __init__(self, at: Interpreter, op: Registered, args: list[Any], cells: list[Cell | None]):
        super().__init__()
        self.cells = cells
        self.at, self.op, self.args, self.name = at, op, args, op.fn
        self.saved: Any = None
        self.types = [v.type for v in op.args]
        self.spans: dict[int, Range] = {}
        self.memory = list[Allocation]()
        for k, (value, type) in enumerate(zip(args, self.types, strict=True)):
            if isinstance(type, Pointer) and value:
                found = at.memory.at(value, op.span, "passes")
                self.memory.append(found)
                self.spans[k] = Range(op.args[k].name or f"argument {k}", value, found.end - value, found.device)
        self.writes = tuple(self.spans.values())
        numbers = (Range("number", c.address, c.type.size, None) for c in cells if c is not None)
        self.reads = (*self.writes, *numbers)
        self.device = at.memory.device
        self.stream = None if self.device is None else 0

    def pass_(self, name: str, shadows: dict[int, int], *more: Any) -> Any:
        given: list[Any] = []
        for k, (value, type) in enumerate(zip(self.args, self.types, strict=True)):
            given += [value, shadows.get(k, 0)] if isinstance(type, Pointer) else [value]
        with unrecorded():
            return called(self.at, name, [*given, *more], Machine(self.at.memory))

    def run(self) -> None:
        self.saved = self.pass_(self.op.augmented, {})

    def run_again(self, stream: int | None) -> None:
        self.run()

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        memory, added, places = self.at.memory, list[Allocation](), dict[int, int]()
        for k, span in self.spans.items():
            type = self.types[k]
            assert isinstance(type, Pointer)
            if holds_floats(type.pointee):
                view = shadows.view(span, pointee_dtype(type.pointee))
                places[k] = view.address
                kind: Any = "device" if span.device is not None else "argument"
                added.append(memory.add(Allocation(view.address, view.nbytes, kind, span.device, view.owner)))
        try:
            with memory.there_again(self.memory):
                found = self.pass_(self.op.reverse, places, self.saved)
        finally:
            for allocation in added:
                memory.remove(allocation)
        shadows.activate([self.spans[k] for k in places])
        self.add(shadows, found)

    def add(self, shadows: ShadowMemory, found: Any) -> None:
        """What the reverse returned, to the adjoints of the numbers that were given."""
        adjoints = iter(found if isinstance(found, tuple) else (found,))
        for cell, type in zip(self.cells, self.types, strict=True):
            if not is_float(type):
                continue
            adjoint = next(adjoints)
            if cell is not None:
                span = Range("number", cell.address, cell.type.size, None)
                view = shadows.view(span, np.dtype(f"f{cell.type.size}"))
                kind = ctypes.c_double if cell.type.size == 8 else ctypes.c_float
                kind.from_address(view.address).value += plain(adjoint)
                shadows.activate([span])
