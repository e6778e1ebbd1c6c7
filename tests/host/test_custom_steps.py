"""Steps of a recording whose reverse is the user's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

N = 6
MODULE = kg.compile("""
__global__ void cube(double *v, const double *u, int n) { int i = threadIdx.x; if (i < n) v[i] = u[i] * u[i] * u[i]; }
__global__ void scale(double *u, const double *w, int n) { int i = threadIdx.x; if (i < n) u[i] *= w[i]; }
""")
CUBE, SCALE = MODULE["cube"], MODULE["scale"]
CALLS: list[str] = []


@kg.custom_gradient(writes="v")
def cubed(v: Any, u: Any, n: int) -> str:
    CALLS.append("run")
    CUBE[1, 32](v, u, n)
    return "done"


@cubed.reverse
def _(v: Any, u: Any, n: int, d_v: Any, d_u: Any) -> None:
    CALLS.append("reverse")
    d_u += 3 * u * u * d_v


@kg.custom_gradient(updates="u")
def clipped(u: Any, most: float = 1.0) -> None:
    """Nothing; its adjoint is clipped."""


@clipped.reverse
def _(u: Any, most: float, d_u: Any) -> None:
    np.clip(d_u, -most, most, out=d_u)


def reference(u: Any, w: Any, steps: int) -> tuple[Any, Any, Any]:
    """What comes out, and its adjoints by u and w."""
    scaled = []
    for _ in range(steps):
        scaled.append(u * w)
        u = scaled[-1] ** 3
    d_u, d_w = np.ones(N), np.zeros(N)
    for s in reversed(scaled):
        d_s = d_u * 3 * s * s
        d_w, d_u = d_w + d_s * s / w, d_s * w
    return u, d_u, d_w


@pytest.mark.parametrize("budget", [None, 4000, 300])
def test_within_a_recording(budget: int | None) -> None:
    steps = 5
    start, w = np.linspace(0.99, 1.01, N), np.linspace(1.0, 1.01, N)
    first, v = start.copy(), np.zeros(N)
    u = first
    CALLS.clear()
    with kg.record(tape_budget=budget) as tape:
        for _ in range(steps):
            SCALE[1, 32](u, w, N)
            assert cubed(v, u, N) == "done"
            u, v = v, u
    result, d_u, d_w = reference(start, w, steps)
    np.testing.assert_allclose(u, result)
    tape.backward(u, np.ones(N))
    np.testing.assert_allclose(tape.grad(first), d_u, rtol=1e-11)
    np.testing.assert_allclose(tape.grad(w), d_w, rtol=1e-11)
    np.testing.assert_allclose(u, result)
    assert CALLS.count("reverse") == steps and (CALLS.count("run") == steps) == (budget != 300)
    assert "cubed: 5 x" in tape.explain()


def test_what_is_updated_has_the_adjoint_that_is_left() -> None:
    x, y = np.linspace(1, 2, N), np.zeros(N)
    with kg.record() as tape:
        clipped(x, most=5.0)
        CUBE[1, 32](y, x, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), np.minimum(3 * x * x, 5))


def test_gradients_may_be_launched_inside() -> None:
    """A force is the gradient of an energy; the reverse of it is the user's."""
    gradient = kg.gradient(CUBE, "v, u", primal=False)

    @kg.custom_gradient(writes="force")
    def forces(force: Any, x: Any) -> None:
        force[:] = 0
        gradient[1, 32](np.zeros(N), x, N, np.ones(N), force)

    @forces.reverse
    def _(force: Any, x: Any, d_force: Any, d_x: Any) -> None:
        d_x += 6 * x * d_force

    x, force, y = np.linspace(1, 2, N), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        forces(force, x)
        CUBE[1, 32](y, force, N)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 3 * (3 * x * x) ** 2 * 6 * x)


@kg.custom_gradient(writes="v")
def product(v: Any, a: Any, b: Any) -> None:
    v[...] = a * b


@product.reverse
def _(v: Any, a: Any, b: Any, d_v: Any, d_a: Any, d_b: Any) -> None:
    d_a += b * d_v
    d_b += a * d_v


