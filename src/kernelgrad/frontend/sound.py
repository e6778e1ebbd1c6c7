"""What is left of a text when all that does not parse is taken out of it.

Note [Sound text]
clang recovers from errors by guessing: an unknown type becomes int, a statement that calls a broken function is not
there at all, and the tree does not say so. So nothing is read from a tree with errors. Each declaration that has one is
blanked out, a function's body where only that is wrong, and the text is parsed again, until it parses: what used a
thing that is gone is then an error itself, and goes too. Lines and columns stay. What remains is a program that clang
accepts; every cut keeps the error that was the first cause of it, for whoever asks for what it held. A `}` that closes
nothing cannot be cut: some function, class or namespace before it ended too early, and which one nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from . import text
from .clang import Cursor, Diagnostic, Kind, errors_of
from .prelude import prelude_dir
from .visiting import children_of

_ROUNDS = 60
_MISSING = re.compile(r"'(.*)' file not found")
_REQUEST = re.compile(r"requested here$|^while (substituting|checking)")
_STRAY = "extraneous closing brace"
_NO_END = "expected ';' after top level declarator"
_ASSERTION = re.compile(r"static[_ ]assert(ion)? (failed|expression)")
_UNKNOWN = re.compile(r"unknown type name|use of undeclared|no (member|type|template) named|no matching ")
_QUOTED = re.compile(r"'([^']*)'")
_FUNCTIONS = (
    Kind.FUNCTION_DECL,
    Kind.FUNCTION_TEMPLATE,
    Kind.CXX_METHOD,
    Kind.CONSTRUCTOR,
    Kind.DESTRUCTOR,
    Kind.CONVERSION_FUNCTION,
)
_CLASSES = (
    Kind.STRUCT_DECL,
    Kind.CLASS_DECL,
    Kind.UNION_DECL,
    Kind.CLASS_TEMPLATE,
    Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
)
_ENDING_ALONE = (*_FUNCTIONS, *_CLASSES, Kind.ENUM_DECL, Kind.VAR_DECL)
_GOING_ON = (b";", b"{", b":", b"=", b",")
_SPECIFIERS = frozenset(
    b"__device__ __host__ __global__ __constant__ __shared__ __managed__ __forceinline__ __noinline__ __inline__ static"
    b" inline extern const constexpr volatile unsigned signed long short".split()
)
_SCOPES = (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL)
_TEMPLATE_PARAMETERS = (
    Kind.TEMPLATE_TYPE_PARAMETER,
    Kind.TEMPLATE_NON_TYPE_PARAMETER,
    Kind.TEMPLATE_TEMPLATE_PARAMETER,
)
# Members without which a class still has its layout. Whoever uses one that is gone does not parse.
_SEPARATE_MEMBERS = (
    *_FUNCTIONS,
    *_CLASSES,
    Kind.VAR_DECL,
    Kind.ENUM_DECL,
    Kind.TYPEDEF_DECL,
    Kind.TYPE_ALIAS_DECL,
    Kind.TYPE_ALIAS_TEMPLATE_DECL,
    Kind.USING_DECLARATION,
    Kind.FRIEND_DECL,
)


@dataclass(frozen=True)
class Flaw:
    """An error that clang found."""

    message: str
    file: str
    line: int
    column: int
    offset: int


@dataclass(frozen=True)
class Cut:
    """A part of a file that is gone, and the error it is gone for."""

    file: str
    start: int
    end: int
    names: frozenset[str]
    flaw: Flaw
    body_of: int | None = None  # where the name of the function stands whose body this was; its declaration stayed
    is_member: bool = False
    arity: tuple[int, int] | None = None  # of a function: how many arguments it may be given
    is_conversion: bool = False


@dataclass
class Sound:
    """A text without errors: the parsed unit, the files that were changed for it, and what was cut from them."""

    tree: Any
    texts: dict[str, bytes]
    cuts: list[Cut] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    absent: list[Cut] = field(default_factory=list)  # `#include`s of these
    undecided: list[Cut] = field(default_factory=list)  # `#if`s whose condition makes no sense
    hopeless: Flaw | None = None  # an error that no cut can mend
    verdicts: list[Flaw] = field(default_factory=list)  # what the author himself calls an error


def missing_header(message: str) -> str | None:
    match = _MISSING.match(message)
    return match[1] if match else None


def flaw_of(error: Diagnostic, name: str) -> Flaw:
    where = error.location
    file = where.file.name if where.file is not None else name
    return Flaw(error.spelling, file, where.line, where.column, where.offset)


def make_sound(parse: Callable[[dict[str, bytes]], Any], tree: Any, name: str, whole: str) -> Sound:
    """Cuts until what is left parses. `tree`: the text as it is, parsed."""
    sound = Sound(tree, {name: whole.encode()})
    for _ in range(_ROUNDS):
        errors = errors_of(sound.tree)
        if not errors:
            return sound
        before = dict(sound.texts)
        cutter = _Cutter(sound, name, whole)
        for error in _first_causes(errors):
            cutter.cut(error)
        if sound.texts == before or sound.hopeless is not None:
            sound.hopeless = sound.hopeless or flaw_of(errors[0], name)
            return sound
        sound.tree = parse(sound.texts)
    sound.hopeless = flaw_of(errors_of(sound.tree)[0], name)
    return sound


def _first_causes(errors: list[Diagnostic]) -> list[Diagnostic]:
    """An assertion may fail for what clang took for something that does not parse; a `;` may be missing only where an
    unknown macro is taken for a declaration, and the next one's attributes for a part of it."""
    broken = [error for error in errors if not _ASSERTION.match(error.spelling)]
    return [error for error in broken if error.spelling != _NO_END] or broken or errors


