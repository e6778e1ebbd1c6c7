"""What a user says when an operator is made, checked at once: operators of all packages take the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import requests
from ..derivatives.asked.promises import check_promises
from ..errors import ArgumentError
from ..kernel import Kernel
from ..runtime.config import make_launch
from ..runtime.signature import c_signature
from .asked import Extent, Inferred, Shape, extents, infer, is_integer
from .derived import Options
from .roles import Roles, roles_of

Fill = float | int | None


class Settled(NamedTuple):
    """`fills`: what outputs hold before the kernel runs."""

    roles: Roles
    outputs: dict[str, Shape]
    sizes: dict[str, Any]
    fills: dict[str, Fill]
    extent: Inferred


def settle(kernel: Kernel, outputs: Any, grid: Extent, block: Extent, shared: Extent, sizes: Any, fill: Any) -> Settled:
    made: dict[str, Shape] = _by_name("outputs", outputs, '{"y": "x"}')
    told = _by_name("sizes", sizes, '{"n": lambda x, **_: x.shape[0]}')
    roles = roles_of(kernel, made)
    _check_shapes(kernel, roles, made, told)
    fills = _fills(kernel, roles, made, _by_name("fill", fill, '{"y": 1.0}'))
    blocks, threads = (1 if given is None or callable(given) else given for given in (grid, block))
    make_launch(blocks, threads, 0 if callable(shared) else shared, of=kernel.name)
    extent = infer(kernel, roles, told)
    if grid is None and extent.size is None:
        raise ArgumentError(f"{kernel.name}: how many blocks there are does not follow from its text: give grid=...")
    return Settled(roles, made, told, fills, extent)


def options_of(
    kernel: Kernel,
    deterministic: Any,
    tape_budget: Any,
    tape_bytes: Any,
    assume: Any,
    report_nan: Any,
) -> Options:
    if deterministic is not None:
        requests.flags(deterministic=deterministic)
        deterministic = bool(deterministic)
    requests.flags(report_nan=report_nan)
    if assume is not None:
        check_promises(kernel.function, assume)
    budget, room = requests.memory_size("tape_budget", tape_budget), requests.memory_size("tape_bytes", tape_bytes)
    return Options(deterministic, budget, assume, report_nan, room)


def _by_name(what: str, given: Any, example: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise requests.wrong(what, f"a dict, as in {example}", given)
    return dict(given)


def _check_shapes(kernel: Kernel, roles: Roles, outputs: Mapping[str, Shape], sizes: Mapping[str, Any]) -> None:
    signature = c_signature(kernel.function)
    if not roles.arrays:
        raise ArgumentError(f"{kernel.name}: an operator takes at least one array\n  {signature}")
    for name, shape in outputs.items():
        if isinstance(shape, str) and shape not in roles.arrays:
            raise ArgumentError(
                f"outputs: '{name}' cannot be like '{shape}', which is no array that goes in\n  {signature}"
            )
        if not callable(shape) and not isinstance(shape, str):
            extents(f"outputs: the shape of '{name}'", shape)
    for name, size in sizes.items():
        if name not in roles.integers:
            raise ArgumentError(f"sizes: '{name}' is no integer parameter\n  {signature}")
        if not callable(size) and not is_integer(size):
            raise requests.wrong(f"sizes: '{name}'", "an integer or a function of the arguments", size)


def _fills(kernel: Kernel, roles: Roles, outputs: Mapping[str, Any], fill: Mapping[str, Any]) -> dict[str, Fill]:
    for name, value in fill.items():
        if name not in outputs:
            why = "it is updated, and goes in" if name in roles.updated else f"those are {', '.join(outputs) or 'none'}"
            raise ArgumentError(f"fill: '{name}' is no output: {why}\n  {c_signature(kernel.function)}")
        if value is not None and not _fits(roles[name].dtype or "", value):
            raise requests.wrong(f"fill: '{name}' ({roles[name].c_type})", "a number that it can hold, or None", value)
    return {name: fill.get(name, 0) for name in outputs}


def _fits(dtype: str, value: Any) -> bool:
    if isinstance(value, complex | str) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return False
    if dtype.startswith(("float", "bfloat")):
        return True
    if not float(value).is_integer():
        return False
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(limits[0] <= value <= limits[1])
