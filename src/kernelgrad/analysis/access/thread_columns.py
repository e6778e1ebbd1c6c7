"""Remainders that never change for a thread: `i % columns`, where `i` steps by multiples of `columns` from iteration to
iteration and from block to block; `i / width % rows`, where it steps by whole images. The sum of what a thread adds in
that column stays in a register.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import gcd

from ...ir.ops import Apply, Function, Op, Value
from ...ir.traverse import operands, walk
from .affine import Affine, Basis, Part
from .executions import Executions

# A remainder's place in the source, and what it is equal to: a sum of thread and block indices, and of quotients and
# remainders of such sums; nothing in it is negative, or takes more than 32 bits.
Column = tuple[str, Affine]

_REMAINDERS = ("rem", "and")
_THREAD: tuple[Basis, ...] = tuple(("thread_idx", axis) for axis in range(3))
_BLOCK: tuple[Basis, ...] = tuple(("block_idx", axis) for axis in range(3))


def remainders_in(pointers: Iterable[Value], sums: Executions, of_block: bool = False) -> set[str]:
    """The places in the source of remainders in addresses, of dividends that differ between iterations or blocks.
    `of_block`: between iterations."""
    slice_, fixed = _slice(pointers, sums), _fixed_bases(of_block)
    return {str(op.span) for op in slice_ if isinstance(op, Apply) and is_remainder(op) and _varies(op, sums, fixed)}


def thread_columns(
    function: Function, wanted: Collection[str], sums: Executions, of_block: bool = False
) -> frozenset[Column]:
    """Those at wanted places, where all at one place agree: an inlined function may be there twice. `function`: before
    loops are unrolled and constants folded, so that none is missing. `of_block`: a thread does the work of one block,
    and columns may differ between blocks."""
    found: dict[str, set[Affine | None]] = {}
    for op in walk(function.body) if wanted else ():
        if isinstance(op, Apply) and is_remainder(op) and str(op.span) in wanted:
            found.setdefault(str(op.span), set()).add(_column(op, sums, _fixed_bases(of_block)))
    alone = {span: next(iter(forms)) for span, forms in found.items() if len(forms) == 1}
    return frozenset((span, form) for span, form in alone.items() if form is not None)


def is_remainder(op: Apply) -> bool:
    return op.fn in _REMAINDERS


def _slice(pointers: Iterable[Value], sums: Executions) -> list[Op]:
    """The operations that compute them."""
    found: dict[Value, Op] = {}
    todo = list(pointers)
    while todo:
        value = todo.pop()
        op = sums.structure.definition.get(value)
        if op is not None and value not in found:
            found[value] = op
            todo += operands(op)
    return list(found.values())


def _fixed_bases(of_block: bool) -> tuple[Basis, ...]:
    return (*_THREAD, *_BLOCK) if of_block else _THREAD


def _varies(op: Apply, sums: Executions, fixed: tuple[Basis, ...]) -> bool:
    """Whether the dividend depends on anything but these."""
    dividend = sums.of(op.args[0])
    return dividend is not None and not _is_of(dividend, fixed)


def _is_of(sum_: Affine, fixed: tuple[Basis, ...]) -> bool:
    return all(_is_of(basis.of, fixed) if isinstance(basis, Part) else basis in fixed for basis, _ in sum_.terms)


def _column(op: Apply, sums: Executions, fixed: tuple[Basis, ...]) -> Affine | None:
    """What the remainder is in terms of fixed indices alone; None where it is not, or is no affine sum."""
    found = sums.of(op.result)
    column = None if found is None else _reduced(found, fixed)
    return column if column is not None and _most(column, sums) < 1 << 32 else None


def _reduced(sum_: Affine, fixed: tuple[Basis, ...], modulo: int = 0) -> Affine | None:
    """The sum without terms that are multiples of `modulo`, if that is not 0; None where others than fixed indices
    remain. What is divided is not negative, and what is left of it is not either."""
    terms = []
    for basis, multiple in sum_.terms:
        if modulo and multiple % modulo == 0:
            continue
        own = _reduced_basis(basis, fixed, modulo // gcd(modulo, multiple) if modulo else 0)
        if own is None or multiple < 0:
            return None
        terms.append((own, multiple))
    const = sum_.const % modulo if modulo else sum_.const
    return Affine(const, tuple(terms)) if const >= 0 else None


def _reduced_basis(basis: Basis, fixed: tuple[Basis, ...], modulo: int) -> Basis | None:
    if not isinstance(basis, Part):
        return basis if basis in fixed else None
    left = _reduced(basis.of, fixed, basis.by * modulo if basis.is_quotient else basis.by)
    return None if left is None else Part(left, basis.by, basis.is_quotient)


def _most(sum_: Affine, sums: Executions) -> int:
    """The largest number that computing the sum comes by."""
    total, largest = sum_.const, 0
    for basis, multiple in sum_.terms:
        most = sums.range(Affine(0, ((basis, 1),)))[1] if not isinstance(basis, Part) else 0
        if isinstance(basis, Part):
            inner = _most(basis.of, sums)
            largest = max(largest, inner, basis.by)
            most = inner // basis.by if basis.is_quotient else basis.by - 1
        total += multiple * most
    return max(total, largest)
