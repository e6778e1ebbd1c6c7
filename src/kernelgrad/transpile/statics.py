"""Static variables of functions that a generated function uses, too: they become variables of the file, to which the
names in their functions refer."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import UnsupportedError
from ..frontend.clang import Cursor, Kind
from ..frontend.in_source import extent
from ..frontend.unit import Unit
from ..frontend.visiting import children_of, walk
from .edits import Edits
from .instances import template_of


class Statics:
    """Of one program. `fresh`: gives names that are not taken."""

    def __init__(self, unit: Unit, edits: Edits, fresh: Callable[[str], str]):
        self.unit, self.edits, self.fresh = unit, edits, fresh
        self._found: dict[str, tuple[Cursor, Cursor]] | None = None
        self._names: dict[str, str] = {}
        self.texts: list[str] = []
        self.first: int | None = None  # where the first function begins that has one of them

    def name(self, variable: str) -> str | None:
        """What a static variable, such as `f::x`, is called in the file; None if there is none."""
        if variable not in self._names:
            found = self._all().get(variable)
            if found is None:
                return None
            self._names[variable] = self._moved(*found)
        return self._names[variable]

    def _all(self) -> dict[str, tuple[Cursor, Cursor]]:
        if self._found is None:
            functions = [f for f in self.unit.functions() if extent(f).file == self.unit.name]
            self._found = {
                f"{self.unit.qualified_name(f)}::{self.unit.qualified_name(v)}": (f, v)
                for f in functions
                for v in walk(f)
                if v.kind == Kind.VAR_DECL and v.storage_class.name == "STATIC"
            }
        return self._found

    def _moved(self, function: Cursor, variable: Cursor) -> str:
        together = next(s for s in walk(function) if s.kind == Kind.DECL_STMT and variable in children_of(s))
        if len(children_of(together)) > 1 or template_of(function) is not None:
            problem = "a static variable of a template, or one that is declared with others,"
            raise UnsupportedError(f"{problem} cannot be transpiled", self.unit.span(variable), "declare it on its own")
        name = self.fresh(f"{function.spelling}_{variable.spelling}")
        at, spelled = extent(variable), variable.spelling.encode()
        declared = variable.location.offset
        text = self.edits.original(at.start, declared) + name
        text += self.edits.original(declared + len(spelled), at.end)
        self.texts.append(f"{text};  // {variable.spelling} in {function.spelling}\n")
        self.edits.replace(at.start, at.end, f"static auto &{variable.spelling} = {name}")
        begin = self.edits.line_start(extent(function).start)
        self.first = begin if self.first is None else min(begin, self.first)
        return name
