"""A recorded program as a function of tensors: `kg.torch.op(tape.program(...))`.

Four operators belong to it, as to a kernel; their formulas are those of kernels. As all operators they stay as long as
the process, and so does the program's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pickle import PicklingError
from typing import Any, NamedTuple

import torch

from ..errors import ArgumentError, UnsupportedError
from ..frameworks.recorded import Recorded, Slot, recorded_of
from ..host.program import Program
from ..locks import COMPILING
from ..runtime.streams import current_stream
from .calls import Maybe, Tensor
from .formulas import FORMULAS, IN_REVERSE, Formulas, autograd_of
from .mapping import in_sequence
from .registration import KINDS, library

_NAMESPACE = "kernelgrad"
_made: dict[str, ProgramOp] = {}


class _Roles:
    """The inputs and outputs of a program under the names that formulas know."""

    def __init__(self, recorded: Recorded):
        self.arrays = tuple(f"x{k}" for k in range(len(recorded.inputs)))
        self.results = tuple(f"y{k}" for k in range(len(recorded.outputs)))
        self.active_inputs = tuple(self.arrays[k] for k in recorded.active)
        self.active_results = tuple(self.results[k] for k in recorded.seeded)
        slots = zip((*self.arrays, *self.results), (*recorded.inputs, *recorded.outputs), strict=True)
        self._slots = dict(slots)

    def __getitem__(self, name: str) -> Slot:
        return self._slots[name]


class _Call(NamedTuple):
    """The inputs of a program, all of which its derivatives need."""

    tensors: tuple[Maybe, ...]

    def tensors_of(self, kept: Iterable[str] | None = None) -> list[Maybe]:
        return list(self.tensors) if kept is None or any(True for _ in kept) else [None] * len(self.tensors)

    def with_tensors(self, tensors: Sequence[Maybe]) -> _Call:
        return _Call(tuple(tensors))

    def without_tensors(self) -> _Call:
        return _Call((None,) * len(self.tensors))


class _Layout:
    """Where they are in an operator's list: behind each other."""

    def __init__(self, names: tuple[str, ...]):
        self.names, self.count = names, len(names)

    def schema(self) -> str:
        return ", ".join(f"Tensor {name}" for name in self.names)

    def unpack(self, args: Sequence[Any]) -> _Call:
        return _Call(tuple(args))

    def pack(self, call: _Call) -> list[Any]:
        return list(call.tensors)

    def place(self, name: str) -> int:
        return self.names.index(name)


class _Formulas(Formulas):
    """Those of kernels, of which they know no more than roles, layouts and calls."""

    def __init__(self, recorded: Recorded, operators: dict[str, Any]):
        self.recorded, self.operators = recorded, operators
        roles: Any = _Roles(recorded)
        layout: Any = _Layout(roles.arrays)
        self.roles, self.full, self.partial = roles, layout, layout
        self.own = self.counts()

    def needed(self, wanted: tuple[str, ...]) -> Iterable[str]:
        return self.roles.arrays

    def tangent(self, tangents: Sequence[Maybe], call: Any) -> list[Maybe]:
        self.recorded.prepare("tangent")
        return super().tangent(tangents, call)

    def backward(self, grads: Sequence[Maybe], call: Any, mask: int) -> list[Maybe]:
        self.recorded.prepare("backward")
        return super().backward(grads, call, mask)

    def second(self, grads: Sequence[Maybe], along: Sequence[Maybe], call: Any, mask: int) -> list[Maybe]:
        self.recorded.prepare("second")
        return super().second(grads, along, call, mask)

    def no_third_order(self) -> UnsupportedError:
        return self.recorded.no_third_order()

    def no_forward_over_forward(self) -> UnsupportedError:
        return self.recorded.no_forward_over_forward(IN_REVERSE)


