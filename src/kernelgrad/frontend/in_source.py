"""Derivatives that the source asks for: what is asked, of which function, by which arguments, and where.

    __enzyme_autodiff(f, enzyme_dup, x, dx, enzyme_const, n)     (also fwddiff, augmentfwd, reverse)
    auto g = clad::gradient(f, "x"); g.execute(x, n, dx);        (also execute_kernel, and differentiate)

`request_of(unit, call)` is the `Request` that a call makes, or None of any other call; what has no meaning is an error
at its place. Nothing is lowered here: arguments are cursors, and `extent` says which bytes of which file a cursor
covers, for those who rewrite the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from ..errors import SourceError, Span, UnsupportedError
from . import clang
from .clang import Cursor, Kind, TypeKind
from .literals import literal_text
from .types import is_reference
from .unit import Unit
from .visiting import children_of, walk

# By the parameter that is passed one of Clad's handles: the `clad::gradient(...)` that made it
Handles = Mapping[int, Cursor]
_NONE: Handles = {}

Mode = Literal["reverse", "forward", "augmented", "backward"]
Activity = Literal["dup", "out", "const"]

_ENZYME = re.compile(r"__enzyme_(autodiff|fwddiff|augmentfwd|reverse)\w*$")
_ATTRIBUTE = re.compile(r"(?:__attribute__\s*\(\([^)]*?|\[\[\s*)\b(enzyme(?:_|::)\w+)")
_MODES: dict[str, Mode] = {
    "autodiff": "reverse",
    "fwddiff": "forward",
    "augmentfwd": "augmented",
    "reverse": "backward",
}
_ACTIVITIES: dict[str, Activity] = {
    "enzyme_dup": "dup",
    "enzyme_dupnoneed": "dup",
    "enzyme_out": "out",
    "enzyme_const": "const",
}
_CLAD: dict[str, Mode] = {"gradient": "reverse", "differentiate": "forward"}
_EXECUTES = ("execute", "execute_kernel", "operator()")
_CASTS = (
    Kind.UNEXPOSED_EXPR,
    Kind.PAREN_EXPR,
    Kind.CSTYLE_CAST_EXPR,
    Kind.CXX_STATIC_CAST_EXPR,
    Kind.CXX_REINTERPRET_CAST_EXPR,
)
_FLOATS = (TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.HALF, TypeKind.LONGDOUBLE)
_NARROW = ("_Float16", "__bf16")  # the kinds of which libclang's bindings do not know by name
_MISUSED = {
    True: "Use execute_kernel() for global CUDA kernels",
    False: "Use execute() for non-global CUDA kernels",
}


@dataclass(frozen=True)
class Extent:
    """Bytes of a file: what a macro expands to has the extent of the macro's use, what is given to it its own."""

    file: str
    start: int
    end: int


@dataclass(frozen=True)
class Argument:
    """What is given for a parameter. `shadow`: its adjoint or tangent, where one is given; the tangent of a `dup`
    without one is 1. `needed`: whether the caller wants what the function itself leaves there."""

    parameter: Cursor
    activity: Activity
    value: Cursor
    shadow: Cursor | None = None
    needed: bool = True


@dataclass(frozen=True)
class Request:
    """`mode`: `augmented` and `backward` are the two halves of a reverse, with a tape between them. `function`: with
    its body. `call`: the whole expression. `made`: the `clad::gradient(...)` that the handle is from. `configuration`:
    grid and block of a launch, or these, bytes of shared memory and a stream. `seed`: the adjoint of the value, 1 if
    there is none. `tape`: what `backward` gets; `tape_bytes`: its size by `enzyme_allocated`, 0 for a pointer to memory
    of the tape's own. `misuse`: what Clad prints instead of running. `listed`: the parameters that Clad is told."""

    by: Literal["enzyme", "clad"]
    mode: Mode
    function: Cursor
    arguments: tuple[Argument, ...]
    call: Cursor
    made: Cursor | None = None
    configuration: tuple[Cursor, ...] = ()
    seed: Cursor | None = None
    tape: Cursor | None = None
    tape_bytes: int = 0
    misuse: str | None = None
    listed: tuple[str, ...] = ()

    @property
    def shadows(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.shadow is not None)


def extent(cursor: Cursor) -> Extent:
    start, end = cursor.extent.start, cursor.extent.end
    name = start.file.name if start.file is not None else ""
    given = clang.file_offset(start), clang.file_offset(end)
    is_given = given[0] != start.offset and given[1] != end.offset and given[0] < given[1]
    if is_given and (cursor.kind == Kind.CALL_EXPR or clang.is_run(start, end)):
        return Extent(name, *given)
    return Extent(name, start.offset, end.offset)


