"""What a loop carries round is known in every iteration: no tape, and the right values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch

N = 16
# What is declared before the loop, the index of a local array that the loop reads, and how it goes on.
ROUND = {
    "xor": ("int p = 0;", "p", "p ^= 1;"),
    "minus": ("int p = 1;", "p", "p = 1 - p;"),
    "not": ("bool p = false;", "p", "p = !p;"),
    "choice": ("int p = 0;", "p", "p = p == 0 ? 3 : p == 3 ? 1 : 0;"),
    "remainder": ("int p = 2;", "p", "p = (p + 1) % 3;"),
    "unsigned": ("unsigned p = 0;", "p", "p = (p + 3u) & 3u;"),
    "one behind": ("int q = 0, p = 3;", "p", "p = q; q ^= 1;"),
    "swap": ("int p = i % 2, q = i % 3;", "p", "int r = p; p = q; q = r;"),
    "three in a ring": ("int p = i % 4, q = 2, o = 1;", "p", "int r = p; p = q; q = o; o = r;"),
    "soon the same": ("int p = 3;", "p", "p = 2;"),
    "wraps": ("unsigned char p = 254;", "p & 3", "p = p + 64;"),
}
NOT_ROUND = {
    "what memory says": ("int p = 0;", "p", "p = next[p];"),
    "never": ("int p = 1;", "p & 3", "p = p * 5 + 1;"),
    "with the counter": ("int p = 0;", "p & 3", "p = (p + k) & 3;"),
}


def source(start: str, at: str, on: str) -> str:
    """A product of what is read: its factors must be known in the reverse."""
    return f"""
    __global__ void k(double *y, const double *x, const int *next, int n) {{
      int i = threadIdx.x;
      {start}
      double s = 1;
      for (int k = 0; k < n; ++k) {{
        s += sin(x[4 * i + ({at})] * (k + 1)) * s;
        {on}
      }}
      y[i] = s;
    }}"""


def arguments(trips: int) -> tuple[Any, ...]:
    x = np.random.default_rng(1).uniform(0.5, 1.5, 4 * N)
    return np.zeros(N), x, np.array([2, 0, 3, 1], np.int32), trips


def tape_types(text: str) -> set[str]:
    gradient = kg.gradient(kernel_of(text), "y, x")
    plan = gradient.planned(make_launch(1, N), arguments(5), {}).plan
    return {stack.type.name for stack in plan.variant.derivative.stacks}


@pytest.mark.parametrize("name", ROUND | NOT_ROUND)
@pytest.mark.parametrize("trips", [0, 1, 2, 9])
def test_values(name: str, trips: int) -> None:
    kernel = kernel_of(source(*(ROUND | NOT_ROUND)[name]))
    report = kg.check_gradient(kernel, ("y", "x"), 1, N, arguments(trips))
    assert report.ok, report


@pytest.mark.parametrize("name", ROUND | NOT_ROUND)
def test_what_is_on_the_tape(name: str) -> None:
    """The sum is; the index only where it does not come round."""
    integers = tape_types(source(*(ROUND | NOT_ROUND)[name])) - {"f64"}
    assert bool(integers) == (name in NOT_ROUND)


SCAN = """
__global__ void k(double *y, const double *x, int n) {
  __shared__ double s[2][32];
  int t = threadIdx.x, i = blockIdx.x * 32 + t, in = 0, out = 1;
  s[0][t] = i < n ? x[i] : 0.0;
  __syncthreads();
  for (int d = 1; d < 32; d *= 2) {
    s[out][t] = t >= d ? s[in][t] + s[in][t - d] : s[in][t];
    @
    __syncthreads();
  }
  if (i < n) y[i] = s[in][t];
}
"""
POINTERS = """
__global__ void k(double *y, const double *x, int n) {
  __shared__ double a[32], b[32];
  int t = threadIdx.x, i = blockIdx.x * 32 + t;
  double *in = a, *out = b;
  in[t] = i < n ? x[i] : 0.0;
  __syncthreads();
  for (int d = 1; d < 32; d *= 2) {
    out[t] = t >= d ? in[t] + in[t - d] : in[t];
    double *r = in; in = out; out = r;
    __syncthreads();
  }
  if (i < n) y[i] = in[t];
}
"""
SCANS = {
    "xor": SCAN.replace("@", "in ^= 1; out ^= 1;"),
    "minus": SCAN.replace("@", "in = 1 - in; out = 1 - out;"),
    "swap": SCAN.replace("@", "int r = in; in = out; out = r;"),
    "both from one": SCAN.replace("@", "in = out; out = 1 - in;"),
    "pointers": POINTERS,
}


@pytest.mark.parametrize("name", SCANS)
def test_scans_with_two_buffers(name: str) -> None:
    """A scan is linear: nothing is kept, and no step of its forward sweep is left."""
    kernel, n = kernel_of(SCANS[name]), 60
    y, x, seed = np.zeros(n), *np.random.default_rng(1).standard_normal((2, n))
    expected = [seed[k : (k // 32 + 1) * 32].sum() for k in range(n)]
    for plan in ("as launched", "as on a GPU"):
        with forced(plan):
            gradient, d_x = kg.gradient(kernel, primal=False), np.zeros(n)
            gradient[2, 32](y, x, n, seed.copy(), d_x)
        np.testing.assert_allclose(d_x, expected, rtol=1e-12, atol=1e-12)
    d_x = np.zeros(n)
    report = gradient.check(2, 32, y, x, n, seed.copy(), d_x, seed=3)
    assert not report.findings, report
    assert not gradient.planned(make_launch(2, 32), (y, x, n), {}, on_gpu=True).plan.variant.places
