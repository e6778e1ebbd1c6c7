"""`report_nan=True` of operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

KERNEL = kg.compile(
    "__global__ void root(float *y, const float *x, int n) {\n int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    " if (i < n)\n  y[i] = sqrtf(x[i]);\n}\n",
    name="root.cu",
)["root"]
BAD, GOOD = np.array([1, 0, 4], np.float32), np.array([1, 9, 4], np.float32)
TOLD = r"root\.cu:4:10: error: the reverse of 'sqrt' gives inf(.|\n)*thread \(1, 0, 0\) of block \(0, 0, 0\)"


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    op = kg.torch.op(KERNEL, {"y": "x"}, report_nan=True)
    assert op.name != kg.torch.op(KERNEL, {"y": "x"}).name
    bad, good = (torch.tensor(x, requires_grad=True) for x in (BAD, GOOD))
    with pytest.raises(kg.NotFiniteError, match=TOLD):
        op(bad).sum().backward()
    op(good).sum().backward()
    np.testing.assert_allclose(good.grad, 0.5 / np.sqrt(GOOD))
    with pytest.raises(kg.NotFiniteError, match="the tangent of 'sqrt' is inf"):
        torch.func.jvp(op, (bad.detach(),), (torch.ones(3),))


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    op = kg.jax.op(KERNEL, {"y": "x"}, report_nan=True)
    with jax.default_device(jax.devices("cpu")[0]):
        gradient: Any = jax.jit(jax.grad(lambda x: op(x).sum()))
        np.testing.assert_allclose(gradient(GOOD), 0.5 / np.sqrt(GOOD))
        with pytest.raises(Exception, match=TOLD):
            gradient(BAD).block_until_ready()
