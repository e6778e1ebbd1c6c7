"""Registers the operators of a kernel with PyTorch's dispatcher: once for a source and its settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import ArgumentError
from ..frameworks.batches import in_batch, numbers_in_elements
from ..frameworks.derived import Derived, Options
from ..frameworks.roles import Roles, roles_of
from ..frameworks.settings import Fill
from ..kernel import Kernel
from ..locks import COMPILING
from .calls import Call, Layout, Maybe, Tensor
from .eager import Eager
from .formulas import FORMULAS, Formulas, autograd_of
from .launching import Launcher, lending, refuse_recording
from .mapping import rule_of

KINDS = ("value", "tangent", "backward", "second")
_NAMESPACE = "kernelgrad"
_registered: dict[str, Registered] = {}
_library: list[Any] = []


class Registered:
    """The four operators of a kernel. `operator(...)` is the value's."""

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        roles: Roles,
        options: Options,
        fills: Mapping[str, Fill],
        is_batch: bool = False,
    ):
        self.name, self.kernel, self.roles = name, kernel, roles
        self.numbers_in_elements = numbers_in_elements(kernel)
        derived = Derived(kernel, roles, options)
        self.launcher = Launcher(kernel, roles, derived, fills)
        self.operators = operators = dict[str, Any]()
        self.formulas = Formulas(derived, operators)
        self.in_batch = None if is_batch or options.promises is not None else self._in_batch(options, fills)
        for kind in KINDS:
            operators[kind] = self._define(kind)
        self.operator = operators["value"]
        for kind in KINDS:
            self._register(kind, operators[kind])
        self.eager = Eager(self)
        for device in ("CPU", "CUDA"):
            library().impl(name, self._autocast(device), f"Autocast{device}")

    def _in_batch(self, options: Options, fills: Mapping[str, Fill]) -> Registered | None:
        """The operators of all entries of a batch, Note [Batches] in mapping.py."""
        kernel = in_batch(self.kernel)
        if kernel is None:
            return None
        roles = roles_of(kernel, dict.fromkeys(self.roles.outputs))
        return Registered(f"{self.name}_batch", kernel, roles, options, fills, is_batch=True)

    def _name(self, kind: str) -> str:
        return self.name if kind == "value" else f"{self.name}_{kind}"

    def _define(self, kind: str) -> Any:
        library().define(f"{self._name(kind)}{self._schema(kind)}", tags=(torch.Tag.needs_contiguous_strides,))
        return getattr(getattr(torch.ops, _NAMESPACE), self._name(kind)).default

    def _schema(self, kind: str) -> str:
        roles = self.roles
        grads, tangents = (
            [f"Tensor? {mark}_{n}" for n in names]
            for mark, names in (("d", roles.active_results), ("t", roles.active_inputs))
        )
        own = {"value": [], "tangent": tangents, "backward": grads, "second": [*grads, *tangents]}[kind]
        masked = ["int wanted"] if kind in ("backward", "second") else []
        arguments = ", ".join((*own, self.formulas.layout(kind).schema(), *masked))
        count = {"value": roles.results, "tangent": roles.active_results}.get(kind, roles.active_inputs)
        return f"({arguments}) -> {'Tensor' if len(count) == 1 else '(' + ', '.join(['Tensor'] * len(count)) + ')'}"

    def _register(self, kind: str, operator: Any) -> None:
        name, lib = self._name(kind), library()
        for key in ("CPU", "CUDA"):
            lib.impl(name, self._real(kind), key)
        torch.library.register_fake(f"{_NAMESPACE}::{name}", self._fake(kind), lib=lib)
        lib.impl(name, autograd_of(name, operator, FORMULAS[kind](self.formulas)), "Autograd")
        torch.library.register_vmap(f"{_NAMESPACE}::{name}", rule_of(self, kind, operator, self._fake(kind)), lib=lib)

    def _real(self, kind: str) -> Callable[..., Any]:
        f, launcher = self.formulas, self.launcher

        def real(*args: Any) -> Any:
            refuse_recording()
            own, call = f.call(kind, args)
            with torch.no_grad(), lending(launcher.derived.options.tape_bytes):
                match kind:
                    case "value":
                        found = launcher.value(call)
                    case "tangent":
                        found = launcher.tangent(own, call)
                    case "backward":
                        found = launcher.backward(own, call, f.names(args[-1]))
                    case _:
                        results = len(self.roles.active_results)
                        found = launcher.second(own[:results], own[results:], call, f.names(args[-1]))
            return found[0] if len(found) == 1 else found

        return real

    def _fake(self, kind: str) -> Callable[..., Any]:
        f = self.formulas

        def fake(*args: Any) -> Any:
            own, call = f.call(kind, args)
            if kind == "value":
                self._check(call)
            like = next(t for t in (*call.arrays.values(), *own, *call.tensors.values()) if t is not None)
            found = self._shapes(kind, call, f.names(args[-1]) if kind in ("backward", "second") else ())
            made = tuple(
                like.new_empty(shape, dtype=dtype, device=device or like.device) for shape, dtype, device in found
            )
            return made[0] if len(made) == 1 else made

        return fake

    def _shapes(self, kind: str, call: Call, wanted: Sequence[str]) -> list[tuple[Any, torch.dtype, Any]]:
        """Of what an operator returns: shapes, dtypes and devices, None for that of the arrays."""
        dtypes, roles, shapes = self.launcher.dtypes, self.roles, {**call.array_shapes, **call.shapes}
        if kind in ("value", "tangent"):
            names = roles.results if kind == "value" else roles.active_results
            return [(shapes[name], dtypes[name], None) for name in names]
        found: list[tuple[Any, torch.dtype, Any]] = []
        for name in roles.active_inputs:
            tensor = call.tensors.get(name)
            if name not in wanted:
                found.append(((0,), dtypes[name], None))
            elif tensor is not None:
                found.append((tensor.shape, tensor.dtype, tensor.device))
            else:
                found.append((shapes[name], dtypes[name], None))
        return found

    def _check(self, call: Call) -> None:
        """What a launch would refuse, said when a graph is made."""
        for name, array in call.arrays.items():
            if array is not None and array.dtype != self.launcher.dtypes[name]:
                wants, parameter = self.launcher.dtypes[name], self.roles[name]
                place = f"{self.kernel.name}: parameter '{name}' ({parameter.c_type})"
                raise ArgumentError(f"{place} wants a tensor of {wants}, got one of {array.dtype}")
        self._check_devices(call)

    def _check_devices(self, call: Call) -> None:
        """One for all arrays; numbers are fetched from where they are, which must be somewhere."""
        (first, where), *others = [(name, array.device) for name, array in call.arrays.items() if array is not None]
        given = [(name, tensor.device) for name, tensor in call.tensors.items() if tensor is not None]
        others += [(name, device) for name, device in given if "meta" in (device.type, where.type)]
        for name, device in others:
            if device != where:
                problem = f"'{first}' is on {where}, '{name}' on {device}"
                raise ArgumentError(f"{self.kernel.name}: {problem}: bring tensors to one device, as in x.to(...)")

    def _autocast(self, device: str) -> Callable[..., Any]:
        """Under autocast, tensors come as the kernel wants them."""
        layout, dtypes = self.formulas.full, self.launcher.dtypes
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))

        def autocast(*args: Any) -> Any:
            call = layout.unpack(args)
            arrays = {n: _cast(a, dtypes[n]) for n, a in call.arrays.items()}
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return self.operator(*layout.pack(call._replace(arrays=arrays)))

        return autocast


