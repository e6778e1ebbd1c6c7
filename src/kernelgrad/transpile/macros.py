"""Macros that ask for derivatives, expanded where they are used: what is asked for stands in the text then. Line breaks
stay, so that what comes after has the line it had."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import Span, UnsupportedError
from ..frontend.text import Token, directive_name, directives, tokens
from ..frontend.unit import Unit

_DEFINE = re.compile(rb"\s*#\s*define\s+(\w+)(\(([^)]*)\))?(.*)", re.S)
_ASKS = re.compile(
    rb"\b__enzyme_(?:autodiff|fwddiff|augmentfwd|reverse)\w*|\benzyme_(?:dup|dupnoneed|out|const|allocated)\b"
    rb"|\bclad\s*::|\bexecute(?:_kernel)?\s*\("
)
_MOST = 32  # macros within each other


@dataclass(frozen=True)
class _Macro:
    """`params`: of one that is used like a function. `body`: in one line."""

    name: bytes
    params: tuple[bytes, ...] | None
    body: bytes
    at: int


def expanded(unit: Unit) -> str:
    """The text of a unit, without uses of such macros."""
    text = unit.text.encode()
    if not any(_ASKS.search(d.text) for d in directives(text) if directive_name(d) == "define"):
        return unit.text
    macros = _asking(unit, text)
    for _ in range(_MOST):
        found = _Uses(unit, text, macros).expanded()
        if found == text:
            break
        text = found
    return text.decode()


def _asking(unit: Unit, text: bytes) -> dict[bytes, _Macro]:
    """Those that ask, and those that use such."""
    known = dict[bytes, _Macro]()
    twice = set[bytes]()
    for token in directives(text):
        match = _DEFINE.match(token.text) if directive_name(token) == "define" else None
        if match is not None:
            params = tuple(p.strip() for p in match[3].split(b",") if p.strip()) if match[2] is not None else None
            body = re.sub(rb"\\\r?\n|//[^\n]*|/\*.*?\*/", b" ", match[4], flags=re.S).strip()
            twice |= {match[1]} & known.keys()
            known[match[1]] = _Macro(match[1], params, body, token.start)
    asking = {n for n, macro in known.items() if _ASKS.search(macro.body)}
    while more := {n for n, m in known.items() if n not in asking and asking & set(re.findall(rb"\w+", m.body))}:
        asking |= more
    for name in asking & twice:
        raise _refused(unit, text, known[name].at, f"'{name.decode()}' asks for a derivative, and is defined twice")
    return {name: known[name] for name in asking}


def _refused(unit: Unit, text: bytes, at: int, problem: str) -> UnsupportedError:
    before = text[:at]
    span = Span(unit.sources.get(unit.name), before.count(b"\n") + 1, at - before.rfind(b"\n"))
    return UnsupportedError(f"{problem}: it cannot be transpiled", span, "write the call where the macro is used")


class _Uses:
    """One round: uses inside of what a use becomes have the next."""

    def __init__(self, unit: Unit, text: bytes, macros: dict[bytes, _Macro]):
        self.unit, self.text, self.macros = unit, text, macros
        self.tokens = [t for t in tokens(text) if t.kind != "directive"]

    def expanded(self) -> bytes:
        parts, done, k = list[bytes](), 0, 0
        while k < len(self.tokens):
            token = self.tokens[k]
            macro = self.macros.get(token.text) if token.kind == "name" else None
            last = self._last(k, macro) if macro is not None else None
            if macro is None or last is None:
                k += 1
                continue
            end = self.tokens[last].end
            became = self._became(macro, k, last)
            breaks = self.text[token.start : end].count(b"\n") - became.count(b"\n")
            parts += [self.text[done : token.start], became, b"\n" * max(0, breaks)]
            done, k = end, last + 1
        return b"".join([*parts, self.text[done:]])

    def _last(self, k: int, macro: _Macro) -> int | None:
        """The number of the last token of a use; None where it is none."""
        if macro.params is None:
            return k
        if k + 1 >= len(self.tokens) or self.tokens[k + 1].text != b"(":
            return None
        depth = 0
        for number in range(k + 1, len(self.tokens)):
            depth += (self.tokens[number].text == b"(") - (self.tokens[number].text == b")")
            if depth == 0:
                return number
        return None

    def _became(self, macro: _Macro, k: int, last: int) -> bytes:
        if macro.params is None:
            return macro.body
        given = self._arguments(self.tokens[k + 2 : last], self.tokens[k + 1].end, self.tokens[last].start)
        values = dict(zip((p for p in macro.params if p != b"..."), given, strict=False))
        if macro.params[-1:] == (b"...",):
            values[b"__VA_ARGS__"] = b", ".join(given[len(macro.params) - 1 :])
        elif len(given) != len(macro.params) and (given != [b""] or macro.params):
            problem = f"'{macro.name.decode()}' wants {len(macro.params)} arguments, got {len(given)}"
            raise _refused(self.unit, self.text, self.tokens[k].start, problem)
        if re.search(rb"(?<!#)#(?!#)", macro.body):
            problem = f"'{macro.name.decode()}' asks for a derivative, and makes strings of its arguments"
            raise _refused(self.unit, self.text, self.tokens[k].start, problem)
        became = re.sub(rb"\w+", lambda match: values.get(match[0], match[0]), macro.body)
        return re.sub(rb"\s*##\s*", b"", became)

    def _arguments(self, inside: list[Token], start: int, end: int) -> list[bytes]:
        depth, cuts = 0, [start]
        for token in inside:
            depth += (token.text in (b"(", b"[", b"{")) - (token.text in (b")", b"]", b"}"))
            if token.text == b"," and depth == 0:
                cuts.append(token.end)
        ends = [cut - 1 for cut in cuts[1:]] + [end]
        return [self.text[a:b].strip() for a, b in zip(cuts, ends, strict=True)]
