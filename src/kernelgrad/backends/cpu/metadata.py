"""LLVM metadata that llvmlite has no call for: distinct nodes, and what they say about loops."""

from __future__ import annotations

from typing import Any

from llvmlite import ir


class _Distinct(ir.MDValue):  # type: ignore[misc]
    """A node that is equal only to itself; `loop` nodes name themselves first, as LLVM wants of a loop's id."""

    def __init__(self, module: ir.Module, operands: list[Any], loop: bool):
        super().__init__(module, operands, name=str(len(module.metadata)))
        self.loop = loop

    def descr(self, buf: list[str]) -> None:
        inner: list[str] = []
        super().descr(inner)
        text = "".join(inner).strip().removeprefix("!{").removesuffix("}").strip()
        parts = ([self.get_reference()] if self.loop else []) + ([text] if text else [])
        buf += ("distinct !{" + ", ".join(parts) + "}", "\n")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def access_group(module: ir.Module) -> ir.MDValue:
    """A node for accesses that are independent in different iterations of a loop (see `parallel`)."""
    return _Distinct(module, [], loop=False)


def parallel(branch: ir.Instruction, group: ir.MDValue, short: bool) -> None:
    """Mark a loop by its latch's branch: accesses of `group` in different iterations are independent.

    A short loop must not be unrolled before it is vectorised, since what is left then vectorises badly; afterwards it
    may, so the vectorised loop does not inherit the prohibition. Others are not unrolled then anyway, and without the
    prohibition they may have several sums side by side."""
    module = branch.parent.parent.parent
    kept_whole = "llvm.loop.unroll.disable" if short else "llvm.loop.unroll.runtime.disable"
    hints = [["llvm.loop.parallel_accesses", group], ["llvm.loop.mustprogress"], [kept_whole]]
    nodes = [module.add_metadata(hint) for hint in hints]
    done = module.add_metadata(["llvm.loop.isvectorized", ir.Constant(ir.IntType(32), 1)])
    nodes.append(module.add_metadata(["llvm.loop.vectorize.followup_vectorized", done]))
    branch.set_metadata("llvm.loop", _Distinct(module, nodes, loop=True))


def never_unrolled(branch: ir.Instruction) -> None:
    """Mark a loop that is not worth unrolling."""
    module = branch.parent.parent.parent
    branch.set_metadata("llvm.loop", _Distinct(module, [module.add_metadata(["llvm.loop.unroll.disable"])], loop=True))


def unrolled(branch: ir.Instruction, unroll: int | None) -> None:
    """`#pragma unroll` on a loop (see ir.ops.For)."""
    if unroll is None:
        return
    module = branch.parent.parent.parent
    hint = {0: ["llvm.loop.unroll.full"], 1: ["llvm.loop.unroll.disable"]}.get(
        unroll, ["llvm.loop.unroll.count", ir.Constant(ir.IntType(32), unroll)]
    )
    branch.set_metadata("llvm.loop", _Distinct(module, [module.add_metadata(hint)], loop=True))
