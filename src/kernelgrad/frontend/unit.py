"""A parsed text: which functions it holds, how a user's name for one is resolved, which errors matter to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..deep import warn_user
from ..errors import LookupFailed, ParseError, Span
from . import clang
from .clang import Cursor, Kind, Sources, errors_of
from .missing_headers import header_hint
from .visiting import children_of, forget, remembered, told_plainly, walk

if TYPE_CHECKING:
    from .sound import Flaw, Sound

_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE)
_MEMBERS = (Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CXX_METHOD)
_WITH_BODIES = (Kind.FUNCTION_DECL, Kind.CONVERSION_FUNCTION, *_MEMBERS)
_CLASSES = (Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.UNION_DECL)
_SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL)
_NAMED_SCOPES = (Kind.NAMESPACE, Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.CLASS_TEMPLATE)
_REQUEST = re.compile(r"^\s*(?P<name>[\w:~]+)\s*(?P<template><.*>)?\s*(?P<params>\(.*\))?\s*$", re.DOTALL)
_PROBE = "__kernelgrad_probe"
_UNSIGNED = (
    clang.TypeKind.UCHAR,
    clang.TypeKind.USHORT,
    clang.TypeKind.UINT,
    clang.TypeKind.ULONG,
    clang.TypeKind.ULONGLONG,
)
_TEMPLATE_PARAMETERS = (
    Kind.TEMPLATE_NON_TYPE_PARAMETER,
    Kind.TEMPLATE_TYPE_PARAMETER,
    Kind.TEMPLATE_TEMPLATE_PARAMETER,
)


@dataclass(frozen=True)
class Options:
    include_dirs: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    std: str = "c++17"


class Unit:
    """One translation unit. Template instances are had by parsing the text once more with a line that names them.

    `sound` has what of the text parses (Note [Sound text]); only from that are functions lowered.
    """

    @told_plainly
    def __init__(self, name: str, text: str, options: Options, sound: Sound | None = None, probe: str = ""):
        self.name, self.text, self.options = name, text, options
        self.sources = Sources(name, text)
        texts = dict(sound.texts) if sound is not None else {name: text.encode()}
        if probe:
            texts[name] += f"\n{probe}".encode()
        self.tree = sound.tree if sound is not None and not probe else self.parse(texts)
        self.errors = errors_of(self.tree)
        self._sound = sound
        self._whole: Unit | None = None
        self.warned: set[str] = set()
        self._members: dict[int, list[Cursor]] | None = None

    def parse(self, texts: dict[str, bytes]) -> Any:
        return clang.parse(self.name, texts, self.options.include_dirs, self.options.defines, self.options.std)

    def close(self) -> None:
        """Of a unit that nobody asks any more: its tree goes with the last cursor, and not when Python next looks for
        cycles, which it does by the number of its own objects."""
        forget(self.tree)
        if self._whole is not None:
            forget(self._whole.tree)

    @property
    def sound(self) -> Sound:
        """What of the text parses, and what had to go for that."""
        if self._sound is None:
            from .sound import make_sound

            self._sound = make_sound(self.parse, self.tree, self.name, self.text)
        return self._sound

    def whole(self) -> Unit:
        """The unit of what parses; this one where all of it does."""
        if not self.errors:
            return self
        if self.sound.hopeless is not None:
            raise self.error(self.sound.hopeless)
        self._check_verdicts()
        if self._whole is None:
            self._whole = Unit(self.name, self.text, self.options, self.sound)
            self._whole.warned = self.warned
        return self._whole

    def _check_verdicts(self) -> None:
        """What the author calls an error is one, whatever uses it: an `#error`, an assertion about all of the file. It
        may be the fault of a header that was not found; then it is a warning."""
        for flaw in self.sound.verdicts:
            if not (self.sound.missing or self.sound.undecided):
                raise self.error(flaw)
            hint = f"; {header_hint(self.sound.missing)}" if self.sound.missing else ""
            warning = f"{flaw.file}:{flaw.line}: {flaw.message}{hint}"
            if warning not in self.warned:
                self.warned.add(warning)
                warn_user(warning)

    # ---- what is there

    def functions(self) -> Iterator[Cursor]:
        """Functions and function templates with a body, in the order of the text; prelude excluded."""
        yield from _functions(self.tree.cursor)

    def bodies(self) -> list[Cursor]:
        """All that has a body of its own: functions, instances of templates, methods, constructors and the like."""
        return _bodies(self.tree.cursor)

    def variables(self) -> Iterator[Cursor]:
        for cursor in declarations(self.tree.cursor):
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
            from .sound import flaw_of

            raise self.error(flaw_of(self.errors[0], self.name))

    def require(self, name: str) -> None:
        """That there is a function, or several, of that name, of which a derivative can be given."""
        try:
            self._named(name, name)
        except LookupFailed:
            if self._has_method(name.removeprefix("::")):
                problem = f"'{name}' is a method: derivatives are given of functions"
                raise LookupFailed(f"{problem}; have it call one that takes what it uses of the object") from None
            raise

    def _has_method(self, name: str) -> bool:
        methods = (
            c for c in walk(self.tree.cursor) if c.kind == Kind.CXX_METHOD and c.spelling == name.split("::")[-1]
        )
        return any(f"::{self.qualified_name(c, arguments=False)}".endswith(f"::{name}") for c in methods)

    # ---- lookup

    @told_plainly
    def find(self, request: str) -> tuple[Unit, Cursor]:
        """The function a user means by 'f', 'ns::f', 'f<float, 4>' or 'f(float, int)', and the unit it stands in."""
        match = _REQUEST.match(request) or self._signed(request)
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
        if self.errors and plain[0].get_num_template_arguments() > 0:  # an instance of the host's code, which may go
            name = self.qualified_name(plain[0])
            instance = _REQUEST.match(name)
            if instance is not None and instance["template"]:
                return self._instance(instance, name)
        return self.whole(), self._in_whole(plain[0])

    def _signed(self, request: str) -> re.Match[str] | None:
        """What is asked for by its signature, as `signatures` prints it."""
        found = next((c for c in self.functions() if self.signature(c) == request), None)
        if found is None:
            return None
        types = ", ".join(p.type.spelling for p in _params(found))
        return _REQUEST.match(f"{self.qualified_name(found)}({types})")

    def _in_whole(self, function: Cursor) -> Cursor:
        """The same function where everything parses."""
        if not self.errors:
            return function
        wanted = (_place(function), function.kind, function.get_usr())  # an instance stands where its template does
        same = [c for c in self.whole().functions() if (_place(c), c.kind, c.get_usr()) == wanted]
        if not same:
            raise self._gone(function) or ParseError(f"'{function.spelling}' does not parse", self.span(function))
        return same[0]

    def _named(self, name: str, request: str) -> list[Cursor]:
        wanted = name.removeprefix("::")
        matching = _by_qualified_name(self.tree.cursor).get(wanted, [])
        matching = matching or [c for c in self.functions() if c.spelling == wanted]
        if not matching:
            listed = "\n  ".join(self.signatures()) or "(none)"
            raise LookupFailed(f"no function '{request}' in {self.name}; it has:\n  {listed}{self._not_parsed(wanted)}")
        return matching

    def _not_parsed(self, name: str) -> str:
        """Of a function that is in the text and not in the tree: the first error that no header can mend."""
        from .sound import flaw_of, missing_header

        short = name.rpartition("::")[2]
        flaws = [flaw_of(error, self.name) for error in self.errors if missing_header(error.spelling) is None]
        if not flaws or not re.search(rf"\b{re.escape(short)}\s*\(", self.text):
            return ""
        return f"\nThe text does not parse:\n{self.error(flaws[0])}"

    def _with_params(self, candidates: list[Cursor], params: str, request: str) -> list[Cursor]:
        listed = "\n  ".join(self.signature(c) for c in candidates)
        unit = self._probed(f"using {_PROBE} = void (*){params};", request, listed)
        alias = next(c for c in children_of(unit.tree.cursor) if c.spelling == _PROBE)
        wanted = [t.get_canonical().spelling for t in alias.underlying_typedef_type.get_pointee().argument_types()]
        found = [c for c in candidates if [p.type.get_canonical().spelling for p in _params(c)] == wanted]
        if not found:
            raise LookupFailed(f"no overload '{request}'; there are:\n  {listed}")
        return found

    def _instance(self, match: re.Match[str], request: str) -> tuple[Unit, Cursor]:
        candidates = self._named(match["name"], request)
        known = {_place(c) for c in self.whole().functions()}
        if self.errors and not any(_place(c) in known for c in candidates):
            raise self._gone(candidates[0]) or ParseError(f"'{request}' does not parse", self.span(candidates[0]))
        names = {self.qualified_name(c, arguments=False) for c in candidates}
        name = f"::{names.pop()}" if len(names) == 1 else match["name"]  # also where its namespace is left out
        address = f"&{name}{match['template']}"
        if match["params"]:
            address = f"static_cast<void (*){match['params']}>({address})"
        listed = "\n  ".join(self.signature(c) for c in candidates)
        unit = self._probed(f"auto {_PROBE} = {address};", request, listed)
        for declaration in children_of(unit.tree.cursor):
            if declaration.spelling == _PROBE:
                for node in walk(declaration):
                    target = node.referenced if node.kind == Kind.DECL_REF_EXPR else None
                    if target is not None and target.kind == Kind.FUNCTION_DECL and target.is_definition():
                        return unit, target
        raise LookupFailed(f"no instance '{request}': its template has no body\n  {listed}")

    def _probed(self, probe: str, request: str, listed: str) -> Unit:
        """What parses, with one more line that names what the user asks for; whose errors are the line's doing."""
        unit = Unit(self.name, self.text, self.options, self.whole().sound, probe)
        unit.warned = self.warned
        if not unit.errors:
            return unit
        from .sound import flaw_of

        for error in unit.errors:
            flaw = flaw_of(error, self.name)
            if flaw.file == self.name and flaw.line > self.text.count("\n") + 1:
                gone = self._cut_named(flaw)
                cause = f"\n{self.error(gone)}" if gone is not None else self._unfound(flaw)
                raise LookupFailed(f"no function '{request}': {_without_probe(flaw.message)}{cause}\n  {listed}")
            raise self.error(flaw)
        return unit

    def _cut_named(self, flaw: Flaw) -> Flaw | None:
        """The error for which something is gone that this one names."""
        about = set(re.findall(r"\w+", " ".join(re.findall(r"'([^']*)'", flaw.message))))
        return next((cut.flaw for cut in self.sound.cuts if cut.names & about), None)

    def _unfound(self, flaw: Flaw) -> str:
        hint = self._missing_headers(flaw)
        return f"\nhelp: {hint}" if hint is not None else ""

    # ---- facts about one function

    def span(self, cursor: Cursor) -> Span:
        return self.sources.span(cursor)

    def qualified_name(self, cursor: Cursor, arguments: bool = True) -> str:
        return _qualified(cursor, _template_arguments(cursor) if arguments else "")

    def template_arguments(self, cursor: Cursor) -> str:
        """Of an instance, with `<` and `>`; nothing of what is none."""
        return _template_arguments(cursor)

    def function_kind(self, cursor: Cursor) -> Literal["kernel", "device", "host"]:
        attributes = _attributes(cursor)
        if Kind.CUDAGLOBAL_ATTR in attributes:
            return "kernel"
        return "device" if Kind.CUDADEVICE_ATTR in attributes else "host"

    def is_for_both(self, cursor: Cursor) -> bool:
        return {Kind.CUDADEVICE_ATTR, Kind.CUDAHOST_ATTR} <= _attributes(cursor)

    def instantiated(self, record: Cursor) -> list[Cursor]:
        """The member functions of a class template's instance that are used: they stand beside all other declarations,
        and the instance itself shows none."""
        if self._members is None:
            self._members = {}
            for cursor in children_of(self.tree.cursor):
                parent = cursor.semantic_parent if cursor.kind in _MEMBERS else None
                if parent is not None:
                    self._members.setdefault(clang.identity(parent), []).append(cursor)
        return self._members.get(clang.identity(record), [])

    def launch_bounds(self, cursor: Cursor) -> tuple[int, ...]:
        """From the text before the kernel's name: the attribute comes from a macro, which hides it from libclang.
        Bounds that are not plain numbers are left to the compiler's defaults."""
        location = cursor.location
        text = self.sources.get(location.file.name).text if location.file is not None else None
        if self.function_kind(cursor) != "kernel" or text is None:
            return ()
        # clang counts bytes.
        head = text.encode()[: location.offset]
        declaration = head[max(head.rfind(b";"), head.rfind(b"}")) + 1 :].decode(errors="replace")
        found = re.search(r"__launch_bounds__\s*\(([\d\s,]+)\)", declaration)
        return tuple(int(part) for part in found[1].split(",")) if found else ()

    # ---- errors

    def check_body(self, function: Cursor) -> None:
        """Raises where a function's body, or that of the template it is an instance of, has an error."""
        for declaration in (function, clang.specialized_template(function)):
            gone = self._gone(declaration) if declaration is not None else None
            if gone is not None:
                raise gone

    def _gone(self, function: Cursor) -> ParseError | None:
        where = function.location
        file = where.file.name if where.file is not None else None
        for cut in self.sound.cuts if self._sound is not None or self.errors else ():
            inside = cut.start <= where.offset < cut.end
            if cut.file == file and (inside or cut.body_of == where.offset):
                return self.error(cut.flaw)
        return None

    def error(self, flaw: Flaw) -> ParseError:
        span = Span(self.sources.get(flaw.file), flaw.line, flaw.column)
        return ParseError(flaw.message, span, self._missing_headers(flaw))

    def _missing_headers(self, flaw: Flaw) -> str | None:
        """A header that was not found may be why a name is not known; other errors are not its fault."""
        missing = self.missing
        if not missing or not _UNKNOWN_NAME.search(flaw.message):
            return None
        return header_hint(missing)

    @property
    def has_headers(self) -> bool:
        return re.search(r"^\s*#\s*include", self.text, re.MULTILINE) is not None

    @property
    def may_have_guides(self) -> bool:
        """Whether there may be deduction guides, which are written with an arrow."""
        return self.has_headers or bool(self.options.defines) or "->" in self.text.replace("\\\n", "")

    @property
    def may_give_derivatives(self) -> bool:
        """Whether there may be derivatives of the source's own (`custom_derivatives`); names may be a macro's, too."""
        hidden = self.has_headers or bool(self.options.defines) or "##" in self.text
        return hidden or re.search("custom_derivatives|__enzyme_", self.text) is not None

    @property
    def missing(self) -> list[str]:
        """Headers that were not found."""
        return self.sound.missing if self._sound is not None or self.errors else []

    @property
    def lacks_parts(self) -> bool:
        """Whether something of the text was cut out, left undecided, or in headers that were not found."""
        if self._sound is None and not self.errors:
            return False
        return bool(self.sound.cuts or self.sound.undecided or self.missing)


