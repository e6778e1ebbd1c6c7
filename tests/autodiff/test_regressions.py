"""Kernels, made small, whose gradients were once wrong or failed. Most were found by generated kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import kernelgrad as kg

N = 12


pytestmark = pytest.mark.usefixtures("cache_of_its_own")


@dataclass(frozen=True)
class Case:
    """`body` is a kernel's, with the buffers y, t, q, x of N doubles, s of one, integers k, the number a, and n."""

    name: str
    why: str
    listed: str
    body: str


CASES = (
    Case(
        "a_kept_result_beside_a_recomputed_one",
        "a branch gives one value that must be kept and one that is recomputed: the rerun replaced the kept one",
        "s, a",
        """
        double b = 0.3;
        int j = 0;
        do {
            if (k[i] == 1) {
                if (n == 0) return;
                if (q[i] > 0.1) b = sin(x[i]);
            }
            double v = sin(b);
            q[i] = 2;
            b = a;
            atomicAdd(&s[0], v * a);
        } while (++j < 3 && i >= k[i]);
        """,
    ),
    Case(
        "swapped_pointers_to_listed_and_unlisted_memory",
        "the unlisted buffer had no shadow and stood in for its own: it was cleared",
        "y, x",
        """
        double *from = &t[i], *to = &y[i];
        for (int j = 0; j < n / 3; ++j) {
            *to = x[(i + j) % n];
            double *other = from; from = to; to = other;
        }
        """,
    ),
    Case(
        "swapped_pointers_to_local_arrays_of_which_one_is_not_read",
        "as above, with local memory",
        "y, x",
        """
        double one[4] = {1.3, x[i], 0.5, a}, two[4] = {x[0], a, t[i], 1.0};
        double *from = &one[k[i] % 4], *to = &two[n % 4];
        for (int j = 0; j < 3; ++j) {
            *to = cos(x[i] + j);
            double *other = from; from = to; to = other;
        }
        y[i] = two[k[i] % 4];
        """,
    ),
    Case(
        "swapped_pointers_to_arrays_of_different_scopes",
        "the shadow of the inner array was made again in the reverse, but the pointers kept on the tape pointed to the"
        " first one",
        "y, x",
        """
        double outer[3] = {1, a};
        if (a < 5 + q[i]) {
            double inner[3] = {x[1]};
            double *from = &inner[0], *to = &outer[1];
            for (int j = 0; j < n / 4; ++j) {
                *from = *from * q[i];
                *from = *from * cos(0.1 * (y[i] + x[(int)(3.0 / (1.0 + fabs(x[i] - *from))) % n]));
                *to = 1 / (1.0 + fabs(0.5 * (*to + q[(i + j) % n])));
                double *other = from; from = to; to = other;
            }
            y[i] = inner[n % 3];
        }
        t[i] = 1;
        """,
    ),
    Case(
        "what_a_rerun_does_not_need",
        "a loop that only the primal needs ran again, on memory that was not filled again",
        "s",
        """
        for (int j = 0; j <= n / 2; j += 2) {
            for (int l = 4; l >= 0; l -= 1) {
                atomicAdd(&s[0], 1.0);
                double table[4] = {a, 1, 0.25};
                if ((int)table[k[i] % 4] >= l) {
                    int m = 0;
                    while (m++ < 2 && ((3 < l) || ((int)(3.0 * q[i]) == k[(l * n) % n] + l))) {}
                }
            }
        }
        """,
    ),
    Case(
        "a_rerun_loop_around_one_whose_length_cannot_be_recomputed",
        "the number of iterations of the inner loop was kept by a rerun that did not know it",
        "y, t",
        """
        int j = 0;
        while (j++ < 2 && x[i] < 2) {
            for (int l = 0; l <= j; l += 2) {
                int m = 0;
                while (m++ < 4 && (k[(l + i) % n] < i ? a : x[i]) > y[i] - 2) t[i] *= 0.9 + 0.1 * sin(0.1 * i);
            }
        }
        y[i] = t[i] * t[i];
        """,
    ),
    Case(
        "a_short_loop_inside_a_while_loop",
        "the short loop was unrolled and what simplification left of the loop around it was no longer in the form that"
        " reversal knows",
        "y, a",
        """
        for (int j = 5; j > 0; --j) {
            if (q[i] > x[1] + j) return;
            for (int l = 0; l <= 2; l += 2) y[i] = y[i] * y[i] > 0.04 ? 0.25 * y[i] : a;
        }
        """,
    ),
    Case(
        "a_constant_between_a_chosen_pointer_and_its_load",
        "the load moved into the branch and took along a constant that others use",
        "y, t",
        """
        double *chosen = &t[i];
        if (k[i] != n) chosen = &q[i];
        y[i] += cos(0.1 * chosen[0]);
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regression(case: Case) -> None:
    head = "double *y, double *t, double *q, double *s, const double *x, const int *k, double a, int n"
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    kernel = kg.compile(f'extern "C" __global__ void kernel({head}) {{ {index} {case.body} }}')["kernel"]
    rng = np.random.default_rng(3)
    buffers = [rng.normal(size=size) * 0.7 for size in (N, N, N, 1, N)]
    args = [*buffers, (np.arange(N) % 3).astype(np.int32), 0.6, N]
    kg.check_gradient(kernel, case.listed, 2, 8, args)
    plain, after = ([np.copy(v) if isinstance(v, np.ndarray) else v for v in args] for _ in range(2))
    kernel[2, 8](*plain)
    sizes = {"a": 1, "s": 1}
    adjoints = [np.ones(sizes.get(name, N)) for name in case.listed.split(", ")]
    gradient = kg.gradient(kernel, case.listed)
    gradient[2, 8](*after, *adjoints)
    for one, other in zip(plain[:5], after[:5], strict=True):
        np.testing.assert_allclose(other, one)
    gradient.check(2, 8, *args, *adjoints).raise_if_failed()


def test_segments_when_a_counted_loop_turns_out_to_be_known() -> None:
    """A loop whose length is known at some launches only: every block still finds its segment of the tape."""
    kernel = kg.compile("""
        __global__ void k(double *y, const double *x, int n, int m) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          double v = x[i];
          for (int d = m; d > 0; d /= 2) v = v * v + 0.1 * sin(v);
          y[i] = v;
        }""")["k"]
    gradient = kg.gradient(kernel, "y, x")
    for m in (0, 1, 5, 1000):
        y, x, d_y, d_x = np.zeros(64), np.linspace(0.1, 0.6, 64), np.ones(64), np.zeros(64)
        report = gradient.check(4, 16, y.copy(), x, 64, m, d_y.copy(), d_x.copy())
        assert report.ok, str(report)
        gradient[4, 16](y, x, 64, m, d_y, d_x)
        step = 1e-6
        up, down = np.zeros(64), np.zeros(64)
        kernel[4, 16](up, x + step, 64, m)
        kernel[4, 16](down, x - step, 64, m)
        np.testing.assert_allclose(d_x, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)
