"""Updates at an address that a loop does not change are added up in a register and added once, after the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.aliases import Aliases
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Apply, Atomic, Block, For, Function, Load, Module, Param, Store, Value, While
from kernelgrad.ir.traverse import blocks, walk
from kernelgrad.ir.types import F32, I32, Pointer
from kernelgrad.transforms import sums

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741

# The body of `k(double *y, double *x, const double *w, const int *row, int n)`, and the adjoints of which of x, w and y
# are still updated in a loop. i runs to 16, n = 5, row holds numbers below 8.
CASES: dict[str, tuple[str, set[str]]] = {
    "own element": (f"{I} double s = 0; for (int k = 0; k < n; k++) s += x[i] * w[k]; y[i] = s;", {"w"}),
    "one for all": (f"{I} double s = 1; for (int k = 0; k < n; k++) s = s * x[0] + w[1]; y[i] = s;", set()),
    "through a pointer": (f"{I} double s = 1; for (int k = 0; k < n; k++) s = sin(s) * *x; y[i] = s;", set()),
    "in a branch": (
        f"{I} double s = 1; for (int k = 0; k < n; k++) if (k % 3 == i % 3) s += x[i / 2] * s; y[i] = s;",
        set(),
    ),
    "on both sides of a branch": (
        f"{I} double s = 1; for (int k = 0; k < n; k++) {{ if (k < i) s += x[3] * s; else s *= x[3]; }} y[i] = s;",
        set(),
    ),
    "a row from memory": (
        f"{I} double s = 1; for (int k = 0; k < n; k++) s = s * x[row[i]] + x[row[i] + 1]; y[i] = s;",
        set(),
    ),
    "a row that is out of reach where the loop does not run": (
        f"{I} double s = 1; int r = i < 8 ? i : 1 << 20; for (int k = i; k < 8; k++) s = s * x[row[r]]; y[i] = s;",
        set(),
    ),
    "a while loop": (f"{I} double s = w[i]; while (s < 9) s = s * 2 + x[0] * x[0]; y[i] = s;", set()),
    "two loops": (
        f"{I} double s = 0; for (int a = 0; a < n; a++) for (int b = 0; b < a; b++) s += x[i] * x[0] * b; y[i] = s;",
        set(),
    ),
    "the outer loop only": (
        f"{I} double s = 0; for (int a = 0; a < n; a++) for (int b = 0; b < 3; b++) s += x[b] * x[a] * w[b]; y[i] = s;",
        {"x", "w"},
    ),
    "the inner loop only": (
        f"{I} double s = 1; for (int a = 0; a < n; a++) for (int b = 0; b < n; b++) s += x[a] * b * s; y[i] = s;",
        {"x"},
    ),
    "beside others of the buffer": (
        f"{I} double s = 0; for (int k = 0; k < n; k++) s += x[0] * x[k + 1]; y[i] = s;",
        {"x"},
    ),
    "an address that changes": (
        f"{I} double s = 0; int j = i; for (int k = 0; k < n; k++) {{ s += x[j] * s + x[j]; j = row[j]; }} y[i] = s;",
        {"x"},
    ),
    "an address in memory that changes": (
        f"""{I} double s = 0; __shared__ int at[16]; at[threadIdx.x % 8] = threadIdx.x % 8;
        for (int k = 0; k < n; k++) {{ s += x[at[threadIdx.x % 8]]; at[threadIdx.x % 8] = k; }} y[i] = s;""",
        {"x"},
    ),
    "what the loop writes": (
        f"{I} for (int k = 0; k < n; k++) {{ y[i] = y[i] * x[i] + w[k]; }}",
        {"w"},
    ),
    "a loop with barriers": (
        f"""{I} __shared__ double s[8]; double t = 0;
        for (int k = 0; k < n; k++) {{
            s[threadIdx.x] = x[i] * w[k];
            __syncthreads();
            t += s[7 - threadIdx.x];
            __syncthreads();
        }}
        y[i] = t * t;""",
        {"x", "w"},
    ),
    "structs": (
        f"{I} const double2 *p = (const double2 *)x; double s = 1;"
        " for (int k = 0; k < n; k++) s = s * p[i / 4].x + p[i / 4].y; y[i] = s;",
        set(),
    ),
}
N = 5


def kernel_of(body: str) -> Any:
    return kg.compile(f"__global__ void k(double *y, double *x, const double *w, const int *row, int n) {{ {body} }}")[
        "k"
    ]


def updated_in_loops(kernel: Any) -> set[str]:
    """The adjoints that something in a loop touches."""
    aliases, found = Aliases(kernel.function), set[str]()
    names: dict[Value, str] = {p.value: p.name for p in kernel.function.params}
    for loop in (op for op in walk(kernel.function.body) if isinstance(op, For | While)):
        for op in (op for inner in blocks(loop) for op in walk(inner)):
            if isinstance(op, Load | Store | Atomic):
                name = names.get(aliases.root(op.ptr), "")
                found |= {name.removeprefix("_d_")} if name.startswith("_d_") else set()
    return found


def arguments(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    y, x, w = random.random(16), random.random(32) * 0.5 + 0.5, random.random(16)
    return [y, x, w, random.integers(0, 8, 16).astype(np.int32), N]


@pytest.mark.parametrize("settings", [{}, {"primal": False}])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, settings: dict[str, Any]) -> None:
    body, expected = CASES[name]
    kernel = kernel_of(body)
    gradient = kg.gradient(kernel, "y, x, w", **settings)
    assert updated_in_loops(gradient.variant().reverse) == expected
    y, x, w, row, n = arguments(1)
    random = np.random.default_rng(2)
    seed = random.standard_normal(16)
    directions = [random.standard_normal(len(a)) for a in (y, x, w)]

    def run(step: float) -> Any:
        moved = [a + step * v for a, v in zip((y, x, w), directions, strict=True)]
        kernel[2, 8](*moved, row, n)
        return moved[0]

    step = 1e-6
    change = (run(step) - run(-step)) @ seed / (2 * step)
    for order in (None, 3):
        d_y, d_x, d_w = seed.copy(), np.zeros(32), np.zeros(16)
        report = gradient.check(2, 8, y.copy(), x.copy(), w, row, n, d_y, d_x, d_w, seed=order)
        assert report.ok, str(report)
        got = sum(adjoint @ v for adjoint, v in zip((d_y, d_x, d_w), directions, strict=True))
        assert got == pytest.approx(change, rel=1e-6, abs=1e-8)


def test_the_code_reads_well() -> None:
    gradient = kg.gradient(kernel_of(CASES["a row from memory"][0]), "y, x")
    reverse = gradient.source[gradient.source.rindex("for (int k") :]
    loop, _, after = reverse.partition("}")
    assert "_d_x_sum +=" in loop and "add(" not in loop.lower()
    assert "if (_d_x_sum != 0.0) " in after and "&_d_x[" in after


def test_explain_says_so() -> None:
    def moved(name: str) -> list[str]:
        text = kg.gradient(kernel_of(CASES[name][0]), "y, x, w").explain()
        return [line for line in text.split("\n") if "added once after the loop" in line]

    assert len(moved("a row from memory")) == 2
    assert len(moved("own element")) == 1
    assert moved("an address that changes") == [] and moved("a loop with barriers") == []


def test_memory_that_may_be_shared_is_left_alone() -> None:
    """x may be w: the loop's reads of the adjoints of one may be updates of the other's."""
    body = f"{I} for (int k = 0; k < n; k++) y[k] += x[0] * y[k];"
    gradient = kg.gradient(kernel_of(body), "y, x", may_alias=True)
    assert "x" in updated_in_loops(gradient.variant().reverse)


def test_atomics_of_the_kernel_stay() -> None:
    body = f"{I} for (int k = 0; k < n; k++) atomicAdd(&y[0], x[i] * k);"
    gradient = kg.gradient(kernel_of(body), "y, x")
    loops = [op for op in walk(gradient.variant().reverse.function.body) if isinstance(op, For)]
    assert any(isinstance(op, Atomic) for loop in loops for op in walk(loop.body))


def test_deterministic_gradients() -> None:
    gradient = kg.gradient(kernel_of(CASES["one for all"][0]), "y, x", deterministic=True)
    y, x, w, row, n = arguments(4)
    results = []
    for _ in range(3):
        d_x = np.zeros(32)
        gradient[2, 8](y.copy(), x, w, row, n, np.ones(16), d_x)
        results.append(d_x)
    usual = np.zeros(32)
    kg.gradient(kernel_of(CASES["one for all"][0]), "y, x")[2, 8](y.copy(), x, w, row, n, np.ones(16), usual)
    assert all((r == results[0]).all() for r in results)
    np.testing.assert_allclose(results[0], usual, rtol=1e-12)


def test_second_derivatives() -> None:
    gradient = kg.gradient(kernel_of(CASES["own element"][0]), "y, x, w")
    tangent = kg.jvp(gradient, "x, d_x")
    y, x, w, row, n = arguments(5)
    t_d_x = np.zeros(32)
    tangent[2, 8](y, x, w, row, n, np.ones(16), np.zeros(32), np.zeros(16), np.ones(32), t_d_x)
    assert (t_d_x == 0).all()  # the kernel is linear in x


def looped(before: Any, work: Any) -> Function:
    """A kernel of `adjoint` and `n`: `before`, then `work` in a loop."""
    adjoint, n, counter = Value(Pointer(F32, "global"), "adjoint"), Value(I32, "n"), Value(I32, "k")
    b = Builder()
    given = before(b, adjoint)
    with b.region() as region:
        work(b, adjoint, given)
    b.for_(b.constant(0, I32), n, (), 1, region.block((counter,)))
    params = (Param(adjoint, "float *", restrict=True), Param(n, "int"))
    return Function("k", "kernel", params, Block((), tuple(b.ops), ()))


def test_a_store_of_what_was_there_before_the_loop_is_no_sum() -> None:
    def store(b: Builder, adjoint: Value, old: Value) -> None:
        b.store(adjoint, b.apply("add", old, b.constant(1.0, F32)))

    function = looped(lambda b, adjoint: b.load(adjoint), store)
    assert sums.run(function, Module(), frozenset(("adjoint",))) is function


@pytest.mark.parametrize(("number", "dropped"), [(0.0, True), (1.0, False)])
def test_only_tests_for_zero_are_dropped(number: float, dropped: bool) -> None:
    def update(b: Builder, adjoint: Value, value: Value) -> None:
        with b.region() as then:
            b.atomic("add", adjoint, value)
        b.if_(b.apply("ne", value, b.constant(number, F32)), then.block())

    function = looped(lambda b, adjoint: b.convert(b.builtin("thread_idx"), F32), update)
    found = sums.run(function, Module(), frozenset(("adjoint",)))
    loops = [op for op in walk(found.body) if isinstance(op, For)]
    tested = any(isinstance(op, Apply) and op.fn == "ne" for loop in loops for op in walk(loop.body))
    assert found is not function and tested != dropped