def is_of_macro(cursor: Cursor) -> bool:
    """Whether it begins or ends in an argument of a macro: its text may be more than its extent then."""
    start, end = cursor.extent.start, cursor.extent.end
    return bool(clang.file_offset(start) != start.offset or clang.file_offset(end) != end.offset)


def request_of(unit: Unit, call: Cursor, handles: Handles = _NONE) -> Request | None:
    """What a call asks for; None of one that asks for no derivative."""
    target = call.referenced
    if target is None or call.kind != Kind.CALL_EXPR:
        return None
    enzyme = _ENZYME.match(target.spelling) if target.kind == Kind.FUNCTION_DECL else None
    if enzyme is not None:
        _check_attributes(unit)
        found = _Enzyme(unit, call, _MODES[enzyme[1]]).request()
        _check_halves(unit, found)
        return found
    if target.kind == Kind.CXX_METHOD and target.spelling in _EXECUTES and _is_clad(target.semantic_parent):
        return _Clad(unit, call, target.spelling, handles).request()
    return None


def _check_attributes(unit: Unit) -> None:
    """Attributes of functions that Enzyme differentiates in another way: clang knows none of them, and drops them."""
    found = _ATTRIBUTE.search(unit.text)
    if found is not None:
        line = unit.text.count("\n", 0, found.start()) + 1
        column = found.start() - unit.text.rfind("\n", 0, found.start())
        problem = f"the attribute '{found[1]}' gives a function a derivative of its own: not supported"
        raise UnsupportedError(problem, Span(unit.sources.get(unit.name), line, column))


_HALVES = ("augmented", "backward")


def _check_halves(unit: Unit, request: Request) -> None:
    """Parameters must have the same activity in both halves of a reverse: what is on the tape follows from that."""
    if request.mode not in _HALVES:
        return
    for other in _halves(unit.tree.cursor, unit):
        if other.function != request.function or other.mode == request.mode:
            continue
        pairs = zip(request.arguments, other.arguments, strict=True)
        for one, two in pairs:
            if one.activity != two.activity:
                name = one.parameter.spelling
                problem = f"'{name}' is {_marked(one)} here, and {_marked(two)} in the other half of the reverse"
                line = unit.span(other.call).line
                raise UnsupportedError(f"{problem}, in line {line}", unit.span(request.call), "mark it alike in both")


def _marked(argument: Argument) -> str:
    return f"enzyme_{argument.activity}"


def _halves(tree: Cursor, unit: Unit) -> list[Request]:
    """All halves of reverses that functions of the text ask for."""
    known: list[Request] | None = tree._tu.__dict__.get(_KNOWN_HALVES)
    if known is None:
        known = list[Request]()
        tree._tu.__dict__[_KNOWN_HALVES] = known
        calls = (c for f in unit.bodies() for c in walk(f))
        for call in calls:
            target = call.referenced if call.kind == Kind.CALL_EXPR else None
            enzyme = (
                _ENZYME.match(target.spelling) if target is not None and target.kind == Kind.FUNCTION_DECL else None
            )
            if enzyme is not None and _MODES[enzyme[1]] in _HALVES:
                with suppress(SourceError):  # reported where that half is lowered itself
                    known.append(_Enzyme(unit, call, _MODES[enzyme[1]]).request())
    return known


_KNOWN_HALVES = "halves of reverses"


def is_made_by_clad(call: Cursor) -> bool:
    """Whether it is `clad::gradient(...)` or another that makes a handle, `g` of `g.execute(...)`."""
    target = call.referenced
    return target is not None and target.kind == Kind.FUNCTION_DECL and is_handle(target.result_type)


def is_handle(type: clang.Type) -> bool:
    """Whether it is the type of Clad's handles."""
    declaration = type.get_canonical().get_declaration()
    return declaration.spelling == "CladFunction" and _is_clad(declaration)


def made_by(handle: Cursor, handles: Handles = _NONE) -> Cursor | None:
    """The `clad::gradient(...)` that a handle is, or that the variable it names was set to."""
    for _ in range(8):
        bare = _innermost(handle)
        if bare.kind == Kind.CALL_EXPR and is_made_by_clad(bare):
            return bare
        target = bare.referenced if bare.kind == Kind.DECL_REF_EXPR else None
        if target is not None and clang.identity(target) in handles:
            return handles[clang.identity(target)]
        start = clang.initializer(target) if target is not None and target.kind == Kind.VAR_DECL else None
        handle = start if start is not None else children_of(bare)[0] if children_of(bare) else bare
    return None


