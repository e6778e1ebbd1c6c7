"""What a kernel's code assumes about its launches, and whether the usual one does: which unsigned index arithmetic
cannot wrap. Apart from the code generator, so that cached code needs no import of it.

`int i = blockIdx.x * blockDim.x + threadIdx.x` is unsigned in C++ until the assignment, and LLVM must know that it
does not wrap to see that `i` counts up with threadIdx.x. Whether it can is a question about the launch: code for
launches where it cannot is the usual variant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.ops import Apply, Builtin, Constant, Function, Op, Value
from ...ir.traverse import walk
from ...ir.types import U32, Scalar
from ...locks import cached_property

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Variant:
    """What a kernel's code assumes about its launches. `small`: index arithmetic does not wrap (`indexing`).
    `block`: the block's shape, where the code is made for one. `watched`: the code is for check mode (see `watch`).
    `worker_sums`: the parameters whose buffers each worker has memory of its own for (Note [Worker sums]);
    `checked`: those of them that threads might add to outside of the buffer."""

    small: bool = True
    block: Dim3 | None = None
    watched: bool = False
    worker_sums: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()


# The largest value of a builtin, from its axis' number of blocks and of threads in a block.
_BUILTINS: dict[str, Callable[[int, int], int]] = {
    "thread_idx": lambda grid, block: block - 1,
    "block_idx": lambda grid, block: grid - 1,
    "block_dim": lambda grid, block: block,
    "grid_dim": lambda grid, block: grid,
}
_COMBINE: dict[str, Callable[[int, int], int]] = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y}


class IndexArithmetic:
    """Sums and products of the launch's numbers and constants, which are all positive."""

    def __init__(self, function: Function):
        self._steps: list[tuple[Value, Op]] = []
        known: set[Value] = set()
        for op in walk(function.body):
            if _is_leaf(op) or (isinstance(op, Apply) and _follows(op) and known.issuperset(op.args)):
                known.add(op.result)
                self._steps.append((op.result, op))

    @cached_property
    def ops(self) -> frozenset[Apply]:
        """The unsigned operations that may be taken not to wrap where `stays_small`."""
        found = (op for _, op in self._steps if isinstance(op, Apply) and op.fn in _COMBINE)
        return frozenset(op for op in found if op.result.type == U32)

    def stays_small(self, grid: Dim3, block: Dim3) -> bool:
        """Whether in such a launch no such number reaches 2**31."""
        largest: dict[Value, int] = {}
        for value, op in self._steps:
            largest[value] = _largest(op, largest, grid, block)
        return all(bound < 2**31 for bound in largest.values())


def _is_leaf(op: Op) -> bool:
    if isinstance(op, Constant):
        type = op.result.type
        return isinstance(type, Scalar) and type.kind in ("int", "uint") and 0 <= op.value < 2**31
    return isinstance(op, Builtin) and op.name in _BUILTINS


def _follows(op: Apply) -> bool:
    type = op.result.type
    if not isinstance(type, Scalar) or type.kind not in ("int", "uint") or type.bits < 32:
        return False
    return op.fn == "convert" or (op.fn in _COMBINE and type.bits == 32)


def _largest(op: Op, largest: dict[Value, int], grid: Dim3, block: Dim3) -> int:
    match op:
        case Constant(value):
            return int(value)
        case Builtin(name, axis):
            return _BUILTINS[name](grid[axis], block[axis])
        case Apply("convert", (source,)):
            return largest[source]
        case Apply(fn, (left, right)):
            return _COMBINE[fn](largest[left], largest[right])
    raise AssertionError(op)
