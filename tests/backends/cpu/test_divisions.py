"""Divisions under conditions: the right quotients, also where LLVM would do them for the first lane alone."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

_TABLE = """__global__ void k(double *y, const int *table, {type} n, int count) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    y[i] = i * 2 != count / 3 ? 0.5 : table[2 {op} n] * (0.1 * count);
}}"""


@pytest.mark.parametrize("type", ["int", "unsigned", "long long", "unsigned long long"])
@pytest.mark.parametrize("op", ["%", "/"])
def test_quotients_in_addresses_that_one_thread_uses(type: str, op: str) -> None:
    kernel = kg.compile(_TABLE.format(type=type, op=op))["k"]
    n = 1 if op == "/" else 6
    for count in (6, 7, 8, 18, 33):
        y = np.zeros(count)
        kernel[1, 64](y, np.arange(100, 107, dtype=np.int32), n, count)
        indices = np.arange(count)
        np.testing.assert_allclose(y, np.where(indices * 2 != count // 3, 0.5, 102 * (0.1 * count)))


_LOOP = """__global__ void k(double *y, const double *x, const int *live, int a, int n, int count) {
    int i = threadIdx.x;
    double s = 0;
    for (int j = 0; j < count; j++) if (live[j]) s += x[j + (a + i) / n] + x[(a + i) % n];
    y[i] = s;
}"""


def test_quotients_in_loops_of_one_thread() -> None:
    rng = np.random.default_rng(3)
    x, live = rng.random(64), (rng.random(40) < 0.5).astype(np.int32)
    for a, n in ((5, 3), (17, 7)):
        y = np.zeros(9)
        kg.compile(_LOOP)["k"][1, 9](y, x, live, a, n, 40)
        want = [sum(x[j + (a + i) // n] + x[(a + i) % n] for j in range(40) if live[j]) for i in range(9)]
        np.testing.assert_allclose(y, want)


_EDGES = """__global__ void k({type} *q, const {type} *table, {type} a, {type} b, int count) {{
    int i = threadIdx.x;
    if (i < count) {{
        {type} d = a / b, r = a % b;
        q[3 * i] = d;
        q[3 * i + 1] = r;
        q[3 * i + 2] = table[d & 1] + table[r & 1];
    }}
}}"""


@pytest.mark.parametrize("type,dtype", [("int", np.int32), ("unsigned", np.uint32)])
def test_quotients_at_the_ends_of_the_range(type: str, dtype: type[np.generic]) -> None:
    """What goes by zero, and past the end, is as on the device."""
    kernel = kg.compile(_EDGES.format(type=type))["k"]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max  # type: ignore[type-var]
    for a in (low, low + 1, high, high - 1, 0, 1, 7, 1234567891):
        for b in (low, high, 0, 1, 2, 3, 7, 65537, *((-1, -7) if low else ())):
            q = np.zeros(6, dtype)
            kernel[1, 2](q, np.zeros(2, dtype), a, b, 2)
            quotient = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            want = np.array([quotient, a if b == 0 else a - quotient * b], object) & 0xFFFFFFFF
            assert (q.astype(object)[:2] & 0xFFFFFFFF).tolist() == want.tolist(), (a, b)
