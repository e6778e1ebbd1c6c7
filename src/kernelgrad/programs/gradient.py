"""The gradient of a host function: it runs while it is recorded, and the recording is reversed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..autodiff.integers import are_integers
from ..derivatives.asked.settings import has_derivative
from ..errors import ArgumentError, LaunchError
from ..host import transfers
from ..host.memory_map import Span
from ..host.record import Tape
from ..ir.types import Pointer, Type
from ..requests import names_in
from ..runtime.arrays import ArrayView, view
from ..runtime.recording import refuse_while_recording
from ..runtime.signature import c_signature
from .function import Call, HostFunction
from .machine import Recording
from .real_buffers import RealAdjoint
from .real_integers import RealRecording
from .values import Cell


class HostGradient:
    """`g.execute(*arguments, *adjoints)`: an output's adjoint goes in and is consumed, an input's is added to."""

    def __init__(self, target: HostFunction, parameters: Any, budget: int | None, owned: bool = False):
        """`owned`: memory of objects will have adjoints, too."""
        self.target, self.budget = target, budget
        self.listed = () if owned and not parameters else _listed(target, parameters)
        self.integers = tuple(p.name for p in target.function.params if p.name in self.listed and are_integers(p.type))
        self._told = ""

    @property
    def adjoint_names(self) -> tuple[str, ...]:
        return tuple(f"d_{name}" for name in self.listed)

    @property
    def signature(self) -> str:
        return f"{c_signature(self.target.function)}, then {', '.join(self.adjoint_names)}"

    def __repr__(self) -> str:
        return f"<gradient {self.signature}>"

    def __getitem__(self, key: Any) -> Any:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")

    def execute_kernel(self, *args: Any, **keywords: Any) -> None:
        raise LaunchError(f"{self.target.name} is not a kernel: use execute(...)")

    @property
    def source(self) -> str:
        return self.target.source

    def explain(self) -> str:
        """What the last call saved, for which launches, why, in bytes."""
        return self._told or f"{self.target.name}: nothing is saved before it is executed"

    def execute(self, *args: Any, seed: float = 1.0, device: str | None = None, **adjoints: Any) -> Any:
        """Runs the function and its reverse; its value. The value's own adjoint is `seed`."""
        return self.run(args, adjoints, seed, device)

    def run(
        self,
        args: tuple[Any, ...],
        adjoints: Mapping[str, Any],
        seed: float,
        device: str | None,
        owned: Sequence[tuple[ArrayView, ArrayView]] = (),
    ) -> Any:
        """`owned`: memory that arguments lead to, and its adjoints."""
        refuse_while_recording("the gradient of a host function")
        own, given = self._separate(args, adjoints)
        with Call(self.target, own, device) as call:
            tape, result = self.recorded(call, given, owned)
            self.reverse(tape, call, given, result, seed, owned)
            call.bring_back()
        return result.number if isinstance(result, Cell) else result

    def recorded(
        self, call: Call, given: dict[str, Any], owned: Sequence[tuple[ArrayView, ArrayView]] = ()
    ) -> tuple[Tape, Any]:
        """Runs the function. `given`: the adjoints by parameter, of which only the names matter yet."""
        tape = Tape(self.budget, False)
        machine = self._machine(call, tape, given)
        call.track(self.listed, machine)
        with tape:
            for allocation in call.arguments.values():
                _know(tape, allocation.start, allocation.nbytes, allocation.device)
            for cell in call.cells.values():
                _know(tape, cell.address, cell.type.size, None)
            for name in dict(_each(given)):
                if name in call.arguments and np.dtype(call.dtypes[name]).kind == "f":
                    machine.hold_floats(call.arguments[name])
            for place, _ in owned:
                _know(tape, place.address, place.nbytes, _ordinal(place))
                machine.hold(place.address, place.nbytes)
            result = call.run(machine)
        self._told = tape.explain()
        return tape, result

    def _machine(self, call: Call, tape: Tape, given: dict[str, Any]) -> Recording:
        integers = [name for name in self.integers if given[name] is not None and name in call.arguments]
        if not integers:
            return Recording(call.memory, tape)
        machine = RealRecording(call.memory, tape)
        for name in integers:
            twin = machine.follow(call.arguments[name].start, call.dtypes[name], self.target.function.span)
            _know(tape, twin.reals.start, twin.reals.nbytes, twin.reals.device)
        return machine

    def _separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count, names = len(self.target.function.params), self.adjoint_names
        unknown = [name for name in keywords if name not in names]
        given = (*args[count:], *(keywords[name] for name in names if name in keywords))
        if unknown or len(args) < count or len(given) != len(names) or (keywords and len(args) != count):
            wanted = f"takes {count} arguments and {len(names)} adjoints, got {len(args) + len(keywords)}"
            raise ArgumentError(f"{self.target.name}: {wanted}\n  {self.signature}")
        return args[:count], dict(zip(self.listed, given, strict=True))

    def reverse(
        self,
        tape: Tape,
        call: Call,
        given: dict[str, Any],
        result: Any,
        seed: float,
        owned: Sequence[tuple[ArrayView, ArrayView]] = (),
    ) -> None:
        given = dict(_each(given))
        places = {name: self._place(name, call) for name in given}
        views = {name: self._adjoint(name, places[name], value) for name, value in given.items() if value is not None}
        reals = {name: RealAdjoint(views[name]) for name in self.integers if name in views}
        for name, real in reals.items():
            places[name], views[name] = self._real_place(places[name], call), real.view
        for k, (place, adjoint) in enumerate(owned):
            places[f"[{k}]"], views[f"[{k}]"] = place, adjoint
        seeds: list[tuple[ArrayView, Any]] = list(_distinct((places[n], adjoint) for n, adjoint in views.items()))
        if isinstance(result, Cell):
            seeds.append((_number(result), seed))
        tape.backward(seeds)
        shadows = tape.shadows
        assert shadows is not None
        for name, adjoint in views.items():
            place = places[name]
            device = _ordinal(place)
            found = shadows.view(Span(name, place.address, place.nbytes, device), place.dtype)
            on = adjoint.device[1] if isinstance(adjoint.device, tuple) else device
            transfers.move(adjoint.address, found.address, place.nbytes, on, 0 if on is not None else None)
        call.machine.synchronize()
        for real in reals.values():
            real.put_back()
        if isinstance(call.machine, RealRecording):
            call.machine.end(self.target.function.span)

    def _real_place(self, place: ArrayView, call: Call) -> ArrayView:
        assert isinstance(call.machine, RealRecording)
        twin = call.machine.twin(place.address)
        assert twin is not None
        return call.machine.view(twin, place.address, place.nbytes, self.target.function.span)

    def _place(self, name: str, call: Call) -> ArrayView:
        """The memory of a listed parameter, as an array."""
        if name in call.cells:
            return _number(call.cells[name])
        found = call.arguments.get(name)
        if found is None:
            raise ArgumentError(f"{self.target.name}: '{name}' is no array, and has no adjoint")
        return transfers.raw(found.start, found.nbytes, call.dtypes[name], found.device, found.owner)

    def _adjoint(self, name: str, place: ArrayView, given: Any) -> ArrayView:
        found = view(given)
        if found is None:
            raise ArgumentError(f"{self.target.name}: d_{name}: wants an array, got {given.__class__.__name__}")
        in_doubles = name in self.integers and found.dtype == np.dtype("f8")
        size = np.dtype("f8" if in_doubles else place.dtype).itemsize if isinstance(place.dtype, np.dtype) else 2
        if (found.dtype != place.dtype and not in_doubles) or found.nbytes != place.shape[0] * size:
            wanted = f"an array of {place.shape[0]} {place.dtype}"
            raise ArgumentError(f"{self.target.name}: d_{name}: wants {wanted}, got {found.dtype} of {found.shape}")
        if not found.contiguous or not found.writable:
            raise ArgumentError(f"{self.target.name}: d_{name}: wants a contiguous array that can be written")
        return found


