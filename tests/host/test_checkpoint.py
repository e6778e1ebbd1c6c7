"""`kg.checkpoint`: loops whose body is run again in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
__global__ void step(double *v, const double *u, const double *kappa, double dt, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    v[i] = u[i] + dt * kappa[i] * u[i] * (u[(i + 1) % n] - u[i]);
}
__global__ void grow(double *u, double rate, int n) { int i = threadIdx.x; if (i < n) u[i] += rate * u[i] * u[i]; }
"""
N = 6


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def recorded(module: kg.Module, n: int, u0: Any, kappa: Any, dt: Any, weights: Any) -> tuple[Any, Any, float]:
    u, v = u0.copy(), np.zeros(N)
    start = u
    with kg.record() as tape:
        for k in range(n):
            module["step"][1, 8](v, u, kappa, dt[k], N)
            u, v = v, u
    tape.backward(u, weights)
    return tape.grad(start), tape.grad(kappa), tape.grad("step.dt")


@pytest.mark.parametrize("states", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 23])
def test_it_agrees_with_a_recording(module: kg.Module, states: int | None, n: int) -> None:
    u0, kappa, weights = np.linspace(0.5, 1.5, N), np.linspace(0.1, 0.6, N), np.linspace(1, 2, N)
    dt = np.linspace(0.1, 0.2, max(1, n))
    calls = []

    def step(state: Any, k: int, dt: float) -> Any:
        calls.append(k)
        u, v = state
        module["step"][1, 8](v, u, kappa, dt, N)
        return v, u

    u, v = u0.copy(), np.zeros(N)
    budget = None if states is None else states * 2 * 8 * N
    loop = kg.checkpoint(step, (u, v), n, budget=budget, wrt=[kappa], numbers=dt)
    assert calls == list(range(n)) and (budget is None or loop.nbytes <= budget)
    held = [a.copy() for a in loop.state]
    loop.backward(weights, None)
    for array, before in zip(loop.state, held, strict=True):
        np.testing.assert_array_equal(array, before)
    if n == 0:
        np.testing.assert_array_equal(loop.grad(u), weights)
        return
    expected = recorded(module, n, u0, kappa, dt, weights)
    np.testing.assert_allclose(loop.grad(u), expected[0], rtol=1e-12)
    np.testing.assert_allclose(loop.grad(kappa), expected[1], rtol=1e-12)
    assert loop.grad("step.dt") == pytest.approx(expected[2], rel=1e-12)
    if states == 1:
        assert len(calls) == n + n * (n - 1) // 2 + n


def test_in_place(module: kg.Module) -> None:
    u0 = np.linspace(0.1, 0.5, N)
    u = u0.copy()
    loop = kg.checkpoint(lambda state, k: module["grow"][1, 8](state[0], 0.1, N), u, 9, budget="200 B")
    loop.backward(np.ones(N))
    expected, at = np.ones(N), u0.copy()
    for _ in range(9):
        expected, at = expected * (1 + 0.2 * at), at + 0.1 * at * at
    np.testing.assert_allclose(loop.grad(u), expected)
    np.testing.assert_allclose(u, at)