def _without_probe(message: str) -> str:
    """A sentence of clang's about the line that names an instance, without the name of ours in it."""
    return re.sub(rf"variable '{_PROBE}' with type 'auto' has incompatible initializer.*", _NO_MATCH, message)


_NO_MATCH = "no template of that name takes these arguments"
_UNKNOWN_NAME = re.compile(
    r"unknown type name|undeclared|no template named|no type named|file not found|expected namespace name|unknown class"
    r"|no member named '.*' in (namespace|the global namespace)|incomplete|function-like macro|expected class name"
    r"|extraneous closing brace"  # a macro of the header's may open one
)
_PREFIX = {"kernel": "__global__ ", "device": "__device__ ", "host": ""}
_VARIABLE_ATTRIBUTES = {Kind.CUDACONSTANT_ATTR, Kind.CUDADEVICE_ATTR, Kind.CUDASHARED_ATTR}


def _place(cursor: Cursor) -> tuple[str | None, int]:
    where = cursor.location
    return (where.file.name if where.file is not None else None), where.offset


def _attributes(cursor: Cursor) -> set[Kind]:
    return {child.kind for child in children_of(cursor) if child.kind.is_attribute()}


def _params(function: Cursor) -> list[Cursor]:
    """Also of a template, for which get_arguments() gives nothing."""
    return [c for c in children_of(function) if c.kind == Kind.PARM_DECL]


