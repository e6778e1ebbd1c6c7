"""Sums that a running scale keeps in range need no tape (Note [Rescaled sums]), nor do running maxima."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

ROWS, D = 5, 3

START = "double m = -1e30, l = 0, acc[D]; for (int d = 0; d < D; ++d) acc[d] = 0; "
GIVEN = START + "m = q[r]; l = w; for (int d = 0; d < D; ++d) acc[d] = q[r + d]; "
SCORE = "double s = 0; for (int d = 0; d < D; ++d) s += qr[d] * k[j * D + d]; "
STEP = SCORE + (
    "double mn = fmax(m, s), c = exp(m - mn), p = exp(s - mn); l = l * c + p; "
    "for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * v[j * D + d]; m = mn; "
)
LOOP = "for (int j = 0; j < n; ++j) { " + STEP + "} "
OUT = "for (int d = 0; d < D; ++d) o[r * D + d] = acc[d] / l; "
RAW = "for (int d = 0; d < D; ++d) o[r * D + d] = acc[d] + 0.1 * l; "

# The same with branches, and with guards for maxima of nothing.
ADD = "double p = exp(s - m); l += p; for (int d = 0; d < D; ++d) acc[d] += p * v[j * D + d]; "
BRANCH = SCORE + (
    "if (s > m) { double c = exp(m - s); l *= c; for (int d = 0; d < D; ++d) acc[d] *= c; m = s; } " + ADD
)
NOTHING = START.replace("-1e30", "-INFINITY")
SOME = "if ((j + r) % 4 < 2) s = -INFINITY; "  # rows begin with nothing
EMPTY = LOOP.replace("double mn", SOME + "double mn")
IF_NOT_EMPTY = EMPTY.replace("c = exp(m - mn), p = exp(s - mn);", "c = 0, p = 0; "
    "if (m != -INFINITY) c = exp(m - mn); if (mn != -INFINITY) p = exp(s - mn);")  # fmt: skip


def branching(step: str) -> str:
    return "for (int j = 0; j < n; ++j) { " + step + "} "


# A kernel's work for row r, from qr[D] and the n rows of k and v to o[D].
FREE = {
    "attention": START + LOOP + OUT,
    "not divided": START + LOOP + RAW,
    "the scale itself": START + LOOP + RAW + "o[r * D] += m * m; ",
    "log of the sum": START + LOOP + "o[r * D] = m + log(l); ",
    "a factor": START + "for (int j = 0; j < n; ++j) { " + SCORE + "double mn = fmax(m, s), c = exp2((m - mn) * w), "
        "p = exp2(fma(s, w, -mn * w)); l = l * c + p; acc[0] = fma(acc[0], c, p * v[j * D]); m = mn; } "
        "o[r * D] = acc[0] + l; ",
    "from the first": "int j = 0; " + SCORE + "double m = s, l = 1, acc[D]; for (int d = 0; d < D; ++d) acc[d] = v[d]; "
        "for (int j = 1; j < n; ++j) { " + STEP + "} " + RAW,
    "until": START + "int j = 0; while (j < n) { " + STEP + "++j; if (s > 2.5) break; } " + RAW,
    "only some": START + "for (int j = 0; j < n; ++j) { if ((j + r) % 3 == 1) continue; " + STEP + "} " + RAW,
    "if larger": START + "for (int j = 0; j < n; ++j) { " + SCORE + "double mn = m; if (s > m) mn = s; "
        "double c = exp(m - mn), p = exp(s - mn); l = l * c + p; m = mn; } o[r * D] = m * l; ",
    "causal": START + "for (int j = 0; j <= r && j < n; ++j) { " + STEP + "} " + OUT,
    "masked": START + "for (int j = 0; j < n; ++j) { " + STEP.replace("double mn", "if (j > r + 2) s = -1e9; double mn")
        + "} " + OUT,
    "squares": START + "double l2 = 0; for (int j = 0; j < n; ++j) { " + SCORE + "double mn = fmax(m, s), "
        "c = exp(m - mn), p = exp(s - mn); l = l * c + p; l2 = l2 * c * c + p * p; m = mn; } "
        "o[r * D] = l * l / l2 + l2; ",
    "a minimum": "double m = 1e30, l = 0; for (int j = 0; j < n; ++j) { " + SCORE + "double mn = s < m ? s : m; "
        "l = l * exp(mn - m) + exp(mn - s) * v[j]; m = mn; } o[r * D] = m - l; ",
    "two scales": "double m = -1e30, l = 0, m2 = -1e30, l2 = 0; for (int j = 0; j < n; ++j) { " + SCORE
        + "double mn = fmax(m, s), t = s * s, mt = fmax(m2, t); l = l * exp(m - mn) + exp(s - mn); "
        "l2 = l2 * exp(m2 - mt) + exp(t - mt) * v[j]; m = mn; m2 = mt; } o[r * D] = m + log(l) + l2 * 0.1; ",
    "a maximum alone": "double m = -1e30; for (int j = 0; j < n; ++j) { " + SCORE + "m = fmax(m, fmax(s, v[j])); } "
        "o[r * D] = m * m; ",
    "a start that is scaled": GIVEN + LOOP + RAW,
    "a start and branches": GIVEN + "for (int j = 0; j < n; ++j) { if (j % 3 == 1) continue; " + STEP + "} " + RAW,
    "two keys at a time": START + "for (int j = 0; j + 1 < n; j += 2) { " + SCORE + "double s1 = s * v[j], "
        "mn = fmax(fmax(m, s), s1), c = exp(m - mn); l = l * c + exp(s - mn) + exp(s1 - mn); m = mn; } "
        "o[r * D] = l + m; ",
    "tiles": START + "for (int b = 0; b < n; b += 2) { double t[2], mn = m; for (int i = 0; i < 2; ++i) { "
        "int j = b + i < n ? b + i : n - 1; " + SCORE + "t[i] = b + i < n ? s : -1e9; mn = fmax(mn, t[i]); } "
        "double c = exp(m - mn); l *= c; for (int d = 0; d < D; ++d) acc[d] *= c; for (int i = 0; i < 2; ++i) { "
        "int j = b + i < n ? b + i : n - 1; double p = exp(t[i] - mn); l += p; "
        "for (int d = 0; d < D; ++d) acc[d] += p * v[j * D + d]; } m = mn; } " + OUT,
    "a branch": START + branching(BRANCH) + OUT,
    "a branch, not divided": START + branching(BRANCH) + RAW + "o[r * D] += m * m; ",
    "a branch from nothing": NOTHING + branching(BRANCH) + OUT,
    "a branch the other way": START + branching(BRANCH.replace("if (s > m) {", "if (s <= m) { } else {")) + OUT,
    "a branch with a start": GIVEN + branching(BRANCH) + RAW,
    "a factor by a branch": START + branching(
        SCORE + "double c = 1; if (s > m) { c = exp(m - s); m = s; } double p = exp(s - m); l = l * c + p; "
        "acc[0] = acc[0] * c + p * v[j]; ") + RAW,
    "a branch with a factor": START + branching(BRANCH.replace("exp(m - s)", "exp((m - s) * w)").replace(
        "exp(s - m)", "exp((s - m) * w)")) + RAW,
    "guarded scales": NOTHING + LOOP.replace("c = exp(m - mn)", "c = m == -INFINITY ? 0 : exp(m - mn)") + OUT,
    "guarded terms": NOTHING + EMPTY.replace("c = exp(m - mn), p = exp(s - mn)", "c = mn == -INFINITY ? 1 : "
        "exp(m - mn), p = mn == -INFINITY ? 0 : exp(s - mn)") + RAW,
    "a safe maximum": NOTHING + EMPTY.replace("c = exp(m - mn), p = exp(s - mn)", "safe = mn == -INFINITY ? 0 : mn, "
        "c = exp(m - safe), p = exp(s - safe)") + RAW,
    "guards as branches": NOTHING + IF_NOT_EMPTY + RAW,
}  # fmt: skip

# What is needed of a loop in which one of the conditions does not hold is kept, and right.
KEPT = {
    "terms that are stored": START + LOOP.replace("m = mn;", "m = mn; o[r * D + 1] += p * 0.1;") + "o[r * D] = l; ",
    "a factor with a derivative": START + LOOP.replace("acc[d] * c", "acc[d] * c * v[j]") + OUT,
    "sums that decide": START + LOOP.replace("m = mn;", "m = mn; if (l > 1.7) break;") + OUT,
    "terms that decide": START + LOOP.replace("m = mn;", "m = mn; if (p > 0.5) l += 0.25;") + OUT,
    "divided in each step": START + LOOP.replace(
        "l = l * c + p; for (int d = 0; d < D; ++d) acc[d] = acc[d] * c + p * v[j * D + d];",
        "double lo = l; l = l * c + p; for (int d = 0; d < D; ++d) acc[d] = (acc[d] * lo * c + p * v[j * D + d]) / l;")
        + "for (int d = 0; d < D; ++d) o[r * D + d] = acc[d]; ",
    "unequal degrees": START + LOOP.replace("l = l * c + p;", "l = l * c + p + 0.1;") + RAW,
    "another scale": START + LOOP.replace("exp(m - mn)", "exp(0.5 * (m - mn))") + RAW,
    "a start that decays": GIVEN + LOOP.replace("l = l * c + p", "l = l * c * 0.5 + p") + RAW,
    "a start with signs": GIVEN + LOOP.replace("l = l * c + p", "l = p - l * c") + RAW,
    "a start that another sum has": GIVEN + LOOP.replace("p * v[j * D + d]", "l * 0.3") + RAW,
    "a start that goes": GIVEN + LOOP.replace("l = l * c + p", "l = j == 2 ? p : l * c + p") + RAW,
    "a start in a branch": GIVEN + LOOP.replace("m = mn;", "m = mn; if (j == 3) { l = 0; o[r * D + 1] += 1; }") + RAW,
    "a start scaled by a factor": "double m = q[r], l = q[r + 1]; for (int j = 0; j < n; ++j) { " + SCORE
        + "double mn = fmax(m, s); l = l * exp((m - mn) * w) + exp((s - mn) * w); m = mn; } o[r * D] = l; ",
    "sums as indices": START + LOOP.replace("m = mn;", "m = mn; o[r * D + 1] += v[(int)l]; ") + "o[r * D] = acc[0]; ",
    "terms as integers": START + "double y = 0; " + LOOP.replace("m = mn;", "m = mn; y += (int)(p * 3) * s; ")
        + "o[r * D] = acc[0] + y; ",
    "terms in the scale": "double m = q[r], l = 0; for (int j = 0; j < n; ++j) { " + SCORE
        + "double mn = m + 0.1 * exp(0.3 * s - m); l = l * exp(m - mn) + exp(s - mn); m = mn; } o[r * D] = l; ",
    "taken in a branch, kept in another": "double m = -1e30; for (int j = 0; j < n; ++j) { " + SCORE + "double mn = m; "
        "if (s > m) { mn = s; o[r * D + 1] += 1; } if (j % 2 == r % 2) { m = mn; o[r * D + 2] += 1; } } "
        "o[r * D] = m * m; ",
    "the last but one": "double m = -1e30, z = 0; for (int j = 0; j < n; ++j) { " + SCORE + "z = m; m = fmax(m, s); } "
        "o[r * D] = m * w; o[r * D + 1] = z < -1e20 ? w : z * z; ",
    "a branch that adds": START + branching(BRANCH.replace("l *= c;", "l = l * c + 0.1;")) + RAW,
    "a branch by another scale": START + branching(BRANCH.replace("exp(m - s)", "exp(0.5 * (m - s))")) + RAW,
    "a branch by another number": START + branching(BRANCH.replace("exp(m - s)", "exp(m - 1.1 * s)")) + RAW,
    "a branch that leaves a sum": START + branching(BRANCH.replace("l *= c; ", "")) + RAW,
    "a branch that forgets": START + branching(BRANCH.replace("l *= c;", "l = 0;")) + RAW,
    "a branch with a factor of its own": START + branching(BRANCH.replace("l *= c;", "l *= c * v[j];")) + RAW,
    "a branch that uses what it takes": START + branching(BRANCH.replace("l *= c;", "l *= c * s;")) + RAW,
    "a branch too late": START + branching(BRANCH.replace("if (s > m)", "if (s > m + 0.5)")) + RAW,
    "a branch the wrong way": START.replace("-1e30", "0.1") + branching(BRANCH.replace("s > m", "s < m")) + RAW,
    "a guard of another number": START + LOOP.replace("c = exp(m - mn)", "c = m == -1e30 ? 0.5 : exp(m - mn)") + RAW,
    "guarded, but no maximum": NOTHING + "m = 0.3; " + branching(SCORE + "double mn = j == 1 ? -INFINITY : fmax(m, s); "
        "double safe = mn == -INFINITY ? 0 : mn, c = exp(m - safe), p = exp(s - safe); l = l * c + p; m = mn; ") + RAW,
    "guarded, and more added": NOTHING + branching(SCORE + SOME + "double mn = fmax(m, s), t = v[j], "
        "c = m == -INFINITY ? 0 : exp(m - mn), p = mn == -INFINITY ? 0 : exp(s - mn) + exp(t - mn); "
        "l = l * c + p; m = mn; ") + RAW,
    "guarded, and something": NOTHING + EMPTY.replace("c = exp(m - mn), p = exp(s - mn)",
        "c = m == -INFINITY ? 1 : exp(m - mn), p = mn == -INFINITY ? 0.5 : exp(s - mn)") + RAW,
    "guards around more": NOTHING + "double z = 0; " + IF_NOT_EMPTY.replace("p = exp(s - mn);", "{ p = exp(s - mn); "
        "z += v[j] * v[j]; }") + RAW + "o[r * D] += z; ",
    "a start that is guarded away": GIVEN + "m = -INFINITY; " + LOOP.replace(
        "c = exp(m - mn)", "c = m == -INFINITY ? 0.5 : exp(m - mn)") + RAW,
    "a start lost by a guard": GIVEN + "m = -INFINITY; " + LOOP.replace(
        "c = exp(m - mn)", "c = m == -INFINITY ? 0 : exp(m - mn)") + RAW,
    "a maximum of sums": START + LOOP.replace("fmax(m, s)", "fmax(m, fmax(s, 0.1 * l))") + RAW,
}  # fmt: skip


@lru_cache(64)
def compiled(work: str) -> Any:
    source = f"""#define D {D}
    __global__ void f(const double *q, const double *k, const double *v, double w, double *o, int n, int rows) {{
        int r = blockIdx.x * blockDim.x + threadIdx.x;
        if (r >= rows) return;
        double qr[D];
        for (int d = 0; d < D; ++d) qr[d] = q[r * D + d];
        {work}
    }}"""
    return kg.compile(source)["f"]


def arrays(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [1.5 * rng.standard_normal(size) for size in (ROWS * D, max(1, n) * D, max(1, n) * D)]


def run(work: str, inputs: list[Any], n: int) -> Any:
    o = np.zeros(ROWS * D)
    *arrays, (w,) = inputs
    compiled(work)[2, 4](*arrays, float(w), o, n, ROWS)
    return o


def check(work: str, n: int, options: dict[str, Any]) -> None:
    inputs, w, rng = arrays(n), 0.8, np.random.default_rng(7)
    seed = rng.standard_normal(ROWS * D)
    adjoints = [*map(np.zeros_like, inputs), np.zeros(1), seed.copy()]
    args = (*inputs, w, np.zeros(ROWS * D), n, ROWS)
    if options == {"split": True}:
        forward, reverse = kg.split(compiled(work))
        reverse[2, 4](forward[2, 4](*args), *args, *adjoints)
    else:
        kg.gradient(compiled(work), **options)[2, 4](*args, *adjoints)
    moved, step = [rng.standard_normal(a.shape) for a in (*inputs, np.zeros(1))], 1e-6

    def at(by: float) -> Any:
        return run(work, [a + by * m for a, m in zip((*inputs, np.array([w])), moved, strict=True)], n)

    found = sum(float(a @ m) for a, m in zip(adjoints, moved, strict=False))
    assert found == pytest.approx((at(step) - at(-step)) @ seed / (2 * step), rel=2e-6, abs=1e-7)


OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"primal": False}, {"deterministic": True}, {"tape_budget": 900}, {"split": True}
)  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_gradient_without_tape(name: str) -> None:
    for n in (7, 1):
        check(FREE[name], n, {})
    gradient = kg.gradient(compiled(FREE[name]))
    assert gradient.tape_bytes(2, 4, *arrays(7), 0.8, np.zeros(ROWS * D), 7, ROWS) <= 8 * 8  # a count for each thread


@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)
@pytest.mark.parametrize("name", ("not divided", "from the first", "until", "tiles"))
def test_every_way(name: str, options: dict[str, Any]) -> None:
    check(FREE[name], 7, options)


@pytest.mark.parametrize("name", KEPT)
def test_gradient_with_tape(name: str) -> None:
    work = KEPT[name]
    assert work not in FREE.values()
    check(work, 7, {})


@pytest.mark.parametrize("name", ("attention", "not divided", "until"))
def test_no_iterations(name: str) -> None:
    inputs = arrays(0)
    adjoints = [*map(np.zeros_like, inputs), np.zeros(1), np.ones(ROWS * D)]
    kg.gradient(compiled(FREE[name]))[2, 4](*inputs, 0.8, np.zeros(ROWS * D), 0, ROWS, *adjoints)
    assert not any(a.any() for a in adjoints[:4])


def test_equal_scores_go_to_one_of_them() -> None:
    work = FREE["a maximum alone"].replace("fmax(s, v[j])", "s")
    q, k, v = np.ones(ROWS * D), np.ones(7 * D), np.zeros(7 * D)
    d_q, d_k, d_v = (np.zeros_like(a) for a in (q, k, v))
    kg.gradient(compiled(work))[2, 4](
        q, k, v, 1.0, np.zeros(ROWS * D), 7, ROWS, d_q, d_k, d_v, np.zeros(1), np.ones(ROWS * D)
    )
    assert d_k.reshape(7, D)[0] == pytest.approx([2.0 * D * ROWS] * D) and not d_k.reshape(7, D)[1:].any()
