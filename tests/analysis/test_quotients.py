"""Quotients and remainders as digits: who is said to have an element alone has it alone, by brute force."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.ownership.private import is_apart, is_private, places_of
from kernelgrad.analysis.ownership.single_stores import is_stored_once
from kernelgrad.ir.ops import Store

KERNELS = 400
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
                    found.append((g * wide * deep + t, int(eval(self.address.replace("/", "//"), {}, scope))))
                    if not step:
                        break
                    i += step
        return found


def case(seed: int) -> Case:
    chosen = random.Random(seed)
    a, b, c = (chosen.choice((2, 3, 4, 5, 8, 10)) for _ in range(3))
    digits = (
        [("i % a", a), ("i / a % b", b), ("i / (a * b)", c)] if chosen.random() < 0.7 else [("i % a", a), ("i / a", b)]
    )
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


@pytest.fixture(scope="module")
def kernels() -> dict[int, kg.Kernel]:
    module = kg.compile("\n".join(case(seed).kernel(f"k{seed}") for seed in range(KERNELS)))
    return {seed: module[f"k{seed}"] for seed in range(KERNELS)}


def test_proofs_hold(kernels: dict[int, kg.Kernel]) -> None:
    proven = np.zeros(3, int)
    true = np.zeros(3, int)
    for seed, kernel in kernels.items():
        made, function = case(seed), kernel.function
        memory, nested = roots.analyse(function), structure.analyse(function, apart=False)
        (y, n, a, b, c), places = (p.value for p in function.params), places_of(nested)
        numbers = {v: made.numbers[name] for v, name in zip((n, a, b, c), "nabc", strict=True)}
        sums = Sums(nested, Shape((made.grid, 1, 1), (*made.block, 1)), numbers.get)
        (store,) = (op for op in memory.stores if isinstance(op, Store))
        said = (
            is_private(y, memory, places, sums),
            is_apart(store, y, memory, places, sums),
            is_stored_once(y, memory, places, sums),
        )
        executions = made.addresses()
        owners = len({element for _, element in executions}) == len(set(executions))
        once = len({element for _, element in executions}) == len(executions)
        for claim, truth in zip(said, (owners, owners, once), strict=True):
            assert truth or not claim, f"{made}\n{said}"
        proven += said
        true += (owners, owners, once)
    assert (proven > 0.6 * true).all(), f"{proven} of {true}"
