"""Kernels that CuPy has the source of. CuPy itself needs a GPU: here stands something that looks like its kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg

CODE = """
extern "C" __global__ void scaled(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i] * x[i];
}
"""


class RawKernel(NamedTuple):
    """What kernelgrad looks at of a `cupy.RawKernel`."""

    code: str
    name: str
    options: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "options", [("-DFACTOR=3",), ("-D", "FACTOR=3", "--std=c++14"), ("--define-macro=FACTOR=3", "-O3")]
)
def test_a_raw_kernel_has_a_gradient(options: tuple[str, ...]) -> None:
    raw: Any = RawKernel(CODE, "scaled", options)
    g = kg.gradient(raw, "y, x", primal=False, keep="y", assign="x")
    x, d_x = np.array([1.0, 2.0]), np.zeros(2)
    g[1, 32](None, x, 2, np.ones(2), d_x)
    assert d_x.tolist() == [6, 12]
    t_y = np.zeros(2)
    kg.jvp(raw, "y, x")[1, 32](np.zeros(2), x, 2, t_y, np.ones(2))
    assert t_y.tolist() == [6, 12]
    assert kg.check_gradient(raw, "y, x", 1, 32, (np.zeros(2), x, 2))
    forward, _ = kg.split(raw, "y, x")
    assert forward[1, 32](np.zeros(2), x, 2) is not None


def test_its_kernel_is_compiled_once() -> None:
    raw: Any = RawKernel(CODE, "scaled", ("-DFACTOR=2",))
    assert kg.gradient(raw).kernel is kg.gradient(raw).kernel


def test_an_error_names_the_kernel() -> None:
    raw: Any = RawKernel(CODE, "scaled")
    with pytest.raises(kg.KernelGradError, match=r"scaled.cu:4.*FACTOR"):
        kg.gradient(raw)
