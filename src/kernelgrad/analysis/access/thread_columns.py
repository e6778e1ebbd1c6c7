"""Remainders that stay what they are for a thread: `i % columns`, where `i` goes in steps that are multiples of the
columns, from turn to turn of a loop and from block to block. What a thread adds up in that column stays in a register.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...ir.ops import Apply, Function, Op, Value
from ...ir.traverse import operands, walk
from .affine import Affine, Basis
from .executions import Executions

# A number, multiples of threadIdx.x, y and z, and then of blockIdx, if of that, and what their sum is divided by.
Form = tuple[int, tuple[int, ...], int]
Column = tuple[str, Form]  # where a remainder is in the source, and what it is the same as

_LONGEST = 1 << 62  # iterations, of loops that have a bound
_REMAINDERS = ("rem", "and")
_THREAD: tuple[Basis, ...] = tuple(("thread_idx", axis) for axis in range(3))
_BLOCK: tuple[Basis, ...] = tuple(("block_idx", axis) for axis in range(3))


def remainders_in(pointers: Iterable[Value], sums: Executions, of_block: bool = False) -> set[str]:
    """Where in the source the remainders are that addresses are made of, and that differ between turns or blocks.
    `of_block`: between turns."""
    slice_, same = _slice(pointers, sums), _bases(of_block)
    return {str(op.span) for op in slice_ if isinstance(op, Apply) and is_remainder(op) and _changes(op, sums, same)}


def thread_columns(
    function: Function, wanted: Collection[str], sums: Executions, of_block: bool = False
) -> frozenset[Column]:
    """Those at some places in the source. Of remainders at one place all must agree: a function may be there twice.
    `function`: as it was before loops were unrolled and constants folded, so that none is missing. `of_block`: a thread
    does the work of one block, and they may be other ones in each."""
    found: dict[str, set[Form | None]] = {}
    for op in walk(function.body) if wanted else ():
        if isinstance(op, Apply) and is_remainder(op) and str(op.span) in wanted:
            found.setdefault(str(op.span), set()).add(_of_thread(op, sums, _bases(of_block)))
    alone = {span: next(iter(forms)) for span, forms in found.items() if len(forms) == 1}
    return frozenset((span, form) for span, form in alone.items() if form is not None)


def is_remainder(op: Apply) -> bool:
    return op.fn in _REMAINDERS


def _slice(pointers: Iterable[Value], sums: Executions) -> list[Op]:
    """What they are computed by."""
    found: dict[Value, Op] = {}
    todo = list(pointers)
    while todo:
        value = todo.pop()
        op = sums.structure.definition.get(value)
        if op is not None and value not in found:
            found[value] = op
            todo += operands(op)
    return list(found.values())


def _bases(of_block: bool) -> tuple[Basis, ...]:
    return (*_THREAD, *_BLOCK) if of_block else _THREAD


def _changes(op: Apply, sums: Executions, same: tuple[Basis, ...]) -> bool:
    """Whether what is divided differs where these are the same."""
    divided = sums.of(op.args[0])
    return divided is not None and any(basis not in same for basis, _ in divided.terms)


def _of_thread(op: Apply, sums: Executions, known: tuple[Basis, ...]) -> Form | None:
    """Without the multiples of the divisor, which do not matter; None where more is left than the known indices, or
    where nothing is known of the remainder."""
    divided, divisor = map(sums.of, op.args)
    if sums.of(op.result) is None or divided is None or divisor is None or divisor.terms:
        return None
    by = divisor.const + (op.fn == "and")
    if by <= 0 or (op.fn == "and" and by & (by - 1)) or sums.range(divided, _LONGEST)[0] < 0:
        return None
    left = Affine(divided.const % by, tuple((basis, multiple) for basis, multiple in divided.terms if multiple % by))
    if any(basis not in known or multiple < 0 for basis, multiple in left.terms):
        return None
    multiples = tuple(left.coefficients.get(basis, 0) for basis in known)
    return (left.const, multiples, by) if max(by, sums.range(left)[1]) < 1 << 32 else None
