"""The memory that forward, claims and reverse share, where a kernel takes atomic maxima, minima or exchanges in global
memory (Note [Claims] in autodiff/winners/global_memory.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ArgumentError
from ...ir.builder import pointee
from ...kernel import Kernel
from ...runtime.arguments import Placement, Supplied
from ...runtime.launch import BoundArguments
from ...runtime.own import Own
from ...runtime.scratch import Scratch

if TYPE_CHECKING:
    from ...autodiff.winners.winners import Claim
    from ..choice.variant import Variant


def add_memory(variant: Variant, primal: BoundArguments, placement: Placement, stream: int | None, own: Own) -> None:
    """To be called before the forward launch: keeps what the buffers hold. Afterwards, they are read themselves."""
    for claim in variant.derivative.claims:
        address, nbytes = _buffer(variant.kernel, claim, primal, placement, stream)
        own.add(claim.before.name or "", Scratch(nbytes, placement.cuda, stream).copy_from(address))
        own.supplied[claim.after.name or ""] = Supplied(address, nbytes)
        count = nbytes // pointee(claim.after).size
        own.add(claim.winner.name or "", Scratch(8 * count, placement.cuda, stream).fill(0xFF))


def keep_results(variant: Variant, placement: Placement, stream: int | None, own: Own) -> None:
    """After the claims: copies for a reverse that comes later, when the buffers may hold something else."""
    for claim in variant.derivative.claims:
        before, after = claim.before.name or "", claim.after.name or ""
        found = own.supplied[after]
        # What was there before the forward has done its work.
        copy = next(memory for memory in own.kept if memory.address == own.supplied[before].value)
        own.supplied[after] = Supplied(copy.copy_from(found.value).address, found.nbytes)


def _buffer(
    kernel: Kernel, claim: Claim, primal: BoundArguments, placement: Placement, stream: int | None
) -> tuple[int, int]:
    """The address and size of the user's memory."""
    name = claim.root.name
    if claim.root.variable is None:
        found = next((b for b in primal.buffers if b.name == name), None)
        if found is not None and found.around not in (None, (0, 0)):
            raise ArgumentError(
                f"{kernel.function.called}: '{name}' is a part of a larger array, and maxima, minima or exchanges might"
                " be taken outside of it; pass the whole array"
            )
        return (0, 0) if found is None else (found.address, found.nbytes)
    variable = kernel.variable(claim.root.variable)
    if placement.cuda is None:
        return variable.host_address(), variable.type.size
    return variable.device_address(placement.cuda, stream or 0), variable.type.size