def handles_passed(function: Cursor, arguments: Iterable[Cursor], handles: Handles) -> Handles:
    """For parameters of a function that a call passes handles: where these were made."""
    pairs = zip(function.get_arguments(), arguments, strict=False)
    found = ((p, made_by(a, handles)) for p, a in pairs if is_handle(_referred(p.type)))
    return {clang.identity(p): made for p, made in found if made is not None}


def _referred(type: clang.Type) -> clang.Type:
    return type.get_pointee() if is_reference(type) else type


def requests(unit: Unit, scope: Cursor) -> Iterator[Request]:
    """All requests below a cursor, in the order of the text."""
    for cursor in walk(scope):
        found = request_of(unit, cursor) if cursor.kind == Kind.CALL_EXPR else None
        if found is not None:
            yield found


def _is_clad(declaration: Cursor | None) -> bool:
    while declaration is not None and declaration.kind != Kind.NAMESPACE:
        declaration = declaration.semantic_parent
    return declaration is not None and declaration.spelling == "clad" and clang.is_in_prelude(declaration)


def _bare(c: Cursor) -> Cursor:
    """Without casts and parentheses."""
    while c.kind in _CASTS:
        inside = [k for k in children_of(c) if k.kind.is_expression()]
        if len(inside) != 1:
            return c
        c = inside[0]
    return c


def function_named(unit: Unit, c: Cursor) -> Cursor:
    """The function that an argument names: `f`, `&f`, `(void *)f`; with its body."""
    named = _bare(c)
    if named.kind == Kind.UNARY_OPERATOR and clang.unary_operator(named) == "&":
        named = _bare(children_of(named)[0])
    target = named.referenced if named.kind == Kind.DECL_REF_EXPR else None
    is_static = target is not None and target.kind == Kind.CXX_METHOD and target.is_static_method()
    if target is None or not (target.kind == Kind.FUNCTION_DECL or is_static):
        problem = "the function to differentiate must be named here: a function, not a pointer or an object"
        raise UnsupportedError(problem, unit.span(c))
    unit.check_body(target)
    for candidate in (target, target.get_definition()):
        if candidate is not None and any(k.kind == Kind.COMPOUND_STMT for k in children_of(candidate)):
            return candidate
    raise UnsupportedError(f"'{target.spelling}' is differentiated here, and has no body", unit.span(c))


def _is_pointer(parameter: Cursor) -> bool:
    kinds = (TypeKind.POINTER, TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY)
    return is_reference(parameter.type) or parameter.type.get_canonical().kind in kinds


def _is_float(type: clang.Type) -> bool:
    canonical = type.get_canonical()
    return canonical.kind in _FLOATS or canonical.spelling.removeprefix("const ") in _NARROW


