"""Shared memory in the text: arrays of a fixed size, and the array whose size the launch gives.

CUDA allows 48 KB in arrays of a fixed size. Where they need more, as with shadows beside them, they all become places
in the launch's array, and the kernel's own dynamic shared memory begins behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...ir.ops import BarrierReduce, Function, Global, GlobalRef, Module
from ...ir.traverse import walk
from ...ir.types import Array, Pointer, Type
from .names import Scope
from .reductions import reduction_bytes, reductions_met_once
from .types import Types
from .volatility import Volatility

STATIC_BYTES = 48 * 1024
_DYNAMIC = "dynamic_shared"
_ALIGN = 16


@dataclass(frozen=True)
class SharedLayout:
    """`moved`: how many bytes of the launch's array hold arrays of a fixed size; `offsets`: where each of them lies."""

    fixed: tuple[Global, ...]
    dynamic: tuple[Global, ...]
    moved: int
    offsets: dict[str, int]

    @property
    def align(self) -> int:
        return max(_ALIGN, *(g.type.align for g in (*self.fixed, *self.dynamic)))

    @property
    def views(self) -> tuple[Global, ...]:
        """The dynamic variables that are pointers into the launch's array instead of that array itself."""
        return self.dynamic if self.moved or len(self.dynamic) > 1 else ()


def used_globals(module: Module, function: Function) -> list[Global]:
    names = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
    return [g for g in module.globals.values() if g.name in names]


def shared_layout(module: Module, kernel: str) -> SharedLayout:
    function = module.functions[kernel]
    shared = [g for g in used_globals(module, function) if g.space == "shared"]
    dynamic = tuple(g for g in shared if is_dynamic(g))
    fixed = tuple(g for g in shared if g not in dynamic)
    offsets, size = _offsets(fixed)
    fits = size + _of_helpers(function) <= STATIC_BYTES
    return SharedLayout(fixed, dynamic, 0, {}) if fits else SharedLayout(fixed, dynamic, size, offsets)


def is_dynamic(variable: Global) -> bool:
    return isinstance(variable.type, Array) and variable.type.count == 0


def _offsets(variables: Iterable[Global]) -> tuple[dict[str, int], int]:
    found, end = {}, 0
    for g in variables:
        found[g.name] = _rounded(end, max(_ALIGN, g.type.align))
        end = found[g.name] + g.type.size
    return found, _rounded(end, _ALIGN)


def _rounded(size: int, align: int) -> int:
    return -(-size // align) * align


def _of_helpers(function: Function) -> int:
    """What the helper that sums over a block declares for itself: a number per warp, for each type it sums."""
    own = reductions_met_once(function)
    sums = [op for op in walk(function.body) if isinstance(op, BarrierReduce) and op.kind == "sum"]
    types = {op.value.type for op in sums if op not in own}
    return sum(32 * type.size for type in types) + sum(map(reduction_bytes, own))


# ---- text -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedText:
    layout: SharedLayout
    names: dict[str, str]
    types: Types
    volatility: Volatility

    def lines(self, scope: Scope) -> Iterator[str]:
        layout = self.layout
        if not layout.moved:
            for g in layout.fixed:
                yield f"__shared__ {self._qualifier(g)}{self.types.declare(g.type, self.names[g.name])};"
        if not layout.moved and len(layout.dynamic) == 1:
            (g,) = layout.dynamic
            declaration = self.types.declare(g.type, self.names[g.name])
            yield f"extern __shared__ __align__({layout.align}) {self._qualifier(g)}{declaration};"
        elif layout.moved or layout.dynamic:
            yield from self._one_array(scope.declare(_DYNAMIC, own=True))

    def _one_array(self, raw: str) -> Iterator[str]:
        """C++ wants one type for the launch's one array; each variable is a view of it."""
        layout = self.layout
        if layout.moved:
            yield f"// {layout.moved} bytes in arrays, {STATIC_BYTES} are allowed: they lie in dynamic shared memory."
            own = ": what the kernel uses itself lies behind them" if layout.dynamic else ""
            yield f"// Every launch asks for so many more{own}."
        yield f"extern __shared__ __align__({layout.align}) unsigned char {raw}[];"
        for g in layout.fixed if layout.moved else ():
            reference = self._reference(g.type, self.names[g.name])
            pointer = self._qualifier(g) + self.types.spell(Pointer(g.type))
            yield f"{self._qualifier(g)}{reference} = *({pointer}){_at(raw, layout.offsets[g.name])};"
        for g in layout.dynamic:
            assert isinstance(g.type, Array)
            type, qualifier = Pointer(g.type.element), self._qualifier(g)
            declaration, spelled = self.types.declare(type, self.names[g.name]), self.types.spell(type)
            yield f"{qualifier}{declaration} = ({qualifier}{spelled}){_at(raw, layout.moved)};"

    def _reference(self, type: Type, name: str) -> str:
        return self.types.declare(type, f"(&{name})" if isinstance(type, Array) else f"&{name}")

    def _qualifier(self, variable: Global) -> str:
        return "volatile " if self.volatility.of_global(variable.name) else ""


def _at(array: str, offset: int) -> str:
    return f"({array} + {offset})" if offset else array
