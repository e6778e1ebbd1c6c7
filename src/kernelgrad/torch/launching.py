"""What the operators do on real tensors: launches of the kernel and of its derivatives.

Everything here runs below autograd, on new tensors from PyTorch's allocator, on the current stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from ..errors import ArgumentError, UnsupportedError
from ..frameworks.alignments import alignments
from ..frameworks.derived import Derived
from ..frameworks.roles import Roles
from ..frameworks.settings import Fill
from ..ir.ops import Atomic
from ..ir.traverse import walk
from ..ir.types import Scalar
from ..kernel import Kernel
from ..launches.memory.fixed_tape import TAPE_BYTES
from ..runtime.config import Launch, make_launch
from ..runtime.recording import refuse_while_recording
from ..runtime.scratch import LENDER
from .calls import Call, Maybe, Tensor

_STRIDED = torch.strided
TENSORS = (torch.Tensor, torch.nn.Parameter)


def refuse_recording() -> None:
    """Of an operator, or of what PyTorch makes of it: what it launches would be recorded, and what PyTorch computes in
    between would not."""
    refuse_while_recording("an operator of PyTorch, whose results PyTorch keeps the derivatives of,")


class Launcher:
    """`fills`: what outputs hold before the kernel runs, None for nothing in particular."""

    def __init__(self, kernel: Kernel, roles: Roles, derived: Derived, fills: Mapping[str, Fill]):
        self.kernel, self.roles, self.derived, self.fills = kernel, roles, derived, fills
        self.dtypes = {p.name: getattr(torch, p.dtype or "") for p in roles.parameters}
        self._float_outputs = tuple(n for n in roles.outputs if roles[n].floating)
        self._updated = tuple(n for n in roles.updated if roles[n].floating)
        self._order = tuple(p.name for p in roles.parameters)
        self.alignments = alignments(kernel)
        atomics = (op for op in walk(kernel.function.body) if isinstance(op, Atomic))
        self._adds_floats = any(isinstance(t := op.result.type, Scalar) and t.is_float for op in atomics)
        self._versions = dict.fromkeys(kernel._constant_names, -1)
        self.has_conditions = self._adds_floats or bool(self._versions)  # on which it may be refused

    # ---- the four operators

    def value(self, call: Call) -> tuple[Tensor, ...]:
        device = _device(call)
        made = self._outputs(call, device) | {n: _copy(call.arrays[n]) for n in self.roles.updated}
        if launch := self._launch_of(call):
            self.before_value(device)
            arrays = {**{n: self.plain(n, a) for n, a in call.arrays.items()}, **made}
            self.kernel._launch(launch, self._arguments(call, arrays), {})
        return tuple([made[name] for name in self.roles.results])

    def tangent(self, tangents: Sequence[Maybe], call: Call) -> tuple[Tensor, ...]:
        device = _device(call, tangents)
        given = dict(zip(self.roles.active_inputs, tangents, strict=True))
        results = {n: self._zeros(n, call.shapes[n], device) for n in self._float_outputs}
        for name in self._updated:
            results[name] = self._start(name, given[name], call, device)
        if launch := self._launch_of(call):
            self.before_derivative()
            pure = {n: self._like(n, given[n], device) for n in self.roles.pure_inputs}
            everything = results | pure
            ordered = [everything[name] for name in self.derived.listed]
            arguments = self._arguments(call, self._all_arrays(call, device))
            self.derived.tangent._launch(launch, (*arguments, *ordered), {})
        return tuple([results[name] for name in self.roles.active_results])

    def backward(self, grads: Sequence[Maybe], call: Call, wanted: Sequence[str]) -> tuple[Tensor, ...]:
        device = _device(call, grads)
        launch = self._launch_of(call)
        adjoints = self._adjoints(grads, call, wanted, device, torch.empty if launch else torch.zeros)
        if launch:
            self.before_derivative()
            reverse = self.derived.reverse(self.is_deterministic())
            arrays = self._all_arrays(call, device) if reverse.joint else self._read_arrays(call, device)
            arguments = self._arguments(call, arrays)
            ordered = [adjoints.get(name) for name in self.derived.listed]
            reverse.gradient._launch(launch, (*arguments, *ordered), {})
        return self._gradients(adjoints, call, wanted, device)

    def second(
        self, grads: Sequence[Maybe], along: Sequence[Maybe], call: Call, wanted: Sequence[str]
    ) -> tuple[Tensor, ...]:
        """The tangents of the backward's results along tangents of the inputs."""
        device, roles, listed = _device(call, (*grads, *along)), self.roles, self.derived.listed
        found = {name: self._wide(self._start(name, None, call, device)) for name in listed}
        if launch := self._launch_of(call):
            self.before_derivative()
            seeds = dict(zip(roles.active_results, grads, strict=True))
            moved = dict(zip(roles.active_inputs, along, strict=True))
            adjoints = [self._wide(self._start(name, seeds.get(name), call, device)) for name in listed]
            tangents = [self._start(name, moved.get(name), call, device) for name in listed]
            arguments = self._arguments(call, self._all_arrays(call, device))
            order = (*arguments, *adjoints, *tangents, *found.values())
            self.derived.second._launch(launch, order, {})
        narrow = {name: gradient.to(self.dtypes[name]) for name, gradient in found.items()}
        return self._gradients(narrow, call, wanted, device)

    def check_layout(self, name: str, array: Tensor) -> None:
        if array.layout is not _STRIDED:
            place = f"{self.kernel.name}: parameter '{name}' ({self.roles[name].c_type})"
            raise ArgumentError(f"{place} wants a dense tensor, got one of {array.layout}: pass x.to_dense()")

    def plain(self, name: str, tensor: Maybe) -> Maybe:
        """As a parameter wants it: as `plain` has it, and where a `float4` may lie."""
        found = plain(tensor)
        align = self.alignments.get(name)
        return _copy(found) if align and found is not None and found.data_ptr() % align else found

    def _launch_of(self, call: Call) -> Launch | None:
        return make_launch_of(tuple(call.launch), self.kernel.name)

    # ---- arguments

    def _arguments(self, call: Call, arrays: Mapping[str, Maybe]) -> tuple[Any, ...]:
        """In the kernel's order."""
        numbers = {n: call.numbers[n] if t is None else t.item() for n, t in call.tensors.items()}
        everything = {**arrays, **numbers, **call.integers}
        return tuple([everything[name] for name in self._order])

    def _outputs(self, call: Call, device: Any) -> dict[str, Tensor]:
        made: dict[str, Tensor] = {}
        for name in self.roles.outputs:
            fill, shape, kind = self.fills[name], call.shapes[name], {"dtype": self.dtypes[name], "device": device}
            made[name] = torch.empty(shape, **kind) if fill is None else torch.full(shape, fill, **kind)
        return made

    def _all_arrays(self, call: Call, device: Any) -> dict[str, Maybe]:
        """For what runs the kernel again: zeros for arrays that no derivative reads, copies of what is written."""
        arrays: dict[str, Maybe] = {}
        for name, given in call.arrays.items():
            missing = given is None
            array = self._zeros(name, call.array_shapes[name], device) if missing else self.plain(name, given)
            arrays[name] = _copy(array) if name in self.roles.updated and not missing else array
        return {**arrays, **self._outputs(call, device)}

    def _read_arrays(self, call: Call, device: Any) -> dict[str, Maybe]:
        """For the reverse alone, which writes none: what it does not read is null."""
        arrays = {name: self.plain(name, given) for name, given in call.arrays.items()}
        outputs: dict[str, Maybe] = dict.fromkeys(self.roles.outputs)
        if any(self.roles[name].read for name in outputs):
            outputs |= {n: a for n, a in self._outputs(call, device).items() if self.roles[n].read}
        return self.apart(arrays | outputs)

    def apart(self, arrays: dict[str, Maybe]) -> dict[str, Maybe]:
        """With copies of what the kernel updates and somebody passed as another argument too: when the kernel ran, that
        was a copy."""
        for name in self.roles.updated:
            own = arrays[name]
            others = [other for key, other in arrays.items() if key != name]
            if own is not None and any(_share_memory(own, other) for other in others if other is not None):
                arrays[name] = _copy(own)
        return arrays

    def _adjoints(
        self, grads: Sequence[Maybe], call: Call, wanted: Sequence[str], device: Any, make: Any
    ) -> dict[str, Maybe]:
        """Of each parameter: what the gradient starts from, None where nothing is wanted."""
        roles = self.roles
        seeds = dict(zip(roles.active_results, grads, strict=True))
        found: dict[str, Maybe] = {}
        for name, seed in seeds.items():
            if seed is None:
                needed = name in roles.updated and name in wanted
                found[name] = self._zeros(name, self.shape_of(name, call), device) if needed else None
            else:
                found[name] = self.plain(name, seed) if name in roles.pure_outputs else _copy(seed)
        for name in roles.pure_inputs:
            if name in wanted:
                found[name] = make(self.shape_of(name, call), dtype=self.dtypes[name], device=device)
        return found

    def _gradients(
        self, found: Mapping[str, Maybe], call: Call, wanted: Sequence[str], device: Any
    ) -> tuple[Tensor, ...]:
        """One for each input that can have one, without elements where it is not wanted. A number's has the form of its
        tensor."""
        gradients = []
        for name in self.roles.active_inputs:
            gradient = found.get(name) if name in wanted else None
            if gradient is None:
                gradients.append(torch.empty(0, dtype=self.dtypes[name], device=device))
            elif name in call.tensors and (like := call.tensors[name]) is not None:
                gradients.append(gradient.reshape(like.shape).to(like.device, like.dtype))
            else:
                gradients.append(gradient)
        return tuple(gradients)

    def shape_of(self, name: str, call: Call) -> Sequence[int]:
        return (1,) if name in call.numbers else (call.shapes.get(name) or call.array_shapes.get(name) or ())

    def _zeros(self, name: str, shape: Sequence[int], device: Any) -> Tensor:
        return torch.zeros(shape, dtype=self.dtypes[name], device=device)

    def _start(self, name: str, given: Maybe, call: Call, device: Any) -> Tensor:
        """A copy that a kernel may write to, zeros where nothing is given."""
        if given is None:
            return self._zeros(name, self.shape_of(name, call), device)
        return _copy(self._like(name, given, device))

    def _like(self, name: str, given: Maybe, device: Any) -> Maybe:
        if given is None or name not in self.roles.numbers:
            return self.plain(name, given)
        return given.to(device, self.dtypes[name]).reshape(1)

    @staticmethod
    def _wide(adjoint: Tensor) -> Tensor:
        """Inside gradients, adjoints in half precision are floats."""
        return adjoint.float() if adjoint.dtype in (torch.float16, torch.bfloat16) else adjoint

    # ---- what holds at the time of a launch

    def is_deterministic(self) -> bool:
        asked = self.derived.options.deterministic
        return torch.are_deterministic_algorithms_enabled() if asked is None else asked

    def _alert(self, device: Any) -> None:
        """As PyTorch does where it is asked for deterministic algorithms and there is none."""
        if device.type != "cpu" and torch.are_deterministic_algorithms_enabled():
            problem = f"{self.kernel.name} adds floating-point numbers with atomics, in no fixed order"
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise RuntimeError(f"{problem}, and torch.use_deterministic_algorithms(True) is set")
            warnings.warn(problem, stacklevel=2)

    def before_value(self, device: Any) -> None:
        self.before_derivative()
        if self._adds_floats:
            self._alert(device)

    def before_derivative(self) -> None:
        """A backward must find what its forward found. PyTorch does not know of `__constant__` variables."""
        for name, seen in self._versions.items():
            version = self.kernel.variable(name).version
            if seen not in (-1, version):
                reason = f"the variable '{name}' changed after the first launch of {self.kernel.name} as an operator"
                raise UnsupportedError(reason, self.kernel.function.span, "pass what changes as a parameter")
            self._versions[name] = version