def test_states_of_any_form(module: kg.Module) -> None:
    """A dict with a tuple in it; its seeds likewise."""
    pair = np.linspace(1, 2, N), np.linspace(2, 3, N)

    def step(state: Any, k: int, rate: float) -> Any:
        module["grow"][1, 8](state["u"], rate, N)
        module["grow"][1, 8](state["pair"][1], rate, N)
        return {"pair": state["pair"][::-1], "u": state["u"]}

    def grown(u: Any, rates: Any) -> tuple[Any, Any]:
        slope = np.ones(N)
        for rate in rates:
            made = u.copy()
            module["grow"][1, 8](made, rate, N)
            moved = u + 1e-7
            module["grow"][1, 8](moved, rate, N)
            slope, u = slope * (moved - made) / 1e-7, made
        return u, slope

    rates, start = [0.1, 0.2, 0.3, 0.4], np.linspace(0.5, 1, N)
    u, a, b = start.copy(), pair[0].copy(), pair[1].copy()
    loop = kg.checkpoint(step, {"u": u, "pair": (a, b)}, 4, budget=6 * 8 * N, numbers=rates)
    assert loop.state["pair"][0] is a and loop.state["u"] is u
    loop.backward({"u": np.ones(N), "pair": (None, np.ones(N))})
    np.testing.assert_allclose(loop.grad(u), grown(start, rates)[1], rtol=1e-5)
    np.testing.assert_allclose(loop.grad(b), grown(pair[1], rates[::2])[1], rtol=1e-5)
    np.testing.assert_array_equal(loop.grad(a), 0)
    with pytest.raises(kg.ArgumentError, match=r"the state is \{u: an array\}, and step 0 returned \{v: an array\}"):
        kg.checkpoint(lambda state, k: {"v": state["u"]}, {"u": u}, 2)
    with pytest.raises(kg.ArgumentError, match="numbers has 3 entries, and there are 4 steps"):
        kg.checkpoint(step, {"u": u, "pair": (a, b)}, 4, numbers=rates[:3])
    with pytest.raises(kg.ArgumentError, match="numbers is a sequence or a function, got float"):
        kg.checkpoint(step, {"u": u, "pair": (a, b)}, 4, numbers=0.1)


def test_what_is_wrong(module: kg.Module) -> None:
    u = np.ones(N)

    def step(state: Any, k: int) -> None:
        module["grow"][1, 8](state[0], 0.1, N)

    with pytest.raises(kg.ArgumentError, match="checkpoint: wants a function"):
        kg.checkpoint(3, u, 4)  # type: ignore[arg-type]
    with pytest.raises(kg.ArgumentError, match="n: wants an integer"):
        kg.checkpoint(step, u, -1)
    with pytest.raises(kg.TapeError, match="a budget of 8 bytes"):
        kg.checkpoint(step, u, 4, budget=8)
    with kg.record(), pytest.raises(kg.TapeError, match="inside"):
        kg.checkpoint(step, u, 4)
    with pytest.raises(
        kg.ArgumentError, match=r"the state is \(an array\), and step 0 returned \(an array, an array\)"
    ):
        kg.checkpoint(lambda state, k: (u, u), u, 4)
    loop = kg.checkpoint(step, u, 4)
    with pytest.raises(kg.TapeError, match="call backward"):
        loop.grad(u)
    with pytest.raises(kg.ArgumentError, match="1 arrays, got 2 seeds"):
        loop.backward(u, u)
    loop.backward(np.ones(N))
    with pytest.raises(kg.TapeError, match="used already"):
        loop.backward(np.ones(N))
    with pytest.raises(kg.ArgumentError, match="neither"):
        loop.grad(np.ones(N))
    assert loop.grad("rate") == loop.grad("grow.rate") > 0
    with pytest.raises(kg.ArgumentError, match="there are 'grow.rate'"):
        loop.grad("grow.speed")


def test_each_array_of_a_state_has_an_adjoint_of_its_own(module: kg.Module) -> None:
    """Of memory that two share it would count twice; of what `wrt` names there are no checkpoints."""
    u, kappa = np.linspace(0.5, 1.0, 2 * N), np.ones(N)

    def step(state: Any, k: int) -> None:
        module["grow"][1, 8](state[0], 0.1, N)

    for state, wrt in (((u[:N], u[:N]), ()), ((u[:N], u[N - 1 :]), ()), ((u[:N],), (u[N - 1 :],))):
        with pytest.raises(kg.ArgumentError, match="before step 0 two arrays of the state, or of wrt, share memory"):
            kg.checkpoint(step, state, 3, wrt=wrt)
    with pytest.raises(kg.ArgumentError, match="before step 1 two arrays"):
        kg.checkpoint(lambda state, k: (state[0], state[0]), (u[:N], u[N:]), 3)
    loop = kg.checkpoint(lambda state, k: module["grow"][1, 8](kappa, 0.1, N), (u,), 3, wrt=[kappa])
    with pytest.raises(kg.TapeError, match="step 2 writes an array of wrt"):
        loop.backward(u)


