"""Gradients of gradients and of tangents, and Hessians times vectors: against differences of what they derive."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import cooperation_cases
import gradient_cases
import kernelgrad as kg
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from second_order_cases import Map, difference, given, moved

from ..emulation.run_text import run_packed

STEP = 1e-6
ALONE = """early_return carried_nonlinearly while_break_do zero_trips in_place_many_times ping_pong
    local_array_dynamic_index unlisted_scratch struct_updated_in_a_loop nested_calls scalar_read_by_all neighbours
    atomic_sum elementary constant_and_device_variables read_after_write"""
TOGETHER = """tree_sum tiled_product shuffles early_return double_buffered_scan histogram_in_shared_memory
    views_of_bytes dynamic_array_of_structs bitonic_sort layer_norm lanes_leave_by_data group_sum shared_total"""

# Its gradient is planned for blocks of rows: threads that take their index apart, and loops that read shared memory.
DIGITS = """__global__ void digits(double *y, const double *x, int n) {
    __shared__ double a[2][4];
    int r = threadIdx.x / 4, c = threadIdx.x % 4, at = blockIdx.x * 8 + threadIdx.x;
    a[r][c] = x[at];
    __syncthreads();
    double s = 0;
    for (int q = 0; q < 4; ++q) s += a[r][q] * a[(q + c) % 2][q];
    y[at] = s * s;
}"""


def subject(name: str, together: bool) -> Map:
    if name == "digits":
        rng = np.random.default_rng(3)
        return Map(kg.compile(DIGITS)[name], ("y", "x"), (2, 8), (rng.uniform(-1, 1, 16), rng.uniform(-1, 1, 16), 16))
    if together:
        case = cooperation_cases.CASES[name]
        y, x, _ = cooperation_cases.inputs(3)
        return Map(case.compiled(), ("y", "x"), case.launch, (y, x, case.n))
    found = next(c for c in gradient_cases.ALL if c.name == name)
    return Map(found.compiled(), found.names(), (found.grid, found.block), found.arguments("f8"))


SUBJECTS = [pytest.param(n, False, id=n) for n in ALONE.split()]
SUBJECTS += [pytest.param(n, True, id=f"{n}_together") for n in ("digits", *TOGETHER.split())]


@pytest.mark.parametrize(("name", "together"), SUBJECTS, scope="module")
def test_gradients_of_gradients_and_of_tangents(name: str, together: bool) -> None:
    """⟨seeds, J v⟩ by differences of the first derivative is ⟨Jᵀ seeds, v⟩; and that one's own results are there."""
    case = subject(name, together)
    values = case.values
    for first, shadows in ((case.gradient, "adjoint_names"), (case.tangent, "tangent_names")):
        start, direction, seeds = ((case.like(k), case.like(k + 1)) for k in (10, 20, 30))
        second = kg.gradient(first, (*case.names, *getattr(first, shadows)))
        after = case.call(second, values, [*start[0], *seeds[0], *seeds[1]])
        plain = case.call(first, values, start[0])
        number = len(case.names)
        for got, want in zip(after[: 2 * number], plain, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12 * max(1.0, np.abs(want).max(initial=0)))

        def moved_by(step: float, first: Any = first, s: Any = start, d: Any = direction) -> Any:
            return case.call(first, moved(values, d[0], step), moved(s[0], d[1], step))

        change = difference(moved_by, STEP)
        expected = sum(float(np.sum(a * b)) for a, b in zip(change, (*seeds[0], *seeds[1]), strict=True))
        terms = [a * b for a, b in zip(after[2 * number :], (*direction[0], *direction[1]), strict=True)]
        scale = sum(float(np.abs(term).sum()) for term in terms)
        assert sum(float(term.sum()) for term in terms) == pytest.approx(expected, abs=2e-6 * max(1.0, scale))


@pytest.mark.parametrize(("name", "together"), SUBJECTS, scope="module")
def test_hessians_times_vectors(name: str, together: bool) -> None:
    case = subject(name, together)
    product = kg.hvp(case.kernel, case.names)
    adjoints, directions = case.like(40), case.like(41)
    by_role = {"adjoint": adjoints, "tangent": directions, "second": [np.full_like(v, 7.0) for v in case.values]}
    slots = [by_role[slot.role][case.names.index(slot.of)] for slot in product.slots]
    after = case.call(product, case.values, slots)[len(case.names) :]
    outputs = given(product, "adjoint", case.names)
    inputs = given(product, "tangent", case.names)
    seeds = [a * kept for a, kept in zip(adjoints, outputs, strict=True)]
    steps = [d * kept for d, kept in zip(directions, inputs, strict=True)]
    change = difference(lambda h: case.call(case.gradient, moved(case.values, steps, h), seeds), STEP)
    for slot, before, got in zip(product.slots, slots, after, strict=True):
        if slot.role != "second":
            np.testing.assert_array_equal(got, before)  # adjoints and directions stay
        else:
            want = change[len(case.names) + case.names.index(slot.of)]
            np.testing.assert_allclose(got, want, atol=2e-6 * max(1.0, np.abs(want).max(initial=0)))


@pytest.mark.parametrize("name", ["tree_sum", "tiled_product", "lanes_leave_by_data", "shared_total"], scope="module")
def test_no_races(name: str) -> None:
    case = subject(name, True)
    product = kg.hvp(case.kernel, "y, x")
    for order in (None, 1):
        y, x, n = case.args
        slots = (*case.like(1)[:1], *case.like(2)[:1], np.zeros_like(x))
        grid, block, *shared = case.launch
        report = product.check(grid, block, y.copy(), x, n, *slots, shared=(*shared, 0)[0], seed=order)
        assert report.ok, str(report)


@pytest.mark.parametrize("name", ["tree_sum", "tiled_product", "shuffles", "layer_norm"], scope="module")
def test_as_text(name: str) -> None:
    """The CUDA text, compiled by g++ against an emulation, does what the CPU backend does."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    case = subject(name, True)
    product, launch = kg.hvp(case.kernel, "y, x"), make_launch(*case.launch)
    y, x, n = case.args
    d_y, v, found, expected = case.like(1)[0], case.like(2)[1], np.zeros_like(x), np.zeros_like(x)
    product[case.launch](y.copy(), x, n, d_y, v, expected)
    ready = product._prepare(launch, (y.copy(), x, n, d_y, v, found), {}, watched=True)
    module = ready.kernel.cuda_module
    config = LaunchConfig(launch.grid, launch.block)
    packed = ready.kernel._with_variables(module, ready.bound, config, None, ready.own.supplied).packed
    offsets, _ = param_layout(module.functions[ready.kernel.name])
    run_packed(ready.kernel.source, kernel_name(ready.kernel.name), launch.grid, launch.block, packed, offsets)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())
    assert expected.any()