class ProgramOp:
    """A recorded program as a function of tensors, `y = op(x, w)`; see `op`."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded
        operators: dict[str, Any] = {}
        self._formulas = _Formulas(recorded, operators)
        for kind in KINDS:
            operators[kind] = self._define(kind)
        self._operator = operators["value"]
        for kind in KINDS:
            self._register(kind, operators[kind])
        for device in ("CPU", "CUDA"):
            library().impl(recorded.name, self._autocast(device), f"Autocast{device}")

    def __repr__(self) -> str:
        return repr(self._recorded)

    @property
    def name(self) -> str:
        """Under which it is registered in this process."""
        return str(self._operator.name())

    def __call__(self, *tensors: Any) -> Any:
        self._recorded.check_count(tensors)  # the rest below autocast, which may change it
        for k, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                raise ArgumentError(f"program: input {k} wants a tensor, got {type(tensor).__name__}")
        return self._operator(*tensors)

    def __deepcopy__(self, memo: Any) -> ProgramOp:
        return self

    def __reduce__(self) -> Any:
        raise PicklingError(
            "an operator of a recorded program lives in its process: record the program in the other one"
        )

    # ---- registration

    def _name(self, kind: str) -> str:
        return self._recorded.name if kind == "value" else f"{self._recorded.name}_{kind}"

    def _define(self, kind: str) -> Any:
        roles = self._formulas.roles
        grads, tangents = (
            [f"Tensor? {mark}_{n}" for n in names]
            for mark, names in (("d", roles.active_results), ("t", roles.active_inputs))
        )
        own = {"value": [], "tangent": tangents, "backward": grads, "second": [*grads, *tangents]}[kind]
        masked = ["int wanted"] if kind in ("backward", "second") else []
        arguments = ", ".join((*own, self._formulas.layout(kind).schema(), *masked))
        count = len(self._slots(kind))
        results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        library().define(f"{self._name(kind)}({arguments}) -> {results}")
        return getattr(getattr(torch.ops, _NAMESPACE), self._name(kind)).default

    def _register(self, kind: str, operator: Any) -> None:
        name, lib = self._name(kind), library()
        real, fake = self._real(kind), self._fake(kind)
        for key in ("CPU", "CUDA"):
            lib.impl(name, real, key)
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=lib)
        lib.impl(name, autograd_of(name, operator, FORMULAS[kind](self._formulas)), "Autograd")
        torch.library.register_vmap(f"{_NAMESPACE}::{name}", in_sequence(operator, fake), lib=lib)

    def _autocast(self, device: str) -> Callable[..., Any]:
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))

        def autocast(*tensors: Any) -> Any:
            slots = zip(tensors, self._recorded.inputs, strict=True)
            cast = [t.to(getattr(torch, s.dtype)) if t.is_floating_point() else t for t, s in slots]
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return self._operator(*cast)

        return autocast

    # ---- what they do

    def _slots(self, kind: str) -> list[Slot]:
        """Of what an operator returns."""
        roles = self._formulas.roles
        names = {"value": roles.results, "tangent": roles.active_results}.get(kind, roles.active_inputs)
        slots: Any = roles
        return [slots[name] for name in names]

    def _fake(self, kind: str) -> Callable[..., Any]:
        f = self._formulas

        def fake(*args: Any) -> Any:
            _, call = f.call(kind, args)
            tensors: Any = call.tensors
            if kind == "value":
                self._recorded.check([_described(t) for t in tensors])
            wanted = args[-1] if kind in ("backward", "second") else -1  # a mask
            slots = enumerate(self._slots(kind))
            return _one_or_all([_empty(slot, tensors[0], bool(wanted >> k & 1)) for k, slot in slots])

        return fake

    def _real(self, kind: str) -> Callable[..., Any]:
        f, fake, recorded = self._formulas, self._fake(kind), self._recorded

        def real(*args: Any) -> Any:
            made = fake(*args)
            own, call = f.call(kind, args)
            tensors: Any = call.tensors
            given = [_plain(t) for t in own]
            inputs: Any = [_plain(t) for t in tensors]
            results = list(made) if isinstance(made, tuple) else [made]
            stream = _stream(inputs)
            if kind in ("backward", "second"):
                results = [r if args[-1] >> k & 1 else None for k, r in enumerate(results)]
            match kind:
                case "value":
                    recorded.value(inputs, results, stream)
                case "tangent":
                    recorded.tangent(inputs, given, results, stream)
                case "backward":
                    recorded.backward(inputs, given, results, stream)
                case _:
                    count = len(recorded.seeded)
                    recorded.second(inputs, given[:count], given[count:], results, stream)
            return made

        return real


def _plain(tensor: Maybe) -> Maybe:
    return None if tensor is None else tensor.detach().resolve_neg().contiguous()


def _empty(slot: Slot, like: Tensor, is_wanted: bool) -> Tensor:
    device = "cpu" if slot.device is None else f"cuda:{slot.device}"
    return like.new_empty(slot.shape if is_wanted else (0,), dtype=getattr(torch, slot.dtype), device=device)


def _described(tensor: Tensor) -> tuple[tuple[Any, ...], str]:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _stream(tensors: Sequence[Tensor]) -> int | None:
    """On which the inputs on a GPU are, None on the CPU."""
    return next((current_stream(t) for t in tensors if t.is_cuda), None)


def _one_or_all(made: list[Tensor]) -> Any:
    return made[0] if len(made) == 1 else tuple(made)


def program_op(program: Program) -> ProgramOp:
    """Making it again gives the same one."""
    recorded = recorded_of(program)
    with COMPILING:
        if recorded.name not in _made:
            _made[recorded.name] = ProgramOp(recorded)
        return _made[recorded.name]
