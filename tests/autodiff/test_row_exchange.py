"""Loops that all threads run over the same elements, exchanged for the threads: in a launch of their own, a thread has
an element and sums up over the others."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.explain.counted import counts
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from row_exchange_cases import EXCHANGED, STAYS, Case

from ..emulation.run_text import run_packed

CASES = {**EXCHANGED, **{name: Case(source, 0) for name, source in STAYS.items()}}
WAYS: dict[str, dict[str, Any]] = {
    "value and gradient": {},
    "consumed": {"primal": False},
    "kept": {"primal": False, "keep": ["o"], "assign": ["q", "k", "v"]},
}


def adjoints_of(case: Case, args: list[Any]) -> list[Any]:
    return [np.random.default_rng(7 + k).standard_normal(a.size).astype(a.dtype) for k, a in enumerate(args[:4])]


def launched(case: Case, options: dict[str, Any], seed: int | None = None) -> tuple[list[Any], Any]:
    gradient, args = kg.gradient(kernel_of(case.source, "kernel"), "o, q, k, v", **options), case.arguments()
    adjoints = adjoints_of(case, args)
    if seed is None:
        gradient[case.grid, case.block](*args, *adjoints)
    else:
        report = gradient.check(case.grid, case.block, *args, *adjoints, seed=seed)
        assert not report.findings, report
    return [*args[:4], *adjoints], gradient


def assert_same(got: list[Any], wanted: list[Any]) -> None:
    tolerance = 1e-10 if got[0].dtype == np.float64 else 2e-4
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, abs(other).max()))


def key_launches(gradient: Any, case: Case) -> int:
    planned = gradient.planned(make_launch(case.grid, case.block), tuple(case.arguments()), {})
    return sum(step.role == "keys" for step in planned.plan.steps)


# All of them as they are fastest, some in every way.
IN_EVERY_WAY = ("online", "two passes", "causal, n rows", "heads", "float4", "a recurrence")
PAIRS = [(name, way) for name in CASES for way in WAYS if way == "kept" or name in IN_EVERY_WAY]
AS_TEXT = (
    "online",
    "branches",
    "two passes by a pointer",
    "float4",
    "a window",
    "every third",
    "heads",
    "soft k-means",
    "a window of keys that others name",
)


@pytest.mark.parametrize(("name", "way"), PAIRS)
def test_values(name: str, way: str) -> None:
    """Against the gradient without it; run, and watched in a shuffled order."""
    case, options = CASES[name], WAYS[way]
    wanted, _ = launched(case, options)
    with forced("exchanged"):
        got, gradient = launched(case, options)
        if way == "kept":
            assert key_launches(gradient, case) == case.keys
            assert_same(launched(case, options, seed=3)[0], wanted)
    assert_same(got, wanted)


@pytest.mark.parametrize("name", AS_TEXT)
def test_as_text(name: str) -> None:
    """The CUDA text of every launch, compiled by g++ against an emulation."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    case = EXCHANGED[name]
    wanted, _ = launched(case, WAYS["kept"])
    args = case.arguments()
    adjoints = adjoints_of(case, args)
    with forced("exchanged"):
        gradient = kg.gradient(kernel_of(case.source, "kernel"), "o, q, k, v", **WAYS["kept"])
        steps, _, own = gradient._prepare(make_launch(case.grid, case.block), (*args, *adjoints), {})
        for kernel, bound, launch, supplied in steps:
            module, config = kernel.cuda_module, LaunchConfig(launch.grid, launch.block)
            packed = kernel._with_variables(module, bound, config, None, supplied).packed
            offsets, _ = param_layout(module.functions[kernel.name])
            run_packed(kernel.source, kernel_name(kernel.name), launch.grid, launch.block, packed, offsets)
        own.finish()
    assert_same([*args[:4], *adjoints], wanted)


def test_zeros_meet_infinities() -> None:
    """Rows whose adjoints are zero add nothing, whatever they computed."""
    case = EXCHANGED["kernel regression"]
    for way in WAYS.values():
        found = []
        for plan in ("as launched", "exchanged"):
            args = case.arguments()
            adjoints = adjoints_of(case, args)
            args[1][8], adjoints[0][8:12] = np.inf, 0.0
            args[3][20], adjoints[0][0::4] = np.inf, 0.0
            with forced(plan):
                kg.gradient(kernel_of(case.source, "kernel"), "o, q, k, v", **way)[case.grid, case.block](
                    *args, *adjoints
                )
            found.append(adjoints)
        assert_same(found[1], found[0])
        assert np.isfinite(found[1][3]).all()


