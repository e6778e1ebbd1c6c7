"""Deduction guides without `__device__`: nvcc takes them in device code, clang takes them for the host's.

Where reached code has a class template's arguments deduced, such a guide may decide; clang would leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ..errors import Span, UnsupportedError
from . import clang, text
from .clang import Cursor, Kind
from .unit import Unit
from .visiting import children_of, remembered

_GUIDE = "<deduction guide for "
_SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL)
_HINT = "write __host__ __device__ before the guide, or name the template's arguments"


def check_guides(unit: Unit, functions: list[Cursor]) -> None:
    """Refuses reached functions that name a class template without arguments, if it has such a guide."""
    guides = _host_guides(unit.tree.cursor)
    for function in functions if guides else ():
        file = function.extent.start.file
        if file is None:
            continue
        source = unit.sound.texts[file.name] if file.name in unit.sound.texts else Path(file.name).read_bytes()
        for name, place in _bare_names(source, function.extent.start.offset, function.extent.end.offset):
            if name in guides and name != _class_of(function):
                line = source[:place].count(b"\n") + 1
                column = place - (source.rfind(b"\n", 0, place) + 1) + 1
                what = f"a deduction guide of '{name}' that is not __device__ may decide its arguments here"
                raise UnsupportedError(what, Span(unit.sources.get(file.name), line, column, len(name)), _HINT)


@remembered
def _host_guides(scope: Cursor) -> set[str]:
    """The templates that have a guide without `__device__`."""
    return {_name(c) for c in _guides(scope) if not _is_of_device(c)}


def _guides(scope: Cursor) -> Iterator[Cursor]:
    """Of the user's text and headers. One without template parameters is no function to libclang."""
    for cursor in children_of(scope):
        if clang.is_in_prelude(cursor):
            continue
        if cursor.spelling.startswith(_GUIDE):
            yield cursor
        elif cursor.kind in _SCOPES:
            yield from _guides(cursor)


def _name(guide: Cursor) -> str:
    name: str = guide.spelling.removeprefix(_GUIDE).removesuffix(">").partition("<")[0]
    return name


def _is_of_device(guide: Cursor) -> bool:
    return any(child.kind == Kind.CUDADEVICE_ATTR for child in children_of(guide))


def _class_of(function: Cursor) -> str:
    """In which the name alone means the class itself."""
    parent = function.semantic_parent
    return parent.spelling if parent is not None else ""


def _bare_names(source: bytes, start: int, end: int) -> list[tuple[str, int]]:
    """Names that no template arguments follow."""
    marks = [*text.tokens(source, start, end), text.Token("mark", b"", end, end)]
    return [(a.text.decode(), a.start) for a, b in pairwise(marks) if a.kind == "name" and b.text not in (b"<", b"::")]
