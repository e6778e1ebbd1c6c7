"""What a kernel reaches, held against what is not there: declarations that had to go, headers that were not found.

Note [Missing parts]
What is lowered parses without what is gone (Note [Sound text]). It may still mean something else than it would with it,
where a name has other meanings left: another overload, the same name in an outer scope, a template for its own
specialisation, the other branch of an `#if`. Such a name is an error where it is reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..deep import warn_user
from ..errors import ParseError, Span
from . import clang, text
from .clang import Cursor, Kind, TypeKind
from .missing_headers import header_hint
from .prelude import prelude_dir
from .sound import Cut
from .unit import Unit, declarations
from .visiting import children_of, walk

_CLASSES = (Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.UNION_DECL, Kind.CLASS_TEMPLATE)
_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.CONVERSION_FUNCTION, Kind.FUNCTION_TEMPLATE)
_LOCAL_SCOPES = (*_FUNCTIONS, Kind.DESTRUCTOR, Kind.LAMBDA_EXPR)
_VARIABLE_SPECIALIZATION = re.compile(
    rb"\btemplate\s*<[^;{}<>]*>[^;{}<>=]*\b(\w+)\s*<[^;{}=]*>\s*="
)  # libclang shows none
_CLASS_LIKE = (*_CLASSES, Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION)
_PARAMETERS = (
    Kind.PARM_DECL,
    Kind.TEMPLATE_TYPE_PARAMETER,
    Kind.TEMPLATE_NON_TYPE_PARAMETER,
    Kind.TEMPLATE_TEMPLATE_PARAMETER,
)
# In a part that clang made nothing of, every word counts as its name; these say nothing.
_COMMON_WORDS = frozenset(
    "template typename class struct enum union const constexpr static inline auto void bool char short int long float "
    "double signed unsigned size_t std decltype sizeof noexcept operator using namespace typedef return true false "
    "__device__ __host__ __global__ __forceinline__ __inline__ __restrict__ T U".split()
)
_DATA = (Kind.FIELD_DECL, Kind.CXX_BASE_SPECIFIER)
_OPERATORS = (
    Kind.BINARY_OPERATOR,
    Kind.COMPOUND_ASSIGNMENT_OPERATOR,
    Kind.UNARY_OPERATOR,
    Kind.ARRAY_SUBSCRIPT_EXPR,
)
_OF_CLASSES_ONLY = ("operator()", "operator=")
_NAMING = (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR, Kind.TYPE_REF, Kind.TEMPLATE_REF, Kind.MEMBER_REF, Kind.CALL_EXPR)
# Names that compilers define, or nobody but the command line: no header decides about them.
_OF_COMPILERS = frozenset(
    "defined __has_include __has_builtin __has_feature __has_attribute true false NDEBUG DEBUG _DEBUG __cplusplus "
    "_WIN32 _WIN64 WIN32 _MSC_VER __APPLE__ __linux__ __GNUC__ __clang__ __INTEL_COMPILER __NVCC__ __NVCOMPILER "
    "__CUDACC__ __CUDA_ARCH__ __CUDACC_RTC__ __CUDACC_VER_MAJOR__ __CUDACC_VER_MINOR__ __CUDA_ARCH_LIST__ "
    "CUDA_VERSION CUDART_VERSION __HIPCC__ __HIP__ __HIP_DEVICE_COMPILE__ __HIP_PLATFORM_AMD__ __HIP_PLATFORM_HCC__ "
    "__HIP_PLATFORM_NVIDIA__ __SYCL_DEVICE_ONLY__ _OPENMP _OPENACC __STRICT_ANSI__ __x86_64__ __aarch64__ ".split()
)


@dataclass(frozen=True)
class Use:
    """A name at a place in reached code, and what it was found to mean."""

    name: str
    cursor: Cursor
    is_member: bool
    in_method: bool
    arguments: int | None  # of a call
    is_conversion: bool = False


@dataclass
class Reached:
    """Extents of what is reached, by file, and the names used there."""

    extents: dict[str, list[tuple[int, int, Cursor]]] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)


def check_missing_parts(unit: Unit, functions: Iterable[Cursor], records: Iterable[Cursor]) -> None:
    """Refuses what would mean something else with the parts that are not there; warns of headers."""
    if unit.lacks_parts:
        reached = _reach([*functions, *records])
        _check_included(unit, reached)
        _check_names(unit, reached)
        _check_candidates(unit, reached)
        _check_conditionals(unit, reached)
    for header in unit.missing:
        if header not in unit.warned:
            unit.warned.add(header)
            hint = header_hint([header])
            warn_user(f"{unit.name}: {hint}")


# ---- what is reached


def _reach(roots: list[Cursor]) -> Reached:
    reached = Reached()
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        declaration = waiting.pop()
        file = declaration.extent.start.file
        if declaration.hash in seen or file is None or file.name.startswith(str(prelude_dir())):
            continue
        seen.add(declaration.hash)
        span = (declaration.extent.start.offset, declaration.extent.end.offset, declaration)
        reached.extents.setdefault(file.name, []).append(span)
        waiting += _used_by(declaration, reached)
    return reached


def _used_by(declaration: Cursor, reached: Reached) -> Iterator[Cursor]:
    """The declarations that one uses; functions are lowered, and so are roots already."""
    parent = declaration.semantic_parent
    in_method = any(scope is not None and scope.kind in _CLASSES for scope in (parent, declaration))
    template = clang.specialized_template(declaration)
    if template is not None:
        yield template
    for node in _parts(declaration):
        if node.kind in _OPERATORS and any(_is_overloadable(operand) for operand in children_of(node)):
            reached.uses.append(Use(_operator(node), node, False, in_method, len(children_of(node))))
        target = node.referenced if node.kind in _NAMING else None
        if node.kind == Kind.INIT_LIST_EXPR:
            target = node.type.get_canonical().get_declaration()
        if target is None or target.kind.is_invalid() or _is_local(target):
            continue
        reached.uses.append(_use(node, target, in_method))
        if target.kind not in _FUNCTIONS:
            yield _declared_with(target)


def _is_overloadable(operand: Cursor) -> bool:
    """Whether an operator could be the user's own for this operand: a class or an enum, before it is converted."""
    while operand.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR) and len(children_of(operand)) == 1:
        operand = children_of(operand)[0]
    target = operand.referenced if operand.kind in (Kind.CALL_EXPR, Kind.MEMBER_REF_EXPR) else None
    converted = target is not None and target.kind == Kind.CONVERSION_FUNCTION
    return converted or operand.type.get_canonical().kind in (TypeKind.ENUM, TypeKind.RECORD)


