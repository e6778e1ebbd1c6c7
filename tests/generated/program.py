"""A generated kernel as a tree of source lines, so that it can be taken apart again when it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

Node = "str | Nest"


@dataclass
class Nest:
    """Lines within braces. `head` ends with an opening brace."""

    head: str
    body: list[str | Nest]
    tail: str = "}"


@dataclass
class Program:
    """A kernel `k` with its functions, and how it is run. `narrow`: what the type of some members and casts is."""

    functions: list[Nest]
    kernel: Nest
    narrow: str = "double"
    listed: tuple[str, ...] = ("y", "x")
    grid: tuple[int, int] = (1, 1)
    block: tuple[int, int] = (16, 1)
    n: int = 12
    m: int = 3
    seed: int = 0
    features: frozenset[str] = field(default_factory=frozenset)

    @property
    def source(self) -> str:
        record = f"struct P {{ double u; int k; {self.narrow} v; }};"
        parts = [record, *("\n".join(lines(f)) for f in self.functions), "\n".join(lines(self.kernel))]
        return "\n\n".join(parts) + "\n"

    def describe(self) -> str:
        launch = f"grid {self.grid}, block {self.block}, n = {self.n}, m = {self.m}"
        return f"{self.source}\n// listed: {', '.join(self.listed)}; {launch}; data seed {self.seed}"


def lines(node: str | Nest, indent: str = "") -> Iterator[str]:
    if isinstance(node, str):
        yield indent + node
        return
    yield indent + node.head
    for child in node.body:
        yield from lines(child, indent + "    ")
    yield indent + node.tail


def count(node: str | Nest) -> int:
    """Statements."""
    return 1 if isinstance(node, str) else 1 + sum(map(count, node.body))


# ---- making it smaller ----------------------------------------------------------------------------------------------


def reduced(program: Program, fails: Callable[[Program], bool], attempts: int = 400) -> Program:
    """The smallest program found that still fails. Candidates need not compile: those do not fail in the same way."""
    for _ in range(attempts):
        for candidate in _smaller(program):
            attempts -= 1
            if attempts < 0:
                return program
            if fails(candidate):
                program = candidate
                break
        else:
            return program
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for k in range(len(program.functions)):
        yield replace(program, functions=program.functions[:k] + program.functions[k + 1 :])
    for kernel in _variants(program.kernel):
        yield replace(program, kernel=kernel)
    for k, function in enumerate(program.functions):
        for variant in _variants(function):
            yield replace(program, functions=[*program.functions[:k], variant, *program.functions[k + 1 :]])
    for name in program.listed:
        if len(program.listed) > 1:
            yield replace(program, listed=tuple(n for n in program.listed if n != name))
    if program.grid != (1, 1) or program.block != (16, 1):
        yield replace(program, grid=(1, 1), block=(16, 1))


def _variants(nest: Nest) -> Iterator[Nest]:
    """Nests with one thing less: big pieces first, then statements, then parts of expressions."""
    half = len(nest.body) // 2
    if half > 1:
        yield replace(nest, body=nest.body[:half])
        yield replace(nest, body=nest.body[half:])
    for k in range(len(nest.body) - 1, -1, -1):
        yield replace(nest, body=nest.body[:k] + nest.body[k + 1 :])
    for k, child in enumerate(nest.body):
        before, after = nest.body[:k], nest.body[k + 1 :]
        if isinstance(child, Nest):
            yield replace(nest, body=[*before, *child.body, *after])
            for variant in _variants(child):
                yield replace(nest, body=[*before, variant, *after])
            for text in _simpler(child.head):
                yield replace(nest, body=[*before, replace(child, head=text), *after])
        else:
            for text in _simpler(child):
                yield replace(nest, body=[*before, text, *after])


def _simpler(text: str) -> Iterator[str]:
    """The text with one pair of brackets replaced by a number, or by one of two operands."""
    for match in re.finditer(r"\w*\(", text):
        end = _closing(text, match.end() - 1)
        if end is None or end - match.start() < 5:
            continue
        for simple in ("0.5", "1", "x[i]"):
            yield text[: match.start()] + simple + text[end + 1 :]
        yield text[: match.start()] + text[match.end() - 1 :] if match.group() != "(" else text


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for k in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        if depth == 0:
            return k
    return None
