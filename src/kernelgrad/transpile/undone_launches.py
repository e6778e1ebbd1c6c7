"""Launches that find out how much memory their derivatives need, and are undone and made again if that is more: by
copies of the memory that their arguments lead to."""

from __future__ import annotations

from collections.abc import Iterator

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


def check_undone(unit: Unit, kernel: Cursor, launch: Cursor) -> None:
    """What is not copied must not change."""
    span, problem = unit.span(launch), f"'{kernel.spelling}' keeps values of loops"
    used = next(_variables(kernel, set()), None)
    if used is not None:
        problem = f"{problem}, and uses the variable '{used}': cannot be transpiled"
        raise UnsupportedError(problem, span, "pass it to the kernel as a pointer")
    hidden = next((p for p in kernel.get_arguments() if _leads_further(p.type)), None)
    if hidden is not None or any(map(is_default, children_of(launch)[2:])) or template_of(kernel) is not None:
        what = f"'{hidden.spelling}' leads to pointers" if hidden is not None else "templates and default arguments"
        problem = f"{problem}, and its launches may be made again: {what}"
        raise UnsupportedError(f"{problem}: cannot be transpiled", span)


def _variables(function: Cursor, seen: set[int]) -> Iterator[str]:
    """Of the device, which may change: that it uses, or what it calls."""
    seen.add(start(function))
    for c in walk(function):
        target = c.referenced if c.kind == Kind.DECL_REF_EXPR else None
        if target is None:
            continue
        if target.kind == Kind.VAR_DECL and _may_change(target):
            yield target.spelling
        definition = target.get_definition() if target.kind == Kind.FUNCTION_DECL else None
        if definition is not None and start(definition) not in seen and not clang.is_in_prelude(definition):
            yield from _variables(definition, seen)


def _may_change(variable: Cursor) -> bool:
    of_device = Kind.CUDADEVICE_ATTR in {k.kind for k in children_of(variable)}
    return of_device and not variable.type.is_const_qualified() and not variable.spelling.startswith("enzyme_")


def _leads_further(type: clang.Type) -> bool:
    """Whether a parameter has pointers behind a pointer, or inside; tapes are known otherwise."""
    type = type.get_canonical()
    if type.kind == TypeKind.POINTER:
        pointee = type.get_pointee().get_canonical()
        if pointee.kind == TypeKind.POINTER and pointee.get_pointee().kind == TypeKind.VOID:
            return False
        return pointee.kind == TypeKind.POINTER or (pointee.kind == TypeKind.RECORD and _holds_pointers(pointee))
    return type.kind == TypeKind.RECORD and _holds_pointers(type)


def _holds_pointers(type: clang.Type) -> bool:
    fields = [f.type.get_canonical() for f in type.get_fields()]
    return any(f.kind == TypeKind.POINTER or (f.kind == TypeKind.RECORD and _holds_pointers(f)) for f in fields)
