"""The libclang call: parsing, and what its C API does not say.

The PyPI wheel is pinned, since two facts are read from clang's own objects (Note [Raw words]); `_self_test` checks
them on first use.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import clang.cindex as ci

from ..deep import on_large_stack
from ..errors import InternalError, Source, Span
from ..locks import COMPILING, once
from ..progress import doing
from .overflow import check_bases, survived, too_deep, use_callers_stack
from .precompiled import prelude_arguments, refuse
from .prelude import parse_arguments, prelude_dir
from .visiting import children_of, walk

if TYPE_CHECKING:  # cindex has no types of its own
    Cursor: TypeAlias = Any
    Diagnostic: TypeAlias = Any
    Kind: TypeAlias = Any
    StorageClass: TypeAlias = Any
    TemplateArgumentKind: TypeAlias = Any
    Type: TypeAlias = Any
    TypeKind: TypeAlias = Any
else:
    Cursor, Type, Diagnostic = ci.Cursor, ci.Type, ci.Diagnostic
    Kind, TypeKind = ci.CursorKind, ci.TypeKind
    StorageClass, TemplateArgumentKind = ci.StorageClass, ci.TemplateArgumentKind

KEEP_GOING = 0x200
_PRELUDE = str(prelude_dir())

# Value categories and cast kinds in clang's words.
PRVALUE, XVALUE = 0, 2
CONSTRUCT_EXPRS = (0x6F, 0x70)
KERNEL_CALL, PSEUDO_DESTRUCTOR, IMPLICIT_ZERO = 0x5B, 0x64, 0x36
MATERIALIZE, CLEANUPS, RECOVERY, SUBST_TEMPLATE_PARM, ZERO_INIT, DEFAULT_ARG = 0x30, 0x3B, 0x11, 0x09, 0x62, 0x6E

BINARY: dict[int, str] = dict(
    zip(
        (*range(3, 10), *range(11, 34)),
        "* / % + - << >> < > <= >= == != & ^ | && || = *= /= %= += -= <<= >>= &= ^= |= ,".split(),
        strict=True,
    )
)
UNARY: dict[int, str] = dict(enumerate("p++ p-- ++ -- & * + - ~ ! __real __imag __extension__".split(), start=1))


def raw_word(cursor: Cursor) -> int:
    """Note [Raw words]: the first 32 bits of clang's Stmt object. Bits 0-7 are its class, 8-9 its value category,
    18-24 the cast kind of a cast, 22 of a DeclRefExpr "refers to an enclosing variable" (of a lambda), 24-25 why
    naming the variable does not use it (it is a constant whose value is meant, the code is never evaluated), or 0."""
    address = cursor.data[1]
    return ctypes.c_uint32.from_address(address).value if address else 0


def statement_class(cursor: Cursor) -> int:
    return raw_word(cursor) & 0xFF


def is_place(cursor: Cursor) -> bool:
    """Whether the expression denotes an object (an lvalue or xvalue) rather than a value."""
    return (raw_word(cursor) >> 8) & 3 != PRVALUE


def is_expiring(cursor: Cursor) -> bool:
    """Whether the expression denotes an object that may be moved from (an xvalue)."""
    return (raw_word(cursor) >> 8) & 3 == XVALUE


def is_full_expression(cursor: Cursor) -> bool:
    """Whether temporaries that must be destroyed end with the expression."""
    return bool(cursor.kind == Kind.UNEXPOSED_EXPR and statement_class(cursor) == CLEANUPS)


def cast_kind(cursor: Cursor) -> int:
    return (raw_word(cursor) >> 18) & 0x7F


def is_captured(cursor: Cursor) -> bool:
    """Whether a lambda captures the variable that is named here; constants whose value is meant it does not."""
    word = raw_word(cursor)
    return bool(word >> 22 & 1) and not word >> 24 & 3


def for_parts(cursor: Cursor) -> dict[str, Cursor]:
    """The parts of a `for`, by name: absent ones are missing children, so clang's own slots tell which are there."""
    slots = (ctypes.c_void_p * 5).from_address(cursor.data[1] + 8)
    roles = {slots[k]: name for k, name in enumerate(("init", "variable", "cond", "step", "body")) if slots[k]}
    return {roles.get(child.data[1], "variable"): child for child in children_of(cursor)}


def identity(cursor: Cursor) -> int:
    """A declaration's identity within its translation unit."""
    return int(cursor.data[0])


