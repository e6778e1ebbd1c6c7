"""Writes that nobody recorded, to what launches read that run again within a budget."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import kernelgrad as kg

N = 12
MODULE = kg.compile(r"""
__global__ void difference(double *y, const double *x, const double *z, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i] - 0.25 * z[i];
}
__global__ void square(double *y, const double *x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = 0.7 * x[i] * x[i] + 0.4;
}
__global__ void heat(double *v, const double *u, double k, int n) {
    int i = threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = u[i] + k * u[i] * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
""")
BUDGETS = [None, *range(288, 1000, 96)]


def make(values: Any, package: str) -> Any:
    return np.array(values) if package == "numpy" else pytest.importorskip("torch").tensor(values)


@pytest.mark.parametrize("package", ["numpy", "torch"])
@pytest.mark.parametrize("when", ["never", "inside", "after"])
def test_what_only_linear_launches_read(when: Literal["never", "inside", "after"], package: str) -> None:
    """Their reverse does not read it again, but they run again, and reverses read what they make."""
    answers, expected = [], None
    for budget in BUDGETS:
        u, v, z = (make(np.linspace(a, b, N), package) for a, b in ((0.1, 0.8), (0, 0), (0.2, 0.9)))
        with kg.record(tape_budget=budget) as tape:
            for _ in range(20):
                MODULE["difference"][1, 32](v, u, z, N)
                MODULE["square"][1, 32](u, v, N)
            if when == "inside":
                z += 1
        if when == "after":
            z += 1
        left = np.asarray(u).copy()
        try:
            tape.backward(u, make(np.ones(N), package))
            found = np.asarray(tape.grad(u)).copy()
            expected = found if expected is None else expected
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            answers.append("right")
        except kg.TapeError as error:
            assert "difference: the memory of 'z' was changed after the recorded launch, which runs" in str(error)
            answers.append("refused")
        np.testing.assert_array_equal(np.asarray(u), left)
    assert answers[0] == "right"  # without a budget, nothing runs again
    assert ("refused" in answers) == (when != "never")


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_what_is_left_of_a_result_that_was_changed(package: str) -> None:
    """No launch stores to the ends, so that there is no copy of them; the rest may be changed: launches that
    run again store to it."""
    answers, expected = [], None
    for budget in BUDGETS:
        first, other = make(np.linspace(0.1, 0.8, N) ** 2, package), make(np.linspace(0.5, -0.4, N), package)
        u, v = first, other
        with kg.record(tape_budget=budget) as tape:
            for _ in range(17):
                MODULE["heat"][1, 32](v, u, 0.2, N)
                u, v = v, u
        u *= 3
        try:
            tape.backward(u, make(np.ones(N), package))
            found = np.asarray(tape.grad(first)).copy()
            expected = found if expected is None else expected
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            answers.append("right")
        except kg.TapeError as error:
            assert "heat: the memory of 'u' was changed after the recorded launch, which runs again" in str(error)
            answers.append("refused")
    assert answers[0] == "right" and set(answers) == {"right", "refused"}


def test_numbers_are_read_once() -> None:
    """A 0-d array that was passed for a number may hold another one by then."""
    found = []
    for changed in (False, True):
        u, v, k = np.linspace(0.1, 0.8, N) ** 2, np.zeros(N), np.array(0.2)
        with kg.record(tape_budget=300) as tape:
            for _ in range(8):
                MODULE["heat"][1, 32](v, u, k, N)
                MODULE["heat"][1, 32](u, v, k, N)
        k += changed
        tape.backward(u, np.ones(N))
        found.append((tape.grad(u), tape.grad(k)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_what_reverses_read_is_looked_at_before_each_of_them() -> None:
    """Tensors too large for fingerprints: the first reverse runs steps again, and the second one knows as well what the
    launches that do not run again read."""
    torch = pytest.importorskip("torch")
    n = (1 << 17) + 1
    u, v, z, last = (torch.full((n,), value, dtype=torch.float64) for value in (0.5, 0.0, 0.1, 0.2))
    product = kg.compile("""
    __global__ void product(double *y, const double *x, const double *z, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] + z[i] * x[i] * x[i];
    }
    """)["product"]
    with kg.record(tape_budget=6 * u.nbytes) as tape:
        for k in range(10):
            product[(n + 255) // 256, 256](v, u, last if k == 9 else z, n)
            u, v = v, u
    assert not all(segment.exact for segment in tape.store.segments) and tape.store.segments[-1].exact
    tape.backward(u, torch.ones_like(u), keep=True)
    last.mul_(2)
    with pytest.raises(kg.TapeError, match="product: the memory of 'z' was changed after the recorded launch"):
        tape.backward(u, torch.ones_like(u), keep=True)


def test_points_that_are_watched_read_nothing_again() -> None:
    """What memory holds there does not matter when steps run again."""
    answers = []
    for budget in (None, 288, 384):
        u, v, z = np.linspace(0.1, 0.8, N), np.zeros(N), np.linspace(0.2, 0.9, N)
        with kg.record(tape_budget=budget) as tape:
            point = tape.watch(z)
            for _ in range(20):
                MODULE["square"][1, 32](v, u, N)
                MODULE["square"][1, 32](u, v, N)
        z += 1
        tape.backward(u, np.ones(N))
        assert not tape.grad(point).any()
        answers.append(tape.grad(u))
    np.testing.assert_allclose(answers[1:], answers[:1] * 2, rtol=1e-12)
