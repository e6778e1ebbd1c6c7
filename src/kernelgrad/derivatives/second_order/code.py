"""The code of a second derivative: forward mode of a gradient, its parameters in the order and under the names that
the user knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from ...ir.ops import Function, Param, Value
from ...ir.traverse import clone
from ...kernel import Kernel
from ..jvp import Code

Role = Literal["adjoint", "tangent", "second"]  # q, v and p of Note [Second order]


class Slot(NamedTuple):
    """An argument after the kernel's own. `of`: the kernel's parameter. `name`: what the user calls it. `owner`: what
    the user takes it to belong to. `spared`: it is read, and left as it is. `cleared`: it starts at zero."""

    role: Role
    of: str
    name: str
    owner: str
    spared: bool = False
    cleared: bool = False


class SecondCode:
    """`order`: the slots in the order of the arguments, last those for adjoints that are not the user's but zeros.
    `names`: their parameters. `tangent_of`: by an adjoint's parameter in the gradient, that of its tangent."""

    def __init__(self, gradient: Kernel, adjoints: Mapping[str, Param], slots: tuple[Slot, ...], suffix: str):
        """`gradient`: its only kernel. `adjoints`: by the kernel's parameters, those of the gradient."""
        inside = {s: s.of if s.role == "tangent" else adjoints[s.of].name for s in slots}
        self.gradient = gradient  # stays, so that its id does
        self.tangent = Code(gradient, tuple(name for s, name in inside.items() if s.role != "adjoint"))
        placed = {s: name if s.role == "adjoint" else self.tangent.given[name] for s, name in inside.items()}
        params = {p.name for p in self.tangent.kernel.function.params}
        zeros = {
            Slot("adjoint", of, p.called, of): p.name
            for of, p in adjoints.items()
            if p.name in params and p.name not in placed.values()
        }
        self.order, self.zeros = (*placed, *zeros), tuple(zeros)
        named = _Names(self.tangent.kernel.function, {**placed, **zeros})
        self.kernel = named.kernel(self.tangent.kernel, suffix)
        self.names = {slot: named.new[name] for slot, name in {**placed, **zeros}.items()}
        self.tangent_of = {inside[s]: self.names[s] for s in slots if s.role == "second"}


class _Names:
    """New names for the parameters that slots are for."""

    def __init__(self, function: Function, placed: Mapping[Slot, str]):
        self.function, self.placed = function, placed
        taken = {p.name for p in function.params if p.name not in placed.values()}
        self.new: dict[str, str] = {}
        for slot, name in placed.items():
            self.new[name] = fresh(_text_name(slot), taken)
            taken.add(self.new[name])

    def kernel(self, kernel: Kernel, suffix: str) -> Kernel:
        slots, values = {name: slot for slot, name in self.placed.items()}, dict[Value, Value]()
        params: dict[str, Param] = {}
        for param in self.function.params:
            params[param.name] = param
            if param.name in slots:
                values[param.value] = value = Value(param.type, self.new[param.name])
                params[param.name] = replace(param, value=value, shown=slots[param.name].name)
        own = (p for n, p in params.items() if n not in slots and p.variable is None)
        variables = (p for n, p in params.items() if n not in slots and p.variable is not None)
        ordered = (*own, *(params[name] for name in self.placed.values()), *variables)
        name, body = f"{self.function.called}{suffix}", clone(self.function.body, values)
        made = replace(self.function, name=name, params=ordered, body=body)
        return Kernel(name, replace(kernel.module, functions={name: made}), kernel.variable)


def _text_name(slot: Slot) -> str:
    """Adjoints are `_d_x` in CUDA C++: few kernels have such names of their own."""
    return f"_{slot.name}" if slot.name.startswith("d") else slot.name


def fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name
