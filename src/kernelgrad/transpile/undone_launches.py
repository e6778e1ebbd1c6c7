"""Launches that find out how much memory their derivatives need, and are undone and made again if that is more: by
copies of the memory that their arguments lead to."""

from __future__ import annotations

from ..backends.cuda.names import once
from ..errors import UnsupportedError
from ..frontend import clang
from ..frontend.clang import Cursor, Kind, TypeKind
from ..frontend.unit import Unit
from ..frontend.visiting import children_of, walk
from .call_text import is_default, start
from .instances import template_of

_TEXT = """\
// The memory that an argument of a launch leads to, and what was in it.
struct Before {
    void *memory, *copy;
    size_t nbytes;

    template <typename T>
    static void keep(std::vector<Before> &, const T &) {}
    template <typename T>
    static void keep(std::vector<Before> &kept, T *memory)
    {
        void *function = nullptr, *copy = nullptr;
        unsigned long long base = 0;
        size_t nbytes = 0;
        cudaDriverEntryPointQueryResult found;
        const char *name = "cuMemGetAddressRange";
        if (memory == nullptr) return;
#if CUDART_VERSION >= 12050
        cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
        cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
        auto range = (int (*)(unsigned long long *, size_t *, unsigned long long))function;
        if (range == nullptr || range(&base, &nbytes, (unsigned long long)memory) != 0) fail("the size of an argument");
        for (const Before &one : kept)
            if (one.memory == (void *)base) return;
        if (cudaMalloc(&copy, nbytes) != cudaSuccess) fail("memory for copies of arguments");
        cudaMemcpy(copy, (void *)base, nbytes, cudaMemcpyDefault);
        kept.push_back({(void *)base, copy, nbytes});
    }
    template <typename T>
    static void keep(std::vector<Before> &, const T *) {}
    [[noreturn]] static void fail(const char *what)
    {
        fprintf(stderr, "a launch whose derivatives keep values of loops lacks %s\\n", what);
        abort();
    }
};

template <typename T>
struct Plainly {
    using type = T;
};
"""
UNDONE = once("undone", _TEXT)


_CASTS = (Kind.CSTYLE_CAST_EXPR, Kind.CXX_CONST_CAST_EXPR, Kind.CXX_FUNCTIONAL_CAST_EXPR)
_FUNCTIONS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION)
_UNSEEN = (Kind.CONSTRUCTOR, Kind.DESTRUCTOR)  # which run without being named
_NAMES = (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR, Kind.CALL_EXPR)


def check_undone(unit: Unit, kernel: Cursor, launch: Cursor) -> None:
    """What is not copied must not change."""
    span, problem = unit.span(launch), f"'{kernel.spelling}' keeps values of loops"
    holds_tapes = any(_leads_to_void(p.type) for p in kernel.get_arguments())
    for function in _reached(kernel):
        for c in walk(function):
            if (used := _changing(c)) is not None:
                problem = f"{problem}, and uses the variable '{used}': cannot be transpiled"
                raise UnsupportedError(problem, span, "pass it to the kernel as a pointer")
            if holds_tapes and _casts_from_void(c):
                problem = f"{problem}, and its launches may be made again: '{function.spelling}' casts a 'void *'"
                raise UnsupportedError(f"{problem}: cannot be transpiled", span, "pass what it writes as what it is")
            if _casts_const_away(c):
                problem = f"{problem}, and its launches may be made again: '{function.spelling}' casts const away"
                raise UnsupportedError(f"{problem}: cannot be transpiled", span, "pass what it writes without const")
    hidden = next((p for p in kernel.get_arguments() if _leads_further(p.type)), None)
    if hidden is not None or any(map(is_default, children_of(launch)[2:])) or template_of(kernel) is not None:
        what = f"'{hidden.spelling}' leads to pointers" if hidden is not None else "templates and default arguments"
        problem = f"{problem}, and its launches may be made again: {what}"
        raise UnsupportedError(f"{problem}: cannot be transpiled", span)


def _reached(kernel: Cursor) -> list[Cursor]:
    """The kernel and the functions that it calls, or may call, with their bodies."""
    found, seen = [kernel], {start(kernel)}
    for function in found:
        for c in walk(function):
            for target in _called(c):
                definition = target.get_definition()
                if definition is None or clang.is_in_prelude(definition) or start(definition) in seen:
                    continue
                seen.add(start(definition))
                found.append(definition)
    return found