def lend(nbytes: int, device: int | None, stream: int) -> tuple[int, Any]:
    """Memory of PyTorch's allocator, which gives it to others on the same stream when it is freed: in stream order."""
    where = torch.device("cpu") if device is None else torch.device("cuda", device)
    memory = torch.empty(nbytes, dtype=torch.uint8, device=where)
    return memory.data_ptr(), memory


@contextmanager
def lending(tape_bytes: int | None = None) -> Iterator[None]:
    """Tapes and other memory of launches come from PyTorch's allocator. `tape_bytes`: what the user gives for tapes."""
    token, given = LENDER.set(lend), TAPE_BYTES.set(tape_bytes)
    try:
        yield
    finally:
        LENDER.reset(token)
        TAPE_BYTES.reset(given)


def _device(call: Call, others: Sequence[Maybe] = ()) -> Any:
    return next(t.device for t in (*call.arrays.values(), *others, *call.tensors.values()) if t is not None)


def plain(tensor: Maybe) -> Maybe:
    """Dense and contiguous, in memory: without lazy negation, and no zeros of which there is none."""
    return tensor if tensor is None or is_plain_memory(tensor) else in_memory(tensor)


def is_plain_memory(tensor: Tensor) -> bool:
    strided = tensor.layout is _STRIDED and tensor.is_contiguous()
    return strided and not tensor.is_neg() and not tensor._is_zerotensor()


def in_memory(tensor: Tensor) -> Tensor:
    if tensor.layout is not _STRIDED:
        tensor = tensor.to_dense()
    return torch.zeros_like(tensor) if tensor._is_zerotensor() else tensor.resolve_neg().contiguous()


def _copy(tensor: Maybe) -> Tensor:
    assert tensor is not None
    return tensor.clone(memory_format=torch.contiguous_format)


def _share_memory(one: Tensor, other: Tensor) -> bool:
    first, last = sorted([one, other], key=lambda t: t.data_ptr())
    return bool(last.data_ptr() < first.data_ptr() + first.nbytes and last.nbytes)


@lru_cache(256)
def make_launch_of(numbers: tuple[int, ...], of: str) -> Launch | None:
    """None where there are no threads: the extent of an empty tensor. `of`: the kernel's name, for errors."""
    if 0 in numbers[:3]:
        return None
    return make_launch(numbers[:3], numbers[3:6], numbers[6], of=of)
