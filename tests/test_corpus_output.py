"""printf and assert on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg


def printed(source: str, capfd: pytest.CaptureFixture[str], *args: object, block: int = 1) -> str:
    kg.compile(source)["k"][1, block](*args)
    return capfd.readouterr().out


def test_printf_formats(capfd: pytest.CaptureFixture[str]) -> None:
    source = r"""
    #include <cstdio>
    __global__ void k(float f, int i) {
      printf("%d %5d|%-5d|%05d %u %x %c%%\n", i, i, i, i, 7u, 255, 'z');
      printf("%f %.2f %e %g %s\n", f, f, 1.5, 0.25f, "text");
      printf("%lld %lu %hd %p\n", 1LL << 40, 5ul, (short)-3, (void*)0);
      printf("plain\n");
    }
    """
    lines = printed(source, capfd, 2.5, -42).splitlines()
    assert lines[0] == "-42   -42|-42  |-0042 7 ff z%"
    assert lines[1] == "2.500000 2.50 1.500000e+00 0.25 text"
    assert lines[2].startswith("1099511627776 5 -3 ")
    assert lines[3] == "plain"


def test_printf_in_order_of_threads(capfd: pytest.CaptureFixture[str]) -> None:
    source = """
    __global__ void k(const int* x) { if (x[threadIdx.x] > 0) printf("%d:%d\\n", threadIdx.x, x[threadIdx.x]); }
    """
    out = printed(source, capfd, np.array([1, -1, 2, 0], np.int32), block=4)
    assert sorted(out.split()) == ["0:1", "2:2"]


ASSERTING = """#include <cassert>
__global__ void k(int* y, int limit) {
  int i = threadIdx.x;
  assert(i < limit && "too many");
  y[i] = 1;
}
"""


def test_assert_holds() -> None:
    y = np.zeros(4, np.int32)
    kg.compile(ASSERTING)["k"][1, 4](y, 4)
    assert y.tolist() == [1, 1, 1, 1]


def test_assert_fails() -> None:
    with pytest.raises(kg.KernelError, match="assert") as caught:
        kg.compile(ASSERTING, name="asserting.cu")["k"][1, 4](np.zeros(4, np.int32), 2)
    assert caught.value.span.line == 4
    assert "asserting.cu:4" in str(caught.value)


def test_trap() -> None:
    source = "__global__ void k(int* y) {\n  if (y[0] == 0)\n    __trap();\n}"
    kernel = kg.compile(source)["k"]
    kernel[1, 1](np.ones(1, np.int32))
    with pytest.raises(kg.KernelError):
        kernel[1, 1](np.zeros(1, np.int32))


def test_divergent_barrier_is_an_error() -> None:
    source = "__global__ void k(int* y) {\n  if (threadIdx.x < y[0])\n    __syncthreads();\n  y[threadIdx.x] = 1;\n}"
    kernel = kg.compile(source, name="divergent.cu")["k"]
    kernel[1, 4](np.full(4, 100, np.int32))
    with pytest.raises(kg.KernelError, match="divergent.cu:3"):
        kernel[1, 4](np.full(4, 2, np.int32))


def test_recursion_is_refused() -> None:
    with pytest.raises(kg.UnsupportedError, match="recursion"):
        kg.compile("__device__ int f(int n) { return n ? f(n - 1) : 0; } __global__ void k(int* y) { *y = f(3); }")["k"]
