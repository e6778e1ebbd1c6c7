"""`kg.assume(unique="idx")`: updates through an index buffer are plain where its promise tells threads apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.cli import main
from kernelgrad.runtime.config import make_launch

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
ROW_COLUMN = "int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;"
STRIDE = "for (int c = threadIdx.x; c < w; c += blockDim.x)"

# The body of `k(double *y, const double *x, const int *idx, const int *other, int n, int w)`, a launch, and what is
# updated plainly there. idx and other are permutations of 0 .. 63; n = 16, w = 6.
CASES: dict[str, tuple[str, Any, Any, set[str]]] = {
    "gather": (f"{I} if (i < n) y[i] = x[idx[i]] * x[idx[i]];", 2, 8, {"y", "x"}),
    "scatter": (f"{I} if (i < n) y[idx[i]] = x[i] * x[i];", 2, 8, {"y", "x"}),
    "both ways": (f"{I} y[idx[i]] = x[other[i]] * x[other[i]];", 2, 8, {"y", "x"}),
    "three of a row": (f"{I} for (int c = 0; c < 3; c++) y[3 * i + c] = x[idx[i] * 3 + c];", 2, 8, {"y", "x"}),
    "four of rows of three": (f"{I} for (int c = 0; c < 4; c++) y[4 * i + c] = x[idx[i] * 3 + c];", 2, 8, {"y"}),
    "neighbours in a row": (f"{I} y[i] = x[3 * idx[i]] * x[3 * idx[i] + 2];", 2, 8, {"y", "x"}),
    "neighbours of a row": (f"{I} y[i] = x[3 * idx[i]] * x[3 * idx[i] + 3];", 2, 8, {"y"}),
    "several places of it": (f"{I} y[i] = x[idx[2 * i]] * x[idx[2 * i + 1]];", 2, 8, {"y", "x"}),
    "shared places of it": (f"{I} y[i] = x[idx[i]] * x[idx[i + 1]];", 2, 8, {"y"}),
    "one place of it for all": (f"{I} y[i] = x[idx[w]] * i;", 2, 8, {"y"}),
    "a place for each pair": (f"{I} y[i] = x[idx[i / 2]] * i;", 2, 8, {"y"}),
    "grid stride": (
        f"{I} for (; i < n; i += blockDim.x * gridDim.x) y[i] = x[idx[i]] * x[idx[i]];",
        2,
        4,
        {"y", "x"},
    ),
    "rows and columns": (
        f"{ROW_COLUMN} if (col < w && row < n) y[row * w + col] = x[idx[row] * w + col] * x[idx[row] * w + col];",
        (2, 4),
        (4, 4),
        {"y", "x"},
    ),
    "columns without a guard": (
        f"{ROW_COLUMN} y[row * 8 + col] = x[idx[row] * w + col] * x[idx[row] * w + col];",
        (2, 4),
        (4, 4),
        {"y"},
    ),
    "a guard that is too late": (
        f"{ROW_COLUMN} if (col < w + 1) y[row * 8 + col] = x[idx[row] * w + col] * x[idx[row] * w + col];",
        (2, 4),
        (4, 4),
        {"y"},
    ),
    "a block for each row": (
        f"{STRIDE} y[blockIdx.x * 8 + c] = x[idx[blockIdx.x] * w + c] * x[idx[blockIdx.x] * w + c];",
        16,
        4,
        {"y", "x"},
    ),
    "a block for each row, too long": (
        "for (int c = threadIdx.x; c <= w; c += blockDim.x) y[blockIdx.x * 8 + c] = x[idx[blockIdx.x] * w + c] * 2;",
        16,
        4,
        {"y"},
    ),
    "a thread for each row": (
        f"{I} double s = 0; for (int c = 0; c < w; c++) s += x[idx[i] * w + c] * x[idx[i] * w + c]; y[i] = s;",
        2,
        8,
        {"y", "x"},
    ),
    "through two": (f"{I} y[i] = x[idx[other[i]]] * x[idx[other[i]]];", 2, 8, {"y", "x"}),
    "two different ones": (f"{I} y[i] = x[idx[i]] * x[other[i]];", 2, 8, {"y"}),
    "beside a plain index": (f"{I} y[i] = x[idx[i]] * x[i];", 2, 8, {"y", "x"}),  # one is added after the launch
    "beside plain ones": (f"{I} y[i] = x[idx[i]] * x[i] + x[idx[i]] * x[2 * i];", 2, 8, {"y"}),
    "rows of two widths": (f"{I} y[i] = x[idx[i] * 2] * x[idx[i] * 3];", 2, 8, {"y"}),
    "a sum of two": (f"{I} y[i] = x[idx[i] + other[i]];", 2, 8, {"y"}),
    "halves": (f"{I} y[i] = x[idx[i] / 2];", 2, 8, {"y"}),
    "remainders": (f"{I} y[i] = x[idx[i] % 8];", 2, 8, {"y"}),
    "clamped": (f"{I} y[i] = x[min(idx[i], 9)];", 2, 8, {"y"}),
    "a list that starts there": (
        f"{I} double s = 0; for (int k = idx[i]; k < idx[i] + 3; k++) s += x[k] * x[k]; y[i] = s;",
        2,
        8,
        {"y"},
    ),
    "backwards": (f"{I} y[i] = x[64 - idx[i]];", 2, 8, {"y", "x"}),
    "size_t": (f"{I} size_t j = idx[i]; y[i] = x[j * 3 + 1] * x[j * 3];", 2, 8, {"y", "x"}),
    "unsigned that may wrap": (f"{I} unsigned j = (unsigned)idx[i] * 3u; y[i] = x[j % 97u + 0u * j];", 2, 8, {"y"}),
    "unsigned products": (f"{I} unsigned j = idx[i] * 3u; y[i] = x[j];", 2, 8, {"y"}),
    "an atomic in the kernel": (f"{I} atomicAdd(&y[idx[i]], x[idx[i]]);", 2, 8, {"x"}),
    "where a value allows it": (f"{I} if (idx[i] > 3) y[i] = x[idx[i]] * x[idx[i]];", 2, 8, {"y", "x"}),
}
N, W, LENGTH = 16, 6, 512


def kernel_of(body: str) -> Any:
    parameters = "double* y, const double* x, const int* idx, const int* other, int n, int w"
    return kg.compile(f"__global__ void k({parameters}) {{ {body} }}")["k"]


@pytest.mark.parametrize("name", CASES)
def test_plain_where_the_promise_tells_threads_apart(name: str) -> None:
    body, grid, block, expected = CASES[name]
    kernel = kernel_of(body)
    gradient = kg.gradient(kernel, "y, x", assume=kg.assume(unique="idx, other"))
    rng = np.random.default_rng(1)
    y, x, seed = rng.random(LENGTH), rng.random(LENGTH), rng.standard_normal(LENGTH)
    idx, other = (rng.permutation(64).astype(np.int32) for _ in range(2))
    rest = (idx, other, N, W)
    primal, _ = kernel.bind((y, x, *rest))
    variant = gradient.variant_for(("y", "x"), make_launch(grid, block), primal)
    assert variant.derivative.prepared.accumulation.private == expected
    d_x = np.zeros(LENGTH)
    gradient[grid, block](y.copy(), x, *rest, seed.copy(), d_x)

    def run(x: Any) -> Any:
        out = y.copy()
        kernel[grid, block](out, x, *rest)
        return out

    v, step = rng.standard_normal(LENGTH), 1e-6
    change = run(x + step * v) - run(x - step * v)
    assert d_x @ v == pytest.approx(change @ seed / (2 * step), rel=1e-5, abs=1e-7)
    for order in (None, 1):
        report = gradient.check(grid, block, y.copy(), x, *rest, seed.copy(), np.zeros(LENGTH), seed=order)
        assert report.ok, str(report)


GATHER = f"{I} if (i < n) y[i] = x[idx[i]] * x[idx[i]];"


def test_without_the_promise_updates_are_atomic() -> None:
    kernel = kernel_of(GATHER)
    assert kg.gradient(kernel, "y, x").variant().derivative.prepared.accumulation.private == {"y"}
    may_alias = kg.gradient(kernel, "y, x", may_alias=True, assume=kg.assume(unique="idx"))
    assert may_alias.variant().derivative.prepared.accumulation.private == set()


def test_the_split_form_honours_it_too() -> None:
    forward, reverse = kg.split(kernel_of(GATHER), "y, x", assume=kg.assume(unique="idx"))
    assert forward.variant().derivative.prepared.accumulation.private == {"y", "x"}
    assert "atomicAdd" not in reverse.source and "'idx' holds no value twice" in reverse.source


def test_the_code_and_explain_name_the_promise() -> None:
    gradient = kg.gradient(kernel_of(GATHER), "y, x", assume=kg.assume(unique="idx, other"))
    assert "// _d_x is among them since 'idx' holds no value twice, as promised." in gradient.source
    assert "atomicAdd" not in gradient.source
    text = gradient.explain()
    assert "only this thread touches the element, since 'idx' holds no value twice, as promised" in text
    assert "'other' holds no value twice, but no update becomes plain by that" in text


def test_assign_clears_what_no_thread_touches() -> None:
    gradient = kg.gradient(
        kernel_of(GATHER), "y, x", primal=False, keep="y", assign="x", assume=kg.assume(unique="idx")
    )
    x, idx = np.arange(8.0), np.array([5, 2, 7], np.int32)
    d_x = np.full(8, 9.0)
    gradient[1, 32](np.zeros(3), x, idx, idx, 3, W, np.ones(3), d_x)
    assert d_x.tolist() == [0, 0, 4, 0, 0, 10, 0, 14]


@pytest.mark.parametrize("assume", [None, kg.assume(unique="idx")])
def test_kept_outputs_may_be_scattered_in_a_loop(assume: Any) -> None:
    """Without the promise, the adjoint is taken from a copy."""
    body = f"{I} for (; i < n; i += blockDim.x * gridDim.x) y[idx[i]] = x[i] * x[i];"
    rng = np.random.default_rng(0)
    x, seed, idx = rng.random(N), rng.random(N), rng.permutation(N).astype(np.int32)
    d_x = np.zeros(N)
    arguments = (np.zeros(N), x, idx, idx, N, W, seed, d_x)
    before = seed.copy()
    gradient = kg.gradient(kernel_of(body), "y, x", primal=False, keep="y", assume=assume)
    gradient[1, 4](*arguments)
    np.testing.assert_allclose(d_x, 2 * x * seed[idx])
    np.testing.assert_array_equal(seed, before)
    unkept = {facts.unkept for _, facts in gradient.forms.made}
    assert (frozenset(("y",)) in unkept) == (assume is None)


def test_deterministic_gradients_need_no_log() -> None:
    gradient = kg.gradient(kernel_of(GATHER), "y, x", deterministic=True, assume=kg.assume(unique="idx"))
    assert not gradient.variant().logged


def test_second_derivatives() -> None:
    tangent = kg.jvp(kg.gradient(kernel_of(GATHER), "y, x", assume=kg.assume(unique="idx")), "x, d_x")
    x, idx, v = np.arange(1.0, 5.0), np.array([2, 0, 3, 1], np.int32), np.array([1.0, -2, 3, 5])
    t_d_x = np.zeros(4)
    tangent[1, 4](np.zeros(4), x, idx, idx, 4, W, np.ones(4), np.zeros(4), v, t_d_x)
    np.testing.assert_allclose(t_d_x, 2 * v)


# ---- broken promises ------------------------------------------------------------------------------------------------


def checked(body: str, idx: Any, n: int) -> Any:
    gradient = kg.gradient(kernel_of(body), "y, x", assume=kg.assume(unique="idx"))
    idx = np.asarray(idx, np.int32)
    return gradient.check(2, 4, np.zeros(64), np.ones(64), idx, idx, n, W, np.ones(64), np.zeros(64))


def test_a_broken_promise_is_reported() -> None:
    report = checked(GATHER, [3, 1, 4, 7, 5, 9, 4, 6], 8)
    first, *others = report.findings
    assert first.kind == "promise" and first.value == 4 and first.count == 1
    where = [f"'idx[{k}]', read by thread (2, 0, 0) of block ({block}, 0, 0)" for k, block in ((2, 0), (6, 1))]
    assert f"'idx' holds a value twice: 4 is in {where[0]}, and in {where[1]}" in first.message
    assert [finding.kind for finding in others] == ["race"]
    with pytest.raises(kg.KernelError, match="'idx' holds a value twice"):
        report.raise_if_failed()


def test_only_what_is_read_counts() -> None:
    assert checked(GATHER, [3, 1, 4, 7, 5, 9, 4, 6], 6).ok


def test_a_broken_promise_that_nothing_rests_on_is_reported_too() -> None:
    report = checked(f"{I} if (i < n) y[i] = x[idx[i]] * x[i];", [3, 1, 1, 7, 5, 9, 4, 4], 8)
    assert [(finding.kind, finding.value, finding.count) for finding in report.findings] == [("promise", 1, 2)]


def test_a_place_that_is_read_often_is_no_repetition() -> None:
    assert checked(f"{I} y[i] = x[idx[0]] * x[idx[1]];", [3, 1, 1, 1], 4).ok


# ---- what cannot be promised ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promise", "message"),
    [
        ("index", "assume: k has no parameter 'index'"),
        ("x", "unique is about buffers of integers, and 'x' is const double *"),
        ("n", "unique is about buffers of integers, and 'n' is int"),
    ],
)
def test_promises_about_the_wrong_thing(promise: str, message: str) -> None:
    with pytest.raises(kg.ArgumentError) as error:
        kg.gradient(kernel_of(GATHER), "y, x", assume=kg.assume(unique=promise))
    assert message in str(error.value)


def test_a_buffer_that_the_kernel_writes() -> None:
    kernel = kg.compile("__global__ void k(float* y, const float* x, int* idx) { idx[0] = 1; y[0] = x[idx[1]]; }")["k"]
    with pytest.raises(kg.ArgumentError, match="the kernel writes 'idx'.*only read"):
        kg.gradient(kernel, "y, x", assume=kg.assume(unique="idx"))


def test_a_name_is_no_promise() -> None:
    with pytest.raises(kg.ArgumentError, match="wants kg.assume"):
        kg.gradient(kernel_of(GATHER), "y, x", assume="idx")  # type: ignore[arg-type]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gather.cu"
    file.write_text(f"__global__ void k(float* y, const float* x, const int* idx, int n) {{ {GATHER} }}")
    assert main(["gradient", str(file), "k", "y, x", "--unique", "idx"]) == 0
    assert "'idx' holds no value twice" in capsys.readouterr().out
