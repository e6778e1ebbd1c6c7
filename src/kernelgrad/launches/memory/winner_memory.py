"""The memory that forward, claims and reverse share, where a kernel takes atomic maxima, minima or exchanges in global
memory (Note [Claims] in autodiff/winners/global_memory.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ArgumentError
from ...ir.builder import pointee
from ...kernel import Kernel
from ...runtime.arguments import Placement, Supplied
from ...runtime.config import make_launch
from ...runtime.launch import BoundArguments
from ...runtime.own import Own
from .buffers import Alias, Bytes, Copy, Expression, Memory, Need, Number, supply
from .tape_memory import sized

if TYPE_CHECKING:
    from ...autodiff.winners.winners import Claim
    from ..choice.variant import Variant


def claim_memory(variant: Variant) -> list[Need]:
    """What the buffers hold before the forward launch; afterwards, they are read themselves."""
    found: list[Need] = []
    for claim in variant.derivative.claims:
        root, nbytes = claim.root.name, _nbytes(variant.kernel, claim)
        count = nbytes // pointee(claim.after).size
        found.append(Copy(claim.before.name or "", root, nbytes, f"'{root}' before the launch"))
        found.append(Alias(claim.after.name or "", root, nbytes, f"'{root}' after the forward"))
        found.append(Memory(claim.winner.name or "", count * 8, 0xFF, f"who won each element of '{root}'"))
    return found


def _nbytes(kernel: Kernel, claim: Claim) -> Expression:
    variable = claim.root.variable
    return Bytes(claim.root.name) if variable is None else Number(kernel.module.globals[variable].type.size)


def add_memory(variant: Variant, primal: BoundArguments, placement: Placement, stream: int | None, own: Own) -> None:
    """To be called before the forward launch: keeps what the buffers hold."""
    claims = {claim.root.name: claim for claim in variant.derivative.claims}

    def address(name: str) -> int:
        return _address(variant.kernel, claims[name], primal, placement, stream)

    supply(claim_memory(variant), sized(make_launch(1, 1), primal), placement, stream, own, address)


def keep_results(variant: Variant, placement: Placement, stream: int | None, own: Own) -> None:
    """After the claims: copies for a reverse that comes later, when the buffers may hold something else."""
    for claim in variant.derivative.claims:
        before, after = claim.before.name or "", claim.after.name or ""
        found = own.supplied[after]
        # What was there before the forward has done its work.
        copy = next(memory for memory in own.kept if memory.address == own.supplied[before].value)
        own.supplied[after] = Supplied(copy.copy_from(found.value).address, found.nbytes)


def _address(kernel: Kernel, claim: Claim, primal: BoundArguments, placement: Placement, stream: int | None) -> int:
    """Of the user's memory."""
    name = claim.root.name
    if claim.root.variable is None:
        found = next((b for b in primal.buffers if b.name == name), None)
        if found is not None and found.around not in (None, (0, 0)):
            raise ArgumentError(
                f"{kernel.function.called}: '{name}' is a part of a larger array, and maxima, minima or exchanges might"
                " be taken outside of it; pass the whole array"
            )
        return 0 if found is None else found.address
    variable = kernel.variable(claim.root.variable)
    return variable.host_address() if placement.cuda is None else variable.device_address(placement.cuda, stream or 0)
