"""What a thread stores and then reads again, several elements from its neighbours, is read after it was stored."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

BODIES = {
    "taken": """double s = 0; for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) {
        double v = y[5 * i + a + b]; y[5 * i + a + b] = 0; s += v * x[i + b]; } z[i] = s;""",
    "counted": """int c = 0; for (int a = 2; a > -1; a--) for (int b = 2; b > -1; b--) {
        double v = y[5 * i + a + b]; y[5 * i + a + b] = 0;
        if (v * x[i + b] != 0) { z[i + 16 * c] = v * x[i]; c++; } }""",
    "from the other end": "for (int a = 0; a < 3; a++) { y[3 * i + a] = x[i + a]; z[3 * i + a] = y[3 * i + 2 - a]; }",
    "twice": "for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) y[5 * i + a + b] = x[i + a] - 2 * x[i + b];",
    "members": """P *p = (P *)y; for (int a = 0; a < 3; a++) { p[i].u += p[i].v * 0.5; p[i].v = p[i].u - 1; }
        z[i] = p[i].u;""",
    "by bits": "for (int a = 0; a < 2; a++) { y[(2 * i) | a] = x[i + a]; z[(2 * i) | a] = y[(2 * i) | (1 - a)]; }",
    "twice the same": "int q = i + i; y[q] = x[i]; y[q + 1] = y[q] * 2; y[q] = y[q + 1] + x[i + 1]; z[i] = y[q];",
    "by a pointer": "double *p = y + i; p[i] = x[i]; p[i + 1] = p[i] * 2; p[i] = p[i + 1] + x[i + 1]; z[i] = p[i];",
    "a walking pointer": """double *p = y + 5 * i; for (int a = 0; a < 3; a++, p++) for (int b = 0; b < 3; b++) {
        double v = p[b]; p[b] = 0.5 * v + x[i + a]; z[9 * i + 3 * a + b] = v; }""",
}


@pytest.mark.parametrize("qualifier", ["", "__restrict__ "])
@pytest.mark.parametrize("name", BODIES)
def test_as_one_thread_after_another(name: str, qualifier: str) -> None:
    """Check mode runs them so."""
    params = f"double *{qualifier}y, const double *{qualifier}x, double *{qualifier}z"
    source = (
        f"struct P {{ double u, v; }}; __global__ void k({params}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x;"
    )
    kernel = kg.compile(f"{source} {BODIES[name]} }}")["k"]
    found = []
    for watched in (False, True):
        random = np.random.default_rng(0)
        y, x, z = random.random(160), random.random(40), np.zeros(160)
        if watched:
            assert kernel.check(2, 8, y, x, z).ok
        else:
            kernel[2, 8](y, x, z)
        found.append(np.concatenate((y, z)))
    np.testing.assert_allclose(*found, rtol=1e-13)


RECORDS = """
struct P { double u; int k; double v; };

__global__ void k(double * __restrict__ y, P *q, double * __restrict__ x, double *w, const P *ps, const int *idx, P p,
                  int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    q[i] = P{1.0, n % 13, 2.0 * cos(0.1 * ((exp(sin(x[0])) * floor(p.v))
        + fma((p.v * w[i % n]) / (1.0 + fabs(p.v * w[i % n])),
              copysign(q[i].v, w[0]) / (1.0 + fabs(copysign(q[i].v, w[0]))), p.v * w[i % n])))};
    y[2 * i] += sin((q[i].u * ps[idx[n / 4 % n] % n].u) / (2.0 + cos(p.v - w[m % n])));
}
"""
RECORD = np.dtype({"names": ["u", "k", "v"], "formats": ["f8", "i4", "f8"], "offsets": [0, 8, 16], "itemsize": 24})


def test_the_last_read_comes_after_the_write() -> None:
    """LLVM puts loads of a record's parts together; in loops that are marked parallel it looked at no store between."""
    n, random = 12, np.random.default_rng(2)
    q, ps = np.zeros(n, RECORD), np.zeros(n, RECORD)
    for name in ("u", "v"):
        q[name], ps[name] = random.random((2, n))
    p, idx = np.array((0.3, 1, 0.8), RECORD), np.arange(n, dtype=np.int32)
    x, w = random.random((2, n))
    args = (x, w, ps, idx, p, n, 4)
    want, got, records = np.zeros(2 * n), np.zeros(2 * n), q.copy()
    kernel = kg.compile(RECORDS)["k"]
    kernel[3, 5](want, records, *args)
    np.testing.assert_allclose(want[::2], np.sin(ps["u"][3] / (2 + np.cos(0.8 - w[4]))))
    tangents = (
        np.zeros(2 * n),
        np.zeros(n, RECORD),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n, RECORD),
        np.zeros(1, RECORD),
    )
    kg.jvp(kernel, "y, q, x, w, ps, p")[3, 5](got, q, *args, *tangents)
    np.testing.assert_allclose(got, want, rtol=1e-14)
