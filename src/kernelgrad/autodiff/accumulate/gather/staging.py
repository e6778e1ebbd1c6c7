"""Values that threads compute once for the gathers that need them many times.

    s = b[k] + sum of w[r] * x[i + r];  y[i] = f(s)

Each element of x collects from several threads, and of each it would have to sum up s again, for f'(s) * d_y[i]. So a
launch before the gathers has all threads compute that, in memory of its own, at their number in the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ....ir.builder import Builder
from ....ir.ops import Atomic, Block, Function, Op, Param, Store, Value
from ....ir.traverse import descend, walk, with_ops
from ....ir.types import I64, Pointer, Scalar
from .rectangles import PREFIX as BOUND

PREFIX = "_staged_"


def staged_names(numbers: Iterable[int]) -> frozenset[str]:
    return frozenset(f"{PREFIX}{number}" for number in numbers)


def parameter(number: int, type: Scalar) -> Param:
    name = f"{PREFIX}{number}"
    return Param(Value(Pointer(type, "global"), name), "void *", restrict=True, variable=name)


def thread_number(b: Builder, index: Callable[[int], Value], extent: Callable[[int], Value]) -> Value:
    """A thread's number in the grid, from its index along each axis and the threads there are."""
    total = b.convert(index(2), I64)
    for axis in (1, 0):
        total = b.apply("mul", total, b.convert(extent(axis), I64))
        total = b.apply("add", total, b.convert(index(axis), I64))
    return total


def staging_function(pattern: Function, numbers: tuple[int, ...], variables: Collection[str] = ()) -> Function:
    """The pattern with nothing left to do but to compute these operations and to store what they give. `variables`: of
    the source, whose addresses may be parameters."""
    wanted = {id(op): k for k, op in enumerate(walk(pattern.body)) if k in numbers}
    params = {k: parameter(k, op.result.type) for k, op in enumerate(walk(pattern.body)) if k in numbers}  # type: ignore[arg-type]
    b = Builder(pattern.span)

    def along(name: str, other: str, axis: int) -> Value:
        return b.apply("mul", *(b.convert(b.builtin(n, axis), I64) for n in (name, other)))

    def index(axis: int) -> Value:
        return b.apply("add", along("block_idx", "block_dim", axis), b.convert(b.builtin("thread_idx", axis), I64))

    number = thread_number(b, index, lambda axis: along("grid_dim", "block_dim", axis))

    def visit(block: Block) -> Block:
        ops = list[Op]()
        for op in block.ops:
            if isinstance(op, Atomic | Store):
                continue
            ops.append(descend(op, visit))
            if id(op) in wanted:
                own = Builder(op.span)
                own.store(own.offset(params[wanted[id(op)]].value, number), op.result)
                ops += own.ops
        return with_ops(block, ops)

    body = visit(pattern.body)
    body = Block(body.args, (*b.ops, *body.ops), body.results)
    bounds = (p for p in pattern.params if p.name.startswith(BOUND))
    own = (*given(pattern, variables), *bounds, *params.values())
    return replace(pattern, name=f"{pattern.name}_staged", params=own, body=body, launch_bounds=())


def given(pattern: Function, variables: Collection[str]) -> tuple[Param, ...]:
    """The arguments and the adjoints, then the addresses of the source's variables, as launchers pass them."""
    own = (p for p in pattern.params if p.variable is None)
    return (*own, *(p for p in pattern.params if p.variable in variables))
