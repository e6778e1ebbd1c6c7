"""A generated kernel as a tree of source lines, so that it can be taken apart again when it fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice


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
    cooperating: bool = False
    shared: int = 0  # bytes of dynamic shared memory
    preamble: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """How many threads have elements of their own in the buffers that are written."""
        threads = self.grid[0] * self.grid[1] * self.block[0] * self.block[1]
        return max(self.n, threads) if self.cooperating else self.n

    @property
    def source(self) -> str:
        record = f"struct P {{ double u; int k; {self.narrow} v; }};"
        parts = [*self.preamble, record, *("\n".join(lines(f)) for f in self.functions), "\n".join(lines(self.kernel))]
        return "\n\n".join(parts) + "\n"

    def describe(self) -> str:
        launch = f"grid {self.grid}, block {self.block}, shared {self.shared}, n = {self.n}, m = {self.m}"
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


def reduced(program: Program, fails: Callable[[Program], bool], seconds: float = 120) -> Program:
    """The smallest program found that still fails. Candidates need not compile: those do not fail in the same way."""
    end = time.monotonic() + seconds
    for parts in (_statements, _expressions):
        changed = True
        while changed:
            program, changed = _one_pass(program, fails, parts, end)
    return program


Parts = Callable[[Nest], Iterator[Nest]]


def _one_pass(program: Program, fails: Callable[[Program], bool], parts: Parts, end: float) -> tuple[Program, bool]:
    """Tries every candidate once, going on at the same position when one is taken."""
    position, changed = 0, False
    while time.monotonic() < end:
        candidate = next(islice(_smaller(program, parts), position, None), None)
        if candidate is None:
            return program, changed
        if fails(candidate):
            program, changed = candidate, True
        else:
            position += 1
    return program, False


def _smaller(program: Program, parts: Parts) -> Iterator[Program]:
    functions = program.functions
    for k in range(len(functions)):
        yield replace(program, functions=functions[:k] + functions[k + 1 :])
    block = program.block if program.cooperating else (16, 1)  # the text of cooperating kernels has its size in it
    if program.grid != (1, 1) or program.block != block:
        yield replace(program, grid=(1, 1), block=block)
    for name in program.listed:
        if len(program.listed) > 1:
            yield replace(program, listed=tuple(n for n in program.listed if n != name))
    for kernel in parts(program.kernel):
        yield replace(program, kernel=kernel)
    for k, function in enumerate(functions):
        for variant in parts(function):
            yield replace(program, functions=[*functions[:k], variant, *functions[k + 1 :]])


def _statements(nest: Nest) -> Iterator[Nest]:
    """The nest with some statements less, or without one pair of braces."""
    body = nest.body
    for size in (len(body) // 2, len(body) // 4, 1):
        for start in range(0, len(body), size) if size else ():
            yield replace(nest, body=body[:start] + body[start + size :])
    for k, child in enumerate(body):
        if isinstance(child, Nest):
            yield replace(nest, body=[*body[:k], *child.body, *body[k + 1 :]])
            for variant in _statements(child):
                yield replace(nest, body=[*body[:k], variant, *body[k + 1 :]])


def _expressions(nest: Nest) -> Iterator[Nest]:
    """The nest with one expression made simpler."""
    body = nest.body
    for k, child in enumerate(body):
        if isinstance(child, str):
            variants: Iterator[str | Nest] = _simpler(child)
        else:
            heads = (replace(child, head=head) for head in _simpler(child.head))
            tails = (replace(child, tail=tail) for tail in _simpler(child.tail))
            variants = chain(heads, tails, _expressions(child))
        for variant in variants:
            yield replace(nest, body=[*body[:k], variant, *body[k + 1 :]])


def _simpler(text: str) -> Iterator[str]:
    """The text with one pair of brackets replaced by a number or by one of its operands."""
    for match in re.finditer(r"\w*\(", text):
        end = _closing(text, match.end() - 1)
        if end is None or end - match.start() < 5:
            continue
        before, inside, after = text[: match.start()], text[match.end() : end], text[end + 1 :]
        for simple in ("1", "0.5", *_operands(inside)):
            yield before + simple + after


def _operands(text: str) -> list[str]:
    """What operators outside brackets separate."""
    depth, start, found = 0, 0, []
    for k, char in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        if depth == 0 and char == " ":
            found.append(text[start:k].rstrip(","))
            start = k + 1
    found.append(text[start:])
    return [part for part in found if part[:1].isalnum() or part[:1] == "("]


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for k in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        if depth == 0:
            return k
    return None