def _called(c: Cursor) -> list[Cursor]:
    target = c.referenced if c.kind in _NAMES else None
    named = [target] if target is not None and target.kind in _FUNCTIONS else []
    return named + (_of_class(c.type) if c.kind in (Kind.VAR_DECL, Kind.CALL_EXPR) else [])


def _of_class(type: clang.Type) -> list[Cursor]:
    """The constructors and destructors of objects of the type, and of their parts."""
    type = type.get_canonical()
    while type.kind == TypeKind.CONSTANTARRAY:
        type = type.element_type.get_canonical()
    declared = type.get_declaration().get_definition() if type.kind == TypeKind.RECORD else None
    if declared is None or clang.is_in_prelude(declared):
        return []
    members = children_of(declared)
    parts = [m.type for m in members if m.kind in (Kind.FIELD_DECL, Kind.CXX_BASE_SPECIFIER)]
    return [m for m in members if m.kind in _UNSEEN] + [f for part in parts for f in _of_class(part)]


def _changing(c: Cursor) -> str | None:
    """A variable of the device that may change."""
    target = c.referenced if c.kind == Kind.DECL_REF_EXPR or c.kind == Kind.MEMBER_REF_EXPR else None
    if c.kind == Kind.VAR_DECL and c.storage_class == clang.StorageClass.STATIC and not _is_shared(c):
        return None if c.type.is_const_qualified() else str(c.spelling)
    return str(target.spelling) if target is not None and target.kind == Kind.VAR_DECL and _may_change(target) else None


def _is_shared(variable: Cursor) -> bool:
    return Kind.CUDASHARED_ATTR in {k.kind for k in children_of(variable)}


def _casts_const_away(c: Cursor) -> bool:
    if c.kind not in _CASTS or c.type.get_canonical().kind != TypeKind.POINTER:
        return False
    given = [k.type.get_canonical() for k in children_of(c) if k.kind.is_expression()]
    of_const = any(t.kind == TypeKind.POINTER and t.get_pointee().is_const_qualified() for t in given)
    return of_const and not c.type.get_canonical().get_pointee().is_const_qualified()


def _may_change(variable: Cursor) -> bool:
    of_device = Kind.CUDADEVICE_ATTR in {k.kind for k in children_of(variable)}
    return of_device and not variable.type.is_const_qualified() and not variable.spelling.startswith("enzyme_")


def _casts_from_void(c: Cursor) -> bool:
    """To what may be written."""
    to = c.type.get_canonical()
    if c.kind not in (*_CASTS, Kind.CXX_STATIC_CAST_EXPR, Kind.CXX_REINTERPRET_CAST_EXPR) or not _is_pointer(to):
        return False
    given = [k.type.get_canonical() for k in children_of(c) if k.kind.is_expression()]
    return not _is_void_pointer(to) and not to.get_pointee().is_const_qualified() and any(map(_is_void_pointer, given))


def _leads_further(type: clang.Type) -> bool:
    """Whether a parameter has pointers behind a pointer, or inside; tapes are known otherwise."""
    type = type.get_canonical()
    if type.kind == TypeKind.RECORD:
        return any(_leads_further(f.type) or _is_typed_pointer(f.type) for f in type.get_fields())
    inside = _pointee(type)
    return inside is not None and (_is_typed_pointer(inside) or _leads_further(inside))


def _leads_to_void(type: clang.Type) -> bool:
    """Whether there are tapes, or what may be something else, behind or inside of a parameter."""
    type = type.get_canonical()
    if type.kind == TypeKind.RECORD:
        return any(_is_void_pointer(f.type) or _leads_to_void(f.type) for f in type.get_fields())
    inside = _pointee(type)
    return inside is not None and (_is_void_pointer(inside) or _leads_to_void(inside))


def _pointee(type: clang.Type) -> clang.Type | None:
    """Of a pointer or of an array."""
    type = type.get_canonical()
    if type.kind == TypeKind.CONSTANTARRAY:
        return type.element_type
    return type.get_pointee() if _is_pointer(type) else None


def _is_pointer(type: clang.Type) -> bool:
    return bool(type.get_canonical().kind == TypeKind.POINTER)


def _is_void_pointer(type: clang.Type) -> bool:
    return _is_pointer(type) and type.get_canonical().get_pointee().get_canonical().kind == TypeKind.VOID


def _is_typed_pointer(type: clang.Type) -> bool:
    return _is_pointer(type) and not _is_void_pointer(type)
