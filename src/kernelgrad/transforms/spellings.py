"""Atomic operations on floats that the source spells with operations on their bits.

CUDA has no atomic maximum of floats, so people write loops around atomicCAS, or take the maximum of the bits. A
`Spelled` says what such code does to the number in memory, and keeps the code: where it runs, it runs as written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..ir.builder import Builder
from ..ir.ops import Atomic, Block, Op, Undef, Value
from ..ir.traverse import clone, substitute


@dataclass(frozen=True)
class Spelling:
    """The code: `ops` use nothing from outside but `formals`. `old`: its observation of the old contents, if any."""

    formals: tuple[Value, ...]
    ops: tuple[Op, ...]
    old: Value | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Spelled(Atomic):
    """add and sub change the contents by `args[0]`; any other kind leaves them or puts `args[0]` there, depending on
    nothing but the two. `inputs` stand for the spelling's formals."""

    inputs: tuple[Value, ...] = ()
    spelling: Spelling = field(default=Spelling((), ()))


def expanded(op: Op) -> Iterable[Op]:
    """The operations that an operation stands for: of a Spelled its code, otherwise itself."""
    if not isinstance(op, Spelled):
        return (op,)
    spelling = op.spelling
    results = () if spelling.old is None else (spelling.old,)
    copy = clone(Block((), spelling.ops, results), dict(zip(spelling.formals, op.inputs, strict=True)))
    if not copy.results:
        return (*copy.ops, Undef(results=op.results, span=op.span))
    rename = {copy.results[0]: op.result}
    ops = [replace(o, results=tuple(rename.get(r, r) for r in o.results)) for o in copy.ops]
    return substitute(Block((), tuple(ops), ()), rename).ops


def emit(b: Builder, op: Op) -> None:
    for part in expanded(op):
        b.add(part)
