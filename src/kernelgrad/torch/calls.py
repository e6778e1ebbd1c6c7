"""The arguments of the registered operators: their order, and their schemas.

Four operators belong to a kernel (Note [Second derivatives of operators] in frameworks/derived.py). Each takes its own
tensors first, then what describes the launch, which is the same for all four:

- an array of each input; but for the value, it or None, and its shape: a derivative is given what it reads
- of each floating-point number a tensor or None, and a float which counts where it is None
- each integer
- the shape of each output, and the launch: grid, block, bytes of shared memory
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from ..frameworks.roles import Roles

Tensor: TypeAlias = torch.Tensor
Maybe: TypeAlias = torch.Tensor | None


class Call(NamedTuple):
    """The arguments that describe a launch, by name."""

    arrays: dict[str, Maybe]
    array_shapes: dict[str, Sequence[int]]
    tensors: dict[str, Maybe]  # of numbers
    numbers: dict[str, float]
    integers: dict[str, int]
    shapes: dict[str, Sequence[int]]  # of outputs
    launch: Sequence[int]

    def given(self, name: str) -> Maybe:
        return self.arrays[name] if name in self.arrays else self.tensors[name]

    def tensors_of(self, kept: Iterable[str] | None = None) -> list[Maybe]:
        """All tensors; of the arrays only those kept."""
        arrays = [a if kept is None or name in kept else None for name, a in self.arrays.items()]
        return [*arrays, *self.tensors.values()]

    def with_tensors(self, tensors: Sequence[Maybe]) -> Call:
        count = len(self.arrays)
        arrays = dict(zip(self.arrays, tensors[:count], strict=True))
        return self._replace(arrays=arrays, tensors=dict(zip(self.tensors, tensors[count:], strict=True)))

    def without_tensors(self) -> Call:
        return self._replace(arrays=dict.fromkeys(self.arrays), tensors=dict.fromkeys(self.tensors))


class Layout:
    """Where the arguments of a launch are in an operator's list. `partial`: arrays may be missing."""

    def __init__(self, roles: Roles, partial: bool):
        self.roles, self.partial = roles, partial
        self.per_array = 2 if partial else 1
        self.count = self.per_array * len(roles.arrays) + 2 * len(roles.numbers)
        self.count += len(roles.integers) + len(roles.outputs) + 1

    def schema(self) -> str:
        roles = self.roles
        array = "Tensor? {0}_, SymInt[] {0}_shape" if self.partial else "Tensor {0}_"
        parts = [array.format(name) for name in roles.arrays]
        parts += [f"Tensor? {name}_, float {name}_value" for name in roles.numbers]
        parts += [f"{'bool' if roles[name].dtype == 'bool' else 'SymInt'} {name}_" for name in roles.integers]
        parts += [f"SymInt[] {name}_shape" for name in roles.outputs]
        return ", ".join((*parts, "SymInt[] launch"))

    def unpack(self, args: Sequence[Any]) -> Call:
        roles, rest = self.roles, iter(args)
        arrays: dict[str, Maybe] = {}
        array_shapes: dict[str, Sequence[int]] = {}
        for name in roles.arrays:
            arrays[name] = tensor = next(rest)
            array_shapes[name] = next(rest) if self.partial else list(tensor.shape)
        tensors: dict[str, Maybe] = {}
        numbers: dict[str, float] = {}
        for name in roles.numbers:
            tensors[name], numbers[name] = next(rest), next(rest)
        integers = {name: next(rest) for name in roles.integers}
        shapes = {name: next(rest) for name in roles.outputs}
        return Call(arrays, array_shapes, tensors, numbers, integers, shapes, next(rest))

    def pack(self, call: Call) -> list[Any]:
        packed: list[Any] = []
        for name, array in call.arrays.items():
            packed += [array, call.array_shapes[name]] if self.partial else [array]
        for name, tensor in call.tensors.items():
            packed += [tensor, call.numbers[name]]
        return [*packed, *call.integers.values(), *call.shapes.values(), call.launch]

    def place(self, name: str) -> int:
        """Which argument an input's tensor is."""
        if name in self.roles.arrays:
            return self.roles.arrays.index(name) * self.per_array
        return len(self.roles.arrays) * self.per_array + 2 * self.roles.numbers.index(name)
