"""Shared memory in the text: arrays of a fixed size, and the array whose size the launch gives.

CUDA allows 48 KB in arrays of a fixed size. Where they need more, as with shadows beside them, they all become places
in the launch's array, and the kernel's own dynamic shared memory begins behind them.

Reductions over blocks of a known size, each met once in a kernel, are helpers of the text with shared memory for each
place where they are called, so that nobody has to wait until it may be used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...analysis.machine import WARP
from ...ir.ops import (
    BarrierReduce,
    Block,
    Function,
    Global,
    GlobalRef,
    If,
    Member,
    Module,
    Offset,
    PtrCast,
    Value,
    Warp,
)
from ...ir.traverse import used_globals, walk
from ...ir.types import Array, Pointer, Type
from .names import Scope
from .qualifiers import Volatility
from .types import Types

_HEAD = """template <unsigned int threads, unsigned int place, typename T>
__device__ T {name}(T value)
{{
    __shared__ T cells[{cells}];
    unsigned int thread = threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x;
"""
_LANES = """    #pragma unroll
    for (unsigned int distance = {lanes}) {{
        T other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = {value_other};
    }}
"""
_FALLING, _RISING = "16; distance > 0; distance /= 2", "1; distance < 32; distance *= 2"
_OF_WARPS = """    if (thread % 32 == 0) {{
        cells[thread / 32] = value;
    }}
    __syncthreads();
    value = cells[0];
    #pragma unroll
    for (unsigned int warp = 1; warp < threads / 32; ++warp) {{
        T other = cells[warp];
        value = {value_other};
    }}
    return value;
}}
"""
_UPWARDS = """    if (thread % 32 == 0) {{
        cells[thread / 32] = value;
    }}
    __syncthreads();
    T part[threads / 32];
    #pragma unroll
    for (unsigned int warp = 0; warp < threads / 32; ++warp) {{
        part[warp] = cells[warp];
    }}
    #pragma unroll
    for (unsigned int distance = 1; distance < threads / 32; distance *= 2) {{
        #pragma unroll
        for (unsigned int warp = 0; warp < threads / 32; warp += 2 * distance) {{
            part[warp] = {part_other};
        }}
    }}
    return part[0];
}}
"""
_DOWNWARDS = """    cells[thread] = value;
    __syncthreads();
    T part[threads / 32];
    #pragma unroll
    for (unsigned int warp = 0; warp < threads / 32; ++warp) {{
        part[warp] = cells[warp * 32 + thread % 32];
    }}
    #pragma unroll
    for (unsigned int distance = threads / 64; distance > 0; distance /= 2) {{
        #pragma unroll
        for (unsigned int warp = 0; warp < distance; ++warp) {{
            part[warp] = {part_other};
        }}
    }}
    value = part[0];