def _operator(node: Cursor) -> str:
    if node.kind == Kind.ARRAY_SUBSCRIPT_EXPR:
        return "operator[]"
    unary = node.kind == Kind.UNARY_OPERATOR
    return "operator" + (clang.unary_operator(node).removeprefix("p") if unary else clang.binary_operator(node))


def _parts(declaration: Cursor) -> Iterator[Cursor]:
    """All of a declaration; of a class only its data, since methods that nobody calls do not matter."""
    if declaration.kind not in _CLASSES:
        yield from walk(declaration)
        return
    for child in children_of(declaration):
        if child.kind in _DATA:
            yield from walk(child)


def _declared_with(target: Cursor) -> Cursor:
    parent = target.semantic_parent
    return parent if target.kind in (Kind.ENUM_CONSTANT_DECL, Kind.FIELD_DECL) and parent is not None else target


def _is_local(target: Cursor) -> bool:
    parent = target.semantic_parent
    return target.kind == Kind.PARM_DECL or (parent is not None and parent.kind in _LOCAL_SCOPES)


def _use(node: Cursor, target: Cursor, in_method: bool) -> Use:
    parent = target.semantic_parent
    is_member = parent is not None and parent.kind in _CLASSES
    count: int | None = None
    if node.kind == Kind.CALL_EXPR:
        count = len(list(node.get_arguments()))
        operator_of_object = target.kind == Kind.CXX_METHOD and target.spelling.startswith("operator")
        count -= operator_of_object and clang.statement_class(node) == 0x59
    elif node.kind == Kind.INIT_LIST_EXPR:
        count = len([c for c in children_of(node) if c.kind.is_expression()])
    conversion = target.kind == Kind.CONVERSION_FUNCTION
    is_copy = target.kind == Kind.CONSTRUCTOR and (target.is_copy_constructor() or target.is_move_constructor())
    name = "" if is_copy else target.spelling
    name = name if name.startswith("operator") else name.partition("<")[0]
    return Use(name, node, is_member, in_method, count, conversion)


# ---- names


def _check_names(unit: Unit, reached: Reached) -> None:
    for cut in unit.sound.cuts:
        if cut.body_of is None:
            for use in reached.uses:
                if _could_mean(use, cut):
                    raise unit.error(cut.flaw)


