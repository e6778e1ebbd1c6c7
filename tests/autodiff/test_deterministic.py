"""`deterministic=True`: adjoints that are bitwise the same, whatever order blocks and threads come in."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from deterministic_cases import CASES, Case, indices, numbers
from scrambling import scramble

ATOMIC = re.compile(r"atomicAdd|warp_add|atomicCAS")


def adjoints_after(case: Case, n: int, gradient: Any, seed: int | None = None) -> list[Any]:
    """The adjoints after a launch, or after a watched one with threads and blocks in an order of their own."""
    args = case.arguments(n)
    given = case.adjoints(args)
    if seed is None:
        gradient[case.grid(n), case.block](*args, *given)
    else:
        report = gradient.check(case.grid(n), case.block, *args, *given, seed=seed)
        assert not report.findings, str(report)
    return [numbers_of(a) for a in given]


def numbers_of(array: Any) -> Any:
    if array.dtype.names is None:
        return array
    return np.stack([array[name] for name in array.dtype.names if array.dtype[name].kind == "f"])


def assert_same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("name", CASES)
def test_the_same_from_run_to_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGRAD_CPU_THREADS", "4")
    case, n = CASES[name], 3000
    gradient = case.gradient(deterministic=True)
    first = adjoints_after(case, n, gradient)
    for _ in range(3):
        assert_same(first, adjoints_after(case, n, gradient))


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("number", "struct_by_value")])
def test_the_same_in_any_order(name: str) -> None:
    """Watched, with the blocks and threads shuffled: a sum over a block is then in that order too, and left out."""
    case = CASES[name]
    n = 32 if case.per_block else 150
    gradient = case.gradient(deterministic=True)
    first = adjoints_after(case, n, gradient, seed=1)
    for seed in (2, 3):
        assert_same(first, adjoints_after(case, n, gradient, seed))


@pytest.mark.parametrize("name", CASES)
def test_what_the_ordinary_gradient_gives(name: str) -> None:
    case, n = CASES[name], 1000
    want = adjoints_after(case, n, case.gradient())
    got = adjoints_after(case, n, case.gradient(deterministic=True))
    assert any(np.abs(a).max() > 0 for a in want[1:])
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * np.abs(a).max())


def test_the_order_matters() -> None:
    case = CASES["histogram"]
    one, other = (adjoints_after(case, 150, case.gradient(), seed) for seed in (1, 2))
    assert any((a != b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_split(name: str) -> None:
    case, n = CASES[name], 700
    want = adjoints_after(case, n, case.gradient(deterministic=True))
    forward, reverse = kg.split(case.compiled(), case.listed, deterministic=True)
    args = case.arguments(n)
    given = case.adjoints(args)
    tape = forward[case.grid(n), case.block](*args)
    scramble(args)
    reverse[case.grid(n), case.block](tape, *args, *given)
    for a, b in zip(want, map(numbers_of, given), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * np.abs(a).max())


# ---- the code -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_no_atomics_of_its_own(name: str) -> None:
    case = CASES[name]
    gradient = case.gradient(deterministic=True)
    calls = [line for line in gradient.source.splitlines() if ATOMIC.search(line)]
    assert len(calls) == case.source.count("atomicAdd") and not any("_d_" in line for line in calls)
    assert tuple(log.of.name for log in gradient.variant().derivative.logs) == case.logs


def test_explanation() -> None:
    text = CASES["tiled_product"].gradient(deterministic=True).explain()
    assert "shadow of b: logged, and added after the launch, in the order of blocks, slots and threads" in text
    assert "shadow of left: logged, and added at the next barrier, in the order of threads and slots" in text
    text = CASES["number"].gradient(deterministic=True).explain()
    assert "parameter a: summed" in text and "sums, added by a finishing step" in text and "atomicAdd" not in text


# ---- memory -------------------------------------------------------------------------------------------------------


def test_the_log_is_part_of_the_memory_needed() -> None:
    case, n = CASES["gather"], 640
    gradient = case.gradient(deterministic=True)
    assert gradient.tape_bytes(10, 64, *case.arguments(n)) == n * 2 * (8 + 4)
    tight = case.gradient(deterministic=True, tape_budget=1000)
    with pytest.raises(kg.LaunchError, match=r"the log of deterministic=True need 15,360 bytes"):
        adjoints_after(case, n, tight)


def test_a_phase_needs_room_for_one_tile() -> None:
    case = CASES["tiled_product"]
    needed = case.gradient(deterministic=True).tape_bytes(2, (8, 8), *case.arguments(16))
    log, phases = 2 * (8 + 4), 2 * 8 * (4 + 4)  # per thread: a load of `b` for each tile; eight cells of each array
    assert needed == 128 * (log + phases)


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgrad.launches.memory import ordered_adds

    monkeypatch.setattr(ordered_adds, "available_bytes", lambda device: 1000)
    case = CASES["gather"]
    with pytest.raises(kg.LaunchError, match="bytes for the log of its updates and 1,000 are free"):
        adjoints_after(case, 640, case.gradient(deterministic=True))


def test_checkpointed() -> None:
    source = """__global__ void k(float *y, const float *x, int n, int m) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float v = 0.5f;
        for (int j = 0; j < m; ++j) v = sinf(v + x[(i + j) % n]);
        y[i] = v;
    }"""
    kernel = kg.compile(source)["k"]
    random = np.random.default_rng(0)
    y, x, seed = (numbers(random, 128) for _ in range(3))
    log = 128 * 100 * 12
    found = []
    for budget in (None, log + 128 * 200):
        d_y, d_x = seed.copy(), np.zeros_like(x)
        gradient = kg.gradient(kernel, "y, x", deterministic=True, tape_budget=budget)
        assert budget is None or log < gradient.tape_bytes(2, 64, y, x, 128, 100) <= budget
        gradient[2, 64](y, x, 128, 100, d_y, d_x)
        found.append(d_x)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


# ---- what else there is -------------------------------------------------------------------------------------------


def test_many_blocks_that_leave_one_element() -> None:
    """Runs of equal elements that go over several levels of chunks."""
    kernel = kg.compile(
        """__global__ void k(float *y, const float *x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            y[i] = x[0] * x[i % n];
        }"""
    )["k"]
    y, x = np.zeros(40_000, np.float32), np.full(3, 1.0, np.float32)
    d_y, d_x = np.ones_like(y), np.zeros_like(x)
    kg.gradient(kernel, "y, x", deterministic=True)[625, 64](y, x, 3, d_y, d_x)
    np.testing.assert_array_equal(d_x, [40_000 + 13_334, 13_333, 13_333])


def test_adjoints_in_half_precision() -> None:
    source = """#include <cuda_fp16.h>
    __global__ void k(float *y, const __half *x, const int *at, __half a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = __half2float(x[at[i]]) * __half2float(a);
    }"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x, a", deterministic=True)
    n, random = 500, np.random.default_rng(1)
    y, x, at = np.zeros(n, np.float32), random.random(7).astype(np.float16), indices(random, n, 7)
    d_y, d_x, d_a = np.ones_like(y), np.zeros_like(x), np.zeros(1, np.float16)
    gradient[8, 64](y, x, at, np.float16(0.5), n, d_y, d_x, d_a)
    np.testing.assert_array_equal(d_x, (0.5 * np.bincount(at, minlength=7)).astype(np.float16))
    np.testing.assert_allclose(d_a.astype("f8"), x[at].astype("f8").sum(), rtol=1e-3)


