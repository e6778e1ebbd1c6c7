"""Gradients in two launches, the reverse alone and then the kernel: where they do no more than one, and right there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from exchange_cases import CASES
from exchange_cases import arguments as case_arguments
from kernelgrad.autodiff.costs.work import Work
from kernelgrad.kernel import Kernel
from kernelgrad.launches.choice import split_launch
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import ANY, Ways, known_launch
from some_cases import in_turn

HEAD = """__device__ double gain = 1.5;
__global__ void k(double *y, const double *x, const double *w, double *z, double a, int n)"""
I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"  # noqa: E741
IN_TWO = {
    "a sum": f"{I} double s = 0; for (int k = 0; k < n; k++) s += x[(i + k) % n] * w[k % 5]; y[i] = s;",
    "a product": f"{I} double s = 0; for (int k = 0; k < 6; k++) s += x[6 * i % n + k % 2] * w[k]; y[i] = s * 2;",
    "some elements": f"""{I} double s = 0; for (int k = 0; k < 9; k++) s += x[(i + k) % n] * w[k];
        if (i % 3) y[i] = s;""",
    "two outputs": f"""{I} double s = 0; for (int k = 0; k < 9; k++) s += x[(i + k) % n] * w[k];
        y[i] = s; z[i] = 3 * s + a;""",
    "atomics": f"""{I} double s = 0; for (int k = 0; k < 9; k++) s += x[(i + k) % n] * w[k];
        y[i] = s; atomicAdd(&z[i % 3], 2 * s + a);""",
    "a variable": f"{I} double s = 0; for (int k = 0; k < 9; k++) s += gain * w[k] * x[(i + k) % n]; y[i] = s;",
    "shared memory": """__shared__ double t[8]; int i = blockIdx.x * blockDim.x + threadIdx.x;
        double s = 0; for (int k = 0; k < n; k += 8) {
            t[threadIdx.x] = x[(k + threadIdx.x) % n]; __syncthreads();
            for (int l = 0; l < 8; l++) s += t[l] * w[(i + l) % 7]; __syncthreads(); }
        if (i < n) y[i] = s;""",
}
IN_ONE = {
    "what the reverse needs, too": f"{I} double v = x[i]; for (int k = 0; k < 9; k++) v = v * v * w[k]; y[i] = v;",
    "no loop": f"{I} y[i] = x[i] * w[0];",
    "results that are needed": f"""{I} double s = 0; for (int k = 0; k < 9; k++) s += x[(i + k) % n] * w[k];
        y[i] = exp(s);""",
    "in place": f"{I} double s = 0; for (int k = 0; k < 9; k++) s += w[k]; z[i] = z[i] * z[i] * s; y[i] = x[i];",
    "a product of what is loaded once": f"""{I} double v = x[i], s = 0; for (int k = 0; k < 2; k++) s += v * v * w[k];
        y[i] = s;""",
}
GRID, BLOCK = 5, 8
N = GRID * BLOCK - 3
NAMES = ("y", "x", "w", "z", "a")


def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_launch, "ENOUGH", Work(0, 0))
    monkeypatch.setattr(split_launch, "DENSE", 0)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_large(monkeypatch)


def compiled(body: str) -> Any:
    return kernel_of(f"{HEAD} {{ {body} }}")


def arguments() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return dict(
        zip(NAMES, (np.ones(N + 8), rng.random(N + 8), rng.random(9), rng.random(N + 8), 0.7), strict=True), n=N
    )


def seeds() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    sizes = {name: np.size(value) for name, value in arguments().items()}
    return {f"d_{name}": rng.standard_normal(sizes[name]) for name in NAMES}


def is_in_two(gradient: Any, given: dict[str, Any] | None = None) -> bool:
    values = tuple((given or arguments()).values())
    launched = gradient._prepare(make_launch(GRID, BLOCK), (*values, *seeds().values()), {}, watched=True)[0]
    return bool(launched[-1].kernel is gradient.kernel or launched[-1].kernel.name.endswith("_forward"))


def run(gradient: Any, *without: str) -> list[Any]:
    values, adjoints = arguments(), {name: v if name not in without else None for name, v in seeds().items()}
    gradient[GRID, BLOCK](*values.values(), *adjoints.values())
    arrays = [v for v in (*values.values(), *adjoints.values()) if isinstance(v, np.ndarray)]
    return [v.copy() for v in arrays]


def compare(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"keep": "y"},
    {"assign": "x, w"},
    {"keep": "y", "assign": "x, w, a"},
    {"deterministic": True},
    {"tape_budget": 1 << 20},
)


@pytest.mark.parametrize(("name", "options"), [*in_turn(IN_TWO, OPTIONS[:3]), *in_turn(IN_TWO, OPTIONS[3:])])
def test_values(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as from one kernel: values, adjoints, and what is zeroed or left."""
    kernel = compiled(IN_TWO[name])
    expected = run(kg.gradient(kernel, NAMES, **options))
    as_if_large(monkeypatch)
    gradient = kg.gradient(kernel, NAMES, **options)
    assert is_in_two(gradient)
    compare(run(gradient), expected)
    compare(run(gradient), expected)  # as remembered


