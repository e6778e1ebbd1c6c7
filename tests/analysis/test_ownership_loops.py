"""What is proven of an element's owner in loops of every kind, with indices of every type: against all executions.

The kernels are near misses: numbers of digits whose places fit exactly, or by one too little. An interpreter runs each
thread and tells where it loads and stores.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any, NamedTuple

import kernelgrad as kg
from ir_interpreter import Machine, TooLong
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.access.footprints import footprints
from kernelgrad.analysis.ownership.loads_before_stores import Before, Numbers
from kernelgrad.analysis.ownership.private import is_apart, is_private, places_of
from kernelgrad.analysis.ownership.single_stores import is_stored_once
from kernelgrad.ir.ops import Function, Store
from kernelgrad.ir.types import Type

KERNELS = 200
N = 5
BASE = 1 << 48  # where y begins
TYPES = ("int", "unsigned", "long long", "size_t", "short", "unsigned char")
# What stands before the statements and after them, with a variable {v} of the type {t} that has {e} values.
LOOPS = (
    ("for ({t} {v} = 0; {v} < {e}; ++{v}) {{", "}}"),
    ("for (int {v} = {e} - 1; {v} >= 0; --{v}) {{", "}}"),
    ("for ({t} {v} = threadIdx.x; {v} < {e}; {v} += blockDim.x) {{", "}}"),
    ("for ({t} {v} = threadIdx.x % 4; {v} < {e}; {v} += 4) {{", "}}"),
    ("for ({t} {v} = threadIdx.x * 2; {v} < {e}; {v} += blockDim.x * 2) {{", "}}"),
    ("for ({t} {v} = 0; {v} < {e}; {v} += n - 3) {{", "}}"),
    ("for ({t} {v} = 0; {v} <= {e}; ++{v}) {{ if ({v} == 1) continue;", "}}"),
    ("for ({t} {v} = 0; {v} <= {e}; ++{v}) {{", "if ({v} + 1 == {e}) break; }}"),
    ("{{ {t} {v} = 0; while ({v} < {e}) {{", "{v} += 1; }} }}"),
    ("{{ {t} {v} = 0; do {{", "{v} += 1; }} while ({v} < {e}); }}"),
    ("{{ unsigned {v} = 0; for (int k = 0; k < {e}; ++k) {{", "{v} += 1; }} }}"),
    ("{{ int {v} = 9; for (int k = 0; k < {e}; ++k) {{", "{v} -= 1u; }} }}"),
    ("{{ unsigned {v} = 2; for (int k = 0; k < {e}; ++k) {{", "{v} += 4294967295u; }} }}"),
)


class Digit(NamedTuple):
    expression: str
    extent: int
    opening: str = ""
    closing: str = ""


class Made(NamedTuple):
    text: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    def kernel(self, name: str) -> str:
        return f"__global__ void {name}(double *y, double *s, int n) {{ {self.text} }}"


def made(seed: int) -> Made:
    chosen = random.Random(seed)
    grid = chosen.choice(((1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1)))
    block = chosen.choice(((4, 1, 1), (8, 1, 1), (5, 1, 1), (4, 3, 1), (2, 2, 2), (1, 4, 1)))
    digits = [_loop(k, chosen) for k in range(chosen.choice((0, 1, 1, 2)))]
    digits += [digit for digit in _indices(grid, block, chosen) if chosen.random() < 0.9]
    chosen.shuffle(digits)
    place, terms, guards = 1, [], ""
    for digit, extent, _, _ in digits:
        terms.append(f"{digit} * {place}{chosen.choice(('', '', 'u'))}")
        if chosen.random() < 0.2:
            bound = chosen.choice((extent, max(1, extent - 1)))
            guards += f"if ({digit} {chosen.choice(('<', '<=', '!='))} {bound}) "
            extent = chosen.choice((extent, bound))
        place = max(1, place * extent + chosen.choice((0, 0, 0, 0, 0, 1, -1, -place)))
    address = chosen.choice(("", "", "", "(int)", "(long long)", "(unsigned char)")) + f"({' + '.join(terms) or '0'})"
    more = chosen.choice(
        ("", "", "", f"*s += y[{address} + {chosen.choice((place, -1, -2))}];", f"y[{address} + 1] = 2;")
    )
    opening, closing = "".join(d.opening for d in digits), "".join(d.closing for d in reversed(digits))
    return Made(f"{opening} {guards} {{ y[{address}] = 1; {more} }} {closing}", grid, block)


def _loop(number: int, chosen: random.Random) -> Digit:
    name, extent = f"v{number}", chosen.choice((1, 2, 3, N, 6))
    end = chosen.choice((str(extent), f"(n + {extent - N})"))
    opening, closing = chosen.choice(LOOPS)
    names = {"t": chosen.choice(TYPES), "v": name, "e": end}
    return Digit(name, extent, opening.format(**names), closing.format(**names))


def _indices(grid: tuple[int, ...], block: tuple[int, ...], chosen: random.Random) -> list[Digit]:
    blocks = [(f"blockIdx.{axis}", extent) for axis, extent in zip("xyz", grid, strict=True) if extent > 1]
    found = [Digit(chosen.choice(("", "(int)", "(size_t)")) + index, extent) for index, extent in blocks]
    for axis, extent in zip("xyz", block, strict=True):
        index = f"threadIdx.{axis}"
        match chosen.choice(("whole", "whole", "parts", "backwards")) if extent > 1 else "":
            case "whole":
                found.append(Digit(index, extent))
            case "parts":
                found += [Digit(f"({index} % 2)", 2), Digit(f"({index} / 2)", -(-extent // 2))]
            case "backwards":
                found.append(Digit(f"({extent - 1} - (int){index})", extent))
    return found


Touched = list[tuple[bool, int]]  # of a thread, in turn: whether it stores, and which byte of y


class Thread(Machine):
    """Loads and stores nothing, and tells where it would."""

    def __init__(self, builtins: dict[tuple[str, int], int]):
        super().__init__(builtins=builtins, limit=5000)
        self.touched: Touched = []

    def load(self, address: int, type: Type) -> Any:
        self._touch(False, address)
        return 0.0

    def store(self, address: int, type: Type, value: Any) -> None:
        self._touch(True, address)

    def _touch(self, is_store: bool, address: int) -> None:
        at = (address - BASE + (1 << 63)) % (1 << 64) - (1 << 63)
        if at > -(BASE >> 1):  # else it is of s
            self.touched.append((is_store, at))


def executions(function: Function, one: Made) -> list[Touched]:
    found = []
    for index in product(*(range(e) for e in (*one.grid, *one.block))):
        extents = {("grid_dim", a): one.grid[a] for a in range(3)} | {("block_dim", a): one.block[a] for a in range(3)}
        place = {("block_idx", a): index[a] for a in range(3)} | {("thread_idx", a): index[3 + a] for a in range(3)}
        thread = Thread(extents | place)
        thread.run(function, BASE, 0, N)
        found.append(thread.touched)
    return found


def truths(threads: list[Touched]) -> dict[str, bool]:
    stores = [[at for is_store, at in touched if is_store] for touched in threads]
    owners = [{at for _, at in touched} for touched in threads]
    return {
        "private": sum(map(len, owners)) == len(set().union(*owners)),
        "apart": sum(len(set(s)) for s in stores) == len({at for s in stores for at in s}),
        "once": sum(map(len, stores)) == len({at for s in stores for at in s}),
        "early": all(map(_loads_first, threads)),
    }


def _loads_first(touched: Touched) -> bool:
    """Whether a thread loads nothing that it stored before."""
    stored = set[int]()
    for is_store, at in touched:
        if is_store:
            stored.add(at)
        elif at in stored:
            return False
    return True


def claims(function: Function, one: Made) -> dict[str, bool]:
    memory, nested = roots.analyse(function), structure.analyse(function, apart=False)
    y, _, n = (p.value for p in function.params)
    shape, places = Shape(one.grid, one.block), places_of(nested)
    sums = Sums(nested, shape, {n: N}.get)
    stores = [op for op in memory.stores if isinstance(op, Store) and y in memory.of(op.ptr)]
    before = Before(function, memory, False, Numbers(shape, {n: N}.get))
    return {
        "private": is_private(y, memory, places, sums),
        "apart": len(stores) == 1 and is_apart(stores[0], y, memory, places, sums),
        "once": is_stored_once(y, memory, places, sums),
        "early": all(before.store_before(op) is None for op in memory.loads if y in memory.of(op.ptr)),
    }


def test_proofs_hold_for_every_execution() -> None:
    kernels = {f"k{seed}": made(seed) for seed in range(KERNELS)}
    module = kg.compile("\n".join(one.kernel(name) for name, one in kernels.items()))
    counts = Counter[str]()
    for name, one in kernels.items():
        function = module[name].function
        try:
            threads = executions(function, one)
        except TooLong:
            counts["endless"] += 1
            continue
        said, true = claims(function, one), truths(threads)
        for claim, truth in true.items():
            assert truth or not said[claim], f"{claim}: {one}"
            counts[claim] += said[claim]
            counts[f"{claim}, in truth"] += truth
        _within(function, one, threads)
    assert counts["endless"] < 0.1 * KERNELS
    assert all(counts[claim] >= 0.25 * counts[f"{claim}, in truth"] for claim in said), counts


def _within(function: Function, one: Made, threads: list[Touched]) -> None:
    found = footprints(function, one.grid, one.block, {"n": N}.get)
    for is_store in (False, True):
        touched = [at for thread in threads for stores, at in thread if stores == is_store]
        if touched:
            reach = found["y"].stores if is_store else found["y"].loads
            assert reach is not None and reach[0] <= min(touched) and reach[1] >= max(touched) + 8, one
