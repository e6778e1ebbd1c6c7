"""Loops whose pointers walk count, and carry no pointers."""

from __future__ import annotations

import pytest

import kernelgrad as kg
from kernelgrad.ir.ops import For, Function, While
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import Pointer

COUNTED = (
    "for (; p < end; ++p) s += *p;",
    "for (; end > p; p += 2) s += *p;",
    "while (p != end) s += *p++;",
    "while (p-- > x) s += *p;",
    "while (n--) s += *p++;",
    "for (int i = 0; i < n; ++i, p += n) for (int j = 0; j < n; ++j) s += *p++;",
)


def loops(text: str) -> Function:
    source = f"""__global__ void k(const float *x, const float *end, float *y, int n) {{
        const float *p = x + threadIdx.x; float s = 0;
        {text}
        y[threadIdx.x] = s;
    }}"""
    return kg.compile(source)["k"].function


@pytest.mark.parametrize("text", COUNTED)
def test_counted(text: str) -> None:
    found = [op for op in walk(loops(text).body) if isinstance(op, For | While)]
    assert all(isinstance(op, For) for op in found)
    assert not any(isinstance(v.type, Pointer) for op in found for v in op.inits)


@pytest.mark.parametrize(
    "text", ("for (; *p > 0; p = p[1] > 0 ? x : end) s += *p;", "for (int i = 0; i < n; ++i) { s += *p; p = end - i; }")
)
def test_pointers_set_anew_stay(text: str) -> None:
    found = [op for op in walk(loops(text).body) if isinstance(op, For | While)]
    assert any(isinstance(v.type, Pointer) for op in found for v in op.inits)