@pytest.mark.parametrize("states", [None, 1, 3])
@pytest.mark.parametrize("n", [2, 9])
def test_what_steps_pass_on_besides_the_state(module: kg.Module, n: int, states: int | None) -> None:
    """A buffer that one step writes and the next reads."""
    u, late, kappa = np.linspace(0.5, 1, N), np.linspace(0.2, 0.4, N), np.ones(N)

    def delayed(state: Any, k: int) -> None:
        (u,) = state
        now = u.copy()
        module["step"][1, 8](u, late, kappa, 0.5, N)
        module["step"][1, 8](late, now, kappa, 0.5, N)

    found = kg.checkpoint(delayed, (u,), n, budget=None if states is None else states * u.nbytes)
    with pytest.raises(kg.TapeError, match="gives another result when it runs again: what a step passes on"):
        found.backward(np.ones(N))
    if n == 2 and states is None:  # nobody looks where nobody wants it
        kg.checkpoint(delayed, (u,), n, check=False).backward(np.ones(N))


def test_scratch_of_a_step(module: kg.Module) -> None:
    """Memory that is fresh, or written first, is no part of the state."""
    u, scratch, kappa = np.linspace(0.5, 1, N), np.zeros(N), np.ones(N)

    def halves(state: Any, k: int) -> None:
        (u,) = state
        fresh = np.zeros(N)
        module["step"][1, 8](scratch, u, kappa, 0.1, N)
        module["step"][1, 8](fresh, scratch, kappa, 0.1, N)
        module["step"][1, 8](u, fresh, kappa, 0.1, N)

    found = kg.checkpoint(halves, (u,), 5, budget=u.nbytes)
    found.backward(np.ones(N))
    want, _, _ = recorded(module, 15, np.linspace(0.5, 1, N), kappa, [0.1] * 15, np.ones(N))
    np.testing.assert_allclose(found.grad(u), want, rtol=1e-12)


NOT_RECORDED: dict[str, Any] = {
    "nothing": lambda module, u, made: u * u,
    "what comes after": lambda module, u, made: (module["step"][1, 8](made, u, np.ones(N), 0.1, N), made + u)[1],
    "what comes before": lambda module, u, made: (module["step"][1, 8](made, u.copy(), np.ones(N), 0.1, N), made)[1],
    "another shape": lambda module, u, made: u[:3].copy(),
}


@pytest.mark.parametrize("how", NOT_RECORDED)
@pytest.mark.parametrize("n", [1, 3])
def test_what_numpy_computes_has_no_reverse(module: kg.Module, how: str, n: int) -> None:
    """The adjoint would end there, at zero."""
    u = np.linspace(0.5, 1, N)
    found = kg.checkpoint(lambda state, k: NOT_RECORDED[how](module, state[0], np.zeros(N)), (u,), n)
    with pytest.raises(kg.TapeError, match=f"step {n - 1} returned .* that no recorded|step {n - 1} returned what no"):
        found.backward(np.ones_like(found.state[0]))
    with pytest.raises(kg.TapeError, match="grad: backward failed"):
        found.grad(u)


def test_what_has_no_adjoint_may_come_from_anywhere(module: kg.Module) -> None:
    """A time that NumPy adds up; arrays of zeros, of `wrt`, and steps that do nothing."""
    u, t, kappa = np.linspace(0.5, 1, N), np.zeros(1), np.ones(N)

    def step(state: Any, k: int) -> Any:
        u, t = state
        if k == 3:
            return u, t + 1
        made = kg.zeros(N, "f8") if k % 2 else np.empty(N)
        module["step"][1, 8](made, u, kappa, 0.1 + 0.01 * float(t[0]), N)
        return made, t + 1

    found = kg.checkpoint(step, (u, t), 7, budget=3 * 8 * (N + 1), wrt=[kappa])
    found.backward(np.ones(N), None)
    dt = [0.1 + 0.01 * k for k in range(7) if k != 3]
    want = recorded(module, 6, u, kappa, dt, np.ones(N))
    np.testing.assert_allclose(found.grad(u), want[0], rtol=1e-12)
    np.testing.assert_allclose(found.grad(kappa), want[1], rtol=1e-12)
    assert not found.grad(t).any()
    with pytest.raises(kg.TapeError, match="step 6 returned an array that no recorded launch wrote"):
        kg.checkpoint(step, (u, t), 7).backward(np.ones(N), np.ones(1))


