"""Branches that tell a block's last thread from the others: LLVM must not make them the end of the loop over threads
(Note [Whole iterations])."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

KERNELS = {
    "stored twice": "if (GUARD) y[i] = p; y[i] = p;",
    "stored before and behind": "z[i] = p; if (GUARD) { y[i] = z[i] + p; y[i] = p; }",
    "read in between": "y[i] *= p; y[i] = p * x[i]; z[i] *= y[i]; if (GUARD) { y[i] = p * x[i]; y[i] = p; }",
}
GUARDS = ("threadIdx.x < LAST", "threadIdx.x + 1 < blockDim.x", "threadIdx.x != blockDim.x - 1")
LISTED = "y, z, x, p"
BLOCKS = 3


@pytest.mark.parametrize("last", [4, 8, 16])
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_last_thread(name: str, guard: str, last: int) -> None:
    source = f"""__global__ void k(double *y, double *z, const double *x, double p) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x; {KERNELS[name]}
    }}"""
    kernel = kg.compile(source, defines={"GUARD": guard, "LAST": last})["k"]
    forward, reverse = kg.split(kernel, LISTED)
    for in_two in (False, True):
        y, z, x, d_y, d_z, d_x = np.random.default_rng(1).normal(size=(6, BLOCKS * (last + 1)))
        p, d_p, launch = 0.7, np.zeros(1), (BLOCKS, last + 1)
        want = expected(name, np.arange(len(x)) % (last + 1) < last, y, z, x, p, d_y, d_z, d_x)
        if in_two:
            tape = forward[launch](y, z, x, p)
            reverse[launch](tape, y, z, x, p, d_y, d_z, d_x, d_p)
        else:
            kg.gradient(kernel, LISTED)[launch](y, z, x, p, d_y, d_z, d_x, d_p)
        for found, wanted in zip((y, z, d_y, d_z, d_x, d_p[0]), want, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def expected(name: str, inside: np.ndarray, *arguments: np.ndarray | float) -> list[np.ndarray | float]:
    """y, z, and the adjoints of y, z, x and p."""
    y, z, x, p, d_y, d_z, d_x = arguments
    zero = np.zeros_like(x)
    match name:
        case "stored twice":
            return [zero + p, z, zero, d_z, d_x, np.sum(d_y)]
        case "stored before and behind":
            return [np.where(inside, p, y), zero + p, np.where(inside, 0, d_y), zero, d_x, np.sum(d_z + inside * d_y)]
        case _:
            behind = np.where(inside, 0, d_y) + d_z * z  # of y = p x, which z is multiplied by
            d_p = np.sum(behind * x + inside * d_y)
            return [np.where(inside, p, p * x), z * p * x, zero, d_z * p * x, d_x + behind * p, d_p]
