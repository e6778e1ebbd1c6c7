"""Which addresses a kernel's parameters want, where a number's own do not do: a `float4` is read at once."""

from __future__ import annotations

from ..ir.types import Pointer
from ..kernel import Kernel
from ..runtime.signature import user_params
from .batches import numbers_in_elements


def alignments(kernel: Kernel) -> dict[str, int]:
    """In bytes, of a `float4 *`, and of a `float *` that is cast to one: gradients cast what belongs to it, too."""
    numbers, casts, found = numbers_in_elements(kernel), kernel.cast_alignments, dict[str, int]()
    for p in user_params(kernel.function):
        if not isinstance(p.type, Pointer):
            continue
        declared, align = p.type.pointee.align, casts.get(p.name, 1)
        if numbers.get(p.called, 1) > 1 or align > declared:
            found[p.called] = max(declared, align)
    return found