@pytest.mark.parametrize("name", IN_TWO)
@pytest.mark.parametrize("without", [("d_y",), ("d_x", "d_a"), ("d_w", "d_z", "d_a"), ("d_x", "d_w", "d_z", "d_a")])
def test_some_adjoints(name: str, without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled(IN_TWO[name])
    expected = run(kg.gradient(kernel, NAMES), *without)
    as_if_large(monkeypatch)
    compare(run(kg.gradient(kernel, NAMES), *without), expected)


@pytest.mark.parametrize("name", IN_ONE)
@pytest.mark.usefixtures("always")
def test_not_chosen(name: str) -> None:
    gradient = kg.gradient(compiled(IN_ONE[name]), ("y", "x", "w", "z") if name == "in place" else ("y", "x", "w"))
    values, adjoints = arguments(), seeds()
    listed = [adjoints[f"d_{name}"] for name in gradient.settings.listed]
    steps = gradient._prepare(make_launch(GRID, BLOCK), (*values.values(), *listed), {})[0]
    assert steps[-1].kernel.name == "k_grad" and "y[i] = " in steps[-1].kernel.source


@pytest.mark.parametrize("limit", ["ENOUGH", "DENSE"])
@pytest.mark.usefixtures("always")
def test_not_chosen_for_little_work(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = kg.gradient(compiled(IN_TWO["a product"]), NAMES)
    assert is_in_two(gradient)
    monkeypatch.undo()
    monkeypatch.setattr(split_launch, *{"ENOUGH": ("DENSE", 0), "DENSE": ("ENOUGH", Work(0, 0))}[limit])
    assert not is_in_two(kg.gradient(compiled(IN_TWO["a product"]), NAMES))


@pytest.mark.parametrize("options", [{"may_alias": True}, {"primal": False}])
@pytest.mark.usefixtures("always")
def test_not_chosen_with(options: dict[str, Any]) -> None:
    assert not is_in_two(kg.gradient(compiled(IN_TWO["a sum"]), NAMES, **options))


@pytest.mark.parametrize("name", IN_TWO)
@pytest.mark.usefixtures("always")
def test_against_finite_differences(name: str) -> None:
    kg.check_gradient(compiled(IN_TWO[name]), NAMES, GRID, BLOCK, tuple(arguments().values()))


@pytest.mark.parametrize("name", IN_TWO)
@pytest.mark.usefixtures("always")
def test_no_races(name: str) -> None:
    gradient = kg.gradient(compiled(IN_TWO[name]), NAMES)
    for order in (None, 1):
        report = gradient.check(GRID, BLOCK, *arguments().values(), *seeds().values(), seed=order)
        assert report.ok, str(report)


@pytest.mark.usefixtures("always")
def test_second_derivatives_are_those_of_one_kernel() -> None:
    kernel = compiled(IN_TWO["a product"])
    gradient = kg.gradient(kernel, "y, x, w")
    tangent = kg.jvp(gradient, "w, d_x")
    x, d_x, t_x, t_w = arguments()["x"], np.zeros(N + 8), np.zeros(N + 8), np.ones(9)
    values = arguments() | {"x": x}
    tangent[GRID, BLOCK](*values.values(), np.ones(N + 8), d_x, np.zeros(9), t_w, t_x)
    moved = np.zeros(N + 8)
    gradient[GRID, BLOCK](*(arguments() | {"w": arguments()["w"] + 1}).values(), np.ones(N + 8), moved, np.zeros(9))
    np.testing.assert_allclose(t_x, moved - d_x, rtol=1e-12, atol=1e-12)  # linear in w


@pytest.mark.usefixtures("always")
def test_overlaps_are_refused() -> None:
    gradient, values, adjoints = kg.gradient(compiled(IN_TWO["a sum"]), NAMES), arguments(), seeds()
    with pytest.raises(kg.ArgumentError, match="share memory"):
        gradient[GRID, BLOCK](*(values | {"y": values["x"]}).values(), *adjoints.values())
    with pytest.raises(kg.ArgumentError, match="share memory"):
        gradient[GRID, BLOCK](*values.values(), *(adjoints | {"d_y": values["y"]}).values())


def test_what_depends_on_integers_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `m` of 1 each element of y is stored once, with 2 it is not, and is zeroed by the reverse."""
    body = """int i = blockIdx.x * blockDim.x + threadIdx.x; double s = 0;
        for (int k = 0; k < 9; k++) s += x[i + k] * w[k]; y[i / m] = s;"""
    kernel = kernel_of(f"__global__ void k(double *y, const double *x, const double *w, int m) {{ {body} }}")

    def launched(gradient: Any, m: int) -> list[Any]:
        rng = np.random.default_rng(7)
        y, x, w, d_y, d_x, d_w = (rng.random(n) for n in (40, 48, 9, 40, 48, 9))
        x[:] = 1.0  # threads that store the same element store the same value
        gradient[GRID, BLOCK](y, x, w, m, d_y, d_x, d_w)
        return [y, d_y, d_x, d_w]

    plain = kg.gradient(kernel, "y, x, w")
    expected = {m: launched(plain, m) for m in (1, 2)}
    as_if_large(monkeypatch)
    gradient = kg.gradient(kernel, "y, x, w")
    for m in (1, 2, 1):
        compare(launched(gradient, m), expected[m])


# ---- registers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("joint", "alone", "expected"), [(200, 0, True), (200, 60, False), (32, 0, False)])
def test_a_kernel_that_spills(joint: int, alone: int, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does less, but keeps registers in memory."""
    as_if_large(monkeypatch)
    monkeypatch.setattr(split_launch, "MORE", 0.0)
    body = f"{I} double s = x[i]; for (int k = 0; k < 9; k++) s += x[(i + k) % n] * w[k]; y[i] = s * x[i];"
    gradient = kg.gradient(compiled(body), NAMES)
    primal, _ = gradient.kernel.bind(tuple(arguments().values()))
    launch = known_launch(gradient.kernel.function, NAMES, make_launch(GRID, BLOCK), primal)
    known = launch.answers(gradient.kernel.function)

    def spilled(kernel: Kernel) -> int:
        return joint if kernel.name == "k_grad" and "y" in kernel.written else alone

    find = gradient.planner.in_two.find
    assert find(launch, known) is None
    assert (find(launch, known, spilled) is not None) == expected


@pytest.mark.parametrize(("ways", "expected"), [(ANY, True), (Ways(on_gpu=True), False)])
def test_rows_that_share_tiles(ways: Ways, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel loads the tiles once for several rows, on a GPU."""
    as_if_large(monkeypatch)
    case = CASES["square"]
    gradient = kg.gradient(kernel_of(case.source))
    primal, _ = gradient.kernel.bind(tuple(case_arguments(case)))
    launch = make_launch(4096, case.launch[1])
    known = known_launch(gradient.kernel.function, ("y", "x", "w"), launch, primal, ways)
    found = gradient.planner.in_two.find(known, known.answers(gradient.kernel.function))
    assert (found is not None) == expected


# ---- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("always")
def test_is_explained() -> None:
    gradient = kg.gradient(compiled(IN_TWO["a sum"]), NAMES)
    assert "large launches that compute much for each byte are two" in gradient.explain()
    assert "two launches, the reverse alone" in gradient.explain(GRID, BLOCK, *arguments().values())
    other = kg.gradient(compiled(IN_ONE["results that are needed"]), NAMES)
    assert "the reverse alone" not in other.explain() + other.explain(GRID, BLOCK, *arguments().values())


@pytest.mark.usefixtures("always")
def test_its_tape_is_that_of_the_reverse() -> None:
    gradient = kg.gradient(compiled(IN_TWO["shared memory"]), NAMES)
    assert gradient.tape_bytes(GRID, BLOCK, *arguments().values()) == 0


@pytest.mark.parametrize("around", ["if (x[i] > 0.6)", "for (int j = 0; j < 2; j++)", "if (x[i] > 0.6) if (n > 2)"])
def test_what_a_loop_leaves_is_counted_inside_of_others(around: str) -> None:
    """The numbers of trips, and what branches hand on, are values that only the plan has."""
    body = """{ int c = 0; while (b[c % 3] < 3 && c < 9) { b[c % 3] = b[c % 3] * b[(c + 1) % 3] + 0.3; c++; }
        b[(i + 1) % 3] *= b[n % 3]; }"""
    source = f"{HEAD} {{ {I} double b[3] = {{x[i], x[0] * x[i], w[1]}}; {around} {body} y[i] = b[x[i] < 0.7]; }}"
    found = []
    for plan in ("as launched", "in two"):
        x, w, d_x, d_w = np.linspace(0.5, 1, 16), np.ones(16), np.zeros(16), np.zeros(16)
        with forced(plan):
            gradient = kg.gradient(kernel_of(source), "y, x, w")
            gradient[2, 8](np.zeros(16), x, w, np.zeros(16), 1.0, 16, np.ones(16), d_x, d_w)
        found.append(np.concatenate([d_x, d_w]))
    assert np.abs(found[0]).max() > 1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
