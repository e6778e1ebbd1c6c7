"""Workarounds for miscompilations in LLVM 22.1.

Note [Masked indices]
The loop vectoriser takes `base + ((i + 1) & 31)` for consecutive addresses where `base` is a multiple of 32, and reads
past the wrap (as blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x does in blocks of 32). Values that are masked
to a power of two and go into an address are therefore passed through an empty piece of assembly, which it cannot look
into; such loops are not vectorised. `tests/backends/cpu/test_masked.py` has the kernel.

Note [Addresses that meet]
In `if (j == 0 || f[j + t] == 0) s[t] = x[j + t]`, partial redundancy elimination has the address come from either side
of the `||`: x + t, since j is 0 there, or the one that f[j + t] computed. So may the source: `at = t; go = true; if (j)
{ at = j + t; go = f[at] == 0; } if (go) s[t] = x[at];`. To scalar evolution such a choice is a maximum, so consecutive.
Where the loop vectoriser blends what is, it asks the first lane alone which it is: if that one's f is not 0, all lanes
read x + t, whatever j is. So that elimination is off (`codegen`), and code in which the first lane of a mask, or of
what a mask chose, still makes a number or an address is compiled again without vectors: few kernels in a hundred.
`tests/backends/cpu/test_addresses_that_meet.py` has such kernels.

Note [Blended loads]
Vectorised, `if (c) { d = p[i]; p[i] = 0; }` with d -0.0 otherwise is a masked load, a masked store and a blend of the
loaded values with -0.0. LLVM makes load and blend one masked load, at the place of the blend: after the store. A value
that was loaded in a branch is therefore frozen before the branches meet: then the blend is not of the load itself.
So is every float that a branch or a loop which stores hands on: a loop that runs once at most is a branch to LLVM, and
`-0.0 + load` is a load.
"""

from __future__ import annotations

from llvmlite import ir

from ...ir.ops import Apply, Atomic, Block, Function, Offset, Store, Value
from ...ir.traverse import kinds, walk
from ...ir.types import Scalar
from . import llvm_types as lt

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


# ---- values that meet -----------------------------------------------------------------------------------------------


_LOADED = (ir.LoadInstr, ir.InsertValue)


class _Freeze(ir.Instruction):  # type: ignore[misc]
    """llvmlite has no call for it."""

    def __init__(self, parent: ir.Block, value: ir.Value):
        super().__init__(parent, value.type, "freeze", [value])

    def descr(self, buf: list[str]) -> None:
        (value,) = self.operands
        buf.append(f"freeze {value.type} {value.get_reference()}\n")


def settled(b: ir.IRBuilder, values: list[ir.Value], region: Block) -> list[ir.Value]:
    """What a branch or a loop's body hands on, fit to meet what comes another way."""
    stores = not kinds(region).isdisjoint((Store, Atomic))
    return [_frozen(b, v) if isinstance(v, _LOADED) or (stores and _is_computed_float(v)) else v for v in values]


def _is_computed_float(value: ir.Value) -> bool:
    return isinstance(value, ir.Instruction) and value.type in (lt.F32, lt.F64)


def _frozen(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    freeze = _Freeze(b.block, value)
    b._insert(freeze)
    return freeze