def test_attention_by_its_formula() -> None:
    case = EXCHANGED["online"]
    o, q, k, v, n, rows = case.arguments()
    d_o, *adjoints = (
        np.zeros_like(a) if number else a * 0 + np.sin(np.arange(a.size)) for number, a in enumerate((o, q, k, v))
    )
    with forced("exchanged"):
        kg.gradient(kernel_of(case.source, "kernel"), "o, q, k, v")[case.grid, case.block](
            o, q, k, v, n, rows, d_o.copy(), *adjoints
        )
    q, k, v, d_o = (a.reshape(-1, 4) for a in (q, k, v, d_o))
    e = np.exp(q @ k.T)
    p = e / e.sum(1, keepdims=True)
    d_s = p * (d_o @ v.T - (d_o * (p @ v)).sum(1, keepdims=True))
    for found, expected in zip(adjoints, (d_s @ k, d_s.T @ q, p.T @ d_o), strict=True):
        np.testing.assert_allclose(found, expected.ravel(), rtol=1e-9, atol=1e-11)


def planned_on_gpu(source: str, rows: int, n: int, **options: Any) -> Any:
    arrays = [np.zeros(count * 16, np.float32) for count in (rows, rows, n, n)]
    made = kg.gradient(kg.compile(source.replace("#define D 4", "#define D 16"))["kernel"], "o, q, k, v", **options)
    return made.planned(make_launch(-(-rows // 128), 128), (*arrays, n, rows), {}, on_gpu=True)


def test_what_is_chosen() -> None:
    """Large launches of attention have no atomics in loops, and a few numbers of each row in memory."""
    planned = planned_on_gpu(EXCHANGED["floats"].source, 16384, 1024, primal=False, keep=["o"])
    found = counts(planned)
    rows, keys = planned.plan.steps
    assert (rows.role, keys.role) == ("kernel", "keys") and found.tape == 0
    assert found.atomics == 2 * 16 * 1024 * keys.grid[1] and keys.grid[1] <= 128
    assert sum(b.count * b.type.size for b in planned.plan.variant.exchanged.buffers) <= 32
    assert "_of_rows" in keys.kernel.source and "atomicAdd" not in rows.kernel.source
    for other in ({"deterministic": True}, {"may_alias": True}):
        steps = planned_on_gpu(EXCHANGED["floats"].source, 16384, 1024, **other).plan.steps
        assert all(step.role != "keys" for step in steps)
    assert len(planned_on_gpu(EXCHANGED["floats"].source, 256, 100).plan.steps) == 1


def test_more_heads_than_a_grid_has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along its last axis."""
    case = EXCHANGED["heads"]
    wanted, _ = launched(case, WAYS["kept"])
    monkeypatch.setattr("kernelgrad.schedule.exchange.exchanged._MOST_GRID", 1)
    with forced("exchanged"):
        got, gradient = launched(case, WAYS["kept"])
        assert key_launches(gradient, case) == 0
    assert_same(got, wanted)


def test_explained() -> None:
    case = EXCHANGED["online"]
    with forced("exchanged"):
        text = kg.gradient(kernel_of(case.source, "kernel"), "o, q, k, v").explain(
            case.grid, case.block, *case.arguments()
        )
    assert "loops exchanged for threads" in text and "kernel_grad_keys: grid 1" in text
    assert "which sums up what all threads would add in it (4 times)" in text and "go round" not in text


def test_the_same_text_twice() -> None:
    """In the order of the source, not of a set."""
    case = EXCHANGED["two passes"]
    with forced("exchanged"):
        texts = [
            kg.gradient(kg.compile(case.source)["kernel"], "o, q, k, v").source_for(
                case.grid, case.block, *case.arguments()
            )
            for _ in range(2)
        ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["floats", "two passes by a pointer", "causal, n rows"])
def test_nvrtc(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelgrad.runtime.cuda import compile_only

    case = EXCHANGED[name]
    with forced("exchanged"):
        made = kg.gradient(kernel_of(case.source, "kernel"), "o, q, k, v", primal=False)
        for step in made.planned(make_launch(case.grid, case.block), tuple(case.arguments()), {}).plan.steps:
            assert compile_only(step.kernel.source, "sm_80")


LOOKING = {
    "overwritten before": "if (q[i] > 0) k[a + 1] = q[i]; double s = 0;"
    " for (int j = 0; j < n; ++j) s += k[a + j] * q[j];",
    "scaled before": "for (int j = 0; j < n; ++j) k[a + j] *= 2; double s = 0;"
    " for (int j = 0; j < n; ++j) s += k[a + n - 1 - j] * q[i];",
}


@pytest.mark.parametrize("name", LOOKING)
def test_rows_that_look_at_adjoints_add_to_them_in_time(name: str) -> None:
    """A thread alone in its block reads back what it added to the adjoints of its keys: no other launch may add it."""
    params = "double *o, const double *q, double *k, const int *start, int n"
    body = f"int i = blockIdx.x, a = start[i]; {LOOKING[name]} o[i] = s;"
    kernel: Any = kg.compile(f"__global__ void kernel({params}) {{ {body} }}")["kernel"]
    rng, found = np.random.default_rng(0), list[Any]()
    q, k, start = rng.uniform(-1, 1, 9), rng.uniform(-1, 1, 45), np.arange(0, 45, 9, dtype="i4")[::-1].copy()
    for plan in ("exchanged", "one kernel"):
        d_o, d_k = np.ones(5), np.ones(45)
        with forced(plan):
            kg.gradient(kernel, "o, k")[5, 1](np.zeros(5), q, k.copy(), start, 9, d_o, d_k)
        found.append(d_k)
    np.testing.assert_allclose(*found, rtol=1e-12)


WINDOWS = {
    "the largest": "double m = -1e30; for (int j = max(0, i - 16); j <= i; ++j) m = fmax(m, q[j]); o[i] = m;",
    "a group": "double m = -1e30; int g = i / 8; for (int j = g * 8; j < g * 8 + 8; ++j) m = fmax(m, q[j]); o[i] = m;",
}


@pytest.mark.parametrize("name", WINDOWS)
def test_loops_over_a_window_are_not_over_all_keys(name: str) -> None:
    """Of a million keys, each row has a few."""
    body = f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {{ {WINDOWS[name]} }}"
    kernel: Any = kg.compile(f"__global__ void kernel(double *o, const double *q, int n) {{ {body} }}")["kernel"]
    n = 1 << 20
    gradient = kg.gradient(kernel, "o, q", primal=False)
    plan = gradient.planned(make_launch(n // 256, 256), (np.empty(n), np.empty(n), n), {}, on_gpu=True).plan
    assert not plan.variant.options.facts.exchanged


FIELD = """struct B { float p[3], m; };
__global__ void k(float *y, const float *t, const TYPE *p, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = t[i], s = 0;
    for (int j = 0; j < m; ++j) { float4 q = READ; float a = q.x - x; s += q.w * rsqrtf(a * a + q.y * q.y + q.z + 1); }
    y[i] = s;
}"""
FIELDS = {
    "numbers": ("float", "make_float4(p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3])"),
    "vectors": ("float4", "p[j]"),
    "records": ("B", "make_float4(p[j].p[0], p[j].p[1], p[j].p[2], p[j].m)"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_few_keys_of_very_many_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are added to in doubles, whatever they are written as: copies of so few numbers would be no better."""
    type, read = FIELDS[name]
    kernel = kernel_of(FIELD.replace("TYPE", type).replace("READ", read), "k")
    n, m = 1 << 20, 4096
    arrays = [np.empty(size, np.float32) for size in (n, n, 4 * m)]
    gradient: Any = kg.gradient(kernel, "y, t, p", primal=False, keep="y")
    planned = gradient.planned(make_launch(n // 256, 256), (*arrays, n, m), {}, on_gpu=True)
    assert [step.role for step in planned.plan.steps] == ["kernel", "keys"]
    assert planned.plan.variant.options.facts.wide == {"p"} and counts(planned).atomics <= 32 * n
    monkeypatch.setattr("kernelgrad.launches.choice.exchanging._FEW_THREADS", 0)
    for where in ("_MANY_BLOCKS", "_CROWD"):
        monkeypatch.setattr(f"kernelgrad.launches.choice.choose.{where}", 0)
    monkeypatch.setattr("kernelgrad.launches.choice.block_cells.ENABLED", False)
    random = np.random.default_rng(4)
    y, t, p, seed = (random.random(size).astype(np.float32) for size in (700, 700, 4 * 300, 700))
    found = []
    for plan in ("as launched", "exchanged"):
        d_t, d_p = np.zeros_like(t), np.zeros_like(p)
        with forced(plan):
            gradient = kg.gradient(kernel, "y, t, p", primal=False, keep="y")
            gradient[11, 64](y, t, p, 700, 300, seed.copy(), d_t, d_p)
        found.append((d_t, d_p))
    assert any(facts.exchanged and facts.wide == {"p"} for _, facts in gradient.forms.made)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_what_rows_leave_may_be_added_as_it_is() -> None:
    """Of the rows alone, with no key in it: a double by then."""
    kernel = kernel_of(
        """__global__ void k(float *y, const float *x, const float *w, int n, int m) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) { float s = 0; for (int j = 0; j < m; ++j) s += w[j] * x[i]; y[i] = s * w[(i / 5) % m]; }
    }""",
        "k",
    )
    large: Any = kg.gradient(kernel, "y, x, w")
    arrays = [np.empty(size, np.float32) for size in (1 << 20, 1 << 20, 4096)]
    assert "_keys" in large.source_for(4096, 256, *arrays, 1 << 20, 4096, on_gpu=True)
    random, n, m = np.random.default_rng(0), 20 * 64, 3
    y, x, w, d_y = (random.random(size).astype(np.float32) for size in (n, n, m, n))
    d_x, d_w, factor = np.zeros_like(x), np.zeros_like(w), w[np.arange(n) // 5 % m]
    with forced("exchanged"):
        kg.gradient(kernel, "y, x, w", primal=False)[20, 64](y, x, w, n, m, d_y.copy(), d_x, d_w)
    expected = np.full(m, (d_y * factor * x).sum()) + np.bincount(np.arange(n) // 5 % m, d_y * x * w.sum(), m)
    np.testing.assert_allclose(d_w, expected, rtol=1e-5)
