"""Numbers moved as the bits of others, on the GPU: as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from packed_cases import CASES, THREADS, inputs

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("primal", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, primal: bool) -> None:
    case = CASES[name]
    gradient, x = kg.gradient(case.kernel(), "y, x", primal=primal), inputs(case)
    found = []
    for module in (np, cupy):
        at = module.asarray(x)
        y, d_x, seed = module.zeros_like(at), module.zeros_like(at), module.linspace(-1, 1, x.size).astype(x.dtype)
        gradient[1, THREADS](y, at, THREADS, seed, d_x)
        found.append((y, d_x))
    for here, there in zip(*found, strict=True):
        eps = 4 * float(np.finfo(x.dtype).eps)
        np.testing.assert_allclose(cupy.asnumpy(there), here, rtol=eps, atol=eps)
