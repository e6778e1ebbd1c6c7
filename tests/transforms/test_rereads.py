"""What every iteration of a constant loop reads again is read before it: when, and that gradients stay right."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import PLANS, forced

N = 70
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; double s, out = 0;"
ROW = "for (int k = 0; k < 8; ++k) s += w[j * 8 + k] * x[k * n + i];"
OWN = ROW.replace("k * n + i", "i * 8 + k")
# Whether inputs are read before the loop over j.
KERNELS = {
    "columns": (True, f"for (int j = 0; j < 6; ++j) {{ s = w[50]; {ROW} out += tanh(s); }} y[i] = out;"),
    "rows": (True, f"for (int j = 0; j < 6; ++j) {{ s = 0; {OWN} out += s * s; }} y[i] = out;"),
    "two_layers": (
        True,
        f"double h = 0; for (int j = 0; j < 6; ++j) {{ s = 0; {ROW} h += fmax(s, 0.0); }}"
        f" for (int j = 0; j < 5; ++j) {{ s = h; {ROW} out += s * s; }} y[i] = out;",
    ),
    "grid_stride": (
        True,
        f"for (; i < n; i += 64) {{ out = 0; for (int j = 0; j < 6; ++j) {{ s = 0; {ROW} out += s * s; }}"
        " y[i] = out; }",
    ),
    # Loops that may not run, that are long, or in which all moves.
    "runtime": (False, f"for (int j = 0; j < m; ++j) {{ s = 0; {ROW} out += s * s; }} y[i] = out;"),
    "long": (
        False,
        "for (int j = 0; j < 2; ++j) { s = 0; for (int k = 0; k < 20; ++k) s += w[j + k] * x[k * 7 + i];"
        " out += s * s; } y[i] = out;",
    ),
    "moving": (
        False,
        "for (int j = 0; j < 6; ++j) { s = 0; for (int k = 0; k < 8; ++k) s += w[j + k] * x[(j + k) * n / 2 + i];"
        " out += s * s; } y[i] = out;",
    ),
    "written": (
        False,
        "for (int j = 0; j < 6; ++j) { s = 0; for (int k = 0; k < 8; ++k) s += w[k] * y[k * n + i]; y[i] = s * 0.1; }",
    ),
}
QUICK = ("rows", "runtime", "written", "long")
SIGNATURE = "__global__ void k(double *y, const double *x, const double *w, int n, int m)"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in KERNELS]
)  # under every plan
def test_values(name: str) -> None:
    """Against forward mode, under every plan."""
    early, body = KERNELS[name]
    kernel = kg.compile(f"{SIGNATURE} {{ {HEAD} {body} }}")["k"]
    rng = np.random.default_rng(1)
    y, x, w = rng.standard_normal(8 * N), rng.standard_normal(8 * N), rng.standard_normal(60)
    seed, tangents = rng.standard_normal(8 * N), [rng.standard_normal(8 * N), rng.standard_normal(60)]
    launch = (1, 64) if name == "grid_stride" else (3, 32)
    d_y = np.zeros(8 * N)
    kg.jvp(kernel, "y, x, w")[launch](y.copy(), x, w, N, 6, d_y, *tangents)
    for plan in PLANS:
        with forced(plan):
            gradient = kg.gradient(kernel, "y, x, w")
            d_x, d_w = np.zeros(8 * N), np.zeros(60)
            gradient[launch](y.copy(), x, w, N, 6, seed.copy(), d_x, d_w)
        got = d_x @ tangents[0] + d_w @ tangents[1]
        np.testing.assert_allclose(got, seed @ d_y, rtol=1e-10, atol=1e-10, err_msg=plan)
    text = kg.gradient(kernel, "y, x, w", primal=False).source if name != "written" else ""
    assert text.count("x[") == 0 or (text.index("= x[") < text.index("for (int j")) == early
