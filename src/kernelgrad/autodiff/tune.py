"""What is done to a finished gradient for the launches it is for: needless fills, exchanged loops, rings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..ir.ops import Function, Module
from . import rings

_WARP = 32


@dataclass(frozen=True)
class Tuning:
    """`row`: a power of two that the rows of a block are multiples of, where its warps are whole; 1 if not known."""

    row: int = 1

    def passes(self) -> tuple[tuple[str, Callable[[Function, Module], Function]], ...]:
        return (("rings", lambda function, _: rings.run(function, self.row)),)


PLAIN = Tuning()
USUAL = Tuning(_WARP)


def tuning_for(block: tuple[int, int, int]) -> Tuning:
    return Tuning(math.gcd(block[0], _WARP) if math.prod(block) % _WARP == 0 else 1)