@dataclass
class _Chunk:
    """Neighbouring declarations that only go together, with what ends them; `lead`: where the one before ended."""

    lead: int
    start: int
    end: int
    cursors: list[Cursor]


class _Cutter:
    """One round of cuts, all by the positions of one tree."""

    def __init__(self, sound: Sound, name: str, whole: str):
        self.sound, self.name, self._whole_main = sound, name, whole
        self._before = dict(sound.texts)  # the text that the tree is of
        self._chunks: dict[tuple[Any, str], list[_Chunk]] = {}
        self._directives: dict[str, list[text.Token]] = {}

    def cut(self, error: Diagnostic) -> None:
        flaw = flaw_of(error, self.name)
        place = self._place(error)
        if place is None:
            self.sound.hopeless = self.sound.hopeless or flaw
            return
        file, offset = place
        if flaw.message.startswith(_STRAY) and text.closes_nothing(self._whole_text(file), offset):
            self.sound.hopeless = flaw
            return
        directive = next((d for d in self._directives_of(file) if d.start <= offset < d.end), None)
        if directive is not None:
            self._cut_directive(directive, file, flaw)
            return
        found = self._find(self.sound.tree.cursor, file, offset, 0, len(self._text(file)), flaw)
        if found is None:
            self.sound.hopeless = self.sound.hopeless or flaw
        elif self._apply(found, b";" if found.body_of is not None else b""):
            self.sound.cuts.append(found)
            if _ASSERTION.match(flaw.message) and found.names == {""}:  # of a file or namespace, not of a function
                self.sound.verdicts.append(flaw)

    def _place(self, error: Diagnostic) -> tuple[str, int] | None:
        """Where to cut: of an error inside an instance of a template, at what asked for the instance; of one in our own
        headers, at what uses them."""
        notes = list(error.children)
        requests = [note for note in notes if _REQUEST.search(note.spelling)]
        for where in (error_or_note.location for error_or_note in (*reversed(requests), error, *notes)):
            if where.file is not None and self._is_users(where.file.name):
                return where.file.name, where.offset
        return None

    def _is_users(self, file: str) -> bool:
        return file == self.name or (Path(file).is_file() and not file.startswith(str(prelude_dir())))

    def _text(self, file: str) -> bytes:
        if file not in self._before:
            self._before[file] = self.sound.texts[file] = Path(file).read_bytes()
        return self._before[file]

    def _whole_text(self, file: str) -> bytes:
        """As it was before all cuts."""
        return self._whole_main.encode() if file == self.name else Path(file).read_bytes()

    def _directives_of(self, file: str) -> list[text.Token]:
        if file not in self._directives:
            self._directives[file] = text.directives(self._text(file))
        return self._directives[file]

    def _apply(self, cut: Cut, first: bytes = b"") -> bool:
        """Blanks the part out; whether there was something in it."""
        old = self.sound.texts[cut.file]
        new = text.blanked(old, cut.start, cut.end, first)
        self.sound.texts[cut.file] = new
        return new != old

    # ---- directives

    def _cut_directive(self, directive: text.Token, file: str, flaw: Flaw) -> None:
        """A header that is not there, an #error; a condition that cannot be told counts as false."""
        name = text.directive_name(directive)
        header = missing_header(flaw.message)
        if name == "error":
            self.sound.verdicts.append(flaw)
        if header is not None and header not in self.sound.missing:
            self.sound.missing.append(header)
        if header is not None:
            self.sound.absent.append(Cut(file, directive.start, directive.end, frozenset(), flaw))
        old = self.sound.texts[file]
        blank = re.sub(rb"[^\r\n]", b" ", directive.text)
        if name in ("if", "elif"):
            head = f"#{name} 0".encode()
            blank = head + b" " * (len(blank) - len(head))
            self.sound.undecided.append(Cut(file, directive.start, directive.end, frozenset(), flaw))
        elif name in ("ifdef", "ifndef", "else", "endif", "elifdef", "elifndef"):
            self.sound.hopeless = flaw
            return
        self.sound.texts[file] = old[: directive.start] + blank + old[directive.end :]

    # ---- declarations

    def _find(self, scope: Cursor, file: str, offset: int, start: int, end: int, flaw: Flaw) -> Cut | None:
        """The smallest part below the scope that holds the offset and can go by itself."""
        chunks = self._chunks_of(scope, file, start, end)
        inside = [c for c in chunks if c.start <= offset < c.end] or [c for c in chunks if offset == c.end]
        if inside:
            return self._find_in(inside[0], scope, file, offset, flaw)
        if scope.kind in _CLASSES:
            return None
        before = max((c.end for c in chunks if c.end <= offset), default=start)
        after = min((c.start for c in chunks if c.start > offset), default=end)
        after = _before_specifiers(self._text(file), before, after)
        words = self._text(file)[before:after].split(None, 1)
        is_instance = words[:1] == [b"template"] and not words[1:][0].startswith(b"<") if len(words) > 1 else False
        names = set() if is_instance else text.names(self._text(file), before, after)
        return self._made(file, before, after, names, flaw)

    def _find_in(self, chunk: _Chunk, scope: Cursor, file: str, offset: int, flaw: Flaw) -> Cut | None:
        """libclang shows instances of a namespace's templates beside the namespace, too: there is a place inside for
        what names something unknown. Of what is wrong otherwise, nobody knows which template it was to specialise."""
        main = chunk.cursors[0]
        alone = len(chunk.cursors) == 1 or (main.kind in _SCOPES and _UNKNOWN.match(flaw.message) is not None)
        if alone and (main.kind in _SCOPES or main.kind in _CLASSES):
            brace = _first_brace(self._text(file), chunk.start, chunk.end)
            if brace is not None and offset > brace:
                inner = self._find(main, file, offset, brace + 1, main.extent.end.offset - 1, flaw)
                if inner is not None:
                    return inner
        if scope.kind in _CLASSES and not _goes_alone(chunk, self._text(file)):
            return None
        return self._body(chunk, file, offset, flaw) or self._whole(chunk, scope, file, flaw)

    def _body(self, chunk: _Chunk, file: str, offset: int, flaw: Flaw) -> Cut | None:
        """The body of a function, if that is where the error is and a declaration without it can stay."""
        function = _only_function(chunk)
        if function is None or function.semantic_parent != function.lexical_parent:
            return None
        body = next((c for c in reversed(children_of(function)) if c.kind == Kind.COMPOUND_STMT), None)
        name = function.location.offset
        if body is None or body.extent.start.offset <= name or _file(body) != file:
            return None
        start, end = body.extent.start.offset, body.extent.end.offset
        if function.kind == Kind.CONSTRUCTOR:
            start = _initializers(self._text(file), name, start)
        if not start <= offset <= end:
            return None
        return self._made(file, start, end, {_plain(function.spelling)}, flaw, body_of=name)

    def _whole(self, chunk: _Chunk, scope: Cursor, file: str, flaw: Flaw) -> Cut:
        data = self._text(file)
        start = _after_directives(data, chunk.lead, chunk.start)
        function = _only_function(chunk)
        is_member = scope.kind in _CLASSES and chunk.cursors[0].kind != Kind.FRIEND_DECL
        conversion = function is not None and function.kind == Kind.CONVERSION_FUNCTION
        if function is not None and function.semantic_parent != function.lexical_parent:
            specializes = re.match(rb"\s*template\s*<\s*>", data[chunk.start : chunk.end]) is not None
            if function.semantic_parent is not None and function.semantic_parent.kind in _CLASSES and not specializes:
                return self._made(file, start, chunk.end, set(), flaw)  # its class declares it
            is_member = is_member or function.kind != Kind.FUNCTION_DECL
        arity = None if function is None else _arity(function, data)
        names = {n for c in chunk.cursors for n in _declared(c)}
        if any(c.kind == Kind.ENUM_DECL for c in chunk.cursors):
            names |= _enumerators(data, chunk.start, chunk.end)
        return self._made(file, start, chunk.end, names, flaw, None, is_member, arity, conversion)

    def _made(
        self,
        file: str,
        start: int,
        end: int,
        names: set[str],
        flaw: Flaw,
        body_of: int | None = None,
        is_member: bool = False,
        arity: tuple[int, int] | None = None,
        is_conversion: bool = False,
    ) -> Cut:
        root = self._cause(flaw)
        return Cut(file, start, end, frozenset(names), root, body_of, is_member, arity, is_conversion)

    def _cause(self, flaw: Flaw) -> Flaw:
        """The error for which the thing is gone that this error is about."""
        about = {name for quoted in _QUOTED.findall(flaw.message) for name in re.findall(r"\w+", quoted)}
        if flaw.file in self._before:
            token = next(text.tokens(self._text(flaw.file), flaw.offset), None)
            about |= {token.text.decode()} if token is not None and token.kind == "name" else set()
        for cut in self.sound.cuts:
            is_itself = cut.file == flaw.file and cut.start <= flaw.offset < cut.end
            if cut.names & about and not is_itself:
                return cut.flaw
        return flaw

    def _chunks_of(self, scope: Cursor, file: str, start: int, end: int) -> list[_Chunk]:
        key = (scope.hash, file)
        if key not in self._chunks:
            self._chunks[key] = list(_chunks(scope, file, self._text(file), start, end))
        return self._chunks[key]


