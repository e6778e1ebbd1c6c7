"""The children of cursors and the fields of records, collected so that none can be lost.

Note [Visits]
libclang shows children to a callback. An exception inside one (Ctrl-C, or RecursionError where the caller's stack is
deep) cannot pass through C: ctypes prints it, returns anything at all to libclang, and the rest of a block is gone. So
visits run in a thread of their own, which starts with an empty stack and gets no signals, and their callback does no
more than append to a list. One such thread collects all that is below a declaration, so that there are few of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import clang.cindex as ci

from ..errors import InternalError
from ..locks import Aside

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_FOUND = "found by visits"  # begins the names under which a translation unit holds that
_CONTINUE = 1  # 0, which ends a visit, is the one result of which libclang tells
_MANY = (ci.CursorKind.TRANSLATION_UNIT, ci.CursorKind.NAMESPACE, ci.CursorKind.LINKAGE_SPEC)


def _keep_child(child: Any, parent: Any, found: list[Any]) -> int:
    found.append(child)
    return _CONTINUE


def _keep_field(field: Any, found: list[Any]) -> int:
    found.append(field)
    return _CONTINUE


_CHILDREN = ci.callbacks["cursor_visit"](_keep_child)
_FIELDS = ci.callbacks["fields_visit"](_keep_field)


def children_of(cursor: Any) -> list[Any]:
    """The children of a cursor, in order."""
    known = _known(cursor._tu)
    key = _key(cursor)
    if key not in known:
        _apart(lambda: _collect(cursor, known))
    return known[key]


def operand_of(cursor: Any) -> Any | None:
    """The expression inside a cast or wrapper, past type references."""
    inner = [child for child in children_of(cursor) if child.kind.is_expression()]
    return inner[-1] if inner else None


def remembered(about: Callable[[Any], R]) -> Callable[[Any], R]:
    """A fact of a cursor and what is below it, found once in a translation unit: it is asked for at every level."""
    name = f"{_FOUND} {about.__module__}.{about.__name__}"

    @wraps(about)
    def get(cursor: Any) -> R:
        known: dict[bytes, R] = cursor._tu.__dict__.setdefault(name, {})
        key = _key(cursor)
        if key not in known:
            known[key] = about(cursor)
        return known[key]

    return get


def fields_of(type: Any) -> list[Any]:
    """The fields of a record type, in order."""
    found: list[Any] = []
    _apart(lambda: ci.conf.lib.clang_Type_visitFields(type, _FIELDS, found))  # whose result says nothing
    for field in found:
        field._tu = type._tu
    return found


def told_plainly(function: F) -> F:
    """The function; where it runs out of stack inside a call of libclang's, ctypes calls that an ArgumentError."""

    @wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except ctypes.ArgumentError as error:
            raise RecursionError("the call stack is too deep to compile here") from error

    return run  # type: ignore[return-value]


def walk(cursor: Any) -> Iterator[Any]:
    """The cursor and everything below it, in the order of the text; the prelude is precompiled and not shown."""
    waiting = [cursor]
    while waiting:
        here = waiting.pop()
        yield here
        waiting += reversed(children_of(here))


def _collect(cursor: Any, known: dict[bytes, list[Any]]) -> None:
    """The children of the cursor and of all that is below it; of what may hold a whole file, its own only."""
    collected: dict[bytes, list[Any]] = {}
    waiting = [cursor]
    while waiting:
        here = waiting.pop()
        found: list[Any] = []
        _whole(ci.conf.lib.clang_visitChildren(here, _CHILDREN, found))
        for child in found:
            child._tu = cursor._tu
        collected[_key(here)] = found
        waiting += () if cursor.kind in _MANY else found
    known.update(collected)


def _whole(cut: int) -> None:
    if cut:
        raise InternalError("libclang did not show all of the source")


def _apart(visit: Callable[[], object]) -> None:
    """Runs a visit in a thread of its own, and waits for its end even if this thread is interrupted."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            visit()
        except BaseException as failure:
            failures.append(failure)

    worker = Aside(run, "kernelgrad-visit")
    try:
        worker.start()
    finally:
        worker.end()  # libclang's units are for one thread at a time
    if failures:
        raise failures[0]


def _key(cursor: Any) -> bytes:
    """Kind and addresses. Of a statement its own address is enough: the declaration it is below is not always told."""
    raw = bytes(cursor)
    return raw[:4] + raw[16:24] if 100 <= raw[0] | raw[1] << 8 < 300 else raw[:24]


def _known(unit: Any) -> dict[bytes, list[Any]]:
    """What visits of a translation unit have found."""
    return unit.__dict__.setdefault(_FOUND, {})  # type: ignore[no-any-return]


def forget(unit: Any) -> None:
    """Drops what visits of a translation unit have found: cursors, each of which keeps the unit."""
    for name in [name for name in vars(unit) if name.startswith(_FOUND)]:
        vars(unit).pop(name, None)