def _distinct(seeds: Iterable[tuple[ArrayView, ArrayView]]) -> Iterator[tuple[ArrayView, ArrayView]]:
    """Parts of one memory whose adjoints are parts of one memory likewise, as pointers into a buffer are: what two of
    them share has one adjoint, and is given once."""
    ends = dict[tuple[Any, ...], int]()
    for place, adjoint in sorted(seeds, key=lambda pair: pair[0].address):
        key = adjoint.address - place.address, place.dtype, adjoint.dtype, _ordinal(place), _ordinal(adjoint)
        end = place.address + place.nbytes
        cut = min(max(0, ends.get(key, 0) - place.address), place.nbytes)
        ends[key] = max(end, ends.get(key, 0))
        if not cut:
            yield place, adjoint
        elif cut < place.nbytes:
            yield _behind(place, cut), _behind(adjoint, cut)


def _behind(array: ArrayView, cut: int) -> ArrayView:
    """Without its first bytes."""
    left = array.nbytes - cut
    count = left * math.prod(array.shape) // array.nbytes
    return array._replace(address=array.address + cut, nbytes=left, shape=(count,))


def _each(given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Adjoints by name; of pointers to pointers and of structs, one for each part."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _each({f"{name}.{k}": part for k, part in value.items()})
        elif isinstance(value, list | tuple) and not isinstance(value, ArrayView):
            yield from _each({f"{name}[{k}]": part for k, part in enumerate(value)})
        else:
            yield name, value


def _can_be_listed(type: Type) -> bool:
    return has_derivative(type.pointee if isinstance(type, Pointer) and isinstance(type.pointee, Pointer) else type)


def _listed(target: HostFunction, parameters: Any) -> tuple[str, ...]:
    params = {p.name: p for p in target.function.params}
    listed = names_in(parameters, target.function.params)
    if parameters is None:
        listed = tuple(name for name, p in params.items() if _can_be_listed(p.type))
    shown = c_signature(target.function)
    for name in listed:
        if name not in params:
            raise ArgumentError(f"{target.name} has no parameter '{name}'\n  {shown}")
        if not _can_be_listed(params[name].type) and not are_integers(params[name].type):
            kind = params[name].c_type
            raise ArgumentError(f"parameter '{name}' ({kind}) holds no floating-point numbers\n  {shown}")
    if not listed:
        raise ArgumentError(f"nothing to differentiate: no floating-point parameter\n  {shown}")
    if len(set(listed)) != len(listed):
        raise ArgumentError(f"a parameter is listed twice in '{', '.join(listed)}'")
    return listed


def _know(tape: Tape, address: int, nbytes: int, device: int | None) -> None:
    if nbytes:
        tape.know(transfers.raw(address, nbytes, np.dtype("u1"), device))


def _ordinal(array: ArrayView) -> int | None:
    return array.device[1] if isinstance(array.device, tuple) else None


def _number(cell: Cell) -> ArrayView:
    return transfers.raw(cell.address, cell.type.size, np.dtype(f"f{cell.type.size}"), None)
