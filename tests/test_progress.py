"""The line about what takes long."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@progress.doing(lambda name, is_over: f"deriving {name}")
def _work(name: str, is_over: Callable[[], bool]) -> str:
    _wait(is_over)
    return name


@progress.doing(lambda is_over: "choosing")
def _outer(is_over: Callable[[], bool]) -> str:
    _wait(is_over)
    return _work("k", lambda: True)


def _wait(is_over: Callable[[], bool]) -> None:
    """However long a busy machine takes to run another thread."""
    end = time.monotonic() + 60
    while not is_over() and time.monotonic() < end:
        time.sleep(0.01)


def _said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, after: float = 0.05) -> io.StringIO:
    monkeypatch.setattr(progress, "_AFTER", after)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def _waiting() -> list[threading.Timer]:
    """Those that would still say something."""
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    return [timer for timer in timers if not timer.finished.is_set()]


def test_what_takes_long_is_told_and_the_line_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _said(monkeypatch, _Terminal())
    assert _work("k", lambda: said.getvalue().endswith("...")) == "k"
    assert said.getvalue() == "\r\033[Kkernelgrad: deriving k ...\r\033[K"


def test_what_is_inside_is_told_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _said(monkeypatch, _Terminal())
    assert _outer(lambda: said.getvalue().endswith("...")) == "k"
    assert "choosing ...\r\033[Kkernelgrad: deriving k ..." in said.getvalue()


def test_nothing_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _said(monkeypatch, _Terminal(), after=60)
    seen: list[int] = []
    _work("k", lambda: not seen.append(len(_waiting())))  # type: ignore[func-returns-value]
    assert said.getvalue() == "" and seen == [1] and _waiting() == []


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _said(monkeypatch, io.StringIO())
    seen: list[int] = []
    _work("k", lambda: not seen.append(len(_waiting())))  # type: ignore[func-returns-value]
    assert said.getvalue() == "" and seen == [0]


def test_passes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setattr(progress._line, "told", lambda what: nullcontext(said.append(what)))
    kernel = kg.compile("__global__ void told(float *x) { x[threadIdx.x] *= 2.0f; }")["told"]
    assert "told_grad" in kg.gradient(kernel).source
    assert {"reading told", "simplifying told", "deriving told", "writing told_grad"} <= set(said)


def test_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    said, now = _said(monkeypatch, _Terminal()), [7.0]
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress.Steps("backward", 3) as steps:
        steps.at(0)
        assert said.getvalue() == ""
        now[0] += 0.1
        steps.at(1)
        steps.at(3)
    assert "kernelgrad: backward: 1 of 3 steps" in said.getvalue()
    assert said.getvalue().endswith("\r\033[K")


_SQUARE = "__global__ void square(double *y, const double *x) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }"


@kg.custom_gradient(updates="x")
def stumble(x: Any) -> None:
    x *= 2


@stumble.reverse
def _(x: Any, d_x: Any) -> None:
    raise ZeroDivisionError


def _reversed(how: str) -> None:
    """Of ten steps: all are recorded, some are run again, or Python runs them again."""
    square = kg.compile(_SQUARE)["square"]

    def step(state: Any, k: int) -> Any:
        x, y = state
        square[1, 2](y, x)
        return y, x

    x, y = np.ones(2), np.zeros(2)
    if how == "checkpoint":
        kg.checkpoint(step, (x, y), 10, budget=64).backward(np.ones(2), None)
        return
    with kg.record(tape_budget=100 if how == "budget" else None) as tape:
        if how == "fails":
            stumble(x)
        for k in range(10 - len(tape.steps)):
            x, y = step((x, y), k)
    with pytest.raises(ZeroDivisionError) if how == "fails" else nullcontext():
        tape.backward(x, np.ones(2))


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("how", ["record", "budget", "checkpoint", "fails"])
def test_the_reverse_of_a_recording_tells(monkeypatch: pytest.MonkeyPatch, how: str, terminal: bool) -> None:
    said = io.StringIO() if not terminal else _Terminal()
    monkeypatch.setattr(progress, "_AFTER", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "_line", progress._Line())
    monkeypatch.setattr(sys, "stderr", said)
    _reversed(how)
    lines = [line for line in said.getvalue().split("\r\033[K") if " of 10 steps" in line]
    if not terminal:
        assert said.getvalue() == ""
        return
    reached = [f"kernelgrad: backward: {k} of 10 steps" for k in range(11)]
    assert said.getvalue().endswith("\r\033[K")
    assert [line for line in reached[1:] if line in lines] == reached[1:]
    if how == "budget":
        assert any(one == other for one, other in pairwise(lines))  # steps that are run again take time, too
