"""What a kernel's pointers are cast to: a `float *` that is read as `float4` begins where a `float4` may."""

from __future__ import annotations

from ..ir.ops import Function, Module, PtrCast, Value
from ..ir.traverse import walk
from ..ir.types import Pointer
from ..transforms import inline
from .written import Origin, Trace


def cast_alignments(function: Function, module: Module) -> dict[str, int]:
    """In bytes, by the parameter or the member of one, also where it is a function that is called which casts."""
    function, found = inline.run(function, module), dict[str, int]()
    casts = [(op, _align(op.result)) for op in walk(function.body) if isinstance(op, PtrCast)]
    casts = [(op, align) for op, align in casts if align > _align(op.ptr)]
    trace = Trace(function) if casts else None
    for op, align in casts:
        assert trace is not None
        for root in trace.roots(op.ptr):
            if isinstance(root, Origin):
                found[root.path] = max(found.get(root.path, 1), align)
    return found


def _align(pointer: Value) -> int:
    return pointer.type.pointee.align if isinstance(pointer.type, Pointer) else 1