def _chunks(scope: Cursor, file: str, data: bytes, start: int, end: int) -> Iterator[_Chunk]:
    shown = [c for c in children_of(scope) if c.kind.is_declaration() and c.kind not in _TEMPLATE_PARAMETERS]
    declared = [c for c in shown if _file(c) == file]
    groups: list[list[Cursor]] = []
    reach = -1
    for cursor in sorted(declared, key=lambda c: (c.extent.start.offset, -c.extent.end.offset)):
        if cursor.extent.start.offset < reach:
            groups[-1].append(cursor)
        else:
            groups.append([cursor])
        reach = max(reach, cursor.extent.end.offset)
    starts = [group[0].extent.start.offset for group in groups]
    lead = start
    for k, group in enumerate(groups):
        limit = starts[k + 1] if k + 1 < len(groups) else end
        stop = _end(group, data, limit)
        yield _Chunk(lead, starts[k], stop, group)
        lead = stop


def _end(group: list[Cursor], data: bytes, limit: int) -> int:
    """Where a declaration ends: with its body or brace, else at the `;` after it. What stands in the place of that `;`
    is not its own: after an unknown macro, say."""
    last: int = max(c.extent.end.offset for c in group)
    closed = data[last - 1 : last] == b"}" and group[0].kind in (*_FUNCTIONS, *_SCOPES)
    if closed or group[0].kind == Kind.CXX_ACCESS_SPEC_DECL:
        return last
    ends, following = text.after_brackets(data, last, limit)
    if group[0].kind in _ENDING_ALONE and following and following not in _GOING_ON:
        return ends
    return text.end_of_declaration(data, last, limit)


