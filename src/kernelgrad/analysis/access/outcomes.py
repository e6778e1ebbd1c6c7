"""Branches around barriers whose outcome is the same for all threads of a launch: `if (blockIdx.x >= rows) return;`
where there are no more blocks than rows, `if (i >= n) return;` where there are as many threads as elements. The
gradient of such launches has no such branch."""

from __future__ import annotations

from ...ir.effects import has_barrier
from ...ir.ops import Function, If
from ...ir.traverse import walk
from .affine import Sums

Outcome = tuple[str, bool]  # where the branch is in the source, and whether its condition holds


def around_barriers(function: Function) -> tuple[If, ...]:
    """The branches in which threads meet."""
    return tuple(op for op in walk(function.body) if isinstance(op, If) and has_barrier(op))


def outcomes(function: Function, branches: tuple[If, ...], sums: Sums) -> frozenset[Outcome]:
    """Those that are known. Of branches at one place in the source all must agree: a function may be there twice."""
    found: dict[str, set[bool | None]] = {}
    for op in walk(function.body) if branches else ():
        if isinstance(op, If):
            outcome = sums.outcome(op.cond) if any(op is branch for branch in branches) else None
            found.setdefault(str(op.span), set()).add(outcome)
    return frozenset((span, True in seen) for span, seen in found.items() if len(seen) == 1 and None not in seen)
