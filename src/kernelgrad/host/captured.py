"""What Python functions use without getting it as an argument: arrays and numbers in globals, closures, defaults, the
objects that they are methods of, in containers and attributes of these, and in what the functions that they call use.

Note [Captured]
A function's code tells its globals, its closure and the names of the attributes it asks for, but not of which objects.
So the names in all functions found are taken together, and these attributes of every object are followed; all of them
where a function calls `getattr` or the like. Of a container, all of it. Installed packages are not looked into. An
unused array in an attribute whose name is used is refused though nothing is wrong; one in an iterator, or that only C
knows, is not found.
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

_MOST_VALUES = 10_000  # of a search, or of a container: what comes after is not looked at
_PACKAGES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OPAQUE = (str, bytes, bytearray, range, type(None), BuiltinFunctionType, np.dtype, np.ufunc)
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_OURS = "kernelgrad"
_IMPLICIT = ("__call__", "__wrapped__", "__getitem__", "__iter__", "__array__")  # asked for by no name
_BY_ANY_NAME = frozenset(("getattr", "vars", "__dict__", "__getattribute__", "attrgetter"))

_Part = tuple[Any, str, bool]  # a value, its path, and whether a name or an attribute stands for it


class Captured(NamedTuple):
    """With the paths under which they are used. `bound`: what names and attributes stand for that the functions do not
    store to themselves: numbers, arrays' addresses, containers' ids. `alive`: these, so that none else gets the id."""

    arrays: list[tuple[str, ArrayView]]
    bound: dict[str, list[Any]]
    alive: list[Any]


def captured(functions: Iterable[Callable[..., Any]], arguments: Mapping[str, Any]) -> Captured:
    """`arguments`: objects that are passed, in which there may be arrays."""
    functions = tuple(functions)
    roots = [*((function, "") for function in functions), *((value, name) for name, value in arguments.items())]
    packages = frozenset(_package(getattr(inspect.unwrap(function), "__module__", None)) for function in functions)
    names: frozenset[str] = frozenset()
    while True:
        search = _Search(names, packages)
        for value, path in roots:
            search.visit(value, path)
        if search.names <= names:
            bound = {name: tokens for name, tokens in search.bound.items() if _last(name) not in search.stored}
            return Captured(search.arrays, bound, search.alive)
        names |= search.names


def changed(before: Captured, now: Captured) -> str | None:
    """The path of one that stands for another array, number or container than before."""
    was = before.bound
    return next((name for name, tokens in now.bound.items() if was.get(name, tokens) != tokens), None)


class _Code(NamedTuple):
    """Names that code uses, nested functions included: globals and attributes, and those that it stores to."""

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
    """One walk, in which attributes of these names are followed. `names`: those that the functions found ask for."""

    def __init__(self, names: frozenset[str], packages: frozenset[str]):
        self._followed, self._packages, self._seen = (*sorted(names), *_IMPLICIT), packages, set[int]()
        self._follows_all = not names.isdisjoint(_BY_ANY_NAME)
        self.names: set[str] = set()
        self.stored: set[str] = set()
        self.arrays: list[tuple[str, ArrayView]] = []
        self.bound: dict[str, list[Any]] = {}
        self.alive: list[Any] = []

    def visit(self, root: Any, path: str) -> None:
        waiting = [(root, path, True)]
        while waiting and len(self._seen) < _MOST_VALUES:
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
            yield from ((part, f"{path}[{key!r}]", False) for key, part in list(value.items())[:_MOST_VALUES])
        elif isinstance(value, tuple):  # nobody changes it: another item is another tuple
            yield from ((part, f"{path}[{k}]", is_named) for k, part in enumerate(value[:_MOST_VALUES]))
            yield from self._attributes(value, path) if hasattr(value, "_fields") else ()
        elif isinstance(value, list | set | frozenset | deque) or _holds_objects(value):
            self._hold(value, path, is_named)
            parts = value.flat if isinstance(value, np.ndarray) else list(value)
            yield from ((part, f"{path}[{k}]", False) for k, part in enumerate(parts[:_MOST_VALUES]))
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
        """Whether code is neither of an installed package, unless the captured functions are, nor of this one."""
        return _package(module) != _OURS and (_package(module) in self._packages or not file.startswith(_PACKAGES))

    def _attributes(self, value: Any, path: str) -> Iterator[_Part]:
        kind = value if isinstance(value, type) else type(value)
        if isinstance(value, ModuleType):
            if not self._is_users(getattr(value, "__file__", None) or "", value.__name__):
                return
        elif _package(kind.__module__) == _OURS:
            own = [getattr(value, name, None) for name in ("function", "reverse_function")]
            yield from ((part, "", True) for part in own if isinstance(part, FunctionType | MethodType))
            return
        elif (
            self._follows_all or hasattr(kind, "__getattr__") or issubclass(kind, Mapping)
        ):  # who knows how it gets at them
            yield from ((part, f"{path}.{name}", True) for name, part in list(_own_attributes(value).items()))
        for name in self._followed:
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
