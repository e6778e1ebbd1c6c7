"""Which addresses a kernel's parameters want, where a number's own do not do: a `float4` is read at once."""

from __future__ import annotations

from ..ir.ops import PtrCast
from ..ir.traverse import walk
from ..ir.types import Pointer
from ..kernel import Kernel
from ..runtime.signature import user_params
from ..runtime.written import Origin, Trace
from ..transforms import inline
from .batches import numbers_in_elements


def alignments(kernel: Kernel) -> dict[str, int]:
    """In bytes, of a `float4 *`, and of a `float *` that is cast to one: gradients cast what belongs to it, too."""
    numbers, pointers = numbers_in_elements(kernel), [p for p in user_params(kernel.function) if _points(p.type)]
    found = {p.called: _align(p.type) for p in pointers if numbers.get(p.called, 1) > 1}
    for name, align in _of_casts(kernel).items():
        called = next((p.called for p in pointers if p.name == name and align > _align(p.type)), None)
        if called is not None:
            found[called] = max(found.get(called, 1), align)
    return found


def _of_casts(kernel: Kernel) -> dict[str, int]:
    """What parameters are cast to wants at most, also in functions that are called."""
    function, found = inline.run(kernel.function, kernel.module), dict[str, int]()
    casts = [op for op in walk(function.body) if isinstance(op, PtrCast) and _points(op.result.type)]
    trace = Trace(function) if casts else None
    for op in casts:
        assert trace is not None
        for root in trace.roots(op.ptr):
            if isinstance(root, Origin):
                found[root.path] = max(found.get(root.path, 1), _align(op.result.type))
    return found


def _points(type: object) -> bool:
    return isinstance(type, Pointer)


def _align(type: object) -> int:
    assert isinstance(type, Pointer)
    return type.pointee.align