@pytest.mark.parametrize("b", [slice(0, 3), slice(1, 4), slice(3, 6)], ids=str)
@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_arguments_that_share_memory_have_adjoints_that_add_up(b: slice, package: str) -> None:
    made = np.array if package == "numpy" else pytest.importorskip("torch").tensor
    x, v = made([float(k + 1) for k in range(6)]), made([0.0] * 3)
    with kg.record() as tape:
        product(v, x[:3], x[b])
    tape.backward([(v, made([1.0] * 3)), (x, made([10.0] * 6))])
    expected = np.full(6, 10.0)
    expected[:3] += np.asarray(x)[b]
    expected[b] += np.asarray(x)[:3]
    np.testing.assert_allclose(np.asarray(tape.grad(x)), expected)


def test_outside_of_a_recording_it_is_the_function() -> None:
    x, y = np.linspace(1, 2, N), np.zeros(N)
    assert cubed(y, x, n=N) == "done" and cubed.__name__ == "cubed"
    np.testing.assert_allclose(y, x**3)


def test_without_an_adjoint_nothing_is_reversed() -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    CALLS.clear()
    with kg.record() as tape:
        cubed(y, x, N)
        CUBE[1, 32](z, x, N)
    tape.backward(z, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 3)
    assert CALLS == ["run"]


def test_refusals() -> None:
    x, y = np.ones(N), np.zeros(N)

    @kg.custom_gradient(writes="v")
    def unlisted(v: Any, u: Any) -> None:
        CUBE[1, 32](v, u, N)
        SCALE[1, 32](u, v, N)

    with pytest.raises(kg.TapeError, match="give its reverse first"), kg.record():
        unlisted(y, x)
    unlisted.reverse(lambda v, u, d_v, d_u: None)
    with pytest.raises(kg.TapeError, match="scale writes 'u', which the recording knows"), kg.record():
        unlisted(y, x)
    with pytest.raises(kg.ArgumentError, match="'v' shares memory with 'u'"), kg.record():
        unlisted(y[:4], y[2:])
    with pytest.raises(kg.ArgumentError, match="'v' is written, and wants an array"), kg.record():
        unlisted(3.0, y)
    with pytest.raises(kg.ArgumentError, match="has no parameter 'w'; it has: v"):
        kg.custom_gradient(writes="w")(lambda v: None)
    with pytest.raises(kg.ArgumentError, match="plain parameters"):
        kg.custom_gradient(writes="v")(lambda v, *rest: None)


def test_adjoints_that_the_reverse_forgets_are_not_made_up() -> None:
    """What is written whole has no adjoint before that."""
    x, y, z = np.ones(N), np.ones(N), np.zeros(N)
    with kg.record() as tape:
        SCALE[1, 32](y, x, N)
        cubed(y, x, N)
        CUBE[1, 32](z, y, N)
    tape.backward(z, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 9)
    np.testing.assert_allclose(tape.grad(y), 0)


def stepped(reverse: Any, *args: Any) -> Any:
    """A tape of one call."""

    @kg.custom_gradient(writes="v")
    def step(v: Any, u: Any) -> None:
        v[:] = u * u

    step.reverse(reverse)
    with kg.record() as tape:
        step(*args)
    return tape


@pytest.mark.parametrize(
    ("reverse", "args", "problem"),
    [
        (lambda v, u, d_v: None, 2, r"called with \(v, u, d_v, d_u\), which it does not take: too many"),
        (lambda v, u, d_v, d_u, more: None, 2, "which it does not take: missing a required argument: 'more'"),
        (lambda v, u, d_v, d_u: None, 1, r"step\(v: 'Any', u: 'Any'\).*: missing a required argument: 'u'"),
        (lambda v, u, d_v, d_u: None, 3, "too many positional arguments"),
    ],
)
def test_wrong_calls(reverse: Any, args: int, problem: str) -> None:
    with pytest.raises(kg.ArgumentError, match=problem):
        stepped(reverse, *(np.ones(N) for _ in range(args)))


def test_a_reverse_that_returns_its_adjoints_is_refused() -> None:
    """They would be lost, and zeros come out."""
    x, y = np.full(N, 3.0), np.zeros(N)
    tape = stepped(lambda v, u, d_v, d_u: 2 * u * d_v, y, x)
    with pytest.raises(kg.TapeError, match="its reverse returned ndarray: it adds to d_v, d_u in place"):
        tape.backward(y, np.ones(N))
    tape = stepped(lambda v, u, d_v, d_u: np.add(d_u, 2 * u * d_v, out=d_u), y, x)
    tape.backward(y, np.ones(N))
    np.testing.assert_allclose(tape.grad(x), 6)