def test_steps_that_raise(module: kg.Module) -> None:
    """When they run again; there is no half of a gradient."""
    u, calls = np.linspace(0.5, 1, N), []

    def step(state: Any, k: int) -> None:
        calls.append(k)
        if len(calls) == 7:
            raise KeyError(k)
        module["grow"][1, 8](state[0], 0.1, N)

    found = kg.checkpoint(step, u, 5)
    last = u.copy()
    with pytest.raises(KeyError):
        found.backward(np.ones(N))
    np.testing.assert_array_equal(u, last)
    with pytest.raises(kg.TapeError, match="grad: backward failed"):
        found.grad(u)
    with pytest.raises(KeyError):
        kg.checkpoint(lambda state, k: {}[k], u, 5)


@pytest.mark.parametrize("seed", [2.0, np.array([2.0])])
def test_seeds_are_copied_where_there_are_no_steps(seed: Any) -> None:
    u = np.ones(1)
    found = kg.checkpoint(lambda state, k: None, u, 0)
    found.backward(seed)
    found.grad(u)[0] += 1
    assert seed == 2.0 and found.grad(u).shape == (1,)


def test_what_is_looked_at_is_said_by_a_flag(module: kg.Module) -> None:
    with pytest.raises(kg.ArgumentError, match="check: wants True or False, got 'no'"):
        kg.checkpoint(lambda state, k: None, np.ones(N), 3, check="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "real", "value"), [("f2", "__half", 6e4), ("f4", "float", 3e38), ("f4", "float", "inf")]
)
def test_large_numbers_are_looked_at_without_warnings(dtype: str, real: str, value: Any) -> None:
    body = "{ y[threadIdx.x] = x[threadIdx.x]; }"
    text = f"#include <cuda_fp16.h>\n__global__ void pass(const {real} *x, {real} *y) {body}"
    kernel, u, v = kg.compile(text)["pass"], np.full(256, value, dtype), np.zeros(256, dtype)

    def step(state: Any, k: int) -> Any:
        kernel[1, 256](*state)
        return state[::-1]

    found = kg.checkpoint(step, (u, v), 4)
    found.backward(np.ones(256, dtype), None)
    assert (found.grad(u) == 1).all()


def test_halves_that_differ(module: kg.Module) -> None:
    """Their sum is larger than any of them can be."""
    text = "#include <cuda_fp16.h>\n__global__ void add(__half *x, __half a) { x[threadIdx.x] = x[threadIdx.x] + a; }"
    kernel, u, made = kg.compile(text)["add"], np.full(256, 1e3, "f2"), iter(range(9))
    found = kg.checkpoint(lambda state, k: kernel[1, 256](state[0], 100.0 * next(made)), u, 2)
    with pytest.raises(kg.TapeError, match="gives another result"):
        found.backward(np.ones(256, "f2"))


def test_numbers_without_an_adjoint(module: kg.Module) -> None:
    """Launched, and nothing that has an adjoint comes of it."""
    u, other = np.ones(N), np.ones(N)

    def step(state: Any, k: int) -> None:
        module["grow"][1, 8](state[1], 0.1, N)

    found = kg.checkpoint(step, (u, other), 3)
    found.backward(np.ones(N), None)
    assert found.grad("grow.rate") == 0.0
    with pytest.raises(kg.ArgumentError, match="there are 'grow.rate'"):
        found.grad("grow.dt")


def test_how_a_loop_and_a_tape_are_shown(module: kg.Module) -> None:
    u = np.ones(N)
    loop = kg.checkpoint(lambda state, k: module["grow"][1, 8](*state, 0.1, N), (u,), 3)
    assert repr(loop) == "<checkpointed loop of 3 steps, 3 checkpoints of 144 bytes>"
    loop.backward(np.ones(N))
    assert repr(loop) == "<checkpointed loop of 3 steps, reversed>"
    with kg.record() as tape:
        module["grow"][1, 8](u, 0.1, N)
        point = tape.watch(u)
    assert repr(point) == "<watched point of an array of float64, shape (6,)>"
    assert "<details>" in tape._repr_html_()
