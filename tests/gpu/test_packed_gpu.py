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


CAST = """__global__ void k(float *y, const float *x, int n) {
    int i = threadIdx.x;
    float2 v = reinterpret_cast<const float2 *>(x)[i];
    v.x *= v.y;
    if (i < n) reinterpret_cast<float2 *>(y)[i] = v;
}"""


def test_adjoints_lie_in_vectors_as_what_they_belong_to() -> None:
    module = kg.compile(CAST)
    d_x, d_y = (cupy.ones(65, np.float32)[1:] for _ in range(2))
    even = [cupy.ones(64, np.float32) for _ in range(4)]
    makers = (kg.gradient(module["k"], "y, x"), kg.gradient(module["k"], "y, x", primal=False, keep="y", assign="x"))
    for g in makers:
        g[1, 32](even[0], even[1], 32, even[2], even[3])
        with pytest.raises(kg.ArgumentError, match="8 bytes at once, copy it"):
            g[1, 32](even[0], even[1], 32, d_y, even[3])
    with pytest.raises(kg.ArgumentError, match="8 bytes at once, copy it"):
        kg.jvp(module["k"], "y, x")[1, 32](even[0], even[1], 32, d_y, d_x)
    forward, reverse = kg.split(module["k"], "y, x")
    with pytest.raises(kg.ArgumentError, match="8 bytes at once, copy it"):
        reverse[1, 32](forward[1, 32](even[0], even[1], 32), even[0], even[1], 32, d_y, d_x)
