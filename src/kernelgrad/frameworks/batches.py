"""Kernels that do a batch in one launch: one entry for each z of the grid, where the kernel itself leaves that free."""

from __future__ import annotations

from dataclasses import replace

from ..ir.builder import Builder
from ..ir.layout import leaves
from ..ir.ops import Builtin, Function, Offset, Param, Value
from ..ir.traverse import substitute, walk
from ..ir.types import I64, U32, Pointer
from ..kernel import Kernel
from ..runtime.signature import user_params

MOST = 65535  # blocks along z
_PREFIX = "_stride_"


def stride_of(name: str) -> str:
    """The parameter that tells by how many elements the entries of an array are apart: 0 where all have the same. An
    element is what the kernel's pointer points to."""
    return f"{_PREFIX}{name}"


def numbers_in_elements(kernel: Kernel) -> dict[str, int]:
    """How many of an array's numbers are one of its elements: 4 of a `float4 *`."""
    types = {p.called: p.type.pointee for p in user_params(kernel.function) if isinstance(p.type, Pointer)}
    return {name: type.size // next(iter(leaves(type)))[2].size for name, type in types.items()}


def leaves_z_free(function: Function) -> bool:
    """Whether nothing depends on the grid's z."""
    return not any(
        isinstance(op, Builtin) and op.name in ("block_idx", "grid_dim") and op.axis == 2 for op in walk(function.body)
    )


def in_batch(kernel: Kernel) -> Kernel | None:
    """The kernel whose arrays begin where the entry of a block's z does; None where it has a z of its own."""
    function = kernel.function
    params = user_params(function)
    if not leaves_z_free(function) or any(p.called.startswith(_PREFIX) for p in params):
        return None
    build, moved, strides = Builder(function.span), dict[Value, Value](), list[Param]()
    z = build.emit(Builtin, "block_idx", 2, type=U32)
    entry = build.convert(z, I64)
    for param in params:
        if isinstance(param.type, Pointer):
            stride = Value(I64, stride_of(param.called))
            strides.append(Param(stride, "long long"))
            by = build.apply("mul", entry, stride)
            moved[param.value] = build.emit(Offset, param.value, by, type=param.type, name=param.name)
    body = substitute(function.body, moved)
    whole = replace(body, ops=(*build.ops, *body.ops))
    made = replace(function, params=(*params, *strides, *function.params[len(params) :]), body=whole)
    module = replace(kernel.module, functions={**kernel.module.functions, function.name: made})
    return Kernel(kernel.name, module, kernel.variable, kernel.written_later, kernel.refusal)