def _cast(tensor: Maybe, dtype: torch.dtype) -> Maybe:
    if tensor is None or not tensor.is_floating_point() or tensor.dtype == dtype:
        return tensor
    return tensor.to(dtype)


def library() -> Any:
    if not _library:
        make: Any = torch.library.Library
        _library.append(make(_NAMESPACE, "FRAGMENT"))
    return _library[0]


def register(kernel: Kernel, roles: Roles, options: Options, fills: Mapping[str, Fill]) -> Registered:
    """The operators, if need be those that were registered before: the same text, roles and settings have one name, in
    every process. Kernels with `__constant__` variables of their own have operators of their own."""
    asked = (kernel.ir, roles.outputs, sorted(fills.items()), options)
    digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
    with COMPILING:
        name = _plain_name(kernel, digest)
        if name not in _registered:
            _registered[name] = Registered(name, kernel, roles, options, fills)
        return _registered[name]


def _plain_name(kernel: Kernel, digest: str) -> str:
    letters = "".join(c if c.isalnum() and c.isascii() else "_" for c in kernel.function.called)
    base = name = f"{letters}_{digest}"
    number = 2
    while kernel._constant_names and name in _registered and _registered[name].kernel is not kernel:
        name, number = f"{base}_{number}", number + 1
    return name


__all__ = ["Layout", "Registered", "Tensor", "register"]