def test_the_launcher_writes_the_adjoint() -> None:
    case = CASES["gather"]
    args = case.arguments(64)
    d_y, d_x = case.adjoints(args)
    d_x.setflags(write=False)
    with pytest.raises(kg.ArgumentError, match="d_x"):
        case.gradient(deterministic=True)[1, 64](*args, d_y, d_x)
    with pytest.raises(kg.ArgumentError, match="share memory"):
        case.gradient(deterministic=True)[1, 64](*args, d_y, args[1])


def test_pointers_in_a_struct_parameter() -> None:
    source = """struct Table { const float *a; const float *b; int n; };
    __global__ void k(float *y, Table table, const int *at) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < table.n) y[i] = table.a[at[i]] * table.b[at[i]];
    }"""
    kernel, random = kg.compile(source)["k"], np.random.default_rng(4)
    y, a, b, at = numbers(random, 500), numbers(random, 9), numbers(random, 9), indices(random, 500, 9)
    found = []
    for deterministic in (False, True, True):
        d_y, d_a, d_b = np.ones_like(y), np.zeros_like(a), np.zeros_like(b)
        gradient = kg.gradient(kernel, "y, table", deterministic=deterministic)
        gradient[8, 64](y, {"a": a, "b": b, "n": 500}, at, d_y, {"a": d_a, "b": d_b, "n": 0})
        found.append([d_a, d_b])
    assert_same(found[1], found[2])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_a_function_runs_in_one_thread() -> None:
    function = kg.compile("__device__ float f(const float *x, const int *at) { return x[at[0]] * x[at[1]]; }")["f"]
    gradient = kg.gradient(function, "x", deterministic=True)
    x, d_x = np.array([2.0, 3.0], np.float32), np.zeros(2, np.float32)
    assert gradient.execute(x, np.array([0, 1], np.int32), d_x) == 6.0
    np.testing.assert_array_equal(d_x, [3.0, 2.0])
    assert "there is one thread" in gradient.explain()


