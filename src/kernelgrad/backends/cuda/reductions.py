"""Reductions over blocks of a known size, each met once in a kernel: helpers of the text with shared memory for each
place where they are called, so that nobody has to wait until it may be used again."""

from __future__ import annotations

from ...analysis.machine import WARP
from ...ir.ops import BarrierReduce, Block, Function, If

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
