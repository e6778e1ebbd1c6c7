"""Locks, and what becomes of them when the process forks.

Note [Locks]
One process-wide lock, `COMPILING`, is held wherever code is made: for the first use of libclang and LLVM, while a text
is parsed and lowered, while passes run, while machine code is made and loaded. Python runs such code one thread at a
time anyway. The other locks belong to one object each and guard a few lines that make no code, or (NVRTC's, which may
run side by side) take no other lock inside. So the order is always `COMPILING` first. All are re-entrant; nothing of
the user's runs under any.

`fork` takes `COMPILING` first, so that a child never inherits libclang, LLVM or an import in the middle of something,
and then the locks of other packages that it was told of: llvmlite has its own, which is taken outside of ours too.
The other locks are open in the child: what another thread was making under one of them is not there, and is made again.
An interrupt while a lock is held releases it and leaves nothing half made: results are kept when they are whole.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any, Generic, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")

_FORK_WAITS = 120.0  # seconds for a compilation in another thread; the child then has to do without a consistent LLVM

_OBJECTS = 50_000  # that passes make from one search for cycles to the next

_locks: WeakSet[Any] = WeakSet()


def make_lock() -> Any:
    """A re-entrant lock that is open in a forked child, whoever held it in the parent."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


_acting = threading.local()  # .for_holder: whether this thread works in the place of one that holds `COMPILING`


def _nothing(*_: Any) -> None: ...


class _Compiling:
    """A re-entrant lock that a thread keeps while another works in its place: nobody comes in between. Properties find
    the methods, so that what `with` calls is the lock's own, which no interrupt can cut in two."""

    def __init__(self) -> None:
        self._lock = make_lock()

    @property
    def __enter__(self) -> Callable[[], Any]:
        return _nothing if self.is_lent() else self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:
        return _nothing if self.is_lent() else self._lock.__exit__

    @staticmethod
    def is_lent() -> bool:
        """To this thread."""
        return getattr(_acting, "for_holder", False)

    def acquire(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=timeout)  # type: ignore[no-any-return]

    def release(self) -> None:
        self._lock.release()

    def _is_owned(self) -> bool:
        return self.is_lent() or self._lock._is_owned()


COMPILING = _Compiling()
_others: list[AbstractContextManager[Any]] = []


def held_by_forks(lock: AbstractContextManager[Any]) -> None:
    """A re-entrant lock of another package: its holders never wait for one of ours, and a child finds it open."""
    if lock not in _others:
        _others.append(lock)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """The function's value, computed by one thread and under `COMPILING`; again after an exception or an interrupt."""
    made: list[T] = []

    @wraps(make)
    def get() -> T:
        if not made:
            with COMPILING:
                if not made:
                    made.append(make())
        return made[0]

    return get


F = TypeVar("F", bound=Callable[..., Any])


def compiling(function: F) -> F:
    """The function, run under `COMPILING`."""

    @wraps(function)
    def locked(*args: Any, **keywords: Any) -> Any:
        with COMPILING, _collecting_rarely():
            return function(*args, **keywords)

    return locked  # type: ignore[return-value]


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Passes make very many small objects and few cycles, for which Python would look after every 700 of them. Who has
    it look less often than we do, or never, has their way."""
    usual = gc.get_threshold()
    if not 0 < usual[0] < _OBJECTS:
        yield
        return
    gc.set_threshold(_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _OBJECTS:
            gc.set_threshold(*usual)


def handed_over() -> AbstractContextManager[Any]:
    """For another thread to enter that works in this one's place, while this one waits: `COMPILING` is as good as its
    own there, where this thread has it."""
    return _in_place_of_holder() if COMPILING._is_owned() else nullcontext()


@contextmanager
def _in_place_of_holder() -> Iterator[None]:
    _acting.for_holder = True
    try:
        yield
    finally:
        _acting.for_holder = False


class Aside:
    """A thread that works in the place of this one, which waits for it. Interrupts come while it starts, too, and more
    than one: before they go on, the thread has come to its end, or is called off and will do nothing. `Thread.join`
    cannot tell: once interrupted, it takes the thread for ended."""

    def __init__(self, work: Callable[[], object], name: str):
        self._fate: dict[str, str] = {}  # one entry, by whoever comes first: the thread, or who calls it off
        self._is_started = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            if self._fate.setdefault("is", "begun") == "begun":
                work()
        finally:
            self._ended.set()

    def start(self) -> None:
        self._thread.start()
        self._is_started = True

    def end(self) -> None:
        """Waits for it if it has started, else calls it off: to be called in any case."""
        interrupts: list[BaseException] = []
        while True:
            try:
                if self._is_started or self._fate.setdefault("is", "called off") == "begun":
                    self._ended.wait()
                break
            except BaseException as interrupt:
                interrupts.append(interrupt)
        if interrupts:
            raise interrupts[0]


class cached_property(Generic[T]):
    """As of functools, without the lock that it has before Python 3.12: that one is shared by all objects of a class,
    and a forked child would find it closed. Of two threads that compute a value at once, both get the first's."""

    def __init__(self, compute: Callable[[Any], T]):
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self._compute(instance))


class _Fork:
    """What happens to the locks around `os.fork`."""

    held = False
    others = ExitStack()

    def before(self) -> None:
        self.held = False
        self.held = not COMPILING.is_lent() and COMPILING.acquire(timeout=_FORK_WAITS)
        if self.held or COMPILING.is_lent():  # whoever keeps it so long may have the others too
            for lock in _others:
                self.others.enter_context(lock)

    def in_parent(self) -> None:
        self.others.close()
        if self.held:
            COMPILING.release()

    def in_child(self) -> None:
        self.in_parent()
        for lock in list(_locks):
            if not lock._is_owned():  # the forking thread's own stay its own
                lock._at_fork_reinit()


_fork = _Fork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child)
