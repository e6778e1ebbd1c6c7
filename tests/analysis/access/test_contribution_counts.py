"""How long loops in strides are, in whatever integers they count."""

from __future__ import annotations

import pytest

import kernelgrad as kg
from kernelgrad.analysis.access.affine import Shape
from kernelgrad.analysis.access.contribution_counts import LoopLengths
from kernelgrad.analysis.structure import analyse
from kernelgrad.ir.ops import For, While
from kernelgrad.ir.traverse import walk

START = "blockIdx.x * blockDim.x + threadIdx.x"
STRIDES = {
    "unsigned": f"for (int i = {START}; i < n; i += blockDim.x * gridDim.x)",
    "a variable": f"int all = blockDim.x * gridDim.x; for (int i = {START}; i < n; i += all)",
    "long": f"for (long i = {START}; i < n; i += (long)blockDim.x * gridDim.x)",
    "an int by long": f"for (int i = {START}; i < n; i += (long)blockDim.x * gridDim.x)",
    "all unsigned": f"for (unsigned i = {START}; i < (unsigned)n; i += blockDim.x * gridDim.x)",
}


@pytest.mark.parametrize("stride", STRIDES)
def test_strides(stride: str) -> None:
    text = f"__global__ void k(float *y, const float *x, int n) {{ {STRIDES[stride]} y[i] = x[i % 7]; }}"
    function = kg.compile(text)["k"].function
    known = {p.value: 1 << 20 for p in function.params if p.name == "n"}
    (loop,) = (op for op in walk(function.body) if isinstance(op, For | While))
    lengths = LoopLengths(function, analyse(function, True), Shape((32, 1, 1), (64, 1, 1)), known.get)
    assert lengths.length(loop) == pytest.approx((1 << 20) / (32 * 64), rel=0.01)
    assert not lengths.unbounded


BACKWARDS = {
    "unsigned minus one": "for (int i = n; i > 0; i += -1u)",
    "a byte": "for (unsigned char c = 0; c < n; c += 64)",
    "its product": "for (unsigned i = 1; i < (unsigned)n; i = i * 257u + 1)",
}


@pytest.mark.parametrize("way", BACKWARDS)
def test_what_goes_round_may_be_long(way: str) -> None:
    text = f"__global__ void k(float *y, const float *x, int n) {{ {BACKWARDS[way]} y[0] += x[n % 7]; }}"
    function = kg.compile(text)["k"].function
    known = {p.value: 1 << 20 for p in function.params if p.name == "n"}
    (loop,) = (op for op in walk(function.body) if isinstance(op, For | While))
    lengths = LoopLengths(function, analyse(function, True), Shape((1, 1, 1), (1, 1, 1)), known.get)
    assert lengths.length(loop) >= 1 << 20
