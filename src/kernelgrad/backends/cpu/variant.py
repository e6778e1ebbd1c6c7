"""What a kernel's code assumes about its launches; apart from the code generator, so that cached code needs no import
of it."""

from __future__ import annotations

from dataclasses import dataclass

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Variant:
    """What a kernel's code assumes about its launches. `small`: index arithmetic does not wrap (`indexing`).
    `block`: the block's shape, where the code is made for one. `watched`: the code is for check mode (see `watch`).
    `own_sums`: the parameters whose buffers each worker has memory of its own for (Note [Own sums]); `checked`: those
    of them that threads might add to outside of the buffer."""

    small: bool = True
    block: Dim3 | None = None
    watched: bool = False
    own_sums: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
