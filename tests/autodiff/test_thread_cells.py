"""Shared arrays of which each thread has cells to itself: which launches get arrays of the thread's own, and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of, tangent_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch


class Case(NamedTuple):
    """`k(T *y, const T *x, const T *z, const int *f, int n, int d)`; `own`: the variables that are no longer shared."""

    body: str
    own: set[str]
    shared: str = "__shared__ double s[64], v[8];"
    block: Any = 8
    nbytes: int = 0
    d: int = 4

    @property
    def source(self) -> str:
        params = "double *y, const double *x, const double *z, const int *f, int n, int d"
        return f"__global__ void k({params}) {{\n    {self.shared}\n{OWN}\n    {self.body}\n}}"


OWN = "    int t = threadIdx.x, B = blockDim.x, i = blockIdx.x * B + t; double a = 0, p = 1;"
SYNC, END = "__syncthreads();", "y[i] = a * p;"
FILL = "for (int c = 0; c < d; ++c) s[t * 8 + c] = x[j + t + c] * z[c];"
USE = "for (int c = 0; c < d; ++c) { p = 0.5 * p + 0.3 * sin(s[t * 8 + c]); a += s[t * 8 + c] * p; }"
TURNS = "for (int j = 0; j < n; j += B)"

CASES = {
    "rows": Case(f"{TURNS} {{ {FILL} {USE} }} {END}", {"s"}),
    "beside a tile": Case(
        f"{TURNS} {{ v[t] = x[j + t]; {SYNC} {FILL} for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(s[t * 8 + c] * v[c]); a += s[t * 8 + c] * p; }} {SYNC} }} {END}",
        {"s"},
    ),
    "arrays of rows": Case(
        f"{TURNS} {{ for (int c = 0; c < d; ++c) r[t][c] = x[j + t + c]; for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(r[t][c] * z[c]); a += r[t][c] * p; }} }} {END}",
        {"r"},
        shared="__shared__ double r[8][5];",
    ),
    "columns": Case(
        f"{TURNS} {{ for (int c = 0; c < d; ++c) s[c * B + t] = x[j + t + c]; for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(s[c * B + t] * z[c]); a += s[c * B + t] * p; }} }} {END}",
        set(),  # of neighbours, cells are side by side
    ),
    "changed in place": Case(
        f"{TURNS} {{ {FILL} for (int c = 0; c < d; ++c) s[t * 8 + c] = exp(s[t * 8 + c] - p); {USE} }} {END}", {"s"}
    ),
    "two rows of threads": Case(
        "int u = threadIdx.y, w = u * 4 + t; for (int j = 0; j < n; j += 8) {"
        " for (int c = 0; c < d; ++c) s[u * 32 + t * 8 + c] = x[j + w + c]; for (int c = 0; c < d; ++c)"
        " { p = 0.5 * p + 0.3 * sin(s[w * 8 + c] * z[c]); a += s[w * 8 + c] * p; } } y[blockIdx.x * 8 + w] = a;",
        {"s"},
        block=(4, 2),
    ),
    "a part of dynamic memory": Case(
        f"double *own = all + t * d, *v = all + B * d; {TURNS} {{ v[t] = x[j + t]; {SYNC}"
        " for (int c = 0; c < d; ++c) own[c] = x[j + t + c] * z[c]; for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(own[c] * v[c]); a += own[c] * p; }} {SYNC} }} {END}",
        {"all_0"},
        shared="extern __shared__ double all[];",
        nbytes=8 * 8 * 5,
    ),
    # What others read, what overlaps, and what an iteration leaves for the next.
    "read by a neighbour": Case(
        f"{TURNS} {{ {FILL} {SYNC} for (int c = 0; c < d; ++c) {{ p = 0.5 * p + 0.3 * sin(s[(t + 1) % B * 8 + c]);"
        f" a += p; }} {SYNC} }} {END}",
        set(),
    ),
    "overlapping": Case(
        f"{TURNS} {{ for (int c = 0; c < 9; ++c) if (c < 8 || f[t] > 4) s[t * 8 + c] = x[j + c];"
        f" {USE} }} {END}",
        set(),
    ),
    "left for the next": Case(
        f"for (int c = 0; c < d; ++c) s[t * 8 + c] = 1; {TURNS} {{ for (int c = 0; c < d; ++c)"
        f" {{ p = 0.5 * p + 0.3 * sin(s[t * 8 + c] * z[c]); a += p; }} {FILL} }} {END}",
        set(),
    ),
    "filled now and then": Case(
        f"for (int c = 0; c < d; ++c) s[t * 8 + c] = 1; {TURNS} {{ if (f[j / 8] != 1) {FILL} {USE} }} {END}", set()
    ),
    "partly filled": Case(
        f"s[t * 8 + d - 1] = 0.3; {TURNS} {{ for (int c = 0; c < d - 1; ++c) s[t * 8 + c] = x[j + c];"
        f" {USE} }} {END}",
        set(),
    ),
    "added to": Case(
        f"for (int c = 0; c < d; ++c) s[t * 8 + c] = 0; {TURNS} for (int c = 0; c < d; ++c)"
        f" {{ s[t * 8 + c] += x[j + t + c]; a += s[t * 8 + c] * s[t * 8 + c]; }} {END}",
        set(),
    ),
    "atomically": Case(f"{TURNS} {{ {FILL} atomicAdd(&s[t * 8], x[j]); {USE} }} {END}", set()),
}  # fmt: skip


def arguments(case: Case) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(0.5, 1.5, 160) for _ in range(3)]
    return (*arrays, rng.integers(0, 3, 160).astype(np.int32), 24, case.d)


@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_which(name: str, options: dict[str, Any]) -> None:
    case = CASES[name]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z", **options)
    launch = make_launch(3, case.block, case.nbytes)
    plan = gradient.planned(launch, arguments(case), {}, on_gpu=True).plan
    text = gradient.source_for(3, case.block, *arguments(case), shared=case.nbytes, on_gpu=True)
    shared = {line.split("[")[0].split()[-1] for line in text.splitlines() if "__shared__" in line and "[" in line}
    assert not case.own & shared
    assert bool(case.own) == (plan.variant.kernel.function is not kernel_of(case.source).function) or case.nbytes


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU", "one kernel"])
@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, options: dict[str, Any], plan: str) -> None:
    """Against forward mode, by products with random tangents."""
    case, rng = CASES[name], np.random.default_rng(4)
    kernel, launch = kernel_of(case.source), (3, case.block, case.nbytes)
    (y, x, z, *numbers), seed = arguments(case), rng.uniform(-1, 1, 160)
    adjoints = [seed.copy(), np.zeros(160), np.zeros(160)]
    with forced(plan):
        kg.gradient(kernel, "y, x, z", **options)[launch](y.copy(), x, z, *numbers, *adjoints)
    tangents = [rng.uniform(-1, 1, 160) for _ in range(3)]
    moved = [v.copy() for v in tangents]
    tangent_of(kernel, "y, x, z")[launch](y.copy(), x, z, *numbers, *moved)
    np.testing.assert_allclose(sum(map(np.dot, adjoints, tangents)), seed @ moved[0], rtol=1e-10)


ATTENTION = """
__global__ void attention(const double *Q, const double *K, const double *V, int N, int d, int tiles, int B,
                          double scale, double *l, double *m, double *O) {
    extern __shared__ double memory[];
    int t = threadIdx.x, first = blockIdx.x * N * d, row = blockIdx.x * N, size = B * d;
    double *q = memory, *k = memory + size, *v = memory + 2 * size, *s = memory + 3 * size;
    for (int j = 0; j < tiles; ++j) {
        for (int c = 0; c < d; ++c) {
            k[t * d + c] = K[first + size * j + t * d + c];
            v[t * d + c] = V[first + size * j + t * d + c];
        }
        __syncthreads();
        for (int i = 0; i < tiles; ++i) {
            for (int c = 0; c < d; ++c) q[t * d + c] = Q[first + size * i + t * d + c];
            double m_before = m[row + B * i + t], l_before = l[row + B * i + t], m_here = -1e30, l_here = 0;
            for (int o = 0; o < B; ++o) {
                double sum = 0;
                for (int c = 0; c < d; ++c) sum += q[t * d + c] * k[o * d + c];
                s[B * t + o] = sum * scale;
                if (sum * scale > m_here) m_here = sum * scale;
            }
            for (int o = 0; o < B; ++o) {
                s[B * t + o] = exp(s[B * t + o] - m_here);
                l_here += s[B * t + o];
            }
            double m_now = fmax(m_before, m_here);
            double before = exp(m_before - m_now), here = exp(m_here - m_now);
            double l_now = before * l_before + here * l_here;
            for (int c = 0; c < d; ++c) {
                double sum = 0;
                for (int o = 0; o < B; ++o) sum += s[B * t + o] * v[o * d + c];
                int at = first + size * i + t * d + c;
                O[at] = (l_before * before * O[at] + here * sum) / l_now;
            }
            m[row + B * i + t] = m_now;
            l[row + B * i + t] = l_now;
        }
        __syncthreads();
    }
}
"""


def test_attention_in_one_array() -> None:
    """Against the formula, and next to no tape."""
    heads, N, d, B = 2, 12, 3, 4
    rng, kernel = np.random.default_rng(1), kg.compile(ATTENTION)["attention"]
    q, k, v, d_o = (rng.standard_normal((heads, N, d)) for _ in range(4))
    gradient = kg.gradient(kernel, "Q, K, V, O, l, m")
    state = [np.zeros((heads, N)), np.full((heads, N), -1e20), np.zeros((heads, N, d))]
    found = [np.zeros_like(q) for _ in range(3)]
    nbytes = 8 * (3 * B * d + B * B)
    arguments = (q, k, v, N, d, N // B, B, 0.7, *state)
    gradient[heads, B, nbytes](*arguments, *found, d_o.copy(), np.zeros((heads, N)), np.zeros((heads, N)))
    weights = np.exp(0.7 * q @ k.transpose(0, 2, 1))
    weights /= weights.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(state[2], weights @ v, rtol=1e-12)
    d_w = d_o @ v.transpose(0, 2, 1)
    d_s = 0.7 * weights * (d_w - (d_w * weights).sum(axis=2, keepdims=True))
    expected = d_s @ k, d_s.transpose(0, 2, 1) @ q, weights.transpose(0, 2, 1) @ d_o
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    steps = (N // B) ** 2
    assert gradient.tape_bytes(heads, B, *arguments, shared=nbytes) < heads * B * steps * 8 * (d + B + 4)
