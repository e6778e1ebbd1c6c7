"""Long and deeply nested programs: Python's limit on nested calls decides nothing but the time it takes."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.deep import deeply, on_large_stack
from kernelgrad.errors import Source, Span
from kernelgrad.locks import COMPILING, Aside

N = 48
BODIES = {
    "products": "".join(f"v = v * (1 + 0.01 * x[i + {k}]);" for k in range(N)),
    "one_sum": "v = " + " + ".join(f"x[i] * x[i + {k}]" for k in range(N)) + ";",
    "nested_calls": "v = " + "sin(" * N + "x[i]" + ")" * N + ";",
    "else_ifs": " else ".join(f"if (v < {0.02 * k + 0.0071}) v = v * x[i] + {k};" for k in range(1, 3 * N)),
    "cases": "switch (i) {" + "".join(f"case {k}: v = x[i] * x[i + {k}]; break;" for k in range(N)) + "}",
}


@pytest.fixture
def little_stack(no_garbage_collection: None) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 160)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("little_stack")
@pytest.mark.parametrize("name", BODIES)
def test_gradient(name: str) -> None:
    source = f"""
        __global__ void k(double *y, const double *x, int n) {{
          int i = threadIdx.x; double v = x[i];
          {BODIES[name]}
          y[i] = v;
        }}"""
    kernel = kg.compile(source)["k"]
    x, seed, step = np.linspace(0.1, 0.9, N + 4), np.array([1.0, -0.5, 2.0, 0.3]), 1e-6

    def primal(x: np.ndarray) -> float:
        y = np.zeros(4)
        kernel[1, 4](y, x, 4)
        return float(y @ seed)

    d_x, gradient = np.zeros_like(x), kg.gradient(kernel, "y, x")
    gradient[1, 4](np.zeros(4), x, 4, seed.copy(), d_x)
    direction = np.random.default_rng(0).standard_normal(x.size)
    change = (primal(x + step * direction) - primal(x - step * direction)) / (2 * step)
    assert d_x @ direction == pytest.approx(change, rel=1e-6)
    assert "k_grad" in gradient.source and "derivative of y, x" in gradient.explain(1, 4, np.zeros(4), x, 4)
    if name == "else_ifs":
        assert kg.check_gradient(kernel, "y, x", 1, 4, (np.zeros(4), x, 4)).ok


@pytest.mark.usefixtures("little_stack")
@pytest.mark.parametrize("name", ["else_ifs", "cases"])
def test_launch_of_more_branches_than_calls(name: str) -> None:
    branch = "if (i == {0}) v = v + {0};" if name == "else_ifs" else "case {0}: v = v + {0}; break;"
    text = (" else " if name == "else_ifs" else "").join(branch.format(k) for k in range(300))
    body = text if name == "else_ifs" else f"switch (i) {{ {text} }}"
    kernel = kg.compile(f"__global__ void k(double *y) {{ int i = threadIdx.x; double v = 1; {body} y[i] = v; }}")["k"]
    y = np.zeros(4)
    kernel[1, 4](y)
    assert y.tolist() == [1, 2, 3, 4]


def _depth(n: int) -> int:
    return 0 if n == 0 else 1 + _depth(n - 1)


def test_as_many_calls_as_it_takes() -> None:
    limit = sys.getrecursionlimit()
    assert deeply(_depth)(20_000) == on_large_stack(_depth)(20_000) == 20_000
    assert sys.getrecursionlimit() == limit


def test_too_many_are_an_error_with_a_place() -> None:
    class Endless:
        span = Span(Source("a.cu", "void f();"), 1, 1)

    def endless(at: Endless) -> int:
        return endless(at)

    for run in (deeply(endless), on_large_stack(endless)):
        with pytest.raises(
            kg.UnsupportedError, match="a.cu:1:1: error: this function is too long or nested too deeply"
        ):
            run(Endless())


def test_other_errors_are_passed_on() -> None:
    def divided(by: int) -> float:
        return _depth(20_000) / by

    with pytest.raises(ZeroDivisionError):
        deeply(divided)(0)


@pytest.mark.parametrize("is_there", [False, True])
def test_an_interrupt_while_a_thread_starts(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody works on after it."""
    began, ended, start = threading.Event(), threading.Event(), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if is_there:
            start(thread)
            assert began.wait(10)
        raise KeyboardInterrupt

    def work() -> None:
        began.set()
        time.sleep(0.05)
        ended.set()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        on_large_stack(work)()
    assert began.is_set() == ended.is_set() == is_there


def test_a_thread_that_begins_late(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Aside._run

    def late(self: Aside, work: Callable[[], object]) -> None:
        time.sleep(0.02)
        run(self, work)

    monkeypatch.setattr(Aside, "_run", late)
    assert on_large_stack(_depth)(3) == 3


def test_more_than_one_interrupt() -> None:
    ended, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def work() -> None:
        for _ in range(3):
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.03)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        on_large_stack(work)()
    assert ended.is_set()


def test_nobody_compiles_in_between() -> None:
    """While another thread with a large stack works in its place, the lock stays with the one that holds it."""
    came: list[str] = []

    def other() -> None:
        with COMPILING:
            came.append("other")

    def within() -> bool:
        time.sleep(0.05)
        with COMPILING:
            return COMPILING._is_owned()

    waiting = threading.Thread(target=other)
    with COMPILING:
        waiting.start()
        for _ in range(5):
            assert on_large_stack(within)()
        assert came == [] and COMPILING._is_owned()
    waiting.join()
    assert came == ["other"] and not COMPILING._is_owned()
