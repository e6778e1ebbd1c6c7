"""Derivatives that the source itself gives: which functions have one, and which of them are refused.

`f_pullback` and `f_tangent` in the namespace `kernelgrad::custom_derivatives`, or Clad's (`clad::custom_derivatives`,
there `f_pushforward`), belong to the functions `f` whose signature they fit (`ir/custom`); inside it, a namespace is
the one that `f` is in. Clad's other forms, what `using` brings there, and those of Enzyme (arrays whose names begin
with `__enzyme_register_`, or that say more of a function, and whose first element is the function, or more of a
variable) are refused where the function or variable is reached.

A template has no instance that nobody names: `probes` are lines that do, for the text to be parsed once more with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import SourceError, Span, UnsupportedError
from ..ir.custom import CustomDerivative, adjoints_of_pullback, differentiable, fits_tangent
from ..ir.types import Type
from . import clang, text
from .clang import Cursor, Kind, identity, is_in_prelude
from .lowering import Lowering
from .registrations import passes_of
from .sound import Cut
from .types import Types, is_reference
from .unit import Unit
from .visiting import children_of, walk

_SUFFIX = re.compile(r"(.+?)_(pullback|pushforward|tangent|reverse_forw|grad\w*|hessian|jacobian|darg\d+)$")
_ENZYME = re.compile(r"__enzyme_(register_|inactive|function_like|nofree|allocation_like|deallocation_like)")
_SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL)
_OTHER_NAMES = (Kind.USING_DIRECTIVE, Kind.NAMESPACE_ALIAS)
_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE, Kind.CXX_METHOD)
_HINT = "remove the custom derivative: kernelgrad differentiates the function itself"
_SPACE = "custom_derivatives"
_PROBE = "__kernelgrad_probe_of_"
_MODES = {"pullback": "pullback", "pushforward": "tangent", "tangent": "tangent"}


@dataclass(frozen=True)
class _Given:
    """A declaration that gives the functions of a name a derivative; `mode`: which, None if that is not supported."""

    name: str
    cursor: Cursor
    mode: str | None = None
    scope: tuple[str, ...] = ()  # of the function


@dataclass
class _Found:
    """The derivatives of one function, by mode."""

    function: Cursor
    modes: dict[str, Cursor] = field(default_factory=dict)


class CustomDerivatives:
    """What the source gives for some functions. `of`: those that have derivatives. `refusal`: the error that all
    derivatives are, where something of it is not supported."""

    def __init__(self, unit: Unit, functions: list[Cursor]):
        self.unit, self.types = unit, Types()
        self.of: dict[int, _Found] = {}
        self.given: list[_Given] = []
        self.gone: dict[str, Cut] = {}
        self.probes: list[str] = []
        self.refusal: SourceError | None = None
        if unit.may_give_derivatives:
            given = list(_given(unit.tree.cursor, ()))
            self.given = sorted(given, key=lambda one: one.cursor.kind == Kind.FUNCTION_TEMPLATE)
            self.gone = dict(_gone(unit))
            if _SPACE in unit.text:
                self._warn_of_unused()
            self.refusal = self._refusal(functions)

    def _warn_of_unused(self) -> None:
        from .unused_derivatives import warn_of_unused

        known = [(one.name, one.cursor) for one in self.given if one.mode is not None]
        warn_of_unused(self.unit, known, _strangers(self.unit))

    def lowered(self, lowering: Lowering) -> list[CustomDerivative]:
        """The same as names in the module, for all that is reached from there, pullbacks included."""
        done: list[CustomDerivative] = []
        for function in lowering.reached:  # which grows
            self.refusal = self._refusal([function])
            if self.refusal is not None:
                raise self.refusal
            found = self.of.get(identity(function))
            if found is not None:
                at = self.unit.span(function)
                names = {mode: lowering.function(cursor, at) for mode, cursor in found.modes.items()}
                made = (CustomDerivative(name, **names) for name in lowering.names_of(function))
                done += [one for one in made if one not in done]
        return done

    def _refusal(self, functions: list[Cursor]) -> SourceError | None:
        gone = self.gone
        if not self.given and not gone:
            return None
        called = {c.spelling for f in functions for c in walk(f) if c.kind == Kind.CALL_EXPR or _is_of_all(c)}
        reached = {f.spelling for f in functions}
        for name in (*(f.spelling for f in functions), *sorted(called - reached)):
            if name in gone:
                flaw = gone[name].flaw
                what = (
                    f"'{name}' has a derivative of its own here, which does not parse ({flaw.message}): not supported"
                )
                return UnsupportedError(what, Span(self.unit.sources.get(flaw.file), flaw.line, flaw.column), _HINT)
            for given in self.given:
                error = self._match(given, name, functions) if given.name == name else None
                if error is not None:
                    return error
        return None

    def _match(self, given: _Given, name: str, functions: list[Cursor]) -> SourceError | None:
        """Notes whose derivative it is, or says why it is none."""
        named = [f for f in (*functions, *self.unit.functions()) if f.spelling == name and not is_in_prelude(f)]
        plain = [f for f in named if f.kind == Kind.FUNCTION_DECL]
        own = [f for f in functions if f in plain]
        if given.mode is None or not named or (not plain and named[0] in functions):
            what = f"'{given.cursor.spelling}' gives '{name}' a derivative of its own: not supported"
            return UnsupportedError(what, self.unit.span(given.cursor), _HINT)
        if given.cursor.kind != Kind.FUNCTION_DECL:
            return self._template(given, name, [f for f in own if given.scope in ((), self._scope(f))])
        fitting = [f for f in plain if given.scope in ((), self._scope(f)) and self._fits(given, f)]
        for function in fitting:
            self.of.setdefault(identity(function), _Found(function)).modes.setdefault(given.mode, given.cursor)
        if fitting or not own:
            return None
        what = f"'{given.cursor.spelling}' does not fit '{name}': its signature would be"
        expected = self._expected(own[0], given)
        return UnsupportedError(f"{what}\n  {expected}", self.unit.span(given.cursor))

    def _template(self, given: _Given, name: str, functions: list[Cursor]) -> SourceError | None:
        """A template's instances, if they are named, stand for it."""
        known = {key for key, found in self.of.items() if given.mode in found.modes}
        without = [f for f in functions if identity(f) not in known]
        if not without:
            return None
        self.probes += [line for line in (self._probe(given, f) for f in without) if line not in self.unit.text]
        what = f"'{given.cursor.spelling}' gives '{name}' a derivative of its own as a template, which does not fit"
        return UnsupportedError(what, self.unit.span(given.cursor), "write it for the types that are used")

    def _probe(self, given: _Given, function: Cursor) -> str:
        """A line that names the instance for a function's signature."""
        arguments = list(function.get_arguments())
        own = [a.type.get_canonical().spelling for a in arguments]
        wanted, result = (
            [arguments[k] for k in differentiable(self._params(function))],
            _canonical(function.result_type),
        )
        adjoints = [result, *(f"{_plain(a)} *" for a in wanted)]
        tangents = [a.type.get_canonical().spelling for a in wanted]
        types = ", ".join((*own, *(adjoints if given.mode == "pullback" else tangents)))
        returned = "void" if given.mode == "pullback" else result
        name = f"::{self.unit.qualified_name(given.cursor, arguments=False)}"
        number = re.sub(r"\W", "_", f"{name}({types})")
        return f"auto {_PROBE}{number} = static_cast<{returned} (*)({types})>(&{name});"

    # ---- signatures

    def _scope(self, function: Cursor) -> tuple[str, ...]:
        return tuple(self.unit.qualified_name(function, arguments=False).split("::")[:-1])

    def _params(self, function: Cursor) -> tuple[Type, ...]:
        return tuple(self.types.parameter(a.type, self.unit.span(a)) for a in function.get_arguments())

    def _fits(self, given: _Given, function: Cursor) -> bool:
        try:
            own, theirs = self._params(function), self._params(given.cursor)
            at = self.unit.span(function)
            result = self.types.returned(function.result_type, at)
            returned = self.types.returned(given.cursor.result_type, at)
        except UnsupportedError:
            return False
        if result is None or self.unit.function_kind(given.cursor) == "kernel":
            return False
        if given.mode == "pullback":
            return returned is None and adjoints_of_pullback(own, result, theirs) is not None
        return fits_tangent(own, result, theirs, returned)

    def _expected(self, function: Cursor, given: _Given) -> str:
        arguments = list(function.get_arguments())
        own = [_declared(a.type.spelling, a.spelling) for a in arguments]
        result = function.result_type.spelling
        wanted = [arguments[k] for k in differentiable(self._params(function))]
        if result == "void":
            return f"(none: '{function.spelling}' returns nothing)"
        if given.mode == "pullback":
            listed = [*own, f"{result} d_result", *(f"{_plain(a)} *d_{a.spelling}" for a in wanted)]
            return f"__device__ void {given.cursor.spelling}({', '.join(listed)})"
        listed = [*own, *(_declared(a.type.spelling, f"t_{a.spelling}") for a in wanted)]
        return f"__device__ {result} {given.cursor.spelling}({', '.join(listed)})"


