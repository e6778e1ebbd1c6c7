"""Texts nested so deeply that libclang, left to itself, takes the process with it. They run in other processes: all of
one kind in one, which lives on if all is well."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from kernelgrad.frontend.overflow import longest_statement

RUN = """
import json, sys
import numpy as np
import kernelgrad as kg
from kernelgrad import deep

def told(body, launch):
    try:
        module = kg.compile(body)
        y = np.array([3.0, 0.0])
        if launch:
            module["k"][1, 1](y, 2)
        return f"ok {len(module.functions)} {y[0]}"
    except kg.KernelGradError as error:
        return f"{type(error).__name__} {error}"

stack, texts, launch = json.load(sys.stdin)
if stack:
    deep._STACKS = (stack,)
print(json.dumps([told(body, launch) for body in texts]))
"""


def kernel(body: str) -> str:
    return f"__global__ void k(double *y, int n) {{ double v = y[0];\n{body}\ny[0] = v; }}"


def bases(n: int) -> str:
    derived = "".join(f"struct s{k + 1} : public s{k} {{}};\n" for k in range(n))
    return f"struct s0 {{ double v; }};\n{derived}" + kernel(f"s{n} s; s.v = v; v = s.v + 1;")


def run(*texts: str, stack: int = 0, launch: bool = False) -> list[str]:
    """What a process tells of each text in turn."""
    command, told = [sys.executable, "-c", RUN], json.dumps([stack, texts, launch])
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[str] = json.loads(done.stdout)
    return found


DEEP = {  # text for a depth, the value for y[0] = 3, a depth that killed libclang, one to launch
    "casts": (lambda n: kernel("v = " + "(double)" * n + "v;"), 3.0, 4000, 1000),
    "sums": (lambda n: kernel("v = " + "+".join(["v"] * n) + ";"), 3.0, 30_000, 500),
    "else_ifs": (lambda n: kernel(" else ".join(f"if (n == {k}) v = {k};" for k in range(n))), 2.0, 5000, 200),
    "ifs": (lambda n: kernel("if (n) " * n + "v = 7;"), 7.0, 6000, 200),
    "loops": (lambda n: kernel("for (; v < 7;) " * n + "v = 7;"), 7.0, 6000, 40),
    "assignments": (lambda n: kernel("v = " * n + "1;"), 1.0, 16_000, 500),
    "commas": (lambda n: kernel("v = 1" + ", v += 1" * n + ";"), None, 20_000, 300),
    "unary": (lambda n: kernel("v = " + "- " * n + "v;"), 3.0, 20_000, 1000),
    "choices": (lambda n: kernel("v = " + "".join(f"n == {k} ? {k} : " for k in range(n)) + "0;"), 2.0, 10_000, 200),
    "labels": (lambda n: kernel("".join(f"l{k}:" for k in range(n)) + "v = 1;"), None, 16_000, 0),
    "macro": (
        lambda n: "#define A - - - - - - - -\n#define B A A A A A A A A\n" + kernel("v = " + "B " * (n // 64) + "v;"),
        3.0,
        20_000,
        640,
    ),
    "bases": (bases, 4.0, 900, 100),
}


DEEPER = ("casts", "sums", "else_ifs", "loops", "macro")


@cache
def parsed() -> dict[str, str]:
    return dict(zip(DEEP, run(*(text(depth) for text, _, depth, _ in DEEP.values())), strict=True))


@cache
def launched() -> dict[str, str]:
    rows = {kind: row for kind, row in DEEP.items() if row[3]}
    return dict(zip(rows, run(*(text(depth) for text, _, _, depth in rows.values()), launch=True), strict=True))


@cache
def with_small_stack() -> dict[str, str]:
    """So that it takes no megabytes of text."""
    return dict(zip(DEEPER, run(*(DEEP[kind][0](DEEP[kind][2]) for kind in DEEPER), stack=1 << 20), strict=True))


@pytest.mark.parametrize("kind", DEEP)
def test_deep_texts_parse(kind: str) -> None:
    assert parsed()[kind].startswith("ok 1 ")


@pytest.mark.parametrize("kind", [kind for kind, row in DEEP.items() if row[3]])
def test_and_mean_what_they_say(kind: str) -> None:
    _, value, _, depth = DEEP[kind]
    expected = {"sums": 3.0 * depth, "commas": 1.0 + depth}.get(kind, value)
    assert launched()[kind] == f"ok 1 {expected}"


@pytest.mark.parametrize("kind", DEEPER)
def test_deeper_ones_are_errors(kind: str) -> None:
    told = with_small_stack()[kind]
    place = "error" if kind == "macro" else "kernel.cu:2:1: error"
    assert told.startswith(f"UnsupportedError {place}: libclang runs out of stack")
    assert "help: write it in several statements" in told


def test_bases_are_counted() -> None:
    (told,) = run(bases(3000))
    assert told.startswith("UnsupportedError kernel.cu:1002:1: error: classes derive from one another more than 1000")


def test_headers_too(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "deep.h").write_text(kernel("v = " + "(double)" * 4000 + "v;"))
    text = f'#include "{tmp_path}/deep.h"\n'
    assert run(text, launch=True) == ["ok 1 3.0"]
    assert run(text, stack=1 << 20)[0].startswith("UnsupportedError error: libclang runs out of stack")


def test_longest_statement() -> None:
    assert longest_statement("int a; if (x) b; else if (y) { c; } d = 'e;' + f /* ;;; */ ;")[0] == 7
    assert longest_statement("a; b + c; d;") == (3, 4)
