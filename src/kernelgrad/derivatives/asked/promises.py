"""What a user promises of a kernel's arguments, beyond what its code shows: `kg.assume`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...analysis import roots as memory_analysis
from ...analysis.promises import NONE as NONE
from ...analysis.promises import Promises as Promises
from ...analysis.promises import Segments
from ...errors import ArgumentError
from ...ir.ops import Function, Param
from ...ir.types import Pointer, Scalar
from ...requests import Names, names, names_in, wrong
from ...runtime.signature import c_signature, user_params

Ranges = Mapping[str, tuple[int, int]] | None


# ---- what is given --------------------------------------------------------------------------------------------------


def make_promises(unique: Names, disjoint: Any, multiple: Any, within: Any, results: Names) -> Promises:
    return Promises(
        names("assume: unique", unique),
        _segments(disjoint),
        tuple((name, _factor(number)) for name, number in _items("multiple", multiple)),
        tuple((name, _range(ends)) for name, ends in _items("within", within)),
        names("assume: results", results),
    )


def _segments(given: Any) -> tuple[Segments, ...]:
    """ "row", ("offset", "count"), or a list of such."""
    if given is None:
        return ()
    if isinstance(given, list):
        return tuple(segments for one in given for segments in _segments(one))
    if isinstance(given, str):
        return tuple(map(Segments, names("parameters", given)))
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(name, str) for name in given):
        return (Segments(*given),)
    raise wrong("assume: disjoint", 'a buffer, as in "row", or two, as in ("offset", "count"), or a list', given)


def _items(what: str, given: Any) -> list[tuple[str, Any]]:
    if given is None:
        return []
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise wrong(f"assume: {what}", f"a dict, as in {_EXAMPLES[what]}", given)
    return sorted(given.items())


_EXAMPLES = {"multiple": '{"n": 32}', "within": '{"n": (1, 1024)}'}


def _factor(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise wrong("assume: multiple", "positive integers, as in {'n': 32}", given)
    return given


def _range(given: Any) -> tuple[int, int]:
    pair = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if len(pair) != 2 or not all(isinstance(end, int) for end in pair) or pair[0] > pair[1]:
        raise wrong("assume: within", "the least and the greatest, as in {'n': (1, 1024)}", given)
    return pair[0], pair[1]


# ---- what it can be about -------------------------------------------------------------------------------------------


def check_promises(function: Function, promises: Promises) -> Promises:
    """The promises, if they can be about the function."""
    if not isinstance(promises, Promises):
        raise ArgumentError(
            f"assume: wants kg.assume(...), got {type(promises).__name__}: assume=kg.assume(unique=...)"
        )
    params = {p.name: p for p in user_params(function)}
    unique, results = (names_in(given, params.values()) for given in (promises.unique, promises.results))
    found = Promises(unique, promises.disjoint, promises.multiple, promises.within, results)
    for name in unique:
        _check_buffer("unique", name, params, function)
    for name in (name for segments in found.disjoint for name in segments.buffers):
        _check_buffer("disjoint", name, params, function)
    for what, given in (("multiple", found.multiple), ("within", found.within)):
        for name, _ in given:
            if name in params and _is_integer(params[name]):
                continue
            _check_buffer(what, name, params, function)
    for name in results:
        _check_result(name, params, function)
    return found


def _check_buffer(what: str, name: str, params: Mapping[str, Param], function: Function) -> None:
    """Of integers, that the kernel only reads."""
    _check_known(name, params, function)
    if not _holds_integers(params[name]):
        problem = f"{what} is about buffers of integers, and '{name}' is {params[name].c_type}"
        raise ArgumentError(f"assume: {problem}; name the buffer that the indices are read from")
    if params[name].value in memory_analysis.analyse(function).written():
        problem = f"the kernel writes '{name}', so what it holds is not known before the launch"
        raise ArgumentError(f"assume: {problem}; pass the indices in a buffer that is only read")


def _check_result(name: str, params: Mapping[str, Param], function: Function) -> None:
    """A buffer that the kernel writes, and does not read."""
    _check_known(name, params, function)
    memory, root = memory_analysis.analyse(function), params[name].value
    read = any(root in memory.of(op.ptr) for op in memory.loads)
    if not isinstance(params[name].type, Pointer) or root not in memory.written() or read:
        problem = f"results is about outputs that the kernel writes and does not read, and '{name}' is none"
        raise ArgumentError(f"assume: {problem}\n  {c_signature(function)}")


def _check_known(name: str, params: Mapping[str, Param], function: Function) -> None:
    if name not in params:
        raise ArgumentError(f"assume: {function.name} has no parameter '{name}'\n  {c_signature(function)}")


def _holds_integers(param: Param) -> bool:
    type = param.type.pointee if isinstance(param.type, Pointer) else None
    return isinstance(type, Scalar) and type.kind in ("int", "uint")


def _is_integer(param: Param) -> bool:
    return isinstance(param.type, Scalar) and param.type.kind in ("int", "uint")


def described(promises: Promises) -> str:
    """As the user wrote it; nothing where nothing is promised."""
    disjoint: list[Any] = [s.begin if s.count is None else s.buffers for s in promises.disjoint]
    parts = {
        "unique": ", ".join(promises.unique),
        "disjoint": disjoint[0] if len(disjoint) == 1 else disjoint,
        "multiple": dict(promises.multiple),
        "within": dict(promises.within),
        "results": ", ".join(promises.results),
    }
    told = (f"{name}={_quoted(given)}" for name, given in parts.items() if given)
    return f"assume=kg.assume({', '.join(told)})" if promises != NONE else ""


def _quoted(given: Any) -> str:
    return repr(given).replace("'", '"')