def test_a_reverse_writes_no_arguments_but_those_of_the_step() -> None:
    x, y = np.full(N, 3.0), np.zeros(N)
    tape = stepped(lambda v, u, d_v, d_u: u.fill(1.0), y, x)
    with pytest.raises(ValueError, match="read-only"):
        tape.backward(y, np.ones(N))
    np.testing.assert_array_equal(x, 3)
    torch = pytest.importorskip("torch")
    u, v = torch.ones(N), torch.zeros(N)
    tape = stepped(lambda v, u, d_v, d_u: d_u.add_(u.mul_(2)), v, u)
    with pytest.raises(kg.TapeError, match="its reverse wrote 'u', which is to stay as it is"):
        tape.backward(v, torch.ones(N))


def test_a_reverse_may_run_the_gradient_and_with_it_the_step() -> None:
    """What it writes is what earlier reverses read."""
    g = kg.gradient(CUBE)

    @kg.custom_gradient(writes="v")
    def step(v: Any, u: Any) -> None:
        CUBE[1, 32](v, u, N)

    @step.reverse
    def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        g[1, 32](v, u, N, d_v, d_u)

    x, y, z = np.full(N, 1.1), np.full(N, 1.2), np.zeros(N)
    with kg.record(check=False) as tape:
        CUBE[1, 32](z, y, N)  # its reverse reads y as it is now
        step(y, x)
    tape.backward([(z, np.ones(N)), (y, np.ones(N))])
    np.testing.assert_allclose(tape.grad(y), 3 * 1.2**2)
    np.testing.assert_allclose(tape.grad(x), 3 * 1.1**2)
    np.testing.assert_allclose(y, 1.1**3)