class _Enzyme:
    """One `__enzyme_...` call, whose arguments are taken one after the other."""

    def __init__(self, unit: Unit, call: Cursor, mode: Mode):
        self.unit, self.call, self.mode = unit, call, mode
        self.remaining = list(call.get_arguments())
        self.function = function_named(unit, self.take("the function to differentiate"))

    def take(self, what: str) -> Cursor:
        if not self.remaining:
            raise UnsupportedError(f"'{self.call.spelling}' lacks {what}", self.unit.span(self.call))
        return self.remaining.pop(0)

    def mark(self) -> str | None:
        """Takes the mark that comes next, as `enzyme_dup`, if one does."""
        named = _bare(self.remaining[0]) if self.remaining else None
        target = named.referenced if named is not None and named.kind == Kind.DECL_REF_EXPR else None
        if target is None or target.kind != Kind.VAR_DECL or not target.spelling.startswith("enzyme_"):
            return None
        self.remaining.pop(0)
        return str(target.spelling)

    def request(self) -> Request:
        tape_bytes = 0
        marks = [self.mark()]
        while marks[-1] == "enzyme_allocated":
            tape_bytes = self.constant_bytes()
            marks.append(self.mark())
        first = marks[-1]
        arguments = []
        for parameter in self.function.get_arguments():
            arguments.append(self.argument(parameter, first if first is not None else self.mark()))
            first = None
        seed = tape = None
        if self.mode == "backward":
            if _is_float(self.function.result_type):
                seed = self.take("the adjoint of the function's value")
            tape = self.take("the tape that __enzyme_augmentfwd gave")
        if first is not None or self.remaining:
            raise self.surplus(first)
        return Request(
            "enzyme", self.mode, self.function, tuple(arguments), self.call, seed=seed, tape=tape, tape_bytes=tape_bytes
        )

    def constant_bytes(self) -> int:
        given = self.take("the bytes of the tape")
        found = clang.evaluate(given)
        if not isinstance(found, int):
            raise UnsupportedError("the bytes of the tape must be a constant", self.unit.span(given), "use sizeof")
        return found

    def surplus(self, first: str | None) -> UnsupportedError:
        mark = first or self.mark()
        if mark is not None:
            return UnsupportedError(f"'{mark}' is not supported here", self.unit.span(self.call))
        shown, at = self.unit.signature(self.function), self.unit.span(self.remaining[0])
        return UnsupportedError(f"'{self.call.spelling}' has more arguments than the function takes\n  {shown}", at)

    def argument(self, parameter: Cursor, mark: str | None) -> Argument:
        name = parameter.spelling or "parameter"
        if mark is not None and mark not in _ACTIVITIES:
            raise UnsupportedError(f"'{mark}' is not supported here", self.unit.span(self.call))
        activity = _ACTIVITIES[mark] if mark is not None else self.default_activity(parameter)
        value = self.take(f"the argument for '{name}'")
        if activity == "out" and not _is_float(parameter.type):
            problem = f"'{name}' is no floating-point number, and enzyme_out wants one"
            raise UnsupportedError(problem, self.unit.span(value))
        if activity == "out" and self.mode == "forward":
            raise UnsupportedError("enzyme_out has no meaning in forward mode", self.unit.span(value), "use enzyme_dup")
        if activity == "dup" and self.mode != "forward" and not _is_pointer(parameter):
            problem = f"'{name}' is passed by value: in reverse mode its adjoint is returned, not passed"
            raise UnsupportedError(problem, self.unit.span(value), "use enzyme_out, or pass a pointer")
        shadow = self.take(f"the shadow of '{name}'") if activity == "dup" else None
        return Argument(parameter, activity, value, shadow, mark != "enzyme_dupnoneed")

    def default_activity(self, parameter: Cursor) -> Activity:
        """Enzyme's, of a parameter without a mark."""
        if _is_pointer(parameter):
            return "dup"
        if _is_float(parameter.type):
            return "dup" if self.mode == "forward" else "out"
        if parameter.type.get_canonical().kind == TypeKind.RECORD:
            problem = f"'{parameter.spelling}' is a struct passed by value: not supported here"
            raise UnsupportedError(problem, self.unit.span(self.call), "pass a pointer to it, or mark it enzyme_const")
        return "const"