def test_an_element_that_its_thread_writes_too() -> None:
    """No other thread can be there: the update is plain."""
    source = """__global__ void k(float *y, const float *x, const int *at, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float *own = y + at[i];
        *own = *own * x[i];
        for (int k = 1; k < n; ++k) if (x[i] < 2.0f) own[0] = own[0] + own[0] * (float)(k - 1);
    }"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x", deterministic=True)
    assert "the thread writes the element too" in gradient.explain() and "_log" not in gradient.source
    random = np.random.default_rng(2)
    y, x, at, d_y = random.random(64), random.random(64), random.permutation(64).astype(np.int32), random.random(64)
    y, x, d_y = (a.astype(np.float32) for a in (y, x, d_y))
    seed, before, d_x = d_y.copy(), y.copy(), np.zeros_like(x)
    gradient[1, 64](y, x, at, 2, d_y, d_x)
    np.testing.assert_allclose(d_x, before[at] * seed[at], rtol=1e-6)


@pytest.mark.parametrize("name", ["maximum", "exchange"])
def test_winners(name: str) -> None:
    call = {"maximum": "atomicMax((int *)y, __float_as_int(v))", "exchange": "atomicExch(y + i % 3, v)"}[name]
    source = f"""__global__ void k(float *y, const float *x, const float *w, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ float v = x[i] * w[i % 5]; {call}; }}
    }}"""
    kernel = kg.compile(source)["k"]
    random = np.random.default_rng(3)
    x, w = random.random(200).astype("f4"), random.random(5).astype("f4")
    found = []
    for deterministic in (False, True, True):
        y, d_y = np.zeros(3, np.float32), np.ones(3, np.float32)
        d_x, d_w = np.zeros_like(x), np.zeros_like(w)
        kg.gradient(kernel, "y, x, w", deterministic=deterministic)[4, 64](y, x, w, 200, d_y, d_x, d_w)
        found.append((y, d_x, d_w))
    if name == "maximum":  # who exchanges last is up to the machine
        np.testing.assert_array_equal(found[0][1], found[1][1])
        np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-6)
        assert_same(list(found[1]), list(found[2]))


def test_nothing_wanted_of_what_is_logged() -> None:
    case = CASES["histogram"]
    args = case.arguments(300)
    d_y, d_x, _ = case.adjoints(args)
    case.gradient(deterministic=True)[case.grid(300), case.block](*args, d_y=d_y, d_x=d_x, d_w=None)
    want = adjoints_after(case, 300, case.gradient())
    np.testing.assert_allclose(d_x, want[1], rtol=1e-6)


# ---- what is refused ----------------------------------------------------------------------------------------------

REFUSED = {
    "written before it is read": (
        """__global__ void k(float *y, float *tmp, const float *x) {
            int t = threadIdx.x;
            tmp[t] = x[t] * x[t];
            __syncthreads();
            y[t] = tmp[(t + 1) % 32] * tmp[t];
        }""",
        5,
        "two kernels",
    ),
    "a warp meets by itself": (
        """__global__ void k(float *y, float *tmp, const float *x) {
            __shared__ float s[32];
            int t = threadIdx.x;
            s[t] = x[t];
            __syncwarp();
            y[t] = s[(int)tmp[t]];
        }""",
        6,
        "__syncthreads()",
    ),
    "one of several pieces of memory": (
        """__global__ void k(float *y, float *tmp, const float *x) {
            __shared__ float s[32];
            int t = threadIdx.x;
            s[t] = x[t];
            __syncthreads();
            const float *p = t % 2 ? s : x;
            y[t] = p[t / 2];
        }""",
        7,
        "a branch of its own",
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals(reason: str) -> None:
    source, line, remedy = REFUSED[reason]
    kernel = kg.compile(source)["k"]
    kg.gradient(kernel, "y, x")
    with pytest.raises(kg.UnsupportedError, match=reason) as raised:
        kg.gradient(kernel, "y, x", deterministic=True)
    assert raised.value.span.line == line and remedy in str(raised.value)


def test_no_second_derivative() -> None:
    with pytest.raises(kg.UnsupportedError, match="deterministic=True has no derivative"):
        kg.jvp(CASES["gather"].gradient(deterministic=True))


# ---- on a device --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["make_keys", "count_digits", "scan_counts", "move_by_digit", "add_runs<double>"])
def test_support_kernels_compile(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.launches.memory import ordered_adds
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(ordered_adds._kernel(name).source, "sm_90")


def test_sorting_as_a_device_does() -> None:
    """The kernels that sort on a GPU, run here: stably, with what is unused at the end."""
    from kernelgrad.launches.memory import ordered_adds

    random, count, shift = np.random.default_rng(9), 9_001, 4
    keys = random.integers(0, 3000, count).astype(np.uint64)
    keys[random.integers(0, count, 40)] = 2**64 - 1
    want, positions = np.argsort(keys, kind="stable"), np.arange(count)
    for low in range(0, 3 * shift, shift):
        counts = np.zeros(3 << shift, np.int64)
        keys_to, positions_to = np.empty_like(keys), np.empty_like(positions)
        ordered_adds._kernel("count_digits")[3, 256](keys, counts, count, low)
        ordered_adds._kernel("scan_counts")[1, 1024](counts, counts.size)
        ordered_adds._kernel("move_by_digit")[3, 256](keys, positions, keys_to, positions_to, counts, count, low)
        keys, positions = keys_to, positions_to
    np.testing.assert_array_equal(positions, want)