def test_tensors_that_are_run_again_and_reversed_twice() -> None:
    torch = pytest.importorskip("torch")

    @kg.custom_gradient(writes="v")
    def squared(v: Any, u: Any) -> None:
        torch.mul(u, u, out=v)

    @squared.reverse
    def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        d_u.add_(2 * u * d_v)

    u, v = torch.full((N,), 1.01, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    with kg.record(tape_budget=6 * 8 * N) as tape:
        for _ in range(4):
            squared(v, u)
            CUBE[1, 32](u, v, N)
    for _ in range(2):
        tape.backward(u, torch.ones(N, dtype=torch.float64), keep=True)
        np.testing.assert_allclose(tape.grad(u), 6**4 * 1.01 ** (6**4 - 1), rtol=1e-9)


def test_what_is_written_must_be_said_once() -> None:
    with pytest.raises(kg.ArgumentError, match="say which arrays 'f' writes"):

        @kg.custom_gradient()
        def f(v: Any) -> None: ...

    with pytest.raises(kg.ArgumentError, match="'v' is in writes and in updates"):
        kg.custom_gradient(writes="v", updates="v")(lambda v: None)


def _assigned(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
    d_u = 3 * u * u * d_v  # noqa: F841


def _summed(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
    d_u = d_u + 3 * u * u * d_v


def _viewed(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
    d_v = -d_v
    d_u = d_u.reshape(-1, 1)
    d_u[:, 0] -= 3 * u * u * d_v


@pytest.mark.parametrize(("reverse", "lost"), [(_assigned, True), (_summed, True), (_viewed, False)])
def test_an_adjoint_whose_name_is_given_away(reverse: Any, lost: bool) -> None:
    cubed = kg.custom_gradient(writes="v")(lambda v, u: np.power(u, 3, out=v))
    cubed.reverse(reverse)
    u, v = np.array([1.0, 2.0]), np.zeros(2)
    if lost:
        line = reverse.__code__.co_firstlineno + 1
        with pytest.raises(kg.ArgumentError, match=rf"its reverse makes 'd_u' a new array \(.*:{line}\)"), kg.record():
            cubed(v, u)
        return
    with kg.record() as tape:
        cubed(v, u)
    tape.backward(v, np.ones(2))
    np.testing.assert_allclose(tape.grad(u), 3 * u * u)


@pytest.mark.parametrize("check", [None, False])
def test_steps_that_do_something_else_when_they_run_again(check: bool | None) -> None:
    """Within a budget: random numbers, say."""
    calls: list[float] = []

    @kg.custom_gradient(updates="w")
    def noise(w: Any) -> None:
        calls.append(1.0)
        w *= len(calls)

    @noise.reverse
    def _(w: Any, d_w: Any) -> None:
        d_w *= 2

    w = np.ones(8)
    with kg.record(tape_budget=3 * 64, check=check) as tape:
        for _ in range(6):
            noise(w)
    if check is None:
        with pytest.raises(kg.TapeError, match="noise: what it writes is something else when it runs again"):
            tape.backward(w, np.ones(8))
        assert (w == 720).all()
    else:
        tape.backward(w, np.ones(8))  # nobody looks where nobody wants it
        assert (tape.grad(w) == 64).all()


HELD = np.zeros(N)


@kg.custom_gradient(writes="v")
def times_held(v: Any, u: Any) -> None:
    v[:] = u * HELD


@times_held.reverse
def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
    d_u += HELD * d_v


@pytest.mark.parametrize("name", ["HELD", "held", "u"])
def test_arrays_that_steps_write_are_arguments(name: str) -> None:
    """Nobody would bring back what such an array held, and its adjoint would be lost: in a global, in a closure, in a
    launch, of what an iterator gives."""
    held, others = np.zeros(N), itertools.repeat(np.zeros(N))
    used = {"HELD": HELD, "held": held, "u": next(others)}[name]

    @kg.custom_gradient(writes="v")
    def times(v: Any, u: Any) -> None:
        v[:] = u * held

    @kg.custom_gradient(writes="v")
    def launched(v: Any, u: Any) -> None:
        CUBE[1, 32](v, next(others), N)

    times.reverse(lambda v, u, d_v, d_u: None)
    launched.reverse(lambda v, u, d_v, d_u: None)
    step = {"HELD": times_held, "held": times, "u": launched}[name]
    u, v = np.linspace(0.1, 1, N), np.zeros(N)
    with kg.record() as tape:
        CUBE[1, 32](used, u, N)
        step(v, u)
        CUBE[1, 32](used, v, N)
    with pytest.raises(kg.TapeError, match=f"'{name}', which recorded steps write .* not among its arguments"):
        tape.backward(used, np.ones(N))


def test_arrays_that_no_step_writes_are_constants() -> None:
    HELD[:] = np.arange(N)
    u, v, w = np.linspace(0.1, 1, N), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        times_held(v, u)
        CUBE[1, 32](w, HELD, N)
    tape.backward(v, np.ones(N))
    np.testing.assert_array_equal(tape.grad(u), np.arange(N))


@pytest.mark.parametrize("pack", [list, tuple, lambda arrays: {"a": arrays}])
def test_arrays_in_containers_are_refused(pack: Any) -> None:
    @kg.custom_gradient(writes="v")
    def product(v: Any, us: Any) -> None:
        raise AssertionError

    product.reverse(lambda v, us, d_v: None)
    u, v = np.ones(N), np.zeros(N)
    with kg.record(), pytest.raises(kg.ArgumentError, match="'us' holds arrays"):
        product(v, pack((u, u)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_check_gradient_finds_a_wrong_reverse(dtype: str) -> None:
    """Of a step that reads and writes; nothing of its arguments changes."""

    @kg.custom_gradient(writes="v", updates="w")
    def step(v: Any, u: Any, w: Any, index: Any, times: int) -> None:
        v[:] = u[index] ** 2
        w *= times * u

    def reverse(factor: float) -> Any:
        def run(v: Any, u: Any, w: Any, index: Any, times: int, d_v: Any, d_u: Any, d_w: Any) -> None:
            np.add.at(d_u, index, 2 * u[index] * d_v)
            d_u += factor * times * w * d_w
            d_w *= times * u

        return step.reverse(run)

    args = (*(np.linspace(0.5, 1.5, N).astype(dtype) for _ in range(3)), np.array([0, 2, 2, 1, 5, 5]), 3)
    before = [np.array(a) for a in args]
    reverse(1.0)
    report = kg.check_gradient(step, args=args)
    assert report.ok and report.listed == ("v", "u", "w") and "finite differences agree" in str(report)
    assert all(np.array_equal(a, b) for a, b in zip(args, before, strict=True))
    reverse(1.1)
    with pytest.raises(kg.GradientError, match=r"step: u\[\d\]: its reverse gives .*, finite differences"):
        kg.check_gradient(step, "v, u, w", args=args)
    with pytest.raises(kg.ArgumentError, match="no array that step writes"):
        kg.check_gradient(step, "u", args=args)


def test_check_gradient_finds_what_is_read_and_said_to_be_written_whole() -> None:
    @kg.custom_gradient(writes="v")
    def step(v: Any, u: Any) -> None:
        v += u

    @step.reverse
    def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        d_u += d_v

    with pytest.raises(kg.GradientError, match=r"step: v\[\d\]: its reverse gives -?0,"):
        kg.check_gradient(step, args=(np.ones(N), np.ones(N)))
