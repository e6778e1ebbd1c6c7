"""Remainders that stay what they are for a thread: `i % columns`, where `i` goes in steps that are multiples of the
columns, from turn to turn of a loop and from block to block; and `i / width % rows`, in steps of whole images. What a
thread adds up in that column stays in a register.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import gcd

from ...ir.ops import Apply, Function, Op, Value
from ...ir.traverse import operands, walk
from .affine import Affine, Basis, Part
from .executions import Executions

# Where a remainder is in the source, and what it is the same as: a sum of indices, and of quotients and remainders of
# such sums; nothing in it is negative, or takes more than 32 bits.
Column = tuple[str, Affine]

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
    found: dict[str, set[Affine | None]] = {}
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
    return divided is not None and not _is_of(divided, same)


def _is_of(sum_: Affine, same: tuple[Basis, ...]) -> bool:
    return all(_is_of(basis.of, same) if isinstance(basis, Part) else basis in same for basis, _ in sum_.terms)


def _of_thread(op: Apply, sums: Executions, known: tuple[Basis, ...]) -> Affine | None:
    """None where more is left than the known indices, or where nothing is known of the remainder."""
    found = sums.of(op.result)
    left = None if found is None else _left(found, known)
    return left if left is not None and _most(left, sums) < 1 << 32 else None


def _left(sum_: Affine, known: tuple[Basis, ...], modulo: int = 0) -> Affine | None:
    """The sum without what does not matter, if nothing else is left. `modulo`: multiples of that do not, if it is not
    0. What is divided is not negative, and what is left of it is not either."""
    terms = []
    for basis, multiple in sum_.terms:
        if modulo and multiple % modulo == 0:
            continue
        own = _left_of(basis, known, modulo // gcd(modulo, multiple) if modulo else 0)
        if own is None or multiple < 0:
            return None
        terms.append((own, multiple))
    const = sum_.const % modulo if modulo else sum_.const
    return Affine(const, tuple(terms)) if const >= 0 else None


def _left_of(basis: Basis, known: tuple[Basis, ...], modulo: int) -> Basis | None:
    if not isinstance(basis, Part):
        return basis if basis in known else None
    left = _left(basis.of, known, basis.by * modulo if basis.is_quotient else basis.by)
    return None if left is None else Part(left, basis.by, basis.is_quotient)


def _most(sum_: Affine, sums: Executions) -> int:
    """The largest number that is met on the way to a sum."""
    total, largest = sum_.const, 0
    for basis, multiple in sum_.terms:
        most = sums.range(Affine(0, ((basis, 1),)))[1] if not isinstance(basis, Part) else 0
        if isinstance(basis, Part):
            inner = _most(basis.of, sums)
            largest = max(largest, inner, basis.by)
            most = inner // basis.by if basis.is_quotient else basis.by - 1
        total += multiple * most
    return max(total, largest)
