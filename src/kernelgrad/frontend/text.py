"""C++ text as tokens, as far as cutting pieces out of it needs: bytes, since clang counts those."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_REST_OF_LINE = rb"(?:\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|[^\n])*"
_TOKEN = re.compile(
    rb"(?P<directive>^[ \t]*\#" + _REST_OF_LINE + rb")"
    rb"|(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)"
    rb"|(?P<string>(?:u8|[uUL])?R\"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)\""
    rb"|(?:u8|[uUL])?\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    rb"|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)"
    rb"|(?P<name>[A-Za-z_]\w*)"
    rb"|(?P<mark_>\S)",
    re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(rb"\s*#\s*(\w*)")
_NAME = re.compile(rb"[A-Za-z_]\w*")
_OPEN, _CLOSE = (b"(", b"[", b"{"), (b")", b"]", b"}")


class Token(NamedTuple):
    kind: str
    text: bytes
    start: int
    end: int


def tokens(text: bytes, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Tokens that begin in the range; comments are left out, a preprocessing directive is one token."""
    stop = len(text) if end is None else end
    for match in _TOKEN.finditer(text, start):
        if match.start() >= stop:
            return
        kind = match.lastgroup or ""
        if kind != "comment":
            yield Token("string" if kind == "mark" else kind, match[0], match.start(), match.end())


def directives(text: bytes) -> list[Token]:
    return [token for token in tokens(text) if token.kind == "directive"]


def directive_name(token: Token) -> str:
    match = _DIRECTIVE.match(token.text)
    return match[1].decode() if match else ""


def names(text: bytes, start: int = 0, end: int | None = None) -> set[str]:
    return {token.text.decode() for token in tokens(text, start, end) if token.kind == "name"}


def names_in(token: Token) -> list[str]:
    """The names in a directive, after its own."""
    match = _DIRECTIVE.match(token.text)
    rest = re.sub(rb"//.*|/\*.*?\*/", b" ", token.text[match.end() if match else 0 :], flags=re.DOTALL)
    return [name.decode() for name in _NAME.findall(rest)]


def end_of_declaration(text: bytes, start: int, limit: int) -> int:
    """Where the declaration goes on to from `start`, which is at or after its last name: past its `;` or its body."""
    depth = 0
    for token in tokens(text, start, limit):
        if token.kind == "directive":
            continue
        if token.text in _OPEN:
            depth += 1
        elif token.text in _CLOSE:
            depth -= 1
            if depth < 0:
                return token.start
            if depth == 0 and token.text == b"}" and _next_is_not(text, token.end, limit, (b";", b",", b"=")):
                return token.end
        elif token.text == b";" and depth == 0:
            return token.end
    return limit


def after_brackets(text: bytes, start: int, limit: int) -> tuple[int, bytes]:
    """Where `(...)` and `[...]` end that stand at `start`, and the token after them."""
    depth = 0
    for token in tokens(text, start, limit):
        if token.kind == "directive":
            continue
        if depth == 0 and token.text not in (b"(", b"["):
            return start, token.text
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        start = token.end if depth == 0 else start
    return start, b""


def closes_nothing(text: bytes, offset: int) -> bool:
    """Whether the `}` there has no `{`, or what stands there is a macro's name. Branches of an `#if` begin as deep as
    it stands, each of them."""
    depth = 0
    outside: list[int] = []  # depths at the open `#if`s
    for token in tokens(text, 0, offset):
        name = directive_name(token) if token.kind == "directive" else ""
        if name.startswith("if"):
            outside.append(depth)
        elif name.startswith("el") and outside:
            depth = outside[-1]
        elif name == "endif" and outside:
            outside.pop()
        depth += (token.text == b"{") - (token.text == b"}")
    return depth <= 0 or text[offset : offset + 1] != b"}"


def _next_is_not(text: bytes, start: int, limit: int, marks: tuple[bytes, ...]) -> bool:
    following = next((t for t in tokens(text, start, limit) if t.kind != "directive"), None)
    return following is None or following.text not in marks


def blanked(text: bytes, start: int, end: int, first: bytes = b"") -> bytes:
    """The text with spaces in place of a range: lines and columns stay, and so do preprocessing directives."""
    parts, at = [text[:start]], start
    for token in tokens(text, start, end):
        if token.kind == "directive" and token.end <= end:
            parts += [_spaces(text[at : token.start]), token.text]
            at = token.end
    parts += [_spaces(text[at:end]), text[end:]]
    whole = b"".join(parts)
    return whole[:start] + first + whole[start + len(first) :] if first else whole


def _spaces(text: bytes) -> bytes:
    return re.sub(rb"[^\r\n]", b" ", text)


@dataclass
class Conditional:
    """From an `#if` to its `#endif`, and the directives that decide what is between them."""

    start: int
    end: int
    conditions: list[Token] = field(default_factory=list)
    is_guard: bool = False  # `#ifndef X`, `#define X`: a file's guard against including twice
    is_default: bool = False  # the same with nothing else in it: a macro's value where nobody gave it one


def conditionals(text: bytes) -> list[Conditional]:
    found: list[Conditional] = []
    stack: list[Conditional] = []
    previous: Token | None = None
    for token in directives(text):
        name = directive_name(token)
        if name in ("if", "ifdef", "ifndef"):
            stack.append(Conditional(token.start, len(text), [token]))
            found.append(stack[-1])
        elif name.startswith("elif") and stack:
            stack[-1].conditions.append(token)
        elif name == "endif" and stack:
            stack.pop().end = token.end
        elif name == "define" and stack and previous is stack[-1].conditions[0]:
            negated = directive_name(previous) == "ifndef" or b"!" in previous.text
            stack[-1].is_guard = negated and names_in(token)[:1] == names_in(previous)[-1:]
        previous = token
    for region in found:
        region.is_default = region.is_guard and _holds_no_code(region, text)
        region.is_guard = region.is_guard and _holds_everything(region, text)
    return found


def _holds_no_code(region: Conditional, text: bytes) -> bool:
    return all(token.kind == "directive" for token in tokens(text, region.start, region.end))


def _holds_everything(region: Conditional, text: bytes) -> bool:
    """All code of the file; where there is none, all directives but `#include`s and pragmas."""
    marks = list(tokens(text))
    code = [token for token in marks if token.kind != "directive"]
    rest = code or [d for d in marks if directive_name(d) not in ("include", "pragma")]
    return all(region.start <= token.start < region.end for token in rest)
