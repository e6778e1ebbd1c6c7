"""Kernels whose numbers lie in memory: a launch on a GPU takes numbers from the host, and one that a device has just
computed would have to be waited for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir.ops import Load, Op, Param, Value
from ..ir.types import Pointer
from ..kernel import Kernel


def by_pointer(kernel: Kernel, names: Collection[str]) -> Kernel:
    """The kernel with pointers in the place of these numbers, which each thread loads before all else."""
    function, loads, params = kernel.function, list[Op](), list[Param]()
    for param in function.params:
        if param.called not in names:
            params.append(param)
            continue
        pointer = Value(Pointer(param.type, "global"), param.name)
        c_type = f"const {param.c_type.removeprefix('const ')} *"
        params.append(replace(param, value=pointer, c_type=c_type, const=True, restrict=True))
        loads.append(Load(pointer, results=(param.value,), span=function.span))
    body = replace(function.body, ops=(*loads, *function.body.ops))
    made = replace(function, params=tuple(params), body=body)
    module = replace(kernel.module, functions={**kernel.module.functions, function.name: made})
    return Kernel(kernel.name, module, kernel.variable, kernel.written_later, kernel.refusal)
