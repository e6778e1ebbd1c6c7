"""Adjoints of small inputs of vectors and records, which blocks add up as they add up those of numbers: the plans of a
GPU, run here, against the same kernel with an array of numbers."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cell_cases import LAUNCHES, chosen
from derived import kernel_of
from every_plan import forced
from kernelgrad.autodiff.calculus.flat_numbers import flat, flat_adjoint, numbers_in
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.explain.counted import counts
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.types import BF16, F16, F32, F64, I8, I32, I64, Array, Field, Pointer, Struct, Type
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from record_cell_cases import BODIES, FEW, LAYOUTS, MIXED, arguments, elements, rows, run, source, viewed

from ...emulation.run_text import run_packed

CELLS = "in cells of blocks"
OFTEN, ODD = (9, 33), (5, (8, 4))  # the others are run on a GPU, and with `-m slow`


FIRST = ("columns", "loop", "tile")  # others take as long, and are part of all cases


def _agree(got: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(got[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(other).max())))


@pytest.mark.parametrize("launch", [OFTEN, *(pytest.param(one, marks=pytest.mark.slow) for one in LAUNCHES)], ids=str)
@pytest.mark.parametrize("body", [b if b in FIRST else pytest.param(b, marks=pytest.mark.slow) for b in BODIES])
def test_values(body: str, launch: Any) -> None:
    """Each layout, in both precisions."""
    for n in (elements(body, launch), 0):
        expected = run(body, LAYOUTS["numbers"], launch, n)
        with forced(CELLS):
            for name, layout in LAYOUTS.items() if launch == OFTEN and n else [(k, LAYOUTS[k]) for k in FEW]:
                for real, tolerance in ((np.float64, 1e-11), (np.float32, 2e-4)):
                    got = run(body, layout, launch, n, real)
                    _agree(got, expected, tolerance)
                    assert n == 0 or chosen(got[2]) == {"w"}, name


@pytest.mark.parametrize(
    "body", ["columns", *(pytest.param(b, marks=pytest.mark.slow) for b in ("lookup", "loop", "anywhere"))]
)
def test_in_doubles(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells and what they are added to, of floats: records lie otherwise there."""
    monkeypatch.setattr("kernelgrad.launches.choice.block_cells.FLOATS", 0)
    n = elements(body, OFTEN)
    expected = run(body, LAYOUTS["numbers"], OFTEN, n)
    for name, layout in LAYOUTS.items():
        with forced(CELLS):
            got = run(body, layout, OFTEN, n, np.float32)
        _agree(got, expected, 2e-5)
        ((own,),) = {facts.cells for _, facts in got[2].forms.made if facts.cells}
        assert own.wide and own.wide_total, name


@pytest.mark.parametrize("plan", ["as on a GPU", "many blocks", "blocks in turns, with cells", "in two on a GPU"])
@pytest.mark.parametrize("body", ["columns", "loop", "branches", "one"])
def test_under_other_plans(body: str, plan: str) -> None:
    n = elements(body, ODD)
    expected = run(body, LAYOUTS["numbers"], ODD, n)
    for name in FEW:
        with forced(plan):
            _agree(run(body, LAYOUTS[name], ODD, n, np.float32), expected, 2e-4)


@pytest.mark.parametrize("name", ["two precisions", "halves"])
def test_mixed_widths(name: str) -> None:
    """Halves have adjoints in float, so that all numbers of a record are floats."""
    for body in ("columns", "lookup", "branches"):
        n = elements(body, OFTEN)
        expected = run(body, LAYOUTS["numbers"], OFTEN, n)
        with forced(CELLS):
            got = run(body, MIXED[name], OFTEN, n, np.float32)
        _agree(got, expected, 4e-3)
        assert (chosen(got[2]) == {"w"}) == MIXED[name].cells


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("body", ["lookup", "tile", "branches"])
def test_watched(body: str, name: str) -> None:
    """In shuffled orders: nothing is touched by two threads at once."""
    n, layout = elements(body, OFTEN), LAYOUTS[name]
    expected = run(body, LAYOUTS["numbers"], OFTEN, n)
    with forced(CELLS):
        gradient: Any = kg.gradient(kernel_of(source(body, layout)), "y, x, w")
        given = arguments(n, layout, np.float64)
        report = gradient.check(*OFTEN, *viewed(given, layout), seed=2)
    assert not report.findings, report
    _agree((given[6], rows(given[7])), expected, 1e-11)