@remembered
def declarations(scope: Cursor) -> list[Cursor]:
    """Of the user's text and headers."""
    own = [c for c in children_of(scope) if not clang.is_in_prelude(c)]
    return [d for c in own for d in (declarations(c) if c.kind in _SCOPES else (c,))]


@remembered
def _functions(scope: Cursor) -> list[Cursor]:
    return [c for c in declarations(scope) if c.kind in _FUNCTIONS and c.is_definition()]


@remembered
def _bodies(scope: Cursor) -> list[Cursor]:
    """Instances of templates, and members that are defined outside of their class, stand beside all others."""
    found = list[Cursor]()
    for cursor in declarations(scope):
        if cursor.kind in _WITH_BODIES and cursor.is_definition():
            found.append(cursor)
        elif cursor.kind in _CLASSES:
            found += _bodies(cursor)
    return found


@remembered
def _by_qualified_name(scope: Cursor) -> dict[str, list[Cursor]]:
    """The functions, in the order of the text: each that is asked for is looked up here, of which there may be many."""
    found: dict[str, list[Cursor]] = {}
    for cursor in _functions(scope):
        found.setdefault(_qualified(cursor), []).append(cursor)
    return found


def _qualified(cursor: Cursor, arguments: str = "") -> str:
    parts = [cursor.spelling + arguments]
    parent = cursor.semantic_parent
    while parent is not None and parent.kind in _NAMED_SCOPES:
        if parent.spelling and not parent.is_anonymous():
            parts.append(parent.spelling)
        parent = parent.semantic_parent
    return "::".join(reversed(parts))