def _declared(type: str, name: str) -> str:
    return f"{type}{name}" if type.endswith(("*", "&")) else f"{type} {name}"


def _canonical(type: clang.Type) -> str:
    return str(type.get_canonical().spelling)


def _plain(argument: Cursor) -> str:
    """What a parameter holds, or leads to."""
    type = argument.type
    if is_reference(type) or type.get_pointee().spelling:
        type = type.get_pointee()
    elif type.get_array_element_type().spelling:
        type = type.get_array_element_type()
    return str(type.spelling).removeprefix("const ")


def _given(scope: Cursor, path: tuple[str, ...]) -> Iterator[_Given]:
    """The declarations that give functions a derivative."""
    for cursor in children_of(scope):
        inside = (*path, cursor.spelling) if cursor.kind == Kind.NAMESPACE and not _is_open(cursor) else path
        named = _SUFFIX.match(cursor.spelling) if _SPACE in path else None
        if cursor.kind in _SCOPES:
            yield from _given(cursor, inside)
        elif cursor.kind in _FUNCTIONS and named is not None:
            inner = path[path.index(_SPACE) + 1 :]
            mode = _MODES.get(named[2]) if "class_functions" not in inner else None
            yield _Given(named[1], cursor.get_definition() or cursor, mode, inner)
        elif cursor.kind == Kind.USING_DECLARATION and named is not None:
            yield _Given(named[1], cursor)
        elif cursor.kind in _OTHER_NAMES and _SPACE in (*path, cursor.spelling):
            yield from _brought(cursor)
        elif cursor.kind == Kind.VAR_DECL and cursor.spelling.startswith(_PROBE):
            yield from _instances(cursor)
        elif passes_of(cursor):
            pass  # calls of the function are what is told (`registered`)
        elif cursor.kind == Kind.VAR_DECL and _ENZYME.match(cursor.spelling):
            named_there = (c.referenced for c in walk(cursor) if c.kind == Kind.DECL_REF_EXPR)
            yield from (_Given(f.spelling, cursor) for f in named_there if f is not None)