@pytest.mark.parametrize("name", [*FEW, "small integers", "padding"])
def test_against_differences(name: str) -> None:
    layout = LAYOUTS[name]
    n = elements("loop", OFTEN)
    y, x, w, *numbers = viewed(arguments(n, layout, np.float64), layout)[:5]
    with forced(CELLS):
        report = kg.check_gradient(kernel_of(source("loop", layout)), "y, x, w", *OFTEN, (y, x, w, *numbers))
    assert report.ok, report


REFUSED = {
    "written": ("R *w", "y[i] = x[i] * w[i % c].a; if (i == 0) w[c].b = 2;"),
    "of two": ("const R *w", "const float *p = x[i] < 0.5f ? &w[2].a : x; y[i] = p[i % 2] * x[i];"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_cells(why: str) -> None:
    param, body = REFUSED[why]
    text = f"struct R {{ float a, b; int k; }}; __global__ void k(float *y, const float *x, {param}, int n, int c)"
    kernel = f"{text} {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {{ {body} }} }}"
    found = []
    for plan in ("as launched", CELLS):
        with forced(plan):
            gradient: Any = kg.gradient(kernel_of(kernel), "y, x, w")
            random = np.random.default_rng(0)
            x, seed = (random.random(320).astype(np.float32) for _ in range(2))
            w, d_w = (np.ones(64, np.dtype([("a", "f4"), ("b", "f4"), ("k", "i4")])) for _ in range(2))
            d_x = np.zeros_like(x)
            gradient[5, 64](np.zeros_like(x), x, w, 320, 60, seed, d_x, d_w)
        found.append((d_x, d_w["a"], d_w["b"]))
    assert chosen(gradient) == set()
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


RECORD = np.dtype([("a", "f4"), ("id", "i4"), ("b", "f4"), ("c", "f4")])
TABLES = {  # variables of the source, and shared memory that a block fills with all elements
    "a variable": ("__device__ R w[6];", "", "w[k]"),
    "rows of records": ("__device__ R w[2][3];", "", "w[k / 3][k % 3]"),
    "shared memory": (
        "",
        "__shared__ R s[6]; if (threadIdx.x < 6) s[threadIdx.x] = w[threadIdx.x]; __syncthreads();",
        "s[k]",
    ),
    "shared memory, by members": (
        "",
        "__shared__ R s[6]; for (int j = threadIdx.x; j < 6; j += blockDim.x) {"
        " s[j].id = w[j].id; s[j].a = w[j].a; s[j].b = w[j].b; s[j].c = w[j].c; } __syncthreads();",
        "s[k]",
    ),
}


@pytest.mark.parametrize("plan", ["as launched", CELLS, "long sums", "as on a GPU", "blocks in turns, with cells"])
@pytest.mark.parametrize("table", TABLES)
def test_tables_of_records(table: str, plan: str) -> None:
    variable, fill, read = TABLES[table]
    param = "" if variable else "const R *w, "
    text = (
        f"struct R {{ float a; int id; float b, c; }}; {variable} __global__ void k(float *y, const float *x, {param}"
    )
    text += f"int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {fill} if (i < n) {{"
    text += f" int k = (int)(x[i] * 5.99f); R r = {read}; y[i] = x[i] * (r.a * x[i] + (r.b + {read}.c) * r.id); }} }}"
    random = np.random.default_rng(0)
    x, seed = (random.random(700).astype(np.float32) for _ in range(2))
    w, d_w, d_x = np.zeros(6, RECORD), np.ones(6, RECORD), np.zeros_like(x)
    w["id"] = np.arange(6) if not variable else 0
    w["a"] = random.random(6) if not variable else 0
    with forced(plan):
        gradient: Any = kg.gradient(kernel_of(text), "y, x, w")
        given = (np.zeros_like(x), x, *(() if variable else (w,)), 700)
        gradient[13, 64](*given, seed.copy(), d_x, d_w)
        assert (chosen(gradient) == {"w"}) == (plan in (CELLS, "blocks in turns, with cells"))
    k, double = (x * np.float32(5.99)).astype(int), seed.astype(np.float64)
    expected = {"a": double * x * x, "b": double * x * w["id"][k], "c": double * x * w["id"][k]}
    for name, each in expected.items():
        np.testing.assert_allclose(d_w[name], 1 + np.bincount(k, each, 6), rtol=1e-5)
    np.testing.assert_array_equal(d_w["id"], 1)


def _record(*parts: Type, align: int = 1) -> Struct:
    """Packed."""
    fields, at = [], 0
    for k, part in enumerate(parts):
        fields.append(Field(f"m{k}", part, at))
        at += part.size
    return Struct(f"R{'_'.join(map(str, parts))}", tuple(fields), at, align)


def test_what_counts_as_an_array_of_numbers() -> None:
    assert flat(Array(F32, 7)) == F32 and flat(Array(Array(F64, 3), 2)) == F64
    four, odd = _record(F32, Array(F32, 3)), _record(F32, I8, F32)
    assert flat(four) == flat_adjoint(four) == F32 and numbers_in(Array(four, 3)) == 12
    assert flat(odd) is None and flat(_record(F32, I8)) is None
    assert flat(_record(F32, I32, F32)) == flat_adjoint(_record(F32, I32, F32)) == F32
    assert flat_adjoint(_record(F32, I32, I32, F32)) == flat_adjoint(_record(F32, I32, I64, F32, I32)) == F32
    assert flat_adjoint(_record(F64, I64, F64)) == F64 and flat(_record(F32, F64)) is None
    assert flat(_record(F32, Pointer(F32, "global"))) is None
    assert flat_adjoint(_record(F16, BF16)) == flat_adjoint(F16) == F32
    assert flat(_record(I32, I64)) is None and flat(Struct("empty")) is None
    union = Struct("U", (Field("f", F32, 0), Field("i", I32, 0)), 4, 4)
    assert flat(union) is None and flat_adjoint(_record(F32, union)) is None


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_large_launch(name: str) -> None:
    """As many additions in memory as for numbers."""
    n = 1 << 22
    found = {}
    for layout in ("numbers", name):
        gradient: Any = kg.gradient(kernel_of(source("lookup", LAYOUTS[layout], "float")), "y, x, w", primal=False)
        _, _, w, *_ = arguments(1, LAYOUTS[layout], np.float32)
        w = np.empty(64 * LAYOUTS[layout].four, w.dtype)
        args = (np.empty(n, np.float32), np.empty(n, np.float32), w, n, 63)
        found[layout] = counts(gradient.planned(make_launch(n // 256, 256), args, {}, on_gpu=True))
    # With what is nobody's, which stays zero.
    share = {
        "an integer": 5,
        "small integers": 7,
        "padding": 8,
        "two integers": 6,
        "integers behind": 6,
        "a long integer": 6,
    }.get(name, 4) / 4
    assert found[name].atomics == pytest.approx(found["numbers"].atomics * share, rel=0.01)
    assert found[name].atomics <= 2 * 1056 * 256


@pytest.mark.parametrize("name", [*LAYOUTS, "halves"])
def test_compiles(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    layout = {**LAYOUTS, **MIXED}[name]
    for body in ("lookup", "loop"):
        with forced(CELLS):
            gradient: Any = kg.gradient(kernel_of(source(body, layout, "float")), "y, x, w")
            text = gradient.source_for(50, 64, *viewed(arguments(3197, layout, np.float32), layout)[:5], on_gpu=True)
        assert "_cells_d_w[" in text and compile_only(text, "sm_90")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", [*FEW, "rows", "padding", "integers behind"])
@pytest.mark.parametrize("body", ["columns", "anywhere", "loop"])
def test_as_text(body: str, name: str) -> None:
    """The CUDA text, compiled by g++ against an emulation."""
    launch, layout = (9, 96), LAYOUTS[name]
    n = elements(body, launch)
    expected = run(body, LAYOUTS["numbers"], launch, n)
    with forced(CELLS):
        gradient: Any = kg.gradient(kernel_of(source(body, layout, "float")), "y, x, w")
        given = arguments(n, layout, np.float32)
        steps, _, own = gradient._prepare(make_launch(*launch), tuple(viewed(given, layout)), {}, single=False)
        ((kernel, bound, started, supplied),) = steps
        config = LaunchConfig(started.grid, started.block)
        told = {**own.supplied, **supplied}
        packed = kernel._with_variables(kernel.cuda_module, bound, config, None, told).packed
        offsets, _ = param_layout(kernel.cuda_module.functions[kernel.name])
        assert "_cells_d_w[" in kernel.source
        run_packed(kernel.source, kernel_name(kernel.name), started.grid, started.block, packed, offsets)
        own.finish()
    _agree((given[6], rows(given[7])), expected, 1e-4)
