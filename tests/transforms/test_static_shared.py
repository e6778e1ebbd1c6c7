"""Dynamic shared memory as an array of the launch's size: gradients of trees in it, of launches of several sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from some_cases import in_turn

TREE = """
__global__ void k(double *y, const double *x, int n) {
    DECLARED
    int t = threadIdx.x, row = blockIdx.x;
    double a = 0;
    for (int c = t; c < n; c += blockDim.x) a += x[row * n + c] * x[row * n + c];
    s[t] = a;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    for (int c = t; c < n; c += blockDim.x) y[row * n + c] = x[row * n + c] * s[0];
}
"""
DECLARED = {
    "doubles": "extern __shared__ double s[];",
    "bytes": "extern __shared__ unsigned char bytes[]; double *s = (double *)bytes;",
    "a part": "extern __shared__ double all[]; double *s = all + 8;",
    "static besides": "extern __shared__ double s[]; __shared__ double z[4]; if (threadIdx.x < 4) z[threadIdx.x] = 1;",
}
LAUNCHES = ((32, 1024), (64, 1024), (32, 2048), (64, 20000), (32, 1024))  # threads, and bytes


@pytest.mark.parametrize(("declared", "contract"), in_turn(DECLARED, ("joint", "reverse", "deterministic", "split")))
def test_values(declared: str, contract: str) -> None:
    kernel = kernel_of(TREE.replace("DECLARED", DECLARED[declared]))
    options: dict[str, Any] = {"reverse": {"primal": False, "assign": "x"}, "deterministic": {"deterministic": True}}
    gradient: Any = kg.gradient(kernel, "y, x", **options.get(contract, {})) if contract != "split" else None
    forward, reverse = kg.split(kernel, "y, x") if contract == "split" else (None, None)
    rows, n = 3, 150
    x, seed = np.random.default_rng(1).random((2, rows, n))
    sums, dots = (x * x).sum(1, keepdims=True), (x * seed).sum(1, keepdims=True)
    for threads, nbytes in LAUNCHES:
        own, d_y, d_x = (np.zeros(rows * n), x.ravel(), n), seed.copy().ravel(), np.zeros(rows * n)
        launch = rows, threads, nbytes
        if contract == "split":
            reverse[launch](forward[launch](*own), *own, d_y, d_x)
        else:
            gradient[launch](*own, d_y, d_x)
        np.testing.assert_allclose(d_x.reshape(rows, n), sums * seed + 2 * dots * x, rtol=1e-12)
        if contract in ("joint", "split"):
            np.testing.assert_allclose(own[0].reshape(rows, n), x * sums, rtol=1e-12)


def test_the_text_has_the_array_or_not() -> None:
    """Bytes that are read as numbers stay as they are, and so do many."""
    x = np.zeros(300)
    for declared, nbytes, is_array in (("doubles", 1024, True), ("doubles", 20000, False), ("bytes", 1024, False)):
        gradient = kg.gradient(kg.compile(TREE.replace("DECLARED", DECLARED[declared]))["k"], "y, x", primal=False)
        text = gradient.source_for(3, 32, x, x, 100, shared=nbytes)
        assert bool(re.search("extern __shared__", text)) != is_array, text


def test_checked() -> None:
    kernel = kg.compile(TREE.replace("DECLARED", DECLARED["doubles"]))["k"]
    x, y = np.random.default_rng(2).random((2, 300))
    report = kg.gradient(kernel, "y, x").check(3, 32, np.zeros(300), x, 100, y, np.zeros(300), shared=256)
    assert not report.findings