def _file(cursor: Cursor) -> str | None:
    where = cursor.extent.start.file
    return where.name if where is not None else None


def _first_brace(data: bytes, start: int, end: int) -> int | None:
    return next((t.start for t in text.tokens(data, start, end) if t.text == b"{"), None)


def _after_directives(data: bytes, start: int, end: int) -> int:
    """Attributes and the like before a declaration belong to it; what stands before a directive does not."""
    found = list(text.tokens(data, start, end))
    after = 1 + max((k for k, token in enumerate(found) if token.kind == "directive"), default=-1)
    return found[after].start if after < len(found) else end


def _before_specifiers(data: bytes, start: int, end: int) -> int:
    """Where the words begin that belong to the declaration at the end."""
    for token in reversed(list(text.tokens(data, start, end))):
        if token.text not in _SPECIFIERS:
            return end
        end = token.start
    return end


def _only_function(chunk: _Chunk) -> Cursor | None:
    (cursor, *others) = chunk.cursors
    if cursor.kind in (*_SCOPES, Kind.FRIEND_DECL) and not others:
        (cursor, *others) = [c for c in children_of(cursor) if c.kind.is_declaration()] or [cursor]
    return cursor if not others and cursor.kind in _FUNCTIONS else None


def _goes_alone(chunk: _Chunk, data: bytes) -> bool:
    """Whether a class means the same without this member, for those who do not use it."""
    for cursor in chunk.cursors:
        nameless = cursor.kind in _CLASSES and (cursor.is_anonymous() or not cursor.spelling.isidentifier())
        if cursor.kind not in _SEPARATE_MEMBERS or nameless:
            return False
    words = text.names(data, chunk.start, chunk.end)
    return chunk.cursors[0].kind not in _FUNCTIONS or not words & {"virtual", "override", "final"}


