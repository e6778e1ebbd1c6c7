"""The examples with which other differentiators introduce themselves, with the numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from gradient_cases.seeds import CASES, Case

BY_NAME = {case.name: case for case in CASES}


def run(case: Case, *args: Any, grid: Any = 1, block: Any = 5) -> None:
    kg.gradient(case.compiled(), case.listed)[grid, block](*args)


def test_every_thread_adds_to_the_adjoint_of_a_number() -> None:
    out, d_out, d_in, d_val = np.zeros(5), np.arange(1.0, 6), np.zeros(5), np.zeros(1)
    run(BY_NAME["add_a_number"], out, np.arange(5.0), 10.0, d_out, d_in, d_val)
    np.testing.assert_array_equal(out, np.arange(5) + 10)
    np.testing.assert_array_equal(d_in, [1, 2, 3, 4, 5])
    assert d_val[0] == 15 and not d_out.any()


@pytest.mark.parametrize(
    ("name", "d_in", "d_val"),
    [
        ("device_call_reads_its_element", lambda x, v: np.ones(5), lambda x, v: 5),
        ("device_call_in_a_device_call", lambda x, v: np.full(5, 2 * v * v), lambda x, v: (4 * x * v).sum()),
    ],
)
def test_device_calls(name: str, d_in: Any, d_val: Any) -> None:
    x, value, in_adjoint, val_adjoint = np.arange(1.0, 6), 3.0, np.zeros(5), np.zeros(1)
    run(BY_NAME[name], np.zeros(5), x, value, np.ones(5), in_adjoint, val_adjoint)
    np.testing.assert_allclose(in_adjoint, d_in(x, value))
    np.testing.assert_allclose(val_adjoint[0], d_val(x, value))


def test_square_in_one_thread() -> None:
    d_in = np.zeros(1)
    run(BY_NAME["square_in_one_thread"], np.array([1.4]), np.zeros(1), d_in, np.ones(1), block=1)
    np.testing.assert_allclose(d_in, 2.8)


def test_collide_accumulates() -> None:
    """`+=` keeps the adjoint of what it adds to."""
    src, dst, d_src, d_dst = np.linspace(0, 1, 30), np.ones(30), np.zeros(30), np.full(30, 2.0)
    run(BY_NAME["collide"], src, dst, d_src, d_dst, block=100)
    np.testing.assert_allclose(dst, 1 + src * src - 3 * src)
    np.testing.assert_allclose(d_src, 2 * (2 * src - 3))
    np.testing.assert_array_equal(d_dst, 2)


def test_two_collisions_in_turn() -> None:
    """A host loop by hand: the second launch reads what the first wrote and writes what it read."""
    target = BY_NAME["collide"].compiled()
    gradient = kg.gradient(target, "src, dst")
    a, b = np.linspace(0.1, 1, 30), np.linspace(1, 0.1, 30)

    def forward(a: Any, b: Any) -> tuple[Any, Any]:
        b = b + a * a - 3 * a
        return a + b * b - 3 * b, b

    d_a, d_b = np.ones(30), np.ones(30)
    middle = b + a * a - 3 * a
    gradient[1, 32](middle.copy(), a.copy(), d_b, d_a)
    gradient[1, 32](a.copy(), b.copy(), d_a, d_b)
    h = 1e-6
    ahead, behind = forward(a + h, b), forward(a - h, b)
    np.testing.assert_allclose(d_a, sum(p - q for p, q in zip(ahead, behind, strict=True)) / (2 * h), rtol=1e-6)


def test_tensor_contraction() -> None:
    """All ones as the output's adjoint: each element of A gets the sum of the row of B it meets."""
    case = BY_NAME["contraction_20"]
    a, b = np.arange(1.0, 25).reshape(2, 3, 4), np.arange(1.0, 25).reshape(4, 3, 2)
    out, d_a, d_b = np.zeros((2, 3, 3, 2)), np.zeros_like(a), np.zeros_like(b)
    sizes = np.array(a.shape, np.uint64), np.array(b.shape, np.uint64)
    run(case, out, a, b, *sizes, 2, 0, np.ones_like(out), d_a, d_b, block=256)
    np.testing.assert_allclose(out, np.tensordot(a, b, axes=(2, 0)))
    np.testing.assert_allclose(d_a, np.broadcast_to(b.sum(axis=(1, 2)), a.shape))
    np.testing.assert_allclose(d_b, np.broadcast_to(a.sum(axis=(0, 1))[:, None, None], b.shape))


@pytest.mark.parametrize(("a_dim", "b_dim"), [(2, 0), (0, 1), (1, 2)])
def test_other_dimensions_of_the_contraction(a_dim: int, b_dim: int) -> None:
    case = BY_NAME[f"contraction_{a_dim}{b_dim}"]
    args = case.arguments("f8")
    case.compiled()[case.grid, case.block](*args)
    np.testing.assert_allclose(args[0], np.tensordot(args[1], args[2], axes=(a_dim, b_dim)).reshape(-1))


def test_function_of_a_pointer() -> None:
    f = kg.gradient(kg.compile("__device__ double fn(const double *a) { return *a * *a; }")["fn"], "a")
    d_a = np.zeros(1)
    assert f.execute(np.array([3.0]), d_a) == 9
    assert d_a[0] == 6
