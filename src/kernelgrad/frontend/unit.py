"""A parsed text: which functions it holds, how a user's name for one is resolved, which errors matter to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import LookupFailed, ParseError, Span
from . import clang
from .clang import Cursor, Kind, Sources

_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE)
_SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL)
_REQUEST = re.compile(r"^\s*(?P<name>[\w:~]+)\s*(?P<template><.*>)?\s*(?P<params>\(.*\))?\s*$", re.DOTALL)
_PROBE = "__kernelgrad_probe"


@dataclass(frozen=True)
class Options:
    include_dirs: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    std: str = "c++17"


class Unit:
    """One translation unit. Template instances are had by parsing the text once more with a line that names them."""

    def __init__(self, name: str, text: str, options: Options, probe: str = ""):
        self.name, self.text, self.options = name, text, options
        self.tree = clang.parse(
            name, f"{text}\n{probe}" if probe else text, options.include_dirs, options.defines, options.std
        )
        self.sources = Sources(name, text)
        self.errors = [d for d in self.tree.diagnostics if d.severity >= clang.Diagnostic.Error]

    # ---- what is there

    def functions(self) -> Iterator[Cursor]:
        """Functions and function templates with a body, in the order of the text; prelude excluded."""
        yield from _functions(self.tree.cursor)

    def variables(self) -> Iterator[Cursor]:
        for cursor in _declarations(self.tree.cursor):
            if cursor.kind == Kind.VAR_DECL and (_attributes(cursor) & _VARIABLE_ATTRIBUTES):
                yield cursor

    def signatures(self) -> list[str]:
        return [self.signature(f) for f in self.functions() if not f.spelling.startswith(_PROBE)]

    def signature(self, function: Cursor) -> str:
        params = ", ".join(f"{a.type.spelling} {a.spelling}".rstrip() for a in _params(function))
        prefix, result = _PREFIX[self.function_kind(function)], function.result_type.spelling
        return f"{prefix}{result} {self.qualified_name(function)}({params})"

    def require_functions(self) -> None:
        """A text in which nothing was understood is an error of its own."""
        if self.errors and next(self.functions(), None) is None:
            raise self._error(self.errors[0])

    # ---- lookup

    def find(self, request: str) -> tuple[Unit, Cursor]:
        """The function a user means by 'f', 'ns::f', 'f<float, 4>' or 'f(float, int)', and the unit it stands in."""
        match = _REQUEST.match(request)
        if match is None:
            raise LookupFailed(f"'{request}' is not the name of a function")
        candidates = self._named(match["name"], request)
        if match["template"]:
            return self._instance(match, request)
        plain = [c for c in candidates if c.kind == Kind.FUNCTION_DECL]
        if not plain:
            shape = self.signature(candidates[0])
            raise LookupFailed(f"'{request}' is a template: name its arguments, as in '{request}<float>'\n  {shape}")
        if match["params"]:
            plain = self._with_params(plain, match["params"], request)
        if len(plain) > 1:
            listed = "\n  ".join(self.signature(c) for c in plain)
            raise LookupFailed(
                f"'{request}' is overloaded: name its parameter types, as in '{request}(float, int)'\n  {listed}"
            )
        return self, plain[0]

    def _named(self, name: str, request: str) -> list[Cursor]:
        found = list(self.functions())
        wanted = name.removeprefix("::")
        matching = [c for c in found if self.qualified_name(c, arguments=False) == wanted]
        matching = matching or [c for c in found if c.spelling == wanted]
        if not matching:
            listed = "\n  ".join(self.signatures()) or "(none)"
            raise LookupFailed(f"no function '{request}' in {self.name}; it has:\n  {listed}")
        return matching

    def _with_params(self, candidates: list[Cursor], params: str, request: str) -> list[Cursor]:
        unit = Unit(self.name, self.text, self.options, f"using {_PROBE} = void (*){params};")
        alias = next(c for c in unit.tree.cursor.get_children() if c.spelling == _PROBE)
        wanted = [t.get_canonical().spelling for t in alias.underlying_typedef_type.get_pointee().argument_types()]
        found = [c for c in candidates if [p.type.get_canonical().spelling for p in _params(c)] == wanted]
        if not found:
            listed = "\n  ".join(self.signature(c) for c in candidates)
            raise LookupFailed(f"no overload '{request}'; there are:\n  {listed}")
        return found

    def _instance(self, match: re.Match[str], request: str) -> tuple[Unit, Cursor]:
        address = f"&{match['name']}{match['template']}"
        if match["params"]:
            address = f"static_cast<void (*){match['params']}>({address})"
        probe = f"auto {_PROBE} = {address};"
        unit = Unit(self.name, self.text, self.options, probe)
        first_line = self.text.count("\n") + 2
        for error in unit.errors:
            if (
                error.location.file is not None
                and error.location.file.name == self.name
                and error.location.line >= first_line
            ):
                listed = "\n  ".join(self.signature(c) for c in self._named(match["name"], request))
                raise LookupFailed(f"no instance '{request}': {error.spelling}\n  {listed}")
        for declaration in unit.tree.cursor.get_children():
            if declaration.spelling == _PROBE:
                for node in clang.walk(declaration):
                    target = node.referenced if node.kind == Kind.DECL_REF_EXPR else None
                    if target is not None and target.kind == Kind.FUNCTION_DECL and target.is_definition():
                        return unit, target
        raise LookupFailed(
            f"no instance '{request}': its template has no body, or one with errors{unit._first_error()}"
        )

    # ---- facts about one function

    def span(self, cursor: Cursor) -> Span:
        return self.sources.span(cursor)

    def qualified_name(self, cursor: Cursor, arguments: bool = True) -> str:
        parts = [cursor.spelling + (_template_arguments(cursor) if arguments else "")]
        parent = cursor.semantic_parent
        while parent is not None and parent.kind in (
            Kind.NAMESPACE,
            Kind.STRUCT_DECL,
            Kind.CLASS_DECL,
            Kind.CLASS_TEMPLATE,
        ):
            if parent.spelling and not parent.is_anonymous():
                parts.append(parent.spelling)
            parent = parent.semantic_parent
        return "::".join(reversed(parts))

    def function_kind(self, cursor: Cursor) -> Literal["kernel", "device", "host"]:
        attributes = _attributes(cursor)
        if Kind.CUDAGLOBAL_ATTR in attributes:
            return "kernel"
        return "device" if Kind.CUDADEVICE_ATTR in attributes else "host"

    def launch_bounds(self, cursor: Cursor) -> tuple[int, ...]:
        """From the text before the kernel's name: the attribute comes from a macro, which hides it from libclang.
        Bounds that are not plain numbers are left to the compiler's defaults."""
        location = cursor.location
        text = self.sources.get(location.file.name).text if location.file is not None else None
        if self.function_kind(cursor) != "kernel" or text is None:
            return ()
        # clang counts bytes.
        head = text.encode()[: location.offset].decode(errors="replace")
        declaration = re.split(r"[;}]", head)[-1]
        found = re.search(r"__launch_bounds__\s*\(([\d\s,]+)\)", declaration)
        return tuple(int(part) for part in found[1].split(",")) if found else ()

    # ---- errors

    def check_errors(self, function: Cursor) -> None:
        """Raises for the first error clang found inside the function."""
        extent = function.extent
        file = extent.start.file
        for error in self.errors:
            where = error.location
            if file is None or where.file is None or where.file.name != file.name:
                continue
            if extent.start.offset <= where.offset <= extent.end.offset:
                raise self._error(error)

    def _error(self, diagnostic: clang.Diagnostic) -> ParseError:
        where = diagnostic.location
        name = where.file.name if where.file is not None else self.name
        span = Span(self.sources.get(name), where.line, where.column)
        return ParseError(diagnostic.spelling, span, self._missing_headers())

    def _missing_headers(self) -> str | None:
        missing = [m[1] for e in self.errors if (m := re.match(r"'(.*)' file not found", e.spelling))]
        if not missing:
            return None
        return f"the header '{missing[0]}' was not found: pass its folder in include_dirs=[...]"

    def _first_error(self) -> str:
        return f"\n{self._error(self.errors[0])}" if self.errors else ""


