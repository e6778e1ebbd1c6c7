"""The memory that forward, bids and reverse share, where a kernel takes atomic maxima, minima or exchanges in global
memory (Note [Winners] in autodiff/winners/global_memory.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ArgumentError
from ...ir.builder import pointee
from ...kernel import Kernel
from ...runtime.arguments import Placement, Supplied
from ...runtime.config import make_launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from .buffers import Alias, Bytes, Copy, Expression, Memory, Need, Number, supply
from .tape_memory import sized

if TYPE_CHECKING:
    from ...autodiff.winners.winners import WonBuffer
    from ..choice.variant import Variant


def winner_needs(variant: Variant) -> list[Need]:
    """What the buffers hold before the forward launch; afterwards, they are read themselves."""
    found: list[Need] = []
    for buffer in variant.derivative.won_buffers:
        root, nbytes = buffer.root.name, _nbytes(variant.kernel, buffer)
        count = nbytes // pointee(buffer.after).size
        found.append(Copy(buffer.before.name or "", root, nbytes, f"'{root}' before the launch"))
        found.append(Alias(buffer.after.name or "", root, nbytes, f"'{root}' after the forward"))
        found.append(Memory(buffer.winner.name or "", count * 8, 0xFF, f"who won each element of '{root}'"))
    return found


def _nbytes(kernel: Kernel, buffer: WonBuffer) -> Expression:
    variable = buffer.root.variable
    return Bytes(buffer.root.name) if variable is None else Number(kernel.module.globals[variable].type.size)


def add_memory(
    variant: Variant, primal: BoundArguments, placement: Placement, stream: int | None, own: LaunchMemory
) -> None:
    """To be called before the forward launch: keeps what the buffers hold."""
    buffers = {buffer.root.name: buffer for buffer in variant.derivative.won_buffers}

    def address(name: str) -> int:
        return _address(variant.kernel, buffers[name], primal, placement, stream)

    supply(winner_needs(variant), sized(make_launch(1, 1), primal), placement, stream, own, address)


def keep_results(variant: Variant, placement: Placement, stream: int | None, own: LaunchMemory) -> None:
    """After the bids: copies for a reverse that comes later, when the buffers may hold something else."""
    for buffer in variant.derivative.won_buffers:
        before, after = buffer.before.name or "", buffer.after.name or ""
        found = own.supplied[after]
        # What was there before the forward has done its work.
        copy = next(memory for memory in own.kept if memory.address == own.supplied[before].value)
        own.supplied[after] = Supplied(copy.copy_from(found.value).address, found.nbytes)


def _address(
    kernel: Kernel, buffer: WonBuffer, primal: BoundArguments, placement: Placement, stream: int | None
) -> int:
    """Of the user's memory."""
    name = buffer.root.name
    if buffer.root.variable is None:
        found = next((b for b in primal.buffers if b.name == name), None)
        if found is not None and found.around not in (None, (0, 0)):
            raise ArgumentError(
                f"{kernel.function.called}: '{name}' is a part of a larger array, and maxima, minima or exchanges might"
                " be taken outside of it; pass the whole array"
            )
        return 0 if found is None else found.address
    variable = kernel.variable(buffer.root.variable)
    return variable.host_address() if placement.cuda is None else variable.device_address(placement.cuda, stream or 0)
