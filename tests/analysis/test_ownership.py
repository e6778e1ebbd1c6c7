"""Who is said to have an element alone has it alone, by brute force: quotients and remainders, rows in strides."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from types import CodeType
from typing import NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.ownership.private import is_apart, is_private, places_of
from kernelgrad.analysis.ownership.single_stores import is_stored_once
from kernelgrad.analysis.ownership.whole import bytes_read_once
from kernelgrad.ir.ops import Function, Store

KERNELS = 200
STARTS = {
    "guarded": ("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;", False),
    "all": ("int i = blockIdx.x * blockDim.x + threadIdx.x;", False),
    "inside": ("int i = threadIdx.x;", False),
    "unsigned": ("unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;", False),
    "shifted": ("int i = blockIdx.x * blockDim.x + threadIdx.x + 3; if (i >= n) return;", False),
    "rows": ("int i = threadIdx.y * blockDim.x + threadIdx.x; if (i >= n) return;", False),
    "strided": (
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)",
        True,
    ),
    "tile": ("for (int i = threadIdx.x; i < 24; i += 8)", True),
}


class Case(NamedTuple):
    start: str
    address: str  # of y, in elements, from i and the numbers a, b, c
    numbers: dict[str, int]
    grid: int
    block: tuple[int, int]

    def kernel(self, name: str) -> str:
        head, _ = STARTS[self.start]
        return (
            f"__global__ void {name}(double *y, int n, int a, int b, int c) {{ {head} {{ y[{self.address}] = i; }} }}"
        )

    def addresses(self) -> list[tuple[int, int]]:
        """(thread of the grid, element) of every execution."""
        wide, deep = self.block
        n, found = self.numbers["n"], []
        for g in range(self.grid):
            for t in range(wide * deep):
                x, y = t % wide, t // wide
                i, step, end = g * wide + x, 0, n
                match self.start:
                    case "inside":
                        i, end = x, 1 << 30
                    case "all":
                        end = 1 << 30
                    case "rows":
                        i = y * wide + x
                    case "shifted":
                        i += 3
                    case "strided":
                        step = self.grid * wide
                    case "tile":
                        i, step, end = x, 8, 24
                while i < end:
                    scope = {**self.numbers, "i": i}
                    found.append((g * wide * deep + t, _value(self.address, scope)))
                    if not step:
                        break
                    i += step
        return found


def case(seed: int) -> Case:
    chosen = random.Random(seed)
    a, b, c = (chosen.choice((2, 3, 4, 5, 8, 10)) for _ in range(3))
    three = [[("i % a", a), (middle, b), ("i / (a * b)", c)] for middle in ("i / a % b", "i % (a * b) / a")]
    digits = chosen.choice(three) if chosen.random() < 0.7 else [("i % a", a), ("i / a", b)]
    if chosen.random() < 0.2:
        digits = [("i & 7", 8), (chosen.choice(("i >> 3", "i / 8")), b)]
    if chosen.random() < 0.2:  # digits of digits, as a pixel shuffle has
        digits = [("i % (a * b) % a", a), ("i % (a * b) / a", b), (f"i / (a * b) {chosen.choice('%/')} c", c)]
    chosen.shuffle(digits)
    place, terms = 1, []
    for digit, extent in digits:
        if chosen.random() < 0.9:
            terms.append(f"{place} * ({digit})")
        place = chosen.choice((place * extent, place * extent, place * extent + 1, place * extent - 1, place))
    if chosen.random() < 0.2:
        terms.append(chosen.choice(("i", "7", "2 * i")))
    total = int(np.prod([extent for _, extent in digits]))
    n = chosen.choice((total, total, total - 1, total + 3))
    block = (8, 1) if chosen.random() < 0.6 else chosen.choice(((3, 4), (16, 2), (5, 1), (32, 1)))
    start = chosen.choice(list(STARTS))
    grid = chosen.choice((1, 2, -(-n // block[0])))
    return Case(start, " + ".join(terms or ["i"]), {"n": n, "a": a, "b": b, "c": c}, grid, block)


class Rows(NamedTuple):
    """Two loops of a kernel over the rows of y: each from a lane to an end in steps, at a pitch, from an offset."""

    row: str
    lane: str
    loops: tuple[tuple[str, str, int, int, int], ...]  # step, end, pitch, stride, offset
    n: int
    grid: int
    block: tuple[int, int]

    def kernel(self, name: str) -> str:
        body = "".join(
            f"for (int c = {self.lane}; c < {end}; c += {step})"
            f" y[({self.row}) * {pitch} + c * {stride} + {offset}] = c;"
            for step, end, pitch, stride, offset in self.loops
        )
        return f"__global__ void {name}(double *y, int n) {{ {body} }}"

    def addresses(self) -> list[tuple[int, int]]:
        found = []
        wide, deep = self.block
        for g in range(self.grid):
            for t in range(wide * deep):
                scope = {
                    "bx": g,
                    "x": t % wide,
                    "y": t // wide,
                    "bdx": wide,
                    "bdy": deep,
                    "gdx": self.grid,
                    "n": self.n,
                }
                for step, end, pitch, stride, offset in self.loops:
                    columns = range(_value(self.lane, scope), _value(end, scope), _value(step, scope))
                    row = _value(self.row, scope) * pitch + offset
                    found += [(g * wide * deep + t, row + c * stride) for c in columns]
        return found


_SPELLED = {"blockIdx.x": "bx", "threadIdx.x": "x", "threadIdx.y": "y", "blockDim.x": "bdx", "blockDim.y": "bdy"}


def _value(text: str, scope: dict[str, int]) -> int:
    return int(eval(_code(text), {}, scope))


@cache
def _code(text: str) -> CodeType:
    for one, other in {**_SPELLED, "gridDim.x": "gdx", "/": "//"}.items():
        text = text.replace(one, other)
    return compile(text, "<address>", "eval")


def rows(seed: int) -> Rows:
    chosen = random.Random(seed)
    row = chosen.choice(
        (
            "blockIdx.x",
            "blockIdx.x * (blockDim.x / 8) + threadIdx.x / 8",
            "threadIdx.y",
            "blockIdx.x * blockDim.y + threadIdx.y",
        )
    )
    lane = chosen.choice(("threadIdx.x % 8", "threadIdx.x % 8", "threadIdx.x") if "/ 8" in row else ("threadIdx.x",))
    n = chosen.choice((8, 16, 20, 21))
    step = "8" if "%" in lane else "blockDim.x"
    pitch, stride = chosen.choice((n, n, n + 1, n - 1, 2 * n)), chosen.choice((1, 1, 1, 2))
    loops = []
    for _ in range(chosen.choice((1, 2))):
        own = step if chosen.random() < 0.9 else chosen.choice(("4", "gridDim.x", "16"))
        offset = chosen.choice((0, 0, 0, 1, n))
        loops.append((own, chosen.choice(("n", "n", "n", "n - 1", "10")), pitch, stride, offset))
    block = chosen.choice(((8, 1), (16, 1), (32, 1), (8, 2), (4, 3)))
    return Rows(row, lane, tuple(loops), n, chosen.choice((1, 2, 3)), block)


class Turns(NamedTuple):
    """Stores to planes of y, each at a column and a row that come round."""

    columns: str  # of a thread
    guards: tuple[str, ...]
    stores: tuple[tuple[int, int, int, int, int], ...]  # plane, shifts of column and row, and after how many they turn
    pitch: int
    plane: int
    n: int
    grid: int
    block: tuple[int, int]

    def kernel(self, name: str) -> str:
        body = "".join(
            f"y[{plane * self.plane} + (threadIdx.y + {down}) % {deep} * {self.pitch} + (c + {across}) % {wide}] = c;"
            for plane, across, down, wide, deep in self.stores
        )
        guard = " && ".join(self.guards) or "true"
        return f"__global__ void {name}(double *y, int n) {{ int c = {self.columns}; if ({guard}) {{ {body} }} }}"

    def addresses(self) -> list[tuple[int, int]]:
        wide, deep = self.block
        found = []
        for g in range(self.grid):
            for t in range(wide * deep):
                scope = {"bx": g, "x": t % wide, "y": t // wide, "bdx": wide, "bdy": deep, "n": self.n}
                c = scope["c"] = _value(self.columns, scope)
                if all(_value(guard, scope) for guard in self.guards):
                    for plane, across, down, width, height in self.stores:
                        row = (scope["y"] + down) % height * self.pitch
                        found.append((g * wide * deep + t, plane * self.plane + row + (c + across) % width))
        return found


def turns(seed: int) -> Turns:
    chosen = random.Random(seed)
    block, grid = chosen.choice(((8, 1), (8, 3), (5, 2), (16, 4))), chosen.choice((1, 2, 3))
    columns = chosen.choice(("blockIdx.x * blockDim.x + threadIdx.x",) * 4 + ("threadIdx.x", "2 * threadIdx.x"))
    n = chosen.choice((block[0] * grid, block[0] * grid - 3, 7))
    width, height = chosen.choice((n, n, n, n - 1, n + 2)), chosen.choice((block[1], block[1], block[1] + 1))
    guards = tuple(g for g in ("c < n", "threadIdx.y < 2") if chosen.random() < 0.6)
    stores = tuple(
        (plane, chosen.choice((0, 1, width - 1, width, width + 1)), chosen.choice((0, 1, height - 1)), width, height)
        for plane in range(chosen.choice((1, 2, 3)))
    )
    pitch = chosen.choice((width, width, width, width + 1, width - 1))
    plane = chosen.choice((pitch * height, pitch * height, pitch * height + 2, pitch * height - 1, 0))
    return Turns(columns, guards, stores, pitch, plane, n, grid, block)


FAMILIES = {"divisions": case, "rows": rows, "turns": turns}


@pytest.mark.parametrize("family", FAMILIES)
def test_proofs_hold(family: str) -> None:
    made = {f"k{seed}": FAMILIES[family](seed) for seed in range(KERNELS)}
    module = kg.compile("\n".join(one.kernel(name) for name, one in made.items()))
    counts = Counter[str]()
    for name, one in made.items():
        said, executions = claims(module[name].function, one), one.addresses()
        different = len({element for _, element in executions})
        owned, once = different == len(set(executions)), different == len(executions)
        alone = owned and len(getattr(one, "stores", (1,))) == 1
        for claim, truth in (("private", owned), ("apart", alone), ("once", once)):
            assert truth or not said[claim], f"{claim}: {one}\n{one.kernel(name)}"
            counts[claim] += said[claim]
            counts[f"{claim}, in truth"] += truth
    assert all(counts[claim] >= 0.4 * counts[f"{claim}, in truth"] for claim in ("private", "apart", "once")), counts


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_from_end_to_end(family: str) -> None:
    made = {f"k{seed}": FAMILIES[family](seed) for seed in range(KERNELS)}
    module = kg.compile("\n".join(reading(one.kernel(name)) for name, one in made.items()))
    counts = Counter[str]()
    for name, one in made.items():
        function = module[name].function
        nested, y = structure.analyse(function, apart=False), function.params[0].value
        said = bytes_read_once(y, roots.analyse(function), places_of(nested), sums_of(function, nested, one))
        elements = sorted(element for _, element in one.addresses())
        is_whole = elements == list(range(len(elements)))
        assert said is None or (is_whole and said == 8 * len(elements)), f"{said}: {one}\n{one.kernel(name)}"
        counts["said"] += said is not None
        counts["in truth"] += is_whole
    assert counts["said"] >= 0.4 * counts["in truth"], counts


def reading(kernel: str) -> str:
    """The kernel that reads y where it was written."""
    return re.sub(r"(y\[.*?\]) = (\w)", r"z[\2] = \1", kernel.replace(") {", ", double *z) {", 1))


def sums_of(function: Function, nested: structure.Structure, one: Case | Rows | Turns) -> Sums:
    _, *numbers = (p.value for p in function.params)
    values = one.numbers.values() if isinstance(one, Case) else (one.n,)
    known = dict(zip(numbers, values, strict=False))
    return Sums(nested, Shape((one.grid, 1, 1), (*one.block, 1)), known.get)


def claims(function: Function, one: Case | Rows | Turns) -> dict[str, bool]:
    """What the analysis says of y."""
    memory, nested = roots.analyse(function), structure.analyse(function, apart=False)
    y, places, sums = function.params[0].value, places_of(nested), sums_of(function, nested, one)
    stores = [op for op in memory.stores if isinstance(op, Store)]
    return {
        "private": is_private(y, memory, places, sums),
        "apart": len(stores) == 1 and is_apart(stores[0], y, memory, places, sums),
        "once": is_stored_once(y, memory, places, sums),
    }
