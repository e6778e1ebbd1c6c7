"""Adjoints that are gathered: right, chosen where they can be, and not where they cannot (rule 9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import gradient_of, kernel_of
from every_plan import forced
from gather_cases import AT, AT_2, ATOMIC, GATHERED, Case, arguments_of
from kernelgrad.autodiff.accumulate.gather.plan import Box, Gather
from kernelgrad.launches.choice import gather_parts
from kernelgrad.runtime.config import make_launch
from some_cases import in_turn

CASES = {**GATHERED, **ATOMIC}
FORMS: dict[str, dict[str, Any]] = {"joint": {}, "reverse": {"primal": False}, "deterministic": {"deterministic": True}}


def _gathered(gradient: Any, case: Case, arguments: list[Any]) -> set[str]:
    primal, _ = gradient.kernel.bind(arguments)
    launch = make_launch(case.grid, case.block)
    facts = gradient.variant_for(gradient.settings.listed, launch, primal).options.facts
    return {gather.name for gather in facts.gathered}


@pytest.mark.parametrize("name", CASES, scope="module")
def test_is_chosen_where_it_is_right(name: str) -> None:
    case = CASES[name]
    kernel = kernel_of(case.source)
    gradient = gradient_of(kernel, case.names)
    assert _gathered(gradient, case, arguments_of(case)) - {"w"} == set(case.gathered.split()) - {"w"}


@pytest.mark.parametrize(("name", "form"), in_turn(CASES, tuple(FORMS)))
def test_values(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same gradient with its updates where the kernel reads."""
    case = CASES[name]
    kernel = kernel_of(case.source)
    if form == "reverse" and name == "in place":
        pytest.skip("needs what the kernel overwrites")
    found = []
    for scattered in (False, True):
        if scattered:
            monkeypatch.setattr("kernelgrad.launches.choice.gathers.Gathers.find", lambda *_: ())
        gradient = kg.gradient(kernel, case.names, **FORMS[form])
        arguments = arguments_of(case)
        adjoints = [np.random.default_rng(k).standard_normal(n) for k, n in enumerate(case.sizes)]
        gradient[case.grid, case.block](*arguments, *adjoints)
        found.append([*arguments[: len(case.sizes)], *adjoints])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", GATHERED, scope="module")
def test_against_finite_differences(name: str) -> None:
    case = CASES[name]
    kernel = kernel_of(case.source)
    kg.check_gradient(kernel, case.names, case.grid, case.block, arguments_of(case))


