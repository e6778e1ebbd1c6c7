"""Derivatives that host code asks for: of a kernel, of a function of the host's that does what only a host does, or of
a plain one, each by the object that Python code has for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import pipeline
from ..analysis.roots import holds_pointers
from ..autodiff.integers import are_integers
from ..derivatives.asked.settings import has_derivative, is_active, make_settings
from ..derivatives.device_function import DeviceFunction, FunctionGradient, as_kernel
from ..derivatives.gradient import Gradient
from ..derivatives.jvp import make_tangent
from ..derivatives.module_variables import with_variables
from ..errors import ProgramError, UnsupportedError
from ..host import transfers
from ..ir.ops import Derivative, Function, Module, Param
from ..ir.types import Array, Pointer, Scalar, Struct, Type
from ..kernel import Kernel
from ..runtime.arrays import ArrayView
from ..runtime.config import make_launch
from ..runtime.layouts import scalar_dtype
from .halves import Half
from .integer_gradient import real_module
from .machine import told_at
from .memory import read_bytes
from .real_buffers import RealBuffers
from .values import plain, view_of

if TYPE_CHECKING:
    from .interpreter import Interpreter


class Passed(NamedTuple):
    """A parameter with what it gets: `shadow` is an address, or the tangent of a number."""

    param: Param
    activity: str
    value: Any
    shadow: Any


def run(at: Interpreter, op: Derivative) -> list[Any]:
    """Does what is asked for, and gives its results."""
    if at.machine.recorded:
        raise UnsupportedError("a derivative is asked for in what is differentiated: not supported", op.span)
    request = _Request(at, op)
    with told_at(op.span):
        if op.mode == "reverse":
            return request.kernel() if op.config else request.gradient()
        if op.mode == "forward":
            return request.tangent()
        return request.augmented() if op.mode == "augmented" else request.backward()


class _Request:
    def __init__(self, at: Interpreter, op: Derivative):
        self.at, self.op, self.program = at, op, at.program
        self.function: Function = self.program.lowered.functions[op.fn]
        if self.program.refusal is not None:
            raise self.program.refusal
        shadows = iter(op.shadows)
        self.passed = []
        for param, activity, value in zip(self.function.params, op.activity.split(","), op.args, strict=True):
            shadow = at.values[next(shadows)] if activity == "dup" and op.shadows else None
            self.passed.append(Passed(param, activity, at.values[value], shadow))
        asked = [p for p in self.passed if p.activity != "const"]
        self.integers = [p for p in asked if are_integers(p.param.type)]
        self.owned = [pair for p in asked if p.shadow for pair in self.pairs(p)]
        self.listed = [p for p in asked if has_derivative(p.param.type) or p in self.integers]
        if self.integers and op.mode != "reverse":
            problem = f"'{self.integers[0].param.name}' holds integers, by which there is reverse mode alone"
            raise UnsupportedError(problem, op.span, "use float or double")
        if self.owned and (op.config or op.mode != "reverse" or not self.is_program):
            problem = f"an object with memory of its own has adjoints in gradients of host functions alone: '{op.fn}'"
            raise UnsupportedError(problem, op.span)
        if not self.listed and not self.owned:
            problem = f"nothing to differentiate: no floating-point parameter of '{op.fn}' has an adjoint"
            raise UnsupportedError(problem, op.span)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.param.name for p in self.listed)

    def pairs(self, p: Passed) -> Iterator[tuple[ArrayView, ArrayView]]:
        """Memory that an object has pointers to, as a vector does, and that of the object with its adjoints."""
        type = p.param.type.pointee if isinstance(p.param.type, Pointer) else None
        for offset, kind in _float_pointers(type, 0) if isinstance(type, Struct) else ():
            both = [int.from_bytes(read_bytes(at + offset, 8), "little") for at in (p.value, p.shadow)]
            if not both[0]:
                continue
            if not both[1]:
                problem = f"'{p.param.name}': the object for its adjoints has no memory where it has"
                raise UnsupportedError(problem, self.op.span, "make it as large")
            room = min(self.room(address) for address in both) // kind.size * kind.size
            found = [self.at.memory.at(address, self.op.span, "passes") for address in both]
            one, other = (view_of(a, room, kind, f.device, f.owner) for a, f in zip(both, found, strict=True))
            yield one, other

    # ---- what is differentiated

    @property
    def is_program(self) -> bool:
        """Or is taken as one."""
        return self.op.mode in ("augmented", "backward") or pipeline.is_program(self.program.lowered, self.op.fn)

    def made(self, kind: str, make: Any) -> Any:
        """One object for the same request, wherever the program comes by it again."""
        key = kind, self.op.fn, self.op.activity, self.shorter, self.shares
        known: dict[Any, Any] = self.program.requested
        if key not in known:
            known[key] = make()
        return known[key]

    @property
    def shorter(self) -> tuple[str, ...]:
        """The parameters whose adjoints have fewer elements than they."""
        return tuple(p.param.name for p in self.listed if self.room(p.shadow) < self.room(p.value)
                     if isinstance(p.param.type, Pointer) and p.shadow)  # fmt: skip

    @property
    def shares(self) -> bool:
        """Whether some of what it is given lies in the same memory."""
        found = [(p.value, self.room(p.value)) for p in self.passed if isinstance(p.param.type, Pointer)]
        found += [(p.shadow, self.room(p.shadow)) for p in self.listed if isinstance(p.param.type, Pointer)]
        ordered = sorted((start, start + size) for start, size in found if isinstance(start, int) and start)
        return any(end > start for (_, end), (start, _) in pairwise(ordered))

    def room(self, address: Any) -> int:
        found = self.at.memory.find(address) if isinstance(address, int) and address else None
        return 0 if found is None else found.end - address

    def settings(self, function: Function) -> Any:
        settings = make_settings(
            function, self.names, "joint", None, None, self.shares, None, shorter=self.shorter or None
        )
        return replace(settings, may_alias=self.shares, open_ended=True)

    # ---- kernels

    def kernel(self) -> list[Any]:
        numbers = [plain(self.at.values[v]) for v in self.op.config]
        found: Gradient = self.made("kernel", self.kernel_gradient)
        launch = make_launch(tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6])
        stream = None if self.at.memory.device is None else 0
        args = [self.argument(p, False) for p in self.passed]
        adjoints = [self.adjoint(p, False) for p in self.listed]
        with self.reals(self.at.memory.device, args, adjoints) as given:
            found[launch.grid, launch.block, launch.shared_bytes, stream](*given)
        self.at.staging.bring_back(self.op.span)
        return []

    @contextmanager
    def reals(self, device: int | None, args: list[Any], adjoints: list[Any]) -> Iterator[list[Any]]:
        """Arguments and adjoints with doubles for the integers among them, for the length of a call."""
        given = list(zip((*self.passed, *self.listed), (*args, *adjoints), strict=True))
        if not self.integers:
            yield [array for _, array in given]
            return
        integers = [array for p, array in given if p in self.integers]
        buffers = RealBuffers(device, integers, (array for p, array in given if p not in self.integers))
        yield [buffers.of(array) if p in self.integers else array for p, array in given]
        buffers.put_back()
        self.at.machine.synchronize()

    def kernel_gradient(self) -> Gradient:
        kernel = self.program.kernel(self.op.fn)
        if self.integers:
            kernel = Kernel(kernel.name, self.real(kernel.module, kernel.name), kernel.variable)
        of = with_variables(kernel, self.names) if kernel.module.globals else kernel
        return Gradient(of, self.settings(of.function))

    def real(self, module: Module, name: str) -> Module:
        """With doubles for the integers that are asked for."""
        asked = frozenset(p.param.name for p in self.integers)
        return pipeline.compile_kernel(real_module(module, name, asked, self.op.span), name)

    # ---- functions

    def gradient(self) -> list[Any]:
        outs: list[Any] = []
        adjoints = []
        for p in self.listed:
            own = np.zeros(1, _dtype(p.param.type)) if p.activity == "out" else None
            outs += [] if own is None else [own]
            adjoints.append(own if own is not None else self.adjoint(p, not self.is_program))
        args = [self.argument(p, not self.is_program) for p in self.passed]
        if self.is_program:
            self.execute(args, adjoints)
            return [float(own[0]) for own in outs]
        with self.reals(None, args, adjoints) as given:
            self.execute(given[: len(args)], given[len(args) :])
        return [float(own[0]) for own in outs]

    def execute(self, args: list[Any], adjoints: list[Any]) -> None:
        if not self.is_program:
            self.made("function", self.function_gradient).execute(*args, *adjoints)
            return
        names = {p.param.name: k for k, p in enumerate(self.passed)}
        for name, adjoint in zip(self.names, adjoints, strict=True):
            k = names[name]
            if isinstance(args[k], ArrayView) and isinstance(adjoint, ArrayView) and adjoint.nbytes < args[k].nbytes:
                args[k] = args[k]._replace(nbytes=adjoint.nbytes, shape=adjoint.shape)
        device = "cpu" if self.at.memory.device is None else "cuda"
        gradient = self.made("program", self.program_gradient)
        gradient.run((*args, *adjoints), {}, 1.0, device, self.owned)
        now = [one.address for p in self.passed if p.shadow and p.activity == "dup" for one, _ in self.pairs(p)]
        if now != [one.address for one, _ in self.owned]:
            problem = f"'{self.op.fn}' gives an object other memory, by which it is differentiated: not supported"
            raise UnsupportedError(problem, self.op.span, "let it have its size before")

    def program_gradient(self) -> Any:
        from .function import HostFunction, HostProgram
        from .gradient import HostGradient

        program = self.program
        made = HostProgram(self.op.fn, program.lowered, program.make_variable, program.refusal)
        return HostGradient(HostFunction(made, self.at.state), self.names, None, bool(self.owned))

    def device_function(self) -> DeviceFunction:
        lowered, name = self.program.lowered, self.op.fn
        module = pipeline.compile_kernel(lowered, name)
        module = self.real(module, name) if self.integers else module
        function = module.functions[name]
        wrapped = replace(module, functions={name: as_kernel(function)})
        return DeviceFunction(function, Kernel(name, wrapped, lambda v: self.program.make_variable(module.globals[v])))

    def function_gradient(self) -> FunctionGradient:
        of = self.device_function()
        of = with_variables(of, self.names) if of.kernel.module.globals else of
        return FunctionGradient(of, self.settings(of.function))

    # ---- the halves of a reverse

    def augmented(self) -> list[Any]:
        """The tape is a handle of the program's, of what is recorded."""
        if self.op.tape_bytes:
            problem = "a tape of host code lies behind a pointer: enzyme_allocated is not supported"
            raise UnsupportedError(problem, self.op.span, "leave it and the size out, and let the tape be a void *")
        gradient = self.made("program", self.program_gradient)
        args = tuple(self.argument(p, False) for p in self.passed)
        given = {p.param.name: self.adjoint(p, False) for p in self.listed}
        tape = self.at.state.new_handle()
        self.at.state.halves[tape] = Half(gradient, self.key, args, given, self.at.memory.device)
        return [tape]

    def backward(self) -> list[Any]:
        *seed, tape = (plain(self.at.values[v]) for v in self.op.given)
        half = self.at.state.halves.get(tape)
        if half is None:
            raise ProgramError("the tape is none of an augmented pass, or was used before", self.op.span)
        if half.key != self.key:
            raise ProgramError("the augmented pass of this tape was given other arguments", self.op.span)
        named = {p.param.name: p for p in self.listed}
        outs = {name: np.zeros(1, _dtype(p.param.type)) for name, p in named.items() if p.activity == "out"}
        half.reverse({name: outs[name] if name in outs else self.adjoint(p, False) for name, p in named.items()}, *seed)
        del self.at.state.halves[tape]
        return [float(own[0]) for own in outs.values()]

    @property
    def key(self) -> Any:
        """What both halves have in common."""
        places = (p.value for p in self.passed if isinstance(p.param.type, Pointer))
        return self.op.fn, self.op.activity, *places

    # ---- forward mode

    def tangent(self) -> list[Any]:
        if self.is_program:
            return self.tangent_of_program()
        args = [self.argument(p, True) for p in self.passed]
        tangents = [self.given_tangent(p) for p in self.listed]
        _, found = self.made("tangent", lambda: make_tangent(self.device_function(), self.names)).execute(
            *args, *tangents
        )
        return [float(found)] if self.op.results else []

    def given_tangent(self, p: Passed) -> Any:
        if isinstance(p.param.type, Pointer):
            return self.adjoint(p, True)
        return np.array([1.0 if p.shadow is None else plain(p.shadow)], _dtype(p.param.type))

    def tangent_of_program(self) -> list[Any]:
        """Of a function of numbers: its gradient times their tangents."""
        if not self.op.results or any(isinstance(p.param.type, Pointer) for p in self.listed):
            problem = f"forward mode of '{self.op.fn}', which does what only host code does, by more than numbers"
            raise UnsupportedError(f"{problem}: not supported", self.op.span, "use reverse mode")
        adjoints = [np.zeros(1, _dtype(p.param.type)) for p in self.listed]
        self.execute([self.argument(p, False) for p in self.passed], list(adjoints))
        tangents = [1.0 if p.shadow is None else plain(p.shadow) for p in self.listed]
        return [float(sum(float(a[0]) * t for a, t in zip(adjoints, tangents, strict=True)))]

    # ---- arguments

    def argument(self, p: Passed, on_host: bool) -> Any:
        if isinstance(p.param.type, Scalar):
            return plain(p.value)
        if on_host or not self.is_program:
            return self.at.argument(p.value, p.param.type, self.op.span, on_host)
        return self.anywhere(p.value, p.param.type)

    def anywhere(self, value: Any, type: Type) -> Any:
        """An argument of a program, which has pointers to any memory."""
        if isinstance(type, Struct):
            pairs = zip(type.fields, value, strict=True)
            return {field.name: self.anywhere(part, field.type) for field, part in pairs}
        if isinstance(type, Array):
            return [self.anywhere(part, type.element) for part in value]
        return self.memory(value, type) if isinstance(type, Pointer) else plain(value)

    def adjoint(self, p: Passed, on_host: bool) -> Any:
        """As large as what it is of."""
        type = p.param.type if isinstance(p.param.type, Pointer) else Pointer(p.param.type)
        if not p.shadow:
            return None
        if isinstance(p.param.type, Struct):
            return self.struct(p.shadow, p.param.type)
        if not isinstance(p.param.type, Pointer):
            return self.number(p, type)
        found = self.at.argument(p.shadow, type, self.op.span, on_host) if not self.is_program else None
        found = self.memory(p.shadow, type) if found is None else found
        most = self.room(p.value)
        size = found.nbytes // max(1, found.shape[0]) if found.shape[0] else 1
        if found.nbytes <= most:
            return found
        return found._replace(nbytes=most // size * size, shape=(most // size,))

    def number(self, p: Passed, type: Pointer) -> Any:
        """The adjoint of a number, which is one, on the host or in the memory of the kernel."""
        found = self.memory(p.shadow, type)
        size = type.pointee.size
        return found._replace(nbytes=size, shape=(1,))

    def struct(self, address: int, type: Struct) -> Any:
        """The adjoint of a struct that is passed by value: a struct of adjoints. Kernels take one without pointers as
        it lies in memory."""
        if not self.is_program and not holds_pointers(type):
            return self.memory(address, Pointer(type))._replace(nbytes=type.size, shape=(1,))
        active = [f for f in type.fields if is_active(f.type)]
        return {f.name: self.part(address + f.offset, f.type) for f in active}

    def part(self, address: int, type: Type) -> Any:
        if isinstance(type, Struct):
            return self.struct(address, type)
        if isinstance(type, Array):
            return [self.part(address + k * type.element.size, type.element) for k in range(type.count)]
        if not isinstance(type, Pointer):
            return self.memory(address, Pointer(type))._replace(nbytes=type.size, shape=(1,))
        found = self.at.memory.at(address, self.op.span, "passes")
        kept = transfers.read(address, 8, found.device, 0)
        return self.memory(int.from_bytes(kept.tobytes(), "little"), type)

    def memory(self, address: Any, type: Type) -> Any:
        """Wherever it lies."""
        assert isinstance(type, Pointer)
        if not address:
            return None
        found = self.at.memory.at(address, self.op.span, "passes")
        return view_of(address, found.end - address, type.pointee, found.device, found.owner)


def _float_pointers(type: Type, offset: int) -> Iterator[tuple[int, Scalar]]:
    """Where a struct has pointers to floats, and of which kind."""
    if isinstance(type, Struct):
        for field in type.fields:
            yield from _float_pointers(field.type, offset + field.offset)
    elif isinstance(type, Pointer) and isinstance(type.pointee, Scalar) and type.pointee.is_float:
        yield offset, type.pointee


def _dtype(type: Type) -> Any:
    assert isinstance(type, Scalar)
    return scalar_dtype(type)
