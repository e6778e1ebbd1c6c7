"""Arrays and numbers that steps of the user's use and do not get as arguments."""

from __future__ import annotations

import functools
import re
from collections import ChainMap, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

N = 6
SCALE = kg.compile("""
__global__ void scale(double *u, const double *w, int n) { int i = threadIdx.x; if (i < n) u[i] *= w[i]; }
""")["scale"]


@dataclass
class Holder:
    held: Any

    @property
    def shown(self) -> Any:
        return self.held


class WithSlots:
    __slots__ = ("held",)


class Method:
    def __init__(self, held: Any):
        self.held, self.unused = held, held

    def run(self, v: Any, u: Any) -> None:
        v[:] = u * self.held

    def back(self, v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        d_u += self.held * d_v

    def __call__(self, v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        self.back(v, u, d_v, d_u)


def _slots(held: Any) -> Any:
    made = WithSlots()
    made.held = held
    return made


def _objects(held: Any) -> Any:
    made = np.empty((1, 1), object)
    made[0, 0] = held
    return made


def _function(held: Any) -> Any:
    return lambda: held


class _Odd:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


CAPTURES: dict[str, tuple[Any, Any]] = {  # what holds the array, and how the step gets it from there
    "[0][0]": (lambda held: [(held,)], lambda c: c[0][0]),
    "['a']['b'][0]": (lambda held: {"a": {"b": [held]}}, lambda c: c["a"]["b"][0]),
    ".held": (Holder, lambda c: c.held),
    ".inner.held": (lambda held: SimpleNamespace(inner=_slots(held)), lambda c: c.inner.held),
    ".shown": (Holder, lambda c: c.shown),
    "[0]": (_objects, lambda c: c[0, 0]),
    "held": (_function, lambda c: c()),
    ".first": (lambda held: SimpleNamespace(first=held), lambda c: getattr(c, "fi" + "rst")),
    ".maps[0]['a']": (lambda held: ChainMap({"a": held}), lambda c: c["a"]),
    "['b'][0]": (lambda held: {"a": _Odd(), "b": deque([held])}, lambda c: c["b"][0]),
}


@pytest.mark.parametrize("budget", [None, 4000])
@pytest.mark.parametrize("name", CAPTURES)
def test_arrays_are_found_wherever_functions_hold_them(name: str, budget: int | None) -> None:
    """In containers in containers, attributes, slots, properties, and in what the functions call."""
    held, u, v = np.linspace(1, 2, N), np.linspace(0.1, 1, N), np.zeros(N)
    hold, get = CAPTURES[name]
    holder = hold(held)

    @kg.custom_gradient(writes="v")
    def times(v: Any, u: Any) -> None:
        v[:] = u * get(holder)

    @times.reverse
    def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        d_u += get(holder) * d_v

    with kg.record(tape_budget=budget) as tape:
        times(v, u)
        SCALE[1, 32](held, u, N)
    path = {"held": "held", ".shown": "held"}.get(name, name)
    with pytest.raises(kg.TapeError, match=rf"times: it uses '.*{re.escape(path)}', which recorded steps write"):
        tape.backward(v, np.ones(N))


@pytest.mark.parametrize("kind", ["methods", "partials", "an object", "an inner step"])
def test_arrays_are_found_in_what_is_called(kind: str) -> None:
    held, u, v = np.linspace(1, 2, N), np.linspace(0.1, 1, N), np.zeros(N)
    method, free = Method(held), Method.__call__
    inner = kg.custom_gradient(writes="v")(method.run)
    inner.reverse(method.back)
    runs: dict[str, Any] = {
        "methods": (method.run, method.back),
        "partials": (functools.partial(Method.run, method), functools.partial(free, method)),
        "an object": (lambda v, u: np.multiply(u, 1 + np.arange(N) / (N - 1), out=v), method),
        "an inner step": (lambda v, u: inner(v, u), lambda v, u, d_v, d_u: inner.reverse_function(v, u, d_v, d_u)),
    }
    run, back = runs[kind]
    step = kg.custom_gradient(writes="v")(run)
    step.reverse(back)
    with kg.record() as tape:
        step(v, u)
        SCALE[1, 32](held, u, N)
    with pytest.raises(kg.TapeError, match=r"held', which recorded steps write"):
        tape.backward(v, np.ones(N))


@pytest.mark.parametrize("kind", ["a number", "an array", "an attribute", "a tuple", "a list"])
def test_names_stand_for_the_same_in_the_reverse(kind: str) -> None:
    """A loop's variable that a step uses is the last one by then."""
    by: Any = None
    holder = SimpleNamespace(by=None)
    get = {"an attribute": lambda: holder.by, "a tuple": lambda: by[0], "a list": lambda: by[0]}.get(kind, lambda: by)
    calls = 0

    @kg.custom_gradient(writes="v")
    def times(v: Any, u: Any) -> None:
        nonlocal calls
        calls += 1
        v[:] = u * get()

    @times.reverse
    def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
        nonlocal calls
        calls += 1
        d_u += get() * d_v

    def recorded(factors: list[Any]) -> tuple[Any, Any, Any]:
        nonlocal by
        first, v = np.ones(N), np.zeros(N)
        u = first
        with kg.record() as tape:
            for by in factors:
                holder.by = by
                times(v, u)
                u, v = v, u
        return first, u, tape

    factors: list[Any] = [np.full(N, f) if kind == "an array" else f for f in (2.0, 3.0, 5.0)]
    pack: Any = {"a tuple": lambda f: (f,), "a list": lambda f: [f]}.get(kind, lambda f: f)
    factors = list(map(pack, factors))
    first, u, tape = recorded([factors[1]] * 3)
    tape.backward(u, np.ones(N))
    assert (tape.grad(first) == 27).all()
    assert calls == 6
    _, u, tape = recorded(factors)
    with pytest.raises(kg.TapeError, match=r"times: it uses '.*by.*', which is something else by now"):
        tape.backward(u, np.ones(N))


def test_methods_are_steps() -> None:
    class Simulation:
        def __init__(self) -> None:
            self.u, self.v, self.factor = np.ones(N), np.zeros(N), 3.0

        @kg.custom_gradient(writes="v")
        def times(self, v: Any, u: Any) -> None:
            v[:] = u * self.factor

        @times.reverse
        def _(self, v: Any, u: Any, d_v: Any, d_u: Any) -> None:
            d_u += self.factor * d_v

        def run(self) -> Any:
            u, v = self.u, self.v
            for _ in range(3):
                self.times(v, u)
                u, v = v, u
            return u

    simulation = Simulation()
    with kg.record(tape_budget=4000) as tape:
        u = simulation.run()
    tape.backward(u, np.ones(N))
    assert (u == 27).all()
    assert (tape.grad(simulation.u) == 27).all()