_PREFIX = {"kernel": "__global__ ", "device": "__device__ ", "host": ""}
_VARIABLE_ATTRIBUTES = {Kind.CUDACONSTANT_ATTR, Kind.CUDADEVICE_ATTR, Kind.CUDASHARED_ATTR}


def _attributes(cursor: Cursor) -> set[Kind]:
    return {child.kind for child in cursor.get_children() if child.kind.is_attribute()}


def _params(function: Cursor) -> list[Cursor]:
    """Also of a template, for which get_arguments() gives nothing."""
    return [c for c in function.get_children() if c.kind == Kind.PARM_DECL]


def _declarations(scope: Cursor) -> Iterator[Cursor]:
    """Of the user's text and headers."""
    for cursor in scope.get_children():
        if clang.is_in_prelude(cursor):
            continue
        if cursor.kind in _SCOPES:
            yield from _declarations(cursor)
        else:
            yield cursor


def _functions(scope: Cursor) -> Iterator[Cursor]:
    for cursor in _declarations(scope):
        if cursor.kind in _FUNCTIONS and cursor.is_definition():
            yield cursor


def _template_arguments(cursor: Cursor) -> str:
    count = cursor.get_num_template_arguments()
    return f"<{', '.join(_template_argument(cursor, k) for k in range(count))}>" if count > 0 else ""


def _template_argument(cursor: Cursor, index: int) -> str:
    kind = cursor.get_template_argument_kind(index)
    if kind == clang.TemplateArgumentKind.TYPE:
        return str(cursor.get_template_argument_type(index).spelling)
    if kind == clang.TemplateArgumentKind.INTEGRAL:
        return str(cursor.get_template_argument_value(index))
    return "..."
