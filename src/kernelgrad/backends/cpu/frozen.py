"""Note [Blended loads]: a workaround for a miscompilation in LLVM 22.1.

Vectorised, `if (c) { d = p[i]; p[i] = 0; }` with d -0.0 otherwise is a masked load, a masked store and a blend of the
loaded values with -0.0. LLVM makes load and blend one masked load, at the place of the blend: after the store. A value
that was loaded in a branch is therefore frozen before the branches meet: then the blend is not of the load itself.
So is every float that a branch or a loop which stores hands on: a loop that runs once at most is a branch to LLVM, and
`-0.0 + load` is a load.
"""

from __future__ import annotations

from llvmlite import ir

from ...ir.ops import Atomic, Block, Store
from ...ir.traverse import kinds
from . import llvm_types as lt

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