@pytest.mark.parametrize("name", GATHERED, scope="module")
def test_assigned_and_kept(name: str) -> None:
    """What `assign` says starts at zero, `keep` stays."""
    case = CASES[name]
    kernel = kernel_of(case.source)
    inputs = case.names[1:]
    whole = kg.gradient(kernel, case.names)
    alone = kg.gradient(kernel, case.names, primal=False, keep="y", assign=inputs)
    seed = np.random.default_rng(5).standard_normal(case.sizes[0])
    one = [seed.copy(), *(np.zeros(n) for n in case.sizes[1:])]
    other = [seed.copy(), *(np.full(n, np.nan) for n in case.sizes[1:])]
    whole[case.grid, case.block](*arguments_of(case), *one)
    alone[case.grid, case.block](*arguments_of(case), *other)
    np.testing.assert_array_equal(other[0], seed)
    for a, b in zip(one[1:], other[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", GATHERED, scope="module")
def test_no_races(name: str) -> None:
    case = CASES[name]
    gradient = kg.gradient(kernel_of(case.source), case.names)
    adjoints = [np.ones(n) for n in case.sizes]
    for seed in (None, 1):
        report = gradient.check(case.grid, case.block, *arguments_of(case), *adjoints, seed=seed)
        assert not report.findings, report


@pytest.mark.parametrize("name", GATHERED, scope="module")
def test_several_elements_a_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large buffers."""
    monkeypatch.setattr("kernelgrad.autodiff.accumulate.gather.pattern._span", lambda sites, box: 4)
    test_against_finite_differences(name)
    test_assigned_and_kept(name)
    test_no_races(name)


def test_an_adjoint_shorter_than_its_input() -> None:
    """What the kernel does not read needs no adjoint, and nothing is written there."""
    kernel = kg.compile(f"__global__ void k(double *y, const double *x) {{ {AT} y[i] = x[i] * x[i + 1]; }}")["k"]
    gradient = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x", shorter="x")
    x, d_x = np.arange(1000.0), np.full(200, -7.0)
    gradient[2, 16](np.zeros(32), x, np.ones(32), d_x[50:83])
    np.testing.assert_array_equal(d_x[50:83], [1, *range(2, 64, 2), 31])
    assert (d_x[:50] == -7).all() and (d_x[83:] == -7).all()


def test_no_launch_is_left_where_gathers_do_it_all() -> None:
    case = GATHERED["no guard"]
    gradient = kg.gradient(kg.compile(case.source)["k"], "y, x", primal=False, keep="y", assign="x")
    arguments, adjoints = arguments_of(case), [np.ones(n) for n in case.sizes]
    steps, _, _ = gradient._prepare(make_launch(case.grid, case.block), (*arguments, *adjoints), {})
    assert [step.kernel.name for step in steps] == ["k_grad_gather_x"]


def test_one_kernel_serves_all_sizes() -> None:
    """Sizes are arguments of a gather: another size is not another compilation."""
    case = GATHERED["five points, a grid that is too large"]
    gradient = kg.gradient(kg.compile(case.source)["k"], "y, x")
    for n, m in ((19, 17), (23, 9)):
        x, y, d_x = np.ones(n * m), np.zeros(n * m), np.zeros(n * m)
        gradient[(3, 5), (8, 4)](y, x, n, m, np.ones(n * m), d_x)
        assert d_x.sum() == (1 + 3 + 5 + 5) * (n - 2) * (m - 2)
    assert len({gather for _, facts in gradient.forms.made for gather in facts.gathered}) == 1


def test_launches_whose_threads_store_the_same_elements() -> None:
    """They are not gathered, whatever came before; all threads of a column store the same value there."""
    source = f"""__global__ void k(double *y, const double *x, int n, int step) {{ {AT_2}
        if (i < n) y[i + j * step] = x[i] * x[i + 1];
    }}"""
    gradient = kg.gradient(kg.compile(source)["k"], "y, x")
    x, seed = np.arange(21.0), np.arange(80.0)
    for step in (20, 0, 20):
        d_x = np.zeros(21)
        gradient[1, (32, 4)](np.zeros(80), x, 20, step, seed.copy(), d_x)
        total = sum(seed[j * 20 : j * 20 + 20] for j in range(4 if step else 1))
        want = np.append(total * x[1:], 0) + np.append(0, total * x[:-1])
        np.testing.assert_allclose(d_x, want, rtol=1e-13)


REMAINDERS = {  # and what else a thread makes of its index
    "i % 5": "i % 2 == 0 ? x[i] : x[i] * x[i]",
    "i % 50": "x[i] * (1 + threadIdx.x / 4)",
    "i % 12": "x[i] * (1 + i % 8)",
    "i % 15 % 5": "x[i] * (1 + i % 3 + i / 5 % 3)",
}


@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_that_others_do_not_tell(name: str) -> None:
    """`i % 5 % 2` is not `i % 2`."""
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, const double *w, int n) {{ {AT}
        if (i < n) y[i] = w[{name}] * ({REMAINDERS[name]});
    }}""")["k"]
    rng = np.random.default_rng(1)
    x, w, seed = rng.random(100), rng.random(50), rng.random(100)
    found = []
    for plan in ("one kernel", "gathered"):
        adjoints = [seed.copy(), np.zeros(100), np.zeros(50)]
        with forced(plan):
            gradient = kg.gradient(kernel, "y, x, w")
            gradient[4, 32](np.zeros(100), x, w, 100, *adjoints)
        found.append(adjoints)
    assert any(gather.name == "w" for _, facts in gradient.forms.made for gather in facts.gathered)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# ---- on a CPU --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GATHERED, scope="module")
def test_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large buffers."""
    monkeypatch.setattr("kernelgrad.launches.choice.gather_parts._FEW", 0)
    test_against_finite_differences(name)
    test_assigned_and_kept(name)


@pytest.mark.parametrize("name", GATHERED, scope="module")
def test_no_races_between_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.gather_parts._FEW", 0)
    case = GATHERED[name]
    gradient = kg.gradient(kg.compile(case.source)["k"], case.names)
    arguments = (*arguments_of(case), *(np.ones(n) for n in case.sizes))
    steps, placement, own = gradient._prepare(make_launch(case.grid, case.block), arguments, {}, watched=False)
    parts = [step for step in steps if "_gather_" in step.kernel.name]
    assert parts and all(step.kernel.name.endswith(("_inside", "_border")) for step in parts)
    for step in parts:
        supplied = {**own.supplied, **step.supplied}
        report = step.kernel.check_bound(step.launch, step.bound, placement, supplied, 1)
        assert not report.findings, report


@pytest.mark.parametrize("inner", [((2, 5),), ((0, 6), (1, 3)), ((1, 8), (0, 3), (2, 2)), ((3, 3), (2, 1)), ((-1, 2),)])
def test_parts_have_each_element_once(inner: tuple[tuple[int, int], ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.launches.choice.gather_parts._FEW", 0)
    digits, extents = len(inner), (10, 5, 4)[: len(inner)]
    gather = Gather("x", (), digits, (), True, 4, True)
    box = Box((-1, 0, 0)[:digits], extents, (1, 10, 50)[:digits], inner)
    seen = np.zeros(extents, np.int32)
    for part, own in gather_parts.parts(gather, box):
        launch = gather_parts.launch_of(own)
        assert tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))[:digits] == own.extents
        at = tuple(slice(f - g, f - g + n) for f, g, n in zip(own.first, box.first, own.extents, strict=True))
        seen[at] += 1
        within = [lo <= f and f + n - 1 <= hi for (lo, hi), f, n in zip(inner, own.first, own.extents, strict=True)]
        assert part.part == "border" or all(within[1:])
    assert (seen == 1).all()


def test_parts_that_are_deep() -> None:
    launch = gather_parts.launch_of(Box((0, 0, 0), (2, 1, 96), (1, 2, 2), ((0, 1), (0, 0), (0, 95))))
    assert launch.block[2] <= 64 and launch.grid[2] * launch.block[2] == 96


TRIANGLES = {
    "from ten on": "for (int j = 0; j <= i + 10; ++j) for (int k = j; k <= i + 10; ++k) sum += x[k] * (1 + j);",
    "of what comes after": "for (int j = i + 1; j < n; ++j) for (int k = j + 1; k < n; ++k) sum += x[k] * (j - i);",
}


@pytest.mark.parametrize("name", TRIANGLES)
def test_triangles(name: str) -> None:
    """Of loops in loops, both with the thread's own bounds: the inner ones run over all that any iteration has."""
    source = f"__global__ void k(double *y, const double *x, int n) {{ {AT} if (i >= n) return; double sum = 0;"
    case = Case(f"{source} {TRIANGLES[name]} y[i] = sum; }}", 3, 16, (40, 60), (40,))
    kernel, found = kernel_of(case.source), {}
    for plan in ("one kernel", "gathered"):
        with forced(plan):
            gradient, found[plan] = kg.gradient(kernel, case.names), np.zeros(60)
            assert _gathered(gradient, case, arguments_of(case)) == ({"x"} if plan == "gathered" else set())
            gradient[case.grid, case.block](*arguments_of(case), np.arange(1.0, 41), found[plan])
    np.testing.assert_allclose(found["gathered"], found["one kernel"], rtol=1e-12)


def test_one_thread_that_clamps() -> None:
    """It has no index of threads that could move along with the elements."""
    source = f"""__global__ void k(double *y, const double *x, int n) {{ {AT} double sum = 0;
        for (int s = 0; s < 4; ++s) sum += (s + 1) * x[min(s, n - 1)]; y[i] = sum; }}"""
    found = np.ones(4)
    kg.gradient(kernel_of(source), "y, x")[1, 1](np.zeros(1), np.ones(4), 3, np.ones(1), found)
    assert found.tolist() == [2, 3, 8, 1]
