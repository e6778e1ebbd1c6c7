"""Derivatives that templates ask for: each instance has its own. In the template stands a struct with the template's
parameters, and each instance that the program uses is a specialisation of that:

    template <typename T> struct grad_asks;
    template <> struct grad_asks<double> { ... };       in the template:  grad_asks<T>::call(x, d_x);
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import UnsupportedError
from ..frontend import clang
from ..frontend.clang import Cursor, Kind
from ..frontend.in_source import extent
from ..frontend.unit import Unit
from ..frontend.visiting import children_of
from .edits import Edits

_PARAMETERS = (Kind.TEMPLATE_TYPE_PARAMETER, Kind.TEMPLATE_NON_TYPE_PARAMETER, Kind.TEMPLATE_TEMPLATE_PARAMETER)
_CLASSES = (Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.CLASS_TEMPLATE, Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION)
_CALL = """\
    template <typename... A>
    static {qualifier}auto call(A &&...arguments) {{ return {name}(arguments...); }}
"""


def template_of(function: Cursor) -> Cursor | None:
    """The template that a function is an instance of; a specialisation has a text of its own."""
    found = clang.specialized_template(function)
    return found if found is not None and found.location.offset == function.location.offset else None


def _scopes(cursor: Cursor) -> list[Cursor]:
    """The classes around a function, and the function itself."""
    parent = cursor.semantic_parent
    around = _scopes(parent) if parent is not None and parent.kind in _CLASSES else []
    return [*around, cursor]


def _templates(template: Cursor) -> Iterator[Cursor]:
    """That one, and those of the classes around it, outermost first."""
    for scope in _scopes(template):
        found = clang.specialized_template(scope) if scope.kind in (Kind.STRUCT_DECL, Kind.CLASS_DECL) else None
        yield found if found is not None else scope


@dataclass
class _Asked:
    """`given`: the arguments, in the text. `members`: of each instance, by its template arguments."""

    name: str
    header: str
    own: str
    given: str
    members: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        instances = (f"template <>\nstruct {self.name}{args} {{\n{m}}};\n" for args, m in self.members.items())
        return f"template <{self.header}>\nstruct {self.name};\n" + "".join(instances)


class Instances:
    """Of one program. `fresh`: gives names that are not taken."""

    def __init__(self, unit: Unit, edits: Edits, fresh: Callable[[str], str]):
        self.unit, self.edits, self.fresh = unit, edits, fresh
        self._asked: dict[int, _Asked] = {}  # by where they stand
        self._same: dict[int, str] = {}  # what stands for a request of a method that is a template

    def texts(self) -> list[str]:
        return [asked.text for asked in self._asked.values()]

    def call(self, function: Cursor, at: Cursor, name: str, given: str, qualifier: str) -> str:
        """What stands for a call of an instance's own function."""
        if self._is_unnamed(function):
            self._check_same(at, f"{name}({given})")
            return f"{name}({given})"
        asked = self._noted(function, at, given, _CALL.format(qualifier=qualifier, name=name))
        return f"{asked.name}<{asked.own}>::call({given})"

    def handle(self, function: Cursor, at: Cursor, name: str) -> str:
        """What stands for an object of an instance's own type."""
        if self._is_unnamed(function):
            self._check_same(at, name)
            return f"{name}{{}}"
        asked = self._noted(function, at, "", f"    using type = {name};\n")
        return f"typename {asked.name}<{asked.own}>::type{{}}"

    def _is_unnamed(self, function: Cursor) -> bool:
        """Of methods that are templates, libclang does not tell the arguments: all instances must have the same."""
        template = template_of(function)
        is_template = template is not None and template.kind == Kind.FUNCTION_TEMPLATE
        return is_template and not self.unit.template_arguments(function)

    def _check_same(self, at: Cursor, text: str) -> None:
        if self._same.setdefault(extent(at).start, text) != text:
            raise self._refused(at, "a method that is a template, each of whose instances has another derivative,")

    def _noted(self, function: Cursor, at: Cursor, given: str, member: str) -> _Asked:
        template = template_of(function)
        assert template is not None
        params = [c for t in _templates(template) for c in children_of(t) if c.kind in _PARAMETERS]
        args = ", ".join(text[1:-1] for c in _scopes(function) if (text := self.unit.template_arguments(c)))
        if "..." in args or any(c.kind == Kind.TEMPLATE_TEMPLATE_PARAMETER for c in params):
            raise self._refused(at, "a template with arguments that are packs or templates")
        if not all(c.spelling for c in params):
            raise self._refused(at, "a template with a parameter without a name")
        asked = self._asked.get(extent(at).start)
        if asked is None:
            header = ", ".join(self._declared(c) for c in params)
            own = ", ".join(c.spelling for c in params)
            name = re.sub(r"\W+", "_", function.spelling.partition("<")[0]).strip("_")
            asked = _Asked(self.fresh(f"{name}_asks"), header, own, given)
            self._asked[extent(at).start] = asked
        if asked.given != given:
            raise self._refused(at, "a call whose arguments are others in each instance")
        asked.members[f"<{args}>"] = member
        return asked

    def _declared(self, param: Cursor) -> str:
        at = extent(param)
        return self.edits.original(at.start, at.end).partition("=")[0].strip()

    def _refused(self, at: Cursor, what: str) -> UnsupportedError:
        problem = f"{what} asks for a derivative: it cannot be transpiled"
        return UnsupportedError(problem, self.unit.span(at), "ask for it in a function that is no template")
