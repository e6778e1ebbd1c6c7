"""How often something was derived and emitted in this process: what tests of launches look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """`derivations`: plans of a form. `emissions`: forms whose code was emitted. `finished`: functions that went
    through the passes after that."""

    derivations: int = 0
    emissions: int = 0
    finished: int = 0

    def reset(self) -> None:
        self.derivations = self.emissions = self.finished = 0


COUNTS = Counts()
