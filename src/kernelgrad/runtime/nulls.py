"""`None` for an array that a kernel uses.

A kernel may ask whether a pointer is null, or use it behind a flag: `None` is right there. What is read or written
through a pointer that is null is an error that names the parameter:

- before the launch, where some thread gets there for sure: a few threads are followed through the kernel's integers,
  with the launch's own numbers;
- on the CPU also where that is not known before: such launches get code that looks at each access (`guarded`).

On a GPU the driver reports an illegal address for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..analysis.fold import evaluate
from ..errors import ArgumentError, Span
from ..ir.builder import Builder
from ..ir.ops import (
    Apply,
    Assert,
    Atomic,
    Block,
    Builtin,
    Constant,
    For,
    Function,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    While,
)
from ..ir.traverse import descend, walk
from ..ir.types import BOOL, Pointer, Scalar
from .config import Launch
from .cpu import NULL_USED
from .written import Origin, Trace

Access = Load | Store | Atomic


class Nulls:
    """Which accesses of a function lead to parameters, or members of them ("s.p"), that are null."""

    def __init__(self, function: Function, paths: tuple[str, ...]):
        self.function, self.paths = function, paths
        self._trace = Trace(function)

    def behind(self, ptr: Value) -> tuple[str | None, bool]:
        """A null parameter that the pointer may come from, and whether it can come from nowhere else."""
        roots = self._trace.roots(ptr)
        paths = sorted(r.path for r in roots if isinstance(r, Origin))
        found = [null for path in paths for null in self.paths if null == path or _is_in(null, path)]
        only = bool(found) and all(isinstance(r, Origin) and r.path in self.paths for r in roots)
        return (found[0] if found else None), only

    def parameter(self, path: str) -> str:
        name = path.partition(".")[0].partition("[")[0]
        param = next(p for p in self.function.params if p.name == name)
        return f"'{param.called}{path[len(name) :]}'" + (f" ({param.c_type})" if path == name else "")


def _is_in(member: str, path: str) -> bool:
    """Whether a struct that was not taken apart holds it."""
    return bool(path) and member.startswith((f"{path}.", f"{path}["))


def may_use(function: Function, paths: tuple[str, ...]) -> bool:
    """Whether there is an access through one of the parameters at all."""
    nulls = Nulls(function, paths)
    accesses = [op for op in walk(function.body) if isinstance(op, Load | Store | Atomic)]
    return any(nulls.behind(op.ptr)[0] is not None for op in accesses)


# ---- before the launch ----------------------------------------------------------------------------------------------


def require_arrays(
    function: Function, paths: tuple[str, ...], launch: Launch, integers: Callable[[Value], int | None]
) -> None:
    """Raises if a thread of the launch is known to use one of the parameters, which are null."""
    nulls = Nulls(function, paths)
    for builtins in _threads(launch):
        found = _Walk(nulls, builtins, integers).block(function.body)
        if found is not None:
            path, span = found
            raise ArgumentError(
                f"{function.called}: parameter {nulls.parameter(path)} is used at {span}, and None was passed for it"
            )


def _threads(launch: Launch) -> Iterator[dict[tuple[str, int], int]]:
    """Some of a launch: the first ones, one in the middle, the last."""
    sizes = {"block_dim": launch.block, "grid_dim": launch.grid}
    fixed = {(name, axis): size[axis] for name, size in sizes.items() for axis in range(3)}
    picks: tuple[Callable[[int], int], ...] = (
        lambda n: 0,
        lambda n: min(1, n - 1),
        lambda n: n // 2,
        lambda n: n - 1,
    )
    for in_grid, in_block in ((0, 0), (0, 1), (1, 1), (0, 2), (2, 2), (0, 3), (3, 0), (3, 3)):
        place = {("block_idx", axis): picks[in_grid](launch.grid[axis]) for axis in range(3)}
        place |= {("thread_idx", axis): picks[in_block](launch.block[axis]) for axis in range(3)}
        yield fixed | place


Found = tuple[str, Span] | None


class _Walk:
    """One thread, as far as integers tell: what is certain to run is looked at, and of loops the first iteration."""

    def __init__(self, nulls: Nulls, builtins: Mapping[tuple[str, int], int], integers: Callable[[Value], int | None]):
        self._nulls, self._builtins = nulls, builtins
        params = nulls.function.params
        self._known: dict[Value, Any] = {p.value: integers(p.value) for p in params if isinstance(p.type, Scalar)}

    def block(self, block: Block) -> Found:
        for op in block.ops:
            found = self._op(op)
            if found is not None:
                return found
        return None

    def _op(self, op: Op) -> Found:
        match op:
            case Load() | Store() | Atomic():
                path, only = self._nulls.behind(op.ptr)
                return (path, op.span) if path is not None and (only or self._is_null(op.ptr) is True) else None
            case Constant():
                self._known[op.result] = op.value
            case Builtin():
                self._known[op.result] = self._builtins.get((op.name, op.axis))
            case Apply():
                self._known[op.result] = self._apply(op)
            case Offset() | Member() | PtrCast():
                self._known[op.result] = self._pointer(op.ptr)
            case If():
                return self._if(op)
            case For():
                return self._for(op)
            case While():
                return self._while(op)
            case _:
                pass
        return None

    def _number(self, value: Value) -> Any:
        return self._pointer(value) if isinstance(value.type, Pointer) else self._known.get(value)

    def _pointer(self, value: Value) -> int | None:
        """0 for null, 1 for others, None if it is not known."""
        known = self._known.get(value)
        if known is None:
            path, only = self._nulls.behind(value)
            known = (0 if only else None) if path is not None else 1
        return known

    def _is_null(self, value: Value) -> bool | None:
        known = self._pointer(value)
        return None if known is None else known == 0

    def _apply(self, op: Apply) -> Any:
        args = [self._number(a) for a in op.args]
        if op.fn == "select":
            return None if args[0] is None else args[1 if args[0] else 2]
        if op.fn in ("and", "or") and op.result.type == BOOL and (op.fn == "or") in args:
            return op.fn == "or"
        if None in args:
            return None
        types = [a.type for a in op.args]
        if any(isinstance(t, Pointer) for t in types):
            decided = op.fn in ("eq", "ne") and 0 in args
            return (args[0] == args[1]) == (op.fn == "eq") if decided else None
        if not all(isinstance(t, Scalar) for t in (*types, op.result.type)):
            return None
        return evaluate(op.fn, tuple(args), tuple(types), op.result.type)  # type: ignore[arg-type]

    def _if(self, op: If) -> Found:
        cond = self._known.get(op.cond)
        if cond is None:
            return None
        side = op.then if cond else op.orelse
        found = self.block(side)
        self._known.update(zip(op.results, map(self._number, side.results), strict=True))
        return found

    def _for(self, op: For) -> Found:
        lower, upper = self._known.get(op.lower), self._known.get(op.upper)
        if lower is None or upper is None or not (lower < upper if op.step > 0 else lower > upper):
            return None
        self._enter(op.body, (op.lower, *op.inits))
        return self.block(op.body)

    def _while(self, op: While) -> Found:
        self._enter(op.before, op.inits)
        found = self.block(op.before)
        if found is not None or not self._known.get(op.before.results[0]):
            return found
        self._enter(op.body, op.before.results[1:])
        return self.block(op.body)

    def _enter(self, block: Block, values: tuple[Value, ...]) -> None:
        self._known.update(zip(block.args, map(self._number, values), strict=True))


# ---- on the CPU -----------------------------------------------------------------------------------------------------


def guarded(module: Module, name: str, paths: tuple[str, ...]) -> Module | None:
    """The kernel with a look at each access through what may be null; None if there is no such access."""
    function = module.functions[name]
    guard = _Guard(Nulls(function, paths))
    body = guard.block(function.body)
    return replace(module, functions={name: replace(function, body=body)}) if guard.count else None


class _Guard:
    def __init__(self, nulls: Nulls):
        self._nulls, self.count = nulls, 0
        self._bases: dict[Value, Value] = {}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Offset | Member | PtrCast):
                self._bases[op.result] = self._bases.get(op.ptr, op.ptr)
            if isinstance(op, Load | Store | Atomic):
                ops += self._look(op)
            ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)

    def _look(self, op: Access) -> list[Op]:
        path, only = self._nulls.behind(op.ptr)
        if path is None:
            return []
        self.count += 1
        b = Builder(op.span)
        base = self._bases.get(op.ptr, op.ptr)
        assert isinstance(base.type, Pointer)
        good = b.constant(False, BOOL) if only else b.apply("ne", base, b.null(base.type))
        b.effect(Assert, good, f"parameter {self._nulls.parameter(path)} {NULL_USED}")
        return b.ops