def binary_operator(cursor: Cursor) -> str:
    return BINARY[int(_lib().clang_getCursorBinaryOperatorKind(cursor))]


def unary_operator(cursor: Cursor) -> str:
    return UNARY[int(_lib().clang_getCursorUnaryOperatorKind(cursor))]


def initializer(variable: Cursor) -> Cursor | None:
    """The initialiser of a variable (its children also hold array sizes and type references)."""
    found = _lib().clang_Cursor_getVarDeclInitializer(variable)
    return None if found.kind == Kind.INVALID_FILE or found.kind.is_invalid() else _adopt(found, variable)


def evaluate(cursor: Cursor) -> int | float | None:
    """The constant value of a scalar expression, None where it has none."""
    lib = _lib()
    result = lib.clang_Cursor_Evaluate(cursor)
    if not result:
        return None
    try:
        kind = lib.clang_EvalResult_getKind(result)
        if kind == 1:
            unsigned = lib.clang_EvalResult_isUnsignedInt(result)
            read = lib.clang_EvalResult_getAsUnsigned if unsigned else lib.clang_EvalResult_getAsLongLong
            return int(read(result))
        if kind == 2:
            return float(lib.clang_EvalResult_getAsDouble(result))
        return None
    finally:
        lib.clang_EvalResult_dispose(result)


def errors_of(tree: Any) -> list[Diagnostic]:
    return [d for d in tree.diagnostics if d.severity >= Diagnostic.Error]


class Sources:
    """The texts behind the file names that clang reports."""

    def __init__(self, name: str, text: str):
        self._known = {name: Source(name, text)}

    def get(self, name: str) -> Source:
        if name not in self._known:
            path = Path(name)
            text = path.read_text(errors="replace") if path.is_file() else None
            self._known[name] = Source(name, text, name.startswith(_PRELUDE))
        return self._known[name]

    def span(self, cursor: Cursor) -> Span:
        location, extent = cursor.location, cursor.extent
        length, end = 1, extent.end  # each time that it is asked for, libclang looks for it
        if extent.start.line == end.line == location.line:
            length = max(1, end.column - location.column)
        return Span(
            self.get(location.file.name if location.file else "<unknown>"), location.line, location.column, length
        )


@doing(lambda name, *_: f"parsing {name}")
@on_large_stack
def parse(
    name: str, texts: Mapping[str, bytes], include_dirs: tuple[str, ...], defines: tuple[str, ...], std: str
) -> Any:
    """A translation unit of the text of that name, the prelude before it; other texts stand in for files."""
    for file, text in texts.items():
        check_bases(file, text.decode(errors="replace"))
    texts = {file: _with_open_ends(text) for file, text in texts.items()}
    own = [f"-I{d}" for d in include_dirs] + [f"-D{d}" for d in defines]
    with COMPILING:
        unit = _parse(name, texts, [*parse_arguments(std), *prelude_arguments(std), *own])
        while unit is None:
            refuse(std)
            unit = _parse(name, texts, [*parse_arguments(std), *prelude_arguments(std), *own])
        return unit


def _with_open_ends(text: bytes) -> bytes:
    """`extern __shared__ float tile[32][32]`, which launches give memory all the same, as `tile[  ][32]`: clang knows
    that form alone. Nothing changes its place."""
    if b"__shared__" not in text or b"extern" not in text:
        return text
    return _DYNAMIC.sub(lambda found: found[1] + b" " * len(found[2]) + b"]", text)


_DYNAMIC = re.compile(rb"(\bextern\s+__shared__\s+[^;{}()\[\]]*\[)([^;{}\[\]\n]+)\]")


def _parse(name: str, texts: Mapping[str, bytes], arguments: list[str]) -> Any:
    """None where clang does not like the precompiled header it was given."""
    index = _index()
    try:
        with survived():
            unit = index.parse(name, args=arguments, unsaved_files=list(texts.items()), options=KEEP_GOING)
    except ci.TranslationUnitLoadError:
        unit = None
    if "-include-pch" in arguments:
        return unit if unit is not None and not any(map(_is_about_header, unit.diagnostics)) else None
    if unit is None:
        raise too_deep(name, texts[name].decode(errors="replace"))
    return unit


def _is_about_header(diagnostic: Diagnostic) -> bool:
    words = ("PCH file", "AST file", "precompiled header", "precompiled file")
    return diagnostic.severity >= Diagnostic.Error and any(w in diagnostic.spelling for w in words)


@once
def _index() -> Any:
    _lib()
    return ci.Index.create(excludeDecls=True)


