"""Divisions under conditions that the first of some threads or iterations does not meet, in addresses that follow from
the first one's (Note [Conditional divisions])."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

BODIES = {
    "a remainder": "if (x >= 1) s += a[(y + H) % H * W + x - 1];",
    "unsigned": "if (x > 0) s += a[((unsigned)y + (unsigned)H) % (unsigned)H * W + x - 1];",
    "of 64 bits": "if (x > 0) s += a[(y + (long long)H) % H * W + x - 1];",
    "a quotient": "if (x != 0) s += a[(y * W + H - 1) / W * W + x - 1];",
    "in a loop's branch": "while (x > 0) { s += a[((unsigned)y + H) % (unsigned)H * W + x - 1]; break; }",
    "carried": """unsigned r = y; for (int k = 0; k < 2; k++) {
        if (x > 0) s += 0.5 * a[r % (unsigned)H * W + x - 1]; r += H; }""",
    "where branches meet": """if (x > 0) {
        unsigned r = y; if (H > 1) r = (r + H) % (unsigned)H; s += a[r * W + x - 1]; }""",
    "of 64 bits, too": "if (x > 0) { size_t r = y; if (H > 1) r = (r + H) % (size_t)H; s += a[r * W + x - 1]; }",
    "in an array": """if (x > 0) { unsigned r[2]; for (int k = 0; k < 2; k++) r[k] = (y + k * H) % (unsigned)H;
        for (int k = 0; k < 2; k++) s += 0.5 * a[r[k] * W + x - 1]; }""",
    "in a loop": "for (int k = 0; k < 2; k++) if (x > k) s += a[(y + k * H) % H * W + x - 1 - k];",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("W", [39, 48])
def test_rows_of_threads(name: str, W: int) -> None:
    H, returns = 4, "" if W % 16 == 0 else "if (x >= W || y >= H) return;"
    source = f"""__global__ void k(double *out, const double *a, int H, int W) {{
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        {returns}
        double s = 0; {BODIES[name]} out[y * W + x] = s; }}"""
    a = np.arange(1.0, H * W + 1).reshape(H, W)
    expected = np.zeros((H, W))
    expected[:, 1:] = a[:, :-1]
    if name == "in a loop":
        expected[:, 2:] += a[:, :-2]
    found = np.zeros((H, W))
    kg.compile(source)["k"][(3, 2), (16, 2)](found, a, H, W)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("type", ["int", "unsigned", "long long", "size_t"])
@pytest.mark.parametrize("index", ["q * w + (r + 1)", "(size_t)q * w + r + 1"])
def test_quotients_and_remainders_put_together_again(type: str, index: str) -> None:
    """The address is i + 1, though each thread has its own quotient."""
    source = f"""__global__ void k(double *out, const double *a, const int *some, unsigned n, int width) {{
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        {type} w = max(({type})width, ({type})1);
        double s = 0; if (some[i]) {{ {type} q = ({type})i / w, r = ({type})i % w; s = a[{index}]; }}
        out[i] = s; }}"""
    n, rng = 400, np.random.default_rng(0)
    a, some, found = np.arange(1.0, n + 2), (rng.random(n) < 0.5).astype(np.int32), np.zeros(n)
    kg.compile(source)["k"][5, 80](found, a, some, n, 7)
    np.testing.assert_array_equal(found, np.where(some, a[1:], 0))