def _could_mean(use: Use, cut: Cut) -> bool:
    if use.is_conversion and cut.is_conversion:
        return True
    if f"~{use.name}" in cut.names:
        return True
    if use.name not in cut.names:
        return False
    if use.name.startswith("operator") and use.name not in _OF_CLASSES_ONLY:
        return True  # of a class or not, they are candidates of one another
    is_constructor = use.cursor.referenced is not None and use.cursor.referenced.kind == Kind.CONSTRUCTOR
    builds = is_constructor or use.cursor.kind == Kind.INIT_LIST_EXPR
    if cut.is_member and not (use.is_member or use.in_method or builds):
        return False
    if not cut.is_member and use.is_member and not builds:
        return False
    if cut.arity is None:
        return True
    if use.arguments is None:  # the name of a function without its call: the call is looked at
        return use.cursor.kind not in (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR, Kind.TYPE_REF, Kind.TEMPLATE_REF)
    return cut.arity[0] <= use.arguments <= cut.arity[1]


# ---- pieces of declarations in files of their own


def _check_included(unit: Unit, reached: Reached) -> None:
    """Refuses a declaration of which a part, a table or a body say, is in a file that was not found."""
    files = _files(unit, {})
    for absent in unit.sound.absent:
        places, known = [(absent.file, absent.start)], {absent.file}
        for file, start in places:  # grows: where the file is included that includes it
            if any(a < start < b for a, b, _ in reached.extents.get(file, ())):
                raise unit.error(absent.flaw)
            for other in files:
                if other not in known:
                    places += [(other, at) for at in _inclusions(_source(unit, other), Path(file).name)]
            known |= {place[0] for place in places}


def _inclusions(data: bytes, header: str) -> Iterator[int]:
    for directive in text.directives(data):
        included = re.search(rb"[\"<]([^\">]*)[\">]", directive.text)
        name = Path(included[1].decode(errors="replace")).name if included is not None else ""
        if text.directive_name(directive) == "include" and name == header:
            yield directive.start


# ---- candidates


def _check_candidates(unit: Unit, reached: Reached) -> None:
    """Refuses templates that reached code may have passed over because their head names something that is gone: a
    substitution that fails is no error."""
    gone = {name: cut.flaw for cut in unit.sound.cuts if cut.body_of is None for name in cut.names - _COMMON_WORDS}
    heads = list(_heads(unit)) if gone else []
    used = {
        n for file, spans in reached.extents.items() for a, b, _ in spans for n in text.names(_source(unit, file), a, b)
    }
    progress = True
    while progress:
        progress = False
        for entry in [entry for entry in heads if entry[0] in used]:
            heads.remove(entry)
            for name in sorted(entry[1] & set(gone)):
                raise unit.error(gone[name])
            used |= entry[1]
            progress = True


def _heads(unit: Unit) -> Iterator[tuple[str, set[str]]]:
    """The name of each template that others may be taken for, and the names in its head that are not its own."""
    waiting = list(declarations(unit.tree.cursor))
    while waiting:
        cursor = waiting.pop()
        waiting += [c for c in children_of(cursor) if c.kind.is_declaration()] if cursor.kind in _CLASS_LIKE else []
        file = cursor.extent.start.file
        if file is None or cursor.kind not in (Kind.FUNCTION_TEMPLATE, Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION):
            continue
        parts, data, start = children_of(cursor), _source(unit, file.name), cursor.extent.start.offset
        end = next((t.start for t in text.tokens(data, cursor.location.offset) if t.text in (b"{", b";")), len(data))
        own = {cursor.spelling, *(c.spelling for c in parts if c.kind in _PARAMETERS)}
        yield cursor.spelling.partition("<")[0], text.names(data, start, end) - own
    for file_name in _files(unit, {}):
        for variable in _VARIABLE_SPECIALIZATION.finditer(_source(unit, file_name)):
            yield variable[1].decode(), text.names(variable[0]) - {variable[1].decode()}


# ---- conditions


