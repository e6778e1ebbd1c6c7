"""What the public functions are called with: checked here, so that a wrong argument is an `ArgumentError` that says
what is wanted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any

from .errors import ArgumentError

if TYPE_CHECKING:
    from .ir.ops import Param

Names = str | Sequence[str] | None

_STANDARDS = ("c++11", "c++14", "c++17", "c++20", "c++23")
_MACRO = re.compile(r"[A-Za-z_]\w*(\([^\r\n\0]*\))?(=[^\r\n\0]*)?")  # clang would end it with the line

_SIZE = re.compile(r"(\d+\.?\d*)\s*([A-Za-z]*)")
_UNITS = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T"))}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate(("", "K", "M", "G", "T")) if power} | {"": 1}


def wrong(what: str, wants: str, got: Any) -> ArgumentError:
    shown = repr(got)
    return ArgumentError(f"{what}: wants {wants}, got {shown if len(shown) < 60 else type(got).__name__}")


def source_text(source: Any) -> str:
    if isinstance(source, os.PathLike):
        raise ArgumentError(f"compile: wants CUDA C++ text, got a path; kg.load({os.fspath(source)!r}) reads a file")
    if not isinstance(source, str):
        raise wrong("compile", "CUDA C++ text, a str", source)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"compile: the text cannot be encoded: {error}") from None
    return source


def path(what: str, given: Any) -> str:
    if not isinstance(given, str | os.PathLike):
        raise wrong(what, "a path", given)
    found = os.fspath(given)
    if not isinstance(found, str) or not found or "\0" in found:
        raise wrong(what, "a path", given)
    return found


def folders(given: Any) -> tuple[str, ...]:
    """A single path is one folder."""
    parts = (given,) if isinstance(given, str | os.PathLike) else given
    if not isinstance(parts, Sequence) or isinstance(parts, bytes):
        raise wrong("include_dirs", "a list of folders", given)
    return tuple(path("include_dirs", part) for part in parts)


def macros(given: Any) -> tuple[str, ...]:
    """{"N": 4, "FAST": None}, ["N=4", "FAST"] or a single "N=4"."""
    if isinstance(given, Mapping):
        given = [_macro(name, value) if isinstance(name, str) else name for name, value in given.items()]
    parts = (given,) if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or isinstance(parts, bytes):
        raise wrong("defines", 'a dict, as in {"N": 4}, or a list, as in ["N=4"]', given)
    for part in parts:
        if not isinstance(part, str) or not _MACRO.fullmatch(part):
            raise wrong("defines", 'macros of one line, as in {"N": 4} or ["N=4"]', part)
    return tuple(parts)


def _macro(name: str, value: Any) -> str:
    if value is None:
        return name
    return f"{name}={int(value) if isinstance(value, bool) else value}"


def standard(given: Any) -> str:
    if not isinstance(given, str) or given.replace("gnu", "c") not in _STANDARDS:
        raise wrong("std", f"one of {', '.join(_STANDARDS)}", given)
    return given


def names(what: str, given: Any) -> tuple[str, ...]:
    """ "out, in", or the names one by one."""
    if given is None:
        return ()
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or isinstance(parts, bytes) or not all(isinstance(p, str) for p in parts):
        raise wrong(what, 'names, as in "out, in" or ["out", "in"]', given)
    return tuple(part.strip() for part in parts if part.strip())


def names_in(given: Names, params: Iterable[Param], what: str = "parameters") -> tuple[str, ...]:
    """The same, with the elements of a parameter pack for its name."""
    packs: dict[str, list[str]] = {}
    for param in params:
        if param.pack is not None:
            packs.setdefault(param.pack, []).append(param.name)
    return tuple(element for name in names(what, given) for element in packs.get(name, (name,)))


def flags(**given: Any) -> None:
    for name, value in given.items():
        if type(value).__name__ not in ("bool", "bool_"):
            raise wrong(name, "True or False", value)


def number_of_bytes(what: str, given: Any) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not hasattr(given, "__index__") or index(given) < 0:
        raise wrong(what, "a number of bytes, as in 1 << 30", given)
    return index(given)


def memory_size(what: str, given: Any) -> int | None:
    """A number of bytes, also as "2 GB" or "512 MiB"."""
    if not isinstance(given, str):
        return number_of_bytes(what, given)
    found = _SIZE.fullmatch(given.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise wrong(what, 'a number of bytes, as in 1 << 30 or "2 GB"', given)
    return int(float(found[1]) * _UNITS[found[2].upper()])


def function(what: str, given: Any) -> Any:
    if not callable(given):
        raise wrong(what, "a function", given)
    return given


def count(what: str, given: Any) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__") or index(given) < 0:
        raise wrong(what, "an integer from 0 on", given)
    return index(given)


def seed(given: Any) -> Any:
    if given is not None and (isinstance(given, bool) or not hasattr(given, "__index__") or index(given) < 0):
        raise wrong("seed", "an integer from 0 on", given)
    return given


def tolerance(what: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= float(given) < float("inf"):
        raise wrong(what, "a number from 0 on", given)
    return float(given)


def arguments(what: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise wrong(what, "the launch's arguments in a tuple", given)
    return tuple(given)


def target(what: str, given: Any, *kinds: type) -> Any:
    """A kernel or function, if it is one."""
    if isinstance(given, kinds):
        return given
    told = {
        "Module": "a module: name its function, as in module['saxpy']",
        "Gradient": "a gradient: second derivatives are had by kg.gradient and kg.jvp of it, and by kg.hvp(kernel)",
        "SecondOrder": "a second derivative, which has no further derivative here",
        "FunctionGradient": "the gradient of a function, which has no further derivative here",
        "Tangent": "a tangent, which has no further derivative here",
        "FunctionTangent": "a tangent, which has no further derivative here",
    }
    got = told.get(type(given).__name__, f"{type(given).__name__}: kernels come from kg.compile(text)['name']")
    wants = "a kernel" if len(kinds) == 1 else "a kernel or a function"
    raise ArgumentError(f"{what}: wants {wants}, got {got}")


def no_options(what: str, given: Any, *options: Any) -> None:
    """Raises if an option is given that only derivatives of kernels and functions have."""
    if any(option is not None and option is not False for option in options):
        raise ArgumentError(f"{what}: options are for kernels and functions, and this is {given!r}")


def not_reporting(what: str, given: Any) -> None:
    """Raises for a derivative of which there is no second one: it has tests in it."""
    if getattr(given, "settings", given).report_nan:
        raise ArgumentError(f"{what}: of a derivative without report_nan=True, and this is {given!r}")


def derivable(given: Any) -> None:
    """Raises for what runs but has no derivatives."""
    kernel = getattr(given, "kernel", getattr(given, "target", given))  # of a function or a gradient; of a tangent
    if kernel.refusal is not None:
        raise kernel.refusal
