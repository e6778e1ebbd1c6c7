"""Sizes that follow from a kernel's text: `if (i < n) y[i] = f(x[i])` over the threads of a grid says that n is the
size of x, and how many blocks there must be.

Found by playing two launches through: where every access to the arguments is under `i < n`, with i the number of the
thread in the grid and whatever n is, threads from n on do nothing; an array that is only accessed at i then has n
elements. Nothing is concluded from names or from how it is spelt.

An access may be under further conditions, `if (i < n / 2)` or `if (mask[i])`, and the array smaller then. Those that
every thread below n accesses cannot be (`every`): these count where there are any, and must have n elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.access.affine import Affine, Shape, Sums
from ..analysis.roots import Memory, analyse
from ..analysis.structure import analyse as structure_of
from ..deep import deeply
from ..ir.ops import Atomic, Block, Builtin, Function, If, Load, Param, Store, Value
from ..ir.traverse import blocks, walk
from ..ir.types import Pointer, Scalar
from ..runtime.signature import user_params

_BLOCKS, _THREADS = 11, 37
_THREAD = Affine(0, ((("block_idx", 0), _THREADS), (("thread_idx", 0), 1)))


@dataclass(frozen=True)
class Extent:
    """`size`: the integer parameter from which on threads do nothing. `arrays`: those with one element per thread, as
    far as threads access them. `every`: those that all threads before the size access."""

    size: str
    arrays: tuple[str, ...]
    every: tuple[str, ...] = ()


@deeply
def extent_of(function: Function) -> Extent | None:
    """None where it is not plain."""
    if any(isinstance(op, Builtin) and (op.axis != 0 or op.name == "grid_dim") for op in walk(function.body)):
        return None
    memory = analyse(function)
    params = user_params(function)
    found = [e for p in params if _is_size(p) and (e := _extent(function, memory, params, p)) is not None]
    return found[0] if len(found) == 1 else None


def _is_size(param: Param) -> bool:
    return isinstance(param.type, Scalar) and param.type.kind in ("int", "uint") and param.type.bits >= 32


def _extent(function: Function, memory: Memory, params: tuple[Param, ...], size: Param) -> Extent | None:
    arrays: set[str] | None = None
    every: set[str] | None = None
    for count in (_BLOCKS * _THREADS - 6, _BLOCKS * _THREADS - 30):
        found = _arrays(function, memory, params, size, count)
        if found is None:
            return None
        arrays, every = (
            one if before is None else before & one for before, one in zip((arrays, every), found, strict=True)
        )
    ordered = [tuple(p.called for p in params if p.called in (names or ())) for names in (arrays, every)]
    return Extent(size.called, *ordered)


def _arrays(
    function: Function, memory: Memory, params: tuple[Param, ...], size: Param, count: int
) -> tuple[set[str], set[str]] | None:
    """The arrays with one element per thread in a launch where the size is this, and those of them that all threads
    before it access; None where a thread from there on does something."""
    structure = structure_of(function, apart=False)
    shape = Shape((_BLOCKS, 1, 1), (_THREADS, 1, 1))
    sums = Sums(structure, shape, lambda value: count if value is size.value else None)
    arrays = {p.value: p for p in params if isinstance(p.type, Pointer)}
    single = {p.called for p in arrays.values() if isinstance(p.type, Pointer) and isinstance(p.type.pointee, Scalar)}
    seen: set[str] = set()
    for block in _all_blocks(function.body):
        for op in block.ops:
            reached = [arrays[r] for r in memory.of(op.ptr) if r in arrays] if isinstance(op, _ACCESS) else []
            if not reached:
                continue
            guards = sums.guards(structure.place(block))
            if not any(g.bound == count and _is_same(g.sum, _THREAD) for g in guards):
                return None
            for param in reached:
                assert isinstance(param.type, Pointer) and isinstance(op, _ACCESS)
                seen.add(param.called)
                if not _is_same(sums.address(op.ptr, param.value), _THREAD.times(param.type.pointee.size)):
                    single.discard(param.called)
    always = _always(function.body, sums, memory, arrays, count)
    return single & seen, single & {param.called for param in always}


def _always(block: Block, sums: Sums, memory: Memory, arrays: dict[Value, Param], count: int) -> set[Param]:
    """What every thread before `count` accesses that comes to a block. A loop's body counts as run."""
    found: set[Param] = set()
    for op in block.ops:
        if isinstance(op, _ACCESS):
            reached = [arrays[r] for r in memory.of(op.ptr) if r in arrays]
            found.update(reached if len(reached) == 1 else ())
        elif isinstance(op, If):
            then, orelse = (_always(inner, sums, memory, arrays, count) for inner in (op.then, op.orelse))
            found |= then if sums.is_bound(op.cond, True, _THREAD, count) else set()
            found |= orelse if sums.is_bound(op.cond, False, _THREAD, count) else set()
            found |= then & orelse
        else:
            for inner in blocks(op):
                found |= _always(inner, sums, memory, arrays, count)
    return found


_ACCESS = (Load, Store, Atomic)


def _is_same(one: Affine | None, other: Affine) -> bool:
    return one is not None and (one.const, one.coefficients) == (other.const, other.coefficients)


def _all_blocks(block: Block) -> list[Block]:
    return [block, *(inner for op in block.ops for nested in blocks(op) for inner in _all_blocks(nested))]