def _check_conditionals(unit: Unit, reached: Reached) -> None:
    """Refuses reached code under an `#if` that asks for a name which a header that is not there may define; warns of
    a macro's default."""
    asked: dict[tuple[str, int], list[str]] = {}
    regions: dict[tuple[str, int], text.Token] = {}
    defaults: set[tuple[str, int]] = set()
    for file, region in _regions(unit, reached):
        for condition in region.conditions:
            _check_decided(unit, file, condition)
            wanted = [n for n in text.names_in(condition) if n not in _OF_COMPILERS]
            if wanted and not region.is_guard and _may_decide(unit, file, condition.start):
                asked.setdefault((file, region.start), []).extend(wanted)
                regions[file, region.start] = condition
                defaults |= {(file, region.start)} if region.is_default else set()
    for key, name in _undefined(unit, asked) if asked else ():
        file, condition = key[0], regions[key]
        line = _source(unit, file)[: condition.start].count(b"\n") + 1
        if key in defaults:
            _warn_of_default(unit, f"{file}:{line}", name)
            continue
        hint = f"define {name}, or {header_hint(unit.missing)}"
        span = Span(unit.sources.get(file), line, 1, len(condition.text.split(b"\n")[0].rstrip()))
        raise ParseError(f"what '{name}' is may be told by a header that was not found", span, hint)


def _warn_of_default(unit: Unit, place: str, name: str) -> None:
    """A default is what the author wants where nobody says more, and somebody may."""
    if name not in unit.warned:
        unit.warned.add(name)
        told = f"{place}: '{name}' has its default here: another value may be told by a header"
        warn_user(f"{told}; {header_hint(unit.missing)}")


def _may_decide(unit: Unit, file: str, place: int) -> bool:
    """Whether a header that was not found may come before the place."""
    return any(absent.file != file or absent.start < place for absent in unit.sound.absent)


def _check_decided(unit: Unit, file: str, condition: text.Token) -> None:
    for cut in unit.sound.undecided:
        if cut.file == file and cut.start == condition.start:
            raise unit.error(cut.flaw)


def _regions(unit: Unit, reached: Reached) -> Iterator[tuple[str, text.Conditional]]:
    """The `#if`s around or inside what is reached, the macros it uses and the places where its files are included."""
    extents = {file: [(a, b) for a, b, _ in spans] for file, spans in reached.extents.items()}
    for file, start, end in _macros_and_includes(unit, extents):
        extents.setdefault(file, []).append((start, end))
    for file, spans in extents.items():
        for region in text.conditionals(_source(unit, file)):
            if any(start < region.end and region.start < end for start, end in spans):
                yield file, region


def _macros_and_includes(unit: Unit, extents: dict[str, list[tuple[int, int]]]) -> Iterator[tuple[str, int, int]]:
    used = {n for file, spans in extents.items() for a, b in spans for n in text.names(_source(unit, file), a, b)}
    headers = {Path(file).name for file in extents}
    waiting = [(file, d) for file in _files(unit, extents) for d in text.directives(_source(unit, file))]
    progress = True
    while progress:
        progress = False
        for entry in list(waiting):
            file, directive = entry
            words, kind = text.names_in(directive), text.directive_name(directive)
            defines = kind == "define" and words[:1] and words[0] in used
            included = re.search(rb"[\"<]([^\">]*)[\">]", directive.text) if kind == "include" else None
            if defines or (included is not None and Path(included[1].decode(errors="replace")).name in headers):
                yield file, directive.start, directive.end
                used |= set(words) if defines else set()
                headers |= {Path(file).name}
                waiting.remove(entry)
                progress = True


def _files(unit: Unit, extents: dict[str, list[tuple[int, int]]]) -> list[str]:
    """All of the user's, since some define macros only."""
    included = [str(inclusion.include) for inclusion in unit.tree.get_includes()]
    users = [file for file in included if not file.startswith(str(prelude_dir()))]
    return list(dict.fromkeys([unit.name, *users, *extents]))


def _source(unit: Unit, file: str) -> bytes:
    if file in unit.sound.texts:
        return unit.sound.texts[file]
    return Path(file).read_bytes() if Path(file).is_file() else b""


def _undefined(unit: Unit, asked: dict[tuple[str, int], list[str]]) -> list[tuple[tuple[str, int], str]]:
    """Which of the names nobody defined before the `#if` that asks for them: clang is asked at that place."""
    texts = dict(unit.sound.texts)
    keys = sorted(asked, reverse=True)
    for file, start in keys:
        data = texts.get(file) or _source(unit, file)
        lines = [
            f"#ifndef {name}\n#error kernelgrad {keys.index((file, start))} {name}\n#endif\n"
            for name in asked[file, start]
            if not re.search(rb"#\s*undef\s+" + name.encode() + rb"\b", data)
        ]
        texts[file] = data[:start] + "".join(lines).encode() + data[start:]
    tree = unit.parse(texts)
    found = [re.match(r"kernelgrad (\d+) (\w+)$", d.spelling) for d in tree.diagnostics]
    return [(keys[int(m[1])], m[2]) for m in found if m is not None]