def _template_arguments(cursor: Cursor) -> str:
    count = cursor.get_num_template_arguments()
    return f"<{', '.join(_template_argument(cursor, k) for k in range(count))}>" if count > 0 else ""


def _template_argument(cursor: Cursor, index: int) -> str:
    kind = cursor.get_template_argument_kind(index)
    if kind == clang.TemplateArgumentKind.TYPE:
        return str(cursor.get_template_argument_type(index).spelling)
    if kind == clang.TemplateArgumentKind.INTEGRAL:
        return _constant(cursor.get_template_argument_value(index), _parameter_type(cursor, index))
    return "..."


def _parameter_type(instance: Cursor, index: int) -> clang.Type | None:
    """Of a template's parameter that is a value."""
    template = clang.specialized_template(instance)
    children = children_of(template) if template is not None else []
    parameters = [c for c in children if c.kind in _TEMPLATE_PARAMETERS]
    if index >= len(parameters) or parameters[index].kind != Kind.TEMPLATE_NON_TYPE_PARAMETER:
        return None
    type, names = parameters[index].type, [c.spelling for c in parameters]
    if type.spelling in names:  # template <class T, T value>
        type = instance.get_template_argument_type(names.index(type.spelling))
    return type.get_canonical()


def _constant(value: int, type: clang.Type | None) -> str:
    """As C++ has it: what is printed can be asked for."""
    if type is None or type.kind not in (*_UNSIGNED, clang.TypeKind.BOOL, clang.TypeKind.ENUM):
        return str(value)
    if type.kind == clang.TypeKind.BOOL:
        return "true" if value else "false"
    if type.kind in _UNSIGNED:
        return str(value % (1 << 8 * type.get_size()))
    scope = type.get_declaration()
    name = next(
        (c.spelling for c in children_of(scope) if c.kind == Kind.ENUM_CONSTANT_DECL and c.enum_value == value), None
    )
    return f"{type.spelling}::{name}" if name is not None else f"({type.spelling}){value}"
