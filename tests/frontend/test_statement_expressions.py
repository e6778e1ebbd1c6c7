"""GNU's statement expressions, as macros use them."""

from __future__ import annotations

import numpy as np

import kernelgrad as kg

SOURCE = """
#define LARGER(a, b) ({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); _a > _b ? _a : _b; })
__global__ void k(float *y, const float *x) {
  int i = threadIdx.x;
  float sum = 0;
  for (int j = 0; j < LARGER(2, i); ++j) sum += LARGER(x[j], x[i] * x[i]);
  ({ if (i == 3) sum *= 2; });
  y[i] = sum;
}"""


def test_values_and_gradient() -> None:
    kernel, x = kg.compile(SOURCE)["k"], np.array([0.5, 1.5, -2, 0.25], "f")
    y = np.zeros(4, "f")
    kernel[1, 4](y, x)
    expected = [sum(max(x[j], x[i] ** 2) for j in range(max(2, i))) * (2 if i == 3 else 1) for i in range(4)]
    np.testing.assert_allclose(y, expected)
    assert not kg.check_gradient(kernel, "y, x", 1, 4, (y, x)).notes
