"""Buffers that loops read from end to end by quotients and remainders, where guards cut the last turns short: against
all executions."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import kernelgrad as kg
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Affine, Guard, Part, Shape, Sums
from kernelgrad.analysis.ownership.digit_guards import in_digits, of_upper, without_implied
from kernelgrad.analysis.ownership.private import places_of
from kernelgrad.analysis.ownership.whole import bytes_read_once

KERNELS = 500


class Reads(NamedTuple):
    """`count` reads of rows that are `width` wide, `apart` from each other, in groups `pitch` apart: of `x`, in turns
    or once. `blocks`: of which there are turns, by their numbers."""

    grid: int
    block: int
    stride: int
    end: int
    guard: int
    width: int
    pitch: int
    apart: int
    count: int
    by_blocks: bool

    def kernel(self, name: str) -> str:
        places = (
            f"x[i / {self.width} * {self.pitch} + i % {self.width} + {self.apart * k}]" for k in range(self.count)
        )
        body = f"if (i < {self.guard}) y[i] = {' + '.join(places)};"
        if self.by_blocks:
            turns, blocks = -(-self.end // self.grid), self.end
            loop = f"for (int t = 0; t < {turns}; ++t) {{ int b = blockIdx.x + t * gridDim.x; if (b < {blocks}) {{"
            body = f"{loop} int i = b * blockDim.x + threadIdx.x; {body} }} }}"
            return f"__global__ void {name}(double *y, const double *x) {{ {body} }}"
        start = "blockIdx.x * blockDim.x + threadIdx.x"
        loop = f"for (int i = {start}; i < {self.end}; i += {self.stride}) {{ {body} }}"
        return f"__global__ void {name}(double *y, const double *x) {{ {loop} }}"

    def read(self) -> Counter[int]:
        """How often each element is."""
        found = Counter[int]()
        for b in range(self.grid):
            for t in range(self.block):
                for i in self._counted(b, t):
                    if i < self.guard:
                        place = i // self.width * self.pitch + i % self.width
                        found.update(place + self.apart * k for k in range(self.count))
        return found

    def _counted(self, b: int, t: int) -> list[int]:
        if self.by_blocks:
            return [k * self.block + t for k in range(b, self.end, self.grid)]
        return list(range(b * self.block + t, self.end, self.stride))


def reads(seed: int) -> Reads:
    chosen = random.Random(seed)

    def usually(usual: int, *others: int) -> int:
        return usual if chosen.random() < 0.9 else chosen.choice(others)

    grid, block, by_blocks = chosen.choice((1, 2, 3, 4, 6)), chosen.choice((2, 4, 6)), chosen.random() < 0.5
    width, count = chosen.choice((2, 3, 4, 6, 8, 12, 24)), chosen.choice((1, 2, 3))
    all_ = width * chosen.choice((1, 2, 3, 5, 7))
    end = -(-all_ // block) if by_blocks else all_
    return Reads(
        grid,
        block,
        usually(grid * block, block, 2 * grid * block),
        usually(end, end + 1, end - 1),
        usually(all_, all_ - 1, all_ + 1, 1 << 20),
        width,
        usually(count * width, count * width + 1, width),
        usually(width, width + 1, 1),
        count,
        by_blocks,
    )


def test_what_is_read_from_end_to_end() -> None:
    made = {f"k{seed}": reads(seed) for seed in range(KERNELS)}
    module = kg.compile("\n".join(one.kernel(name) for name, one in made.items()))
    counts = Counter[str]()
    for name, one in made.items():
        function, found = module[name].function, one.read()
        nested = structure.analyse(function, apart=False)
        sums = Sums(nested, Shape((one.grid, 1, 1), (one.block, 1, 1)), {}.get)
        said = bytes_read_once(function.params[1].value, roots.analyse(function), places_of(nested), sums)
        if said is not None:
            assert found == dict.fromkeys(range(said // 8), 1), f"{one}\n{one.kernel(name)}"
        counts["said"] += said is not None
        counts["in truth"] += found == dict.fromkeys(range(len(found)), 1)
    assert counts["said"] > 0.5 * counts["in truth"] > 0.2 * KERNELS, counts


X, B = ("thread_idx", 0), ("block_idx", 0)


def test_guards_that_others_imply() -> None:
    by_block, whole = Guard(Affine(0, ((B, 1),)), 10), Guard(Affine(0, ((B, 256), (X, 1))), 2500)
    assert without_implied({by_block, whole}) == {whole}
    later = Guard(Affine(0, ((B, 256), (X, 1))), 2561)
    assert without_implied({by_block, later}) == {by_block, later}
    less = Guard(Affine(-1, ((B, 256), (X, 1))), 2500)
    assert without_implied({by_block, less}) == {by_block, less}
    same = Guard(Affine(0, ((B, 2),)), 20)
    assert len(without_implied({by_block, same})) == 1


def test_guards_of_upper_digits() -> None:
    i = Affine(0, ((B, 256), (X, 1)))
    upper, lower = Part(i, 12, True), Part(i, 12, False)
    found = in_digits(Guard(i, 240), Affine(0, ((upper, 36), (lower, 1))))
    assert found.sum.coefficients == {upper: 12, lower: 1}
    reach = {lower: 11}
    assert of_upper(found, {upper}, reach) == Guard(Affine(0, ((upper, 12),)), 240)
    assert of_upper(Guard(found.sum, 241), {upper}, reach) is None  # one of the lower digits is left out
    assert of_upper(found, {upper}, {lower: 12}) is None
    assert of_upper(found, {upper}, {}) is None
