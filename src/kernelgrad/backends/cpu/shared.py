"""Where a block's shared variables lie in a worker's scratch memory."""

from __future__ import annotations

from ...ir.ops import Function, GlobalRef, Module
from ...ir.traverse import walk
from ...ir.types import Array

SHARED_ALIGN = 16


def shared_layout(module: Module, function: Function, red_zone: int) -> tuple[dict[str, int], list[str], int]:
    """Offsets of the static shared variables the kernel uses, the names of the dynamic ones, and where those start."""
    used = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
    offsets: dict[str, int] = {}
    dynamic: list[str] = []
    end = 0
    for name, variable in module.globals.items():
        if name not in used or variable.space != "shared":
            continue
        if isinstance(variable.type, Array) and variable.type.count == 0:
            dynamic.append(name)
            continue
        offsets[name] = end
        end += -(-variable.type.size // SHARED_ALIGN) * SHARED_ALIGN + red_zone
    return offsets, dynamic, end
