"""Passes walk values back to where they come from and blocks down to what they hold, one Python call per step. How far
that goes is up to the user's program, so Python's limit on calls must not decide: what runs into it is run again, on a
stack as large as it takes. Passes are pure, so that they can be.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from .errors import UNKNOWN, Span, UnsupportedError
from .locks import Aside, handed_over, held_by_forks, make_lock

P = ParamSpec("P")
R = TypeVar("R")

_STACKS = (1 << 30, 1 << 28, 1 << 26)  # bytes, of address space; the largest that can be had
_BYTES_PER_CALL = 1 << 12  # more than a call takes, also through C
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HINT = "split it into several kernels, or write what repeats as a loop"

_own = threading.local()  # .large: whether this thread has such a stack; .caller: who waits for it
_raising = make_lock()
held_by_forks(_raising)  # a child finds the stack size of all threads as it should be
_users = 0
_usual_limit = sys.getrecursionlimit()


def deeply(work: Callable[P, R]) -> Callable[P, R]:
    """`work`, which changes nothing but its result, with as many nested calls as it takes."""

    @wraps(work)
    def run(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return work(*args, **keywords)
        except RecursionError:
            if getattr(_own, "large", False):
                raise
        return _on_large_stack(lambda: work(*args, **keywords), args)

    return run


def on_large_stack(work: Callable[P, R]) -> Callable[P, R]:
    """The same from the start, for what passes through C code that would lose the error."""

    @wraps(work)
    def run(*args: P.args, **keywords: P.kwargs) -> R:
        if getattr(_own, "large", False):
            return work(*args, **keywords)
        return _on_large_stack(lambda: work(*args, **keywords), args)

    return run


def _on_large_stack(work: Callable[[], R], args: tuple[Any, ...]) -> R:
    found: list[R] = []
    failed: list[BaseException] = []

    lock = handed_over()
    caller = [sys._getframe()]

    def body() -> None:
        _own.large, _own.caller = True, caller[0]
        try:
            with lock:
                found.append(work())
        except BaseException as error:
            failed.append(error)

    try:
        finished = any(_finishes(body, size) for size in _STACKS)
    finally:
        caller.clear()  # a frame that holds itself would stay
    if not finished:
        raise _too_deep(args)
    if failed and isinstance(failed[0], RecursionError):
        raise _too_deep(args) from None
    if failed:
        raise failed[0]
    return found[0]


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called the package."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        ours, frame = frame, frame.f_back
        if ours.f_code.co_name == "body" and ours.f_code.co_filename == __file__:  # the others wait for this thread
            frame = _own.caller
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _finishes(body: Callable[[], None], size: int) -> bool:
    """Runs it in a thread with so large a stack, if there is the memory."""
    global _users, _usual_limit
    with _raising:
        if _users == 0:
            _usual_limit = sys.getrecursionlimit()
        _users += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), size // _BYTES_PER_CALL))
    try:
        thread = Aside(body, "kernelgrad")
        try:
            return _starts(thread, size)
        finally:
            thread.end()  # also when interrupted: what it works on is the caller's
    finally:
        with _raising:
            _users -= 1
            if _users == 0:
                sys.setrecursionlimit(_usual_limit)


def _starts(thread: Aside, size: int) -> bool:
    with _raising:  # the size is that of all threads started from here on
        before = threading.stack_size(size)
        try:
            thread.start()
            return True
        except (RuntimeError, MemoryError):
            return False
        finally:
            threading.stack_size(before)


def _in_child() -> None:
    """Whoever needed more nested calls is not there."""
    global _users
    if _users > 0 and not getattr(_own, "large", False):
        _users = 0
        sys.setrecursionlimit(_usual_limit)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _too_deep(args: tuple[Any, ...]) -> UnsupportedError:
    return UnsupportedError("this function is too long or nested too deeply", _place(args), _HINT)


def _place(args: tuple[Any, ...]) -> Span:
    """Of the function among the arguments, or the one that a name among them picks from a module."""
    for arg in args:
        span = getattr(arg, "span", None)
        if isinstance(span, Span):
            return span
        for function in getattr(arg, "functions", {}).values() if hasattr(arg, "globals") else ():
            return function.span if isinstance(function.span, Span) else UNKNOWN
    return UNKNOWN
