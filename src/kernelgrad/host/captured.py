"""What Python functions use and do not get as arguments: arrays and numbers of globals, closures, defaults, of the
objects they are methods of, in containers and in attributes, and in whatever the functions they call use.

Note [Captured]
A function tells its globals, its closure and the names of the attributes it looks at; not which object it asks for
which of them. So the names of all functions that are found are taken together, and of an object those attributes are
followed that one of these names; all, where one calls `getattr` or the like. Of a container, all of it. What packages
do is not looked at. Who passes an object with arrays that are not used, but whose names are, is refused where nothing
is wrong; who keeps arrays in iterators, or in C, is not found.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sysconfig
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..runtime.arrays import ArrayView, view

_MANY = 10_000  # values; what holds more is not looked at to its end
_PACKAGES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OPAQUE = (str, bytes, bytearray, range, type(None), BuiltinFunctionType, np.dtype, np.ufunc)
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_OURS = "kernelgrad"
_IMPLICIT = ("__call__", "__wrapped__", "__getitem__", "__iter__", "__array__")  # that no attribute names
_BY_ANY_NAME = frozenset(("getattr", "vars", "__dict__", "__getattribute__", "attrgetter"))

_Part = tuple[Any, str, bool]  # a value, its path, and whether a name or an attribute stands for it


class Captured(NamedTuple):
    """With the names under which they are used. `bound`: what names and attributes stand for that the functions do not
    store to themselves: numbers, where arrays are, which container. `alive`: containers, whose places nobody takes."""

    arrays: list[tuple[str, ArrayView]]
    bound: dict[str, list[Any]]
    alive: list[Any]


def captured(functions: Iterable[Callable[..., Any]], arguments: Mapping[str, Any]) -> Captured:
    """`arguments`: objects that are passed, in which there may be arrays."""
    functions = tuple(functions)
    roots = [*((function, "") for function in functions), *((value, name) for name, value in arguments.items())]
    own = frozenset(_package(getattr(inspect.unwrap(function), "__module__", None)) for function in functions)
    names: frozenset[str] = frozenset()
    while True:
        search = _Search(names, own)
        for value, path in roots:
            search.visit(value, path)
        if search.names <= names:
            bound = {name: tokens for name, tokens in search.bound.items() if _last(name) not in search.stored}
            return Captured(search.arrays, bound, search.alive)
        names |= search.names


def changed(before: Captured, now: Captured) -> str | None:
    """A name that stands for another array, number or container than before."""
    was = before.bound
    return next((name for name, tokens in now.bound.items() if was.get(name, tokens) != tokens), None)


class _Code(NamedTuple):
    """The names that some code uses: of globals, of attributes, and those it stores to."""

    globals: tuple[str, ...]
    attributes: frozenset[str]
    stored: frozenset[str]


@functools.lru_cache(maxsize=1024)
def _code(code: CodeType) -> _Code:
    loaded, attributes, stored = set(), set(), set()
    for instruction in dis.get_instructions(code):
        kind, _, what = instruction.opname.partition("_")
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            loaded.add(instruction.argval)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(instruction.argval)
        elif kind == "STORE" and what in ("GLOBAL", "DEREF", "ATTR"):
            stored.add(instruction.argval)
    inner = [_code(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return _Code(
        tuple(sorted(loaded.union(*[i.globals for i in inner]))),
        frozenset(attributes.union(*[i.attributes for i in inner])),
        frozenset(stored.union(*[i.stored for i in inner])),
    )


class _Search:
    """One walk, with the names of attributes that are known so far."""

    def __init__(self, names: frozenset[str], own: frozenset[str]):
        self._asked, self._own, self._seen = (*sorted(names), *_IMPLICIT), own, set[int]()
        self._any = not names.isdisjoint(_BY_ANY_NAME)
        self.names: set[str] = set()
        self.stored: set[str] = set()
        self.arrays: list[tuple[str, ArrayView]] = []
        self.bound: dict[str, list[Any]] = {}
        self.alive: list[Any] = []

    def visit(self, root: Any, path: str) -> None:
        waiting = [(root, path, True)]
        while waiting and len(self._seen) < _MANY:
            value, at, is_named = waiting.pop()
            if isinstance(value, _NUMBERS):
                self._bind(at, value if value == value else "nan", is_named)
            elif not isinstance(value, _OPAQUE) and id(value) not in self._seen:
                self._seen.add(id(value))
                waiting += self._parts(value, at, is_named)

    def _bind(self, path: str, token: Any, is_named: bool) -> None:
        if is_named:
            self.bound.setdefault(path, []).append(token)

    def _parts(self, value: Any, path: str, is_named: bool) -> Iterator[_Part]:
        array = _array(value)
        if array is not None:
            self.arrays += [(path, array)] if array.nbytes else []
            self._bind(path, (array.address, array.nbytes), is_named)
        elif isinstance(value, dict | MappingProxyType):
            self._hold(value, path, is_named)
            yield from ((part, f"{path}[{key!r}]", False) for key, part in list(value.items())[:_MANY])
        elif isinstance(value, tuple):  # nobody changes it: another item is another tuple
            yield from ((part, f"{path}[{k}]", is_named) for k, part in enumerate(value[:_MANY]))
            yield from self._attributes(value, path) if hasattr(value, "_fields") else ()
        elif isinstance(value, list | set | frozenset | deque) or _holds_objects(value):
            self._hold(value, path, is_named)
            parts = value.flat if isinstance(value, np.ndarray) else list(value)
            yield from ((part, f"{path}[{k}]", False) for k, part in enumerate(parts[:_MANY]))
        else:
            yield from self._of_object(value, path)

    def _hold(self, container: Any, path: str, is_named: bool) -> None:
        self.alive.append(container)
        self._bind(path, id(container), is_named)

    def _of_object(self, value: Any, path: str) -> Iterator[_Part]:
        if isinstance(value, FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, MethodType):
            yield from ((value.__func__, "", True), (value.__self__, "self", True))
        elif isinstance(value, functools.partial):
            yield value.func, "", True
            yield from ((part, f"argument {k} of a partial", True) for k, part in enumerate(value.args))
            yield from ((part, name, True) for name, part in value.keywords.items())
        elif isinstance(value, property):
            yield value.fget, "", True
        elif isinstance(value, staticmethod | classmethod):
            yield value.__func__, "", True
        elif isinstance(value, weakref.ref):
            yield value(), path, True
        else:
            yield from self._attributes(value, path)

    def _of_function(self, function: FunctionType) -> Iterator[_Part]:
        if not self._is_users(function.__code__.co_filename, function.__module__):
            return
        code = _code(function.__code__)
        self.names |= code.attributes.union(_BY_ANY_NAME.intersection(code.globals))
        self.stored |= code.stored
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a name that has no value yet
                yield cell.cell_contents, name, True
        yield from ((function.__globals__[name], name, True) for name in code.globals if name in function.__globals__)
        yield from ((part, f"a default of {function.__name__}", True) for part in function.__defaults__ or ())
        yield from ((part, name, True) for name, part in (function.__kwdefaults__ or {}).items())
        wrapped = getattr(function, "__wrapped__", None)
        yield from ((wrapped, "", True),) if wrapped is not None else ()

    def _is_users(self, file: str, module: str | None) -> bool:
        """Not of an installed package, unless the functions are, nor of this one."""
        return _package(module) != _OURS and (_package(module) in self._own or not file.startswith(_PACKAGES))

    def _attributes(self, value: Any, path: str) -> Iterator[_Part]:
        kind = value if isinstance(value, type) else type(value)
        if isinstance(value, ModuleType):
            if not self._is_users(getattr(value, "__file__", None) or "", value.__name__):
                return
        elif _package(kind.__module__) == _OURS:
            own = [getattr(value, name, None) for name in ("function", "reverse_function")]
            yield from ((part, "", True) for part in own if isinstance(part, FunctionType | MethodType))
            return
        elif self._any or hasattr(kind, "__getattr__") or issubclass(kind, Mapping):  # who knows how it gets at them
            yield from ((part, f"{path}.{name}", True) for name, part in list(_own_attributes(value).items()))
        for name in self._asked:
            with suppress(AttributeError):
                part = inspect.getattr_static(value, name)
                if inspect.ismemberdescriptor(part):
                    part = getattr(value, name)  # a slot
                yield part, f"{path}.{name}" if path else name, True


def _array(value: Any) -> ArrayView | None:
    if _holds_objects(value):
        return None
    with suppress(Exception):  # objects may do anything when they are asked for an interface
        return view(np.asarray(value) if isinstance(value, memoryview) else value)
    return None


def _own_attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _holds_objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _last(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0]
