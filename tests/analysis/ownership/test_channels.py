"""Who has the elements that several loops find by quotients and remainders, as of a channel of all images: against all
executions."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import kernelgrad as kg
from kernelgrad.analysis import roots, structure
from kernelgrad.analysis.access.affine import Shape, Sums
from kernelgrad.analysis.ownership.private import is_private, places_of

KERNELS = 500


class Loop(NamedTuple):
    """`i` from the thread's index times `scale`, or from the last thread's on, and `start` on. An element's digits are
    `i % width` and `i / width`, or the other way round if it is `turned`."""

    start: int
    scale: int
    backwards: bool
    step: int
    end: int
    width: int
    turned: bool
    offset: int


class Channels(NamedTuple):
    loops: tuple[Loop, ...]
    pitch: int
    grid: int
    block: int

    def kernel(self, name: str) -> str:
        text = ""
        for one in self.loops:
            lane = f"{self.block - 1} - threadIdx.x" if one.backwards else "threadIdx.x"
            digits = (f"i % {one.width}", f"i / {one.width}")[:: -1 if one.turned else 1]
            place = f"({digits[1]}) * {self.pitch} + blockIdx.x * {one.width} + {digits[0]} + {one.offset}"
            text += (
                f"for (int i = ({lane}) * {one.scale} + {one.start}; i < {one.end}; i += {one.step}) y[{place}] = i;"
            )
        return f"__global__ void {name}(double *y) {{ {text} }}"

    def owners(self) -> set[tuple[int, int]]:
        """(thread, element) of all executions."""
        found = set()
        for block in range(self.grid):
            for t in range(self.block):
                for one in self.loops:
                    lane = self.block - 1 - t if one.backwards else t
                    for i in range(lane * one.scale + one.start, one.end, one.step):
                        digits = (i % one.width, i // one.width)[:: -1 if one.turned else 1]
                        place = digits[1] * self.pitch + block * one.width + digits[0] + one.offset
                        found.add((block * self.block + t, place))
        return found


def channels(seed: int) -> Channels:
    chosen = random.Random(seed)
    block, grid, width = chosen.choice((4, 8)), chosen.choice((1, 2, 3)), chosen.choice((3, 4, 5, 8))

    def usually(usual: int, *others: int) -> int:
        return usual if chosen.random() < 0.85 else chosen.choice(others)

    loops = tuple(
        Loop(
            start=usually(0, 1, 2),
            scale=usually(1, 2),
            backwards=chosen.random() < 0.1,
            step=usually(block, block - 1, 2 * block),
            end=chosen.choice((3 * width, 3 * width, 2 * width, width - 1, 13)),
            width=usually(width, width + 1),
            turned=chosen.random() < 0.1,
            offset=usually(0, 1, grid * width * 3),
        )
        for _ in range(chosen.choice((2, 2, 3)))
    )
    return Channels(loops, usually(grid * width, grid * width - 1, grid * width + 1), grid, block)


def test_owners_are_alone() -> None:
    made = {f"k{seed}": channels(seed) for seed in range(KERNELS)}
    module = kg.compile("\n".join(one.kernel(name) for name, one in made.items()))
    counts = Counter[str]()
    for name, one in made.items():
        function = module[name].function
        nested, owners = structure.analyse(function, apart=False), one.owners()
        sums = Sums(nested, Shape((one.grid, 1, 1), (one.block, 1, 1)), {}.get)
        said = is_private(function.params[0].value, roots.analyse(function), places_of(nested), sums)
        truth = len({element for _, element in owners}) == len(owners)
        assert truth or not said, f"{one}\n{one.kernel(name)}"
        counts["said"] += said
        counts["in truth"] += truth
    assert counts["said"] > 0.5 * counts["in truth"] > 0.05 * KERNELS, counts