def _initializers(data: bytes, name: int, body: int) -> int:
    """Where `: a(1), b(2)` of a constructor begins."""
    depth = 0
    previous = b""
    for token in text.tokens(data, name, body):
        depth += (token.text == b"(") - (token.text == b")")
        following = data[token.end : token.end + 1]
        if token.text == b":" and depth == 0 and previous != b":" and following != b":":
            return token.start
        previous = token.text
    return body


def _arity(function: Cursor, data: bytes) -> tuple[int, int] | None:
    written = [token.text for token, _ in zip(text.tokens(data, function.location.offset), range(2), strict=False)]
    if not function.spelling.startswith("operator") and written != [_plain(function.spelling).encode(), b"("]:
        return None  # a macro's: its text is elsewhere
    params = [c for c in children_of(function) if c.kind == Kind.PARM_DECL]
    head = data[function.location.offset : function.extent.end.offset].split(b"{", 1)[0]
    return 0 if b"=" in head else len(params), 1_000_000 if b"..." in head else len(params)


def _enumerators(data: bytes, start: int, end: int) -> set[str]:
    """Also those that clang leaves out, since the name is taken."""
    marks = [token for token in text.tokens(data, start, end) if token.kind != "directive"]
    return {
        token.text.decode() for before, token in pairwise(marks) if before.text in (b"{", b",") and token.kind == "name"
    }


def _plain(name: str) -> str:
    """A name without template arguments: constructors have those of their class."""
    name = name.removeprefix("<deduction guide for ").removesuffix(">") if name.startswith("<") else name
    return name if name.startswith("operator") else name.partition("<")[0]


def _declared(cursor: Cursor) -> set[str]:
    names = {_plain(cursor.spelling)}
    if cursor.kind == Kind.ENUM_DECL:
        names |= {c.spelling for c in children_of(cursor)}
    if cursor.kind in _SCOPES or cursor.kind == Kind.FRIEND_DECL:
        names |= {n for c in children_of(cursor) if c.kind.is_declaration() for n in _declared(c)}
    return names
