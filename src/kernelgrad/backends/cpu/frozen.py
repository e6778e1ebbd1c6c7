"""Note [Blended loads]: a workaround for a miscompilation in LLVM 22.1.

Vectorised, `if (c) { d = p[i]; p[i] = 0; }` with d -0.0 otherwise is a masked load, a masked store and a blend of the
loaded values with -0.0. LLVM makes load and blend one masked load, at the place of the blend: after the store. A value
that was loaded in a branch is therefore frozen before the branches meet: then the blend is not of the load itself.
"""

from __future__ import annotations

from llvmlite import ir

_LOADED = (ir.LoadInstr, ir.InsertValue)


class _Freeze(ir.Instruction):  # type: ignore[misc]
    """llvmlite has no call for it."""

    def __init__(self, parent: ir.Block, value: ir.Value):
        super().__init__(parent, value.type, "freeze", [value])

    def descr(self, buf: list[str]) -> None:
        (value,) = self.operands
        buf.append(f"freeze {value.type} {value.get_reference()}\n")


def frozen(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The value of a branch, fit to meet the other branch's."""
    if not isinstance(value, _LOADED):
        return value
    freeze = _Freeze(b.block, value)
    b._insert(freeze)
    return freeze
