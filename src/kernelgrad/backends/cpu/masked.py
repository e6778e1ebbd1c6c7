"""Note [Masked indices]: a workaround for a miscompilation in LLVM 22.1.

The loop vectoriser takes `base + ((i + 1) & 31)` for consecutive addresses where `base` is a multiple of 32, and reads
past the wrap (as blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x does in blocks of 32). Values that are masked
to a power of two and go into an address are therefore passed through an empty piece of assembly, which it cannot look
into; such loops are not vectorised. `tests/backends/cpu/test_masked.py` has the kernel.
"""

from __future__ import annotations

from llvmlite import ir

from ...ir.ops import Apply, Function, Offset, Value
from ...ir.traverse import walk
from ...ir.types import Scalar

_MASKING = ("rem", "and", "convert", "shr")


def address_parts(function: Function) -> frozenset[Value]:
    """Values that some index is computed from."""
    definitions = {op.result: op for op in walk(function.body) if isinstance(op, Apply)}
    todo = [op.index for op in walk(function.body) if isinstance(op, Offset)]
    found: set[Value] = set()
    while todo:
        value = todo.pop()
        if value not in found:
            found.add(value)
            if value in definitions:
                todo += definitions[value].args
    return frozenset(found)


def masks(op: Apply, args: tuple[ir.Value, ...]) -> bool:
    """Whether the operation wraps its value at a power of two that is known now."""
    if op.fn not in _MASKING:
        return False
    if op.fn == "convert":
        source, target = op.args[0].type, op.result.type
        if not (isinstance(source, Scalar) and isinstance(target, Scalar)) or source.is_float or target.is_float:
            return False
        return target.bits < min(32, source.bits)
    by = args if op.fn == "and" else args[1:]  # 128 >> k wraps nothing
    return any(isinstance(arg, ir.Constant) for arg in by)


def opaque(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    kind = ir.FunctionType(value.type, [value.type])
    return b.asm(kind, "", "=r,0", [value], side_effect=False)