@once
def _lib() -> Any:
    _add_kind(TypeKind, 32, "FLOAT16")
    for number, name in enumerate(("TEMPLATE", "TEMPLATE_EXPANSION", "EXPRESSION", "PACK"), start=5):
        _add_kind(TemplateArgumentKind, number, name)
    use_callers_stack()
    lib = ci.conf.lib
    declare(lib)
    _self_test(lib)
    return lib


def _add_kind(kinds: Any, number: int, name: str) -> None:
    """cindex takes each number once: an interrupt may have come after that, and others may use cindex too."""
    known = kinds._kinds[number] if number < len(kinds._kinds) else None
    setattr(kinds, name, kinds(number) if known is None else known)


def declare(lib: Any) -> None:
    """Signatures of the C functions that cindex does not wrap."""
    pointer, cursor = ctypes.c_void_p, Cursor
    signatures: dict[str, tuple[list[Any], Any]] = {
        "clang_Cursor_Evaluate": ([cursor], pointer),
        "clang_Cursor_isInlineNamespace": ([cursor], ctypes.c_uint),
        "clang_EvalResult_getKind": ([pointer], ctypes.c_int),
        "clang_EvalResult_isUnsignedInt": ([pointer], ctypes.c_uint),
        "clang_EvalResult_getAsUnsigned": ([pointer], ctypes.c_ulonglong),
        "clang_EvalResult_getAsLongLong": ([pointer], ctypes.c_longlong),
        "clang_EvalResult_getAsDouble": ([pointer], ctypes.c_double),
        "clang_EvalResult_dispose": ([pointer], None),
        "clang_Cursor_getVarDeclInitializer": ([cursor], cursor),
        "clang_getCursorBinaryOperatorKind": ([cursor], ctypes.c_int),
        "clang_getCursorUnaryOperatorKind": ([cursor], ctypes.c_int),
        "clang_isInvalidDeclaration": ([cursor], ctypes.c_uint),
        "clang_getFileLocation": ([ci.SourceLocation, *[pointer] * 4], None),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result


def specialized_template(declaration: Cursor) -> Cursor | None:
    """The template that a declaration is an instance of."""
    found = _lib().clang_getSpecializedCursorTemplate(declaration)
    return None if found is None or found.kind.is_invalid() else found


def file_offset(location: Any) -> int:
    """The byte of a place in its file: of what is given to a macro, where it is given; of what a macro's body has,
    where the macro is used."""
    offset = ctypes.c_uint()
    _lib().clang_getFileLocation(location, None, None, None, ctypes.addressof(offset))
    return offset.value


def is_run(start: Any, end: Any) -> bool:
    """Whether all between two places, which are in what is given to a macro, is what is given there: clang numbers
    what follows in the text by one after the other."""
    return bool(end.int_data - start.int_data == file_offset(end) - file_offset(start))


def is_invalid(declaration: Cursor) -> bool:
    return bool(_lib().clang_isInvalidDeclaration(declaration))


def is_inline_namespace(cursor: Cursor) -> bool:
    return bool(_lib().clang_Cursor_isInlineNamespace(cursor))


def _adopt(found: Cursor, parent: Cursor) -> Cursor:
    """cindex keeps the unit alive through each cursor; a cursor from a raw call must be told which."""
    found._tu = parent._tu
    return found


def _self_test(lib: Any) -> None:
    """Note [Raw words] on a small text; fails where a libclang build lays out its objects in another way."""
    text = "int f(int n) { for (;n;) return n; return 1.5; }"
    unit = ci.Index.create().parse("t.cpp", unsaved_files=[("t.cpp", text)], args=["-w"])
    nodes = list(walk(unit.cursor))
    loop = next(c for c in nodes if c.kind == Kind.FOR_STMT)
    reference = next(c for c in nodes if c.kind == Kind.DECL_REF_EXPR)
    casts = [cast_kind(c) for c in nodes if c.kind == Kind.UNEXPOSED_EXPR]
    good = set(for_parts(loop)) == {"cond", "body"} and is_place(reference) and casts == [28, 4, 4, 36]
    if not good:
        raise InternalError("this build of libclang is not the one kernelgrad knows: install libclang==18.1.1")


def is_in_prelude(cursor: Cursor) -> bool:
    """Of what the index does not leave out by itself: headers that a text includes, or all if it is parsed as text."""
    file = cursor.location.file
    return file is not None and file.name.startswith(_PRELUDE)
