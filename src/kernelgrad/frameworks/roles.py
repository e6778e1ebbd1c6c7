"""Which of a kernel's parameters an operator takes, and which it returns.

A kernel writes into arrays that it is given; an operator takes values and returns new ones. So an array that is
written is either an output, which the operator makes (`outputs` tells its shape), or is updated: the operator takes
it, works on a copy and returns that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..analysis.roots import analyse
from ..errors import ArgumentError, UnsupportedError
from ..ir.types import Array, Struct
from ..kernel import Kernel
from ..locks import cached_property
from ..runtime.parameters import Parameter
from ..runtime.signature import c_signature, user_params

_NUMBERS = {"f": "number", "b": "flag", "i": "integer", "u": "integer"}


@dataclass(frozen=True)
class Roles:
    """`arrays`: those that go in; `outputs`: those that are made; `updated`: those that go in and come out anew.
    `numbers`: floating-point parameters; `integers`: the other ones, bools too. Names are in the kernel's order, but
    for `outputs`, which are in the user's."""

    parameters: tuple[Parameter, ...]
    arrays: tuple[str, ...]
    outputs: tuple[str, ...]
    updated: tuple[str, ...]
    numbers: tuple[str, ...]
    integers: tuple[str, ...]

    @cached_property
    def results(self) -> tuple[str, ...]:
        """What the operator returns."""
        return (*self.outputs, *self.updated)

    @cached_property
    def active_inputs(self) -> tuple[str, ...]:
        """What goes in and can have an adjoint, numbers last."""
        return (*(n for n in self.arrays if self[n].floating), *self.numbers)

    @cached_property
    def active_results(self) -> tuple[str, ...]:
        return tuple(n for n in self.results if self[n].floating)

    @cached_property
    def pure_inputs(self) -> tuple[str, ...]:
        """What has an adjoint and is only read."""
        return tuple(n for n in self.active_inputs if n not in self.updated)

    @cached_property
    def pure_outputs(self) -> tuple[str, ...]:
        """Outputs with an adjoint whose first contents nobody reads."""
        return tuple(n for n in self.outputs if self[n].floating and not self[n].read)

    def __getitem__(self, name: str) -> Parameter:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}


def roles_of(kernel: Kernel, outputs: Mapping[str, Any]) -> Roles:
    """The roles of a kernel's parameters where these are the outputs; an error for what no operator can be made of."""
    parameters = kernel.parameters
    _check(kernel, parameters)
    written = [p.name for p in parameters if p.written]
    for name in outputs:
        if name not in written:
            problem = "is no array that the kernel writes" if _has(parameters, name) else "is no parameter"
            raise ArgumentError(f"outputs: '{name}' {problem}\n  {c_signature(kernel.function)}")
    if not written:
        raise ArgumentError(f"{kernel.name} writes nothing that could be returned\n  {c_signature(kernel.function)}")
    arrays = tuple(p.name for p in parameters if p.pointer and p.name not in outputs)
    numbers = tuple(p.name for p in parameters if not p.pointer and p.floating)
    integers = tuple(p.name for p in parameters if not p.pointer and not p.floating)
    updated = tuple(n for n in written if n not in outputs)
    return Roles(parameters, arrays, tuple(outputs), updated, numbers, integers)


def _has(parameters: tuple[Parameter, ...], name: str) -> bool:
    return any(p.name == name for p in parameters)


def _check(kernel: Kernel, parameters: tuple[Parameter, ...]) -> None:
    function = kernel.function
    if len({p.name for p in parameters}) != len(parameters):
        raise ArgumentError(f"{kernel.name}: an operator's parameters need names\n  {c_signature(function)}")
    for parameter, param in zip(parameters, user_params(function), strict=True):
        if isinstance(param.type, Struct | Array) or parameter.dtype is None:
            reason = f"parameter '{parameter.name}' ({parameter.c_type}) of {kernel.name} has no place in an operator"
            raise UnsupportedError(reason, function.span, "pass arrays of numbers, and numbers by themselves")
    written = analyse(function)
    for name, root in written.global_names.items():
        space = kernel.module.globals[name].space
        if space == "global":
            did = "writes" if root in written.written() else "reads"
            reason = f"{kernel.name} {did} the variable '{name}', which an operator's derivatives could not follow"
            raise UnsupportedError(reason, function.span, "pass it as a parameter")