def _is_open(namespace: Cursor) -> bool:
    """Whether what is in it is in the one around it, too."""
    return bool(namespace.is_anonymous()) or clang.is_inline_namespace(namespace)


def _is_of_all(reference: Cursor) -> bool:
    """Whether a variable is named that is no function's own."""
    target = reference.referenced if reference.kind == Kind.DECL_REF_EXPR else None
    parent = target.semantic_parent if target is not None and target.kind == Kind.VAR_DECL else None
    return parent is not None and parent.kind in (Kind.TRANSLATION_UNIT, *_SCOPES)


def _brought(directive: Cursor) -> Iterator[_Given]:
    """What `using namespace`, or another name of a namespace, brings among the derivatives."""
    spaces = {c.referenced.get_usr() for c in walk(directive) if c.kind == Kind.NAMESPACE_REF and c.referenced}
    for cursor in walk(directive.translation_unit.cursor) if spaces else ():
        named = _SUFFIX.match(cursor.spelling) if cursor.kind in _FUNCTIONS else None
        if named is not None and cursor.semantic_parent.get_usr() in spaces:
            yield _Given(named[1], cursor)


def _strangers(unit: Unit) -> list[Cursor]:
    """Functions among the derivatives whose names say nothing of one."""

    def inside(scope: Cursor, within: bool) -> Iterator[Cursor]:
        for cursor in children_of(scope):
            if cursor.kind in _SCOPES:
                yield from inside(cursor, within or cursor.spelling == _SPACE)
            elif within and cursor.kind in _FUNCTIONS and _SUFFIX.match(cursor.spelling) is None:
                yield cursor

    return list(inside(unit.tree.cursor, False))


def _instances(probe: Cursor) -> Iterator[_Given]:
    """Of a template, that a line of ours names."""
    functions = (c.referenced for c in walk(probe) if c.kind == Kind.DECL_REF_EXPR)
    for function in functions:
        named = _SUFFIX.match(function.spelling) if function is not None else None
        if named is not None and function.kind == Kind.FUNCTION_DECL and function.is_definition():
            path, parent = list[str](), function.semantic_parent
            while parent is not None and parent.kind == Kind.NAMESPACE:
                path[:0] = [] if _is_open(parent) else [parent.spelling]
                parent = parent.semantic_parent
            yield _Given(named[1], function, _MODES.get(named[2]), tuple(path[path.index(_SPACE) + 1 :]))


def _gone(unit: Unit) -> Iterator[tuple[str, Cut]]:
    """The same of declarations that do not parse, by their text."""
    for cut in unit.sound.cuts:
        source = (unit.sources.get(cut.file).text or "").encode()
        named = [match[1] for match in map(_SUFFIX.match, cut.names) if match is not None]
        yield from ((name, cut) for name in named if _SPACE.encode() in source)
        if any(_ENZYME.match(name) for name in cut.names):
            yield from ((name, cut) for name in text.names(source, cut.start, cut.end))