"""
_COMBINED = {"add": "{} + {}", "max": "{maximum}({}, {})", "min": "{minimum}({}, {})"}
_SPELLED = {"maximum": "fmax", "minimum": "fmin"}  # C++ has them for both floats


def _text(name: str, about: str, fn: str, cells: str, *parts: str) -> str:
    formula = _COMBINED[fn]
    values = {
        "name": name,
        "cells": cells,
        "value_other": formula.format("value", "other", **_SPELLED),
        "part_other": formula.format("part[warp]", "part[warp + distance]", **_SPELLED),
    }
    falling = {"lanes": _FALLING}
    rising = {"lanes": _RISING}
    body = "".join(p.format(**values, **(rising if p is _LANES and _UPWARDS in parts else falling)) for p in parts)
    end = "" if parts[-1] in (_OF_WARPS, _UPWARDS) else "    return value;\n}\n"
    return f"// {about}\n{body}{end}"


def _tree(fn: str, rising: bool) -> str:
    name = f"block_tree_{'up_' if rising else ''}{fn}"
    order = "neighbours first" if rising else "halves first"
    about = f"All threads' values combined as in a tree, {order}, for each of them: a block of so many threads."
    if rising:
        return _text(name, about, fn, "threads / 32", _HEAD, _LANES, _UPWARDS)
    return _text(name, about, fn, "threads", _HEAD, _DOWNWARDS, _LANES)


_MINIMUM = """// The least of all threads' values, for each of them: a block of so many threads.
template <unsigned int threads, unsigned int place>
__device__ unsigned int whole_block_min(unsigned int value)
{
    __shared__ unsigned int cells[threads / 32];
    unsigned int thread = threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x;
#if __CUDA_ARCH__ >= 800
    value = __reduce_min_sync(0xffffffffu, value);
#else
    for (unsigned int distance = 16; distance > 0; distance /= 2) {
        value = min(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
#endif
    if (thread % 32 == 0) {
        cells[thread / 32] = value;
    }
    __syncthreads();
    #pragma unroll
    for (unsigned int warp = 0; warp < threads / 32; ++warp) {
        value = min(value, cells[warp]);
    }
    return value;
}
"""
_SUM = "The sum over all threads of a block of so many, for each of them."

REDUCTIONS: dict[str, str] = {
    "whole_block_sum": _text("whole_block_sum", _SUM, "add", "threads / 32", _HEAD, _LANES, _OF_WARPS),
    "whole_block_min": _MINIMUM,
    **{f"block_tree_{'up_' * up}{fn}": _tree(fn, bool(up)) for fn in ("add", "max", "min") for up in (0, 1)},
}


def reduction_name(op: BarrierReduce) -> str:
    if not op.kind.startswith("tree_"):
        return f"whole_block_{op.kind}"
    return f"block_tree_{'up_' * op.rising}{op.kind.removeprefix('tree_')}"


def reduction_bytes(op: BarrierReduce) -> int:
    """The shared memory that it declares."""
    by_thread = op.kind.startswith("tree_") and not op.rising
    return op.value.type.size * (op.threads if by_thread else op.threads // WARP)


def reductions_met_once(function: Function) -> dict[BarrierReduce, int]:
    """The reductions over blocks of a known size, numbered, that no loop is around."""
    found: dict[BarrierReduce, int] = {}

    def visit(block: Block) -> None:
        for op in block.ops:
            if isinstance(op, BarrierReduce) and op.threads:
                found[op] = len(found)
            elif isinstance(op, If):
                visit(op.then)
                visit(op.orelse)

    visit(function.body)
    return found


# ---- variables -------------------------------------------------------------------------------------------------


STATIC_BYTES = 48 * 1024
_DYNAMIC = "dynamic_shared"
_ALIGN = 16


@dataclass(frozen=True)
class SharedLayout:
    """`moved`: how many bytes of the launch's array hold arrays of a fixed size; `offsets`: where each of them lies.
    `aligns`: of the fixed ones that are seen as what asks for more than they do."""

    fixed: tuple[Global, ...]
    dynamic: tuple[Global, ...]
    moved: int
    offsets: dict[str, int]
    aligns: dict[str, int]

    @property
    def align(self) -> int:
        return max(_ALIGN, *self.aligns.values(), *(g.type.align for g in (*self.fixed, *self.dynamic)))

    @property
    def views(self) -> tuple[Global, ...]:
        """The dynamic variables that are pointers into the launch's array instead of that array itself."""
        return self.dynamic if self.moved or len(self.dynamic) > 1 else ()


def shared_layout(module: Module, kernel: str) -> SharedLayout:
    function = module.functions[kernel]
    shared = [g for g in used_globals(module, function) if g.space == "shared"]
    dynamic = tuple(g for g in shared if is_dynamic(g))
    fixed = tuple(g for g in shared if g not in dynamic)
    aligns = _aligns(function, fixed) if fixed else {}
    offsets, size = _offsets(fixed, aligns)
    fits = size + _of_helpers(function) <= STATIC_BYTES
    return SharedLayout(fixed, dynamic, *((0, {}) if fits else (size, offsets)), aligns)


def _aligns(function: Function, fixed: Iterable[Global]) -> dict[str, int]:
    """What casts ask for, `(float4 *)s`: of a pointer that was chosen, of all variables."""
    own, found, root = {g.name: g.type.align for g in fixed}, dict[str, int](), dict[Value, str]()
    for op in walk(function.body):
        match op:
            case GlobalRef(name):
                root[op.result] = name
            case Offset(ptr) | Member(ptr) | PtrCast(ptr) if ptr in root:
                root[op.result] = root[ptr]
        if isinstance(op, PtrCast) and isinstance(op.result.type, Pointer) and op.result.type.space == "shared":
            align = op.result.type.pointee.align
            for name in (root[op.result],) if op.result in root else own:
                if align > found.get(name, own.get(name, align)):
                    found[name] = align
    return found


def is_dynamic(variable: Global) -> bool:
    return isinstance(variable.type, Array) and variable.type.count == 0


def _offsets(variables: Iterable[Global], aligns: dict[str, int]) -> tuple[dict[str, int], int]:
    found, end = {}, 0
    for g in variables:
        found[g.name] = _rounded(end, max(_ALIGN, aligns.get(g.name, g.type.align)))
        end = found[g.name] + g.type.size
    return found, _rounded(end, _ALIGN)


def _rounded(size: int, align: int) -> int:
    return -(-size // align) * align


def _of_helpers(function: Function) -> int:
    """What helpers declare for themselves, for each type: a number per warp that is summed over a block, and one per
    thread for products of matrices."""
    own, ops = reductions_met_once(function), list(walk(function.body))
    types = {op.value.type for op in ops if isinstance(op, BarrierReduce) and op.kind == "sum" and op not in own}
    multiplied = {op.result.type for op in ops if isinstance(op, Warp) and op.fn == "lane_products"}
    cells = 32 * sum(type.size for type in types) + 1024 * sum(type.size for type in multiplied)
    return cells + sum(map(reduction_bytes, own))


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
                align = f"__align__({layout.aligns[g.name]}) " if g.name in layout.aligns else ""
                yield f"{align}__shared__ {self._qualifier(g)}{self.types.declare(g.type, self.names[g.name])};"
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
