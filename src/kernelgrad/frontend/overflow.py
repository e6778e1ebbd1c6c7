"""Texts that are nested so deeply that libclang runs out of stack: an error, not the end of the process.

Note [libclang's stack]
libclang parses in a thread with 8 MiB of stack, which casts nested 2,000 deep or sums of 15,000 terms use up, unless
`LIBCLANG_NOTHREADS` is set: then it uses the caller's, and the caller is a thread with a large one (`deep`). Where that
is not enough either, the operating system's signal must find a stack to be handled on. libclang has a handler that goes
back to where parsing began, but gives it none: so the thread gets a second stack, and the handler the flag to use it.
Below the first stack is a guard as wide as the widest frame, so that nothing can be written beyond it unnoticed.
Semantic analysis has threads of its own when it thinks that its stack is small; of what recurses in those without
looking, only bases of bases can be had in a text, and those are counted before.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import UNKNOWN, Source, Span, UnsupportedError

_ON_SECOND_STACK, _NO_STACK = 0x08000000, 2  # SA_ONSTACK, SS_DISABLE
_SIGNALS = (signal.SIGSEGV, signal.SIGBUS) if sys.platform == "linux" else ()
_SECOND_STACK = 1 << 17
_GUARD = 1 << 18
_NO_ACCESS, _READ_WRITE = 0, 3  # PROT_NONE, PROT_READ | PROT_WRITE
_BASES = 1000
_DERIVED = re.compile(r"\b(?:struct|class)\s+(\w+)\s*(?:final\s*)?:(?!:)([^;{}()]*)\{")
_LONG = 1000  # tokens of a statement that may well be the one
_TOKEN = re.compile(r"(//[^\n]*|/\*.*?\*/|\s+)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[\w.]+|.", re.DOTALL)


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def use_callers_stack() -> None:
    """From here on, of libclang's in this process; before its first use."""
    os.environ.setdefault("LIBCLANG_NOTHREADS", "1")


@contextmanager
def survived() -> Iterator[None]:
    """Around parsing, on a large stack and where libclang's handlers are installed: running out of stack ends that, as
    far as the caller can see with a failure."""
    if not _SIGNALS:
        yield
        return
    libc = ctypes.CDLL(None)
    for number in _SIGNALS:
        _flag(libc, number)
    memory = ctypes.create_string_buffer(_SECOND_STACK)
    second = _Stack(ctypes.cast(memory, ctypes.c_void_p), 0, _SECOND_STACK)
    before = _Stack()
    guard = _guard(libc)
    libc.sigaltstack(ctypes.byref(second), ctypes.byref(before))
    libc.mprotect(ctypes.c_void_p(guard), _GUARD, _NO_ACCESS)
    try:
        yield
    finally:
        libc.mprotect(ctypes.c_void_p(guard), _GUARD, _READ_WRITE)
        libc.sigaltstack(ctypes.byref(before), None)


def _flag(libc: ctypes.CDLL, number: int) -> None:
    action = _Action()
    if libc.sigaction(number, None, ctypes.byref(action)) == 0 and not action.flags & _ON_SECOND_STACK:
        action.flags |= _ON_SECOND_STACK
        libc.sigaction(number, ctypes.byref(action), None)


def _guard(libc: ctypes.CDLL) -> int:
    """The lowest address of this thread's stack."""
    attributes = ctypes.create_string_buffer(256)
    start, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.pthread_self.restype = ctypes.c_void_p
    libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes)
    libc.pthread_attr_getstack(attributes, ctypes.byref(start), ctypes.byref(size))
    libc.pthread_attr_destroy(attributes)
    return start.value or 0


def check_bases(name: str, text: str) -> None:
    """Raises where classes derive from classes that derive, and so on, beyond what libclang survives."""
    depths: dict[str, int] = {}
    for found in _DERIVED.finditer(text):
        depth = 1 + max((depths.get(base, 0) for base in re.findall(r"\w+", found[2])), default=0)
        depths[found[1]] = depth
        if depth > _BASES:
            raise UnsupportedError(
                f"classes derive from one another more than {_BASES} deep", _at(name, text, found.start())
            )


def too_deep(name: str, text: str) -> UnsupportedError:
    """Of a text that libclang did not survive."""
    offset, tokens = longest_statement(text)
    return UnsupportedError(
        "libclang runs out of stack: this, or what a macro or a template here makes, is nested too deeply",
        _at(name, text, offset) if tokens >= _LONG else UNKNOWN,
        "write it in several statements, or what repeats as a loop",
    )


def _at(name: str, text: str, offset: int) -> Span:
    return Span(Source(name, text), text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def longest_statement(text: str) -> tuple[int, int]:
    """Where it begins, and its tokens; what `else` goes on with belongs to it."""
    best, start, tokens, ended, parentheses = (0, 0), 0, 0, True, 0
    for token in _TOKEN.finditer(text):
        if token[1] is not None:
            continue
        if ended and token[0] != "else":
            best = max(best, (start, tokens), key=lambda pair: pair[1])
            start, tokens = token.start(), 0
        tokens += 1
        parentheses += (token[0] == "(") - (token[0] == ")")
        ended = token[0] in ("{", "}") or (token[0] == ";" and parentheses <= 0)
    return max(best, (start, tokens), key=lambda pair: pair[1])