class _Clad:
    """`g.execute(...)`, where `g` is a variable that was set to `clad::gradient(...)`, or that call itself. `how`: the
    method's name."""

    def __init__(self, unit: Unit, call: Cursor, how: str, handles: Handles):
        self.unit, self.call, self.how = unit, call, how
        self.made = self._made(handles)
        given = list(self.made.get_arguments())
        name = self.made.referenced.spelling
        if name not in _CLAD:
            raise self.refused(f"clad::{name} is not supported", "use clad::gradient or clad::differentiate")
        self.mode = _CLAD[name]
        if self.mode == "forward" and _order(self.made.referenced) != 1:
            raise self.refused("a derivative of higher order is not supported", at=self.made)
        self.function = function_named(unit, given[0])
        self.listed = self._listed(given[1] if len(given) > 1 else None)
        self.is_kernel = unit.function_kind(self.function) == "kernel"

    def refused(self, problem: str, hint: str | None = None, at: Cursor | None = None) -> UnsupportedError:
        return UnsupportedError(problem, self.unit.span(at if at is not None else self.call), hint)

    def _made(self, handles: Handles) -> Cursor:
        callee = children_of(self.call)[0]
        if self.how == "operator()":
            callee = next(iter(self.call.get_arguments()), callee)
        found = made_by(callee, handles)
        if found is None:
            problem = (
                "what is executed here must be a variable that was set to clad::gradient(...) where it is declared"
            )
            raise self.refused(f"{problem}, or a parameter that is given one")
        return found

    def _listed(self, given: Cursor | None) -> tuple[str, ...]:
        """The parameters by name; all of them where none is named."""
        names = [p.spelling for p in self.function.get_arguments()]
        if given is None or clang.statement_class(given) == clang.DEFAULT_ARG:
            return tuple(names)
        text = literal_text(given)
        number = clang.evaluate(given) if text is None else None
        if text is None and not isinstance(number, int):
            raise self.refused("the parameters to differentiate by must be named by a literal", at=given)
        asked = [part.strip() for part in text.split(",")] if text is not None else [str(number)]
        found = [names[int(a)] if a.isdigit() and int(a) < len(names) else a for a in asked if a]
        for name in found:
            if name not in names:
                shown = self.unit.signature(self.function)
                raise self.refused(f"'{self.function.spelling}' has no parameter '{name}'\n  {shown}", at=given)
        return tuple(found) or tuple(names)

    def request(self) -> Request:
        given = list(self.call.get_arguments())
        if self.how == "operator()":
            given = given[1:]
        misuse = None
        if self.is_kernel == (self.how != "execute_kernel"):
            misuse = _MISUSED[self.is_kernel]
        configuration = tuple(given[: self._configuration_size(given)]) if self.how == "execute_kernel" else ()
        given = given[len(configuration) :]
        if misuse is not None:
            found = tuple[Argument, ...]()
        else:
            found = self._adjoints(given) if self.mode == "reverse" else self._tangent(given)
        return Request(
            "clad", self.mode, self.function, found, self.call, self.made, configuration,
            misuse=misuse, listed=self.listed,
        )  # fmt: skip

    def _configuration_size(self, given: list[Cursor]) -> int:
        """2 for grid and block, 4 for these, bytes of shared memory and a stream."""
        wanted = len(list(self.function.get_arguments())) + len(self.listed)
        if len(given) in (wanted + 2, wanted + 4):
            return len(given) - wanted
        is_stream = len(given) > 3 and "CUstream_st" in given[3].type.get_canonical().spelling
        return 4 if is_stream else 2

    def _adjoints(self, given: list[Cursor]) -> tuple[Argument, ...]:
        """An adjoint for each listed parameter, in the order of the parameters; the last may be left out."""
        params = list(self.function.get_arguments())
        values, shadows = given[: len(params)], given[len(params) :]
        wanted = [p for p in params if p.spelling in self.listed]
        if len(values) < len(params) or len(shadows) > len(wanted):
            raise self._wrong_count(len(params), len(wanted), len(given))
        by_name = dict(zip((p.spelling for p in wanted), shadows, strict=False))
        return tuple(self._argument(p, v, by_name.get(p.spelling)) for p, v in zip(params, values, strict=True))

    def _argument(self, parameter: Cursor, value: Cursor, shadow: Cursor | None) -> Argument:
        is_record = parameter.type.get_canonical().kind == TypeKind.RECORD
        is_number = not _is_pointer(parameter) and not _is_float(parameter.type) and not is_record
        if shadow is None or is_number:  # Clad takes adjoints of integers passed by value, too
            return Argument(parameter, "const", value)
        return Argument(parameter, "dup", value, shadow)

    def _tangent(self, given: list[Cursor]) -> tuple[Argument, ...]:
        params = list(self.function.get_arguments())
        if len(given) != len(params):
            raise self._wrong_count(len(params), 0, len(given))
        if len(self.listed) != 1 and len(params) != 1:
            raise self.refused("clad::differentiate wants one parameter to differentiate by", at=self.made)
        pairs = zip(params, given, strict=True)
        return tuple(Argument(p, "dup" if p.spelling in self.listed else "const", v) for p, v in pairs)

    def _wrong_count(self, params: int, adjoints: int, given: int) -> UnsupportedError:
        also = f" and {adjoints} adjoint{'s' * (adjoints != 1)}" if adjoints else ""
        shown = self.unit.signature(self.function)
        return self.refused(f"{self.how} wants {params} argument{'s' * (params != 1)}{also}, got {given}\n  {shown}")


def _order(function: Cursor) -> int:
    """Of `differentiate<2>(...)`: 2."""
    is_number = function.get_num_template_arguments() > 0 and (
        function.get_template_argument_kind(0) == clang.TemplateArgumentKind.INTEGRAL
    )
    return int(function.get_template_argument_value(0)) if is_number else 1


def _innermost(c: Cursor) -> Cursor:
    """What is inside casts, member accesses, temporaries and copies."""
    while c.kind in (*_CASTS, Kind.MEMBER_REF_EXPR) or (
        c.kind == Kind.CALL_EXPR and clang.statement_class(c) in clang.CONSTRUCT_EXPRS
    ):
        inside = [k for k in children_of(c) if k.kind.is_expression()]
        if not inside:
            return c
        c = inside[0]
    return c
