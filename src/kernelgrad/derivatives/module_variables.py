"""`__constant__` and `__device__` variables that a derivative concerns become parameters of the function: those the
user lists, and those through which values flow (rule 13). The launcher passes their addresses, as it does of others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar, cast

from .. import requests
from ..analysis import roots
from ..autodiff.calculus.activity import holds_floats
from ..ir.ops import Function
from ..ir.ops import Module as IRModule
from ..ir.types import Array, Type
from ..kernel import Kernel
from ..runtime.signature import c_name
from ..transforms import globals as variables
from ..transforms import spaces
from .device_function import DeviceFunction, as_kernel

Target = TypeVar("Target", bound=Kernel | DeviceFunction)


def with_variables(target: Target, parameters: requests.Names) -> Target:
    """The target with those variables as parameters, after the user's own."""
    kernel = target.kernel if isinstance(target, DeviceFunction) else target
    names = _concerned(target.function, kernel.module, requests.names("parameters", parameters))
    if not names:
        return target
    function = _promoted(target.function, kernel.module, names)
    is_kernel = isinstance(target, Kernel)
    module = replace(kernel.module, functions={kernel.name: function if is_kernel else as_kernel(function)})
    made = Kernel(kernel.name, module, kernel.variable)
    return cast(Target, made if is_kernel else DeviceFunction(function, made))


def _concerned(function: Function, module: IRModule, listed: Collection[str]) -> list[str]:
    memory = roots.analyse(function)
    written = memory.written()
    return [
        name
        for name, root in memory.global_names.items()
        if module.globals[name].space != "shared"
        and holds_floats(module.globals[name].type)
        and (name in listed or root in written)
    ]


def _promoted(function: Function, module: IRModule, names: list[str]) -> Function:
    """In global memory, also the constants: their shadows are like them, and are written."""
    made = variables.as_params(function, module, names)
    params = tuple(
        replace(p, c_type=f"{_element(module.globals[p.name].type)} *") if p.variable in names else p
        for p in made.params
    )
    return spaces.run(replace(made, params=params), module)


def _element(type: Type) -> str:
    while isinstance(type, Array):
        type = type.element
    return c_name(type)
