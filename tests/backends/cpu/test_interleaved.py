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
