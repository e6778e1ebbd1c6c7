"""Launches that come after a derivative's own and add up what these left, as data: sums of warps, replicas."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...kernel import Kernel
from ...runtime.arguments import Placement
from ...runtime.config import Launch, flat_launch
from ...runtime.launch import BoundArguments
from ...runtime.launch_memory import LaunchMemory
from .buffers import Expression, Sized


@dataclass(frozen=True)
class Addition:
    """`kernel(target + offset, memory + offset, *more, *numbers)` with so many blocks of so many threads. `target`,
    `memory` and `more`: an adjoint, or memory of the launch's own, by the parameter's name. `offset`: in bytes; what is
    added to memory in between begins there."""

    kernel: Kernel
    blocks: Expression
    threads: int
    target: str
    memory: str
    numbers: tuple[Expression, ...]
    target_offset: int = 0
    memory_offset: int = 0
    more: tuple[str, ...] = ()

    def describe(self, at: Sized) -> str:
        numbers = "".join(f", {told}" for told in (*self.more, *(number.value(at) for number in self.numbers)))
        args = f"{_place(self.target, self.target_offset)}, {_place(self.memory, self.memory_offset)}{numbers}"
        return f"{self.kernel.name}<<<{self.blocks.value(at)}, {self.threads}>>>({args})"


def _place(name: str, offset: int) -> str:
    return f"{name} + {offset} bytes" if offset else name


def add_after(
    additions: Iterable[Addition],
    at: Sized,
    bound: BoundArguments,
    launch: Launch,
    placement: Placement,
    own: LaunchMemory,
) -> None:
    """Has them run after the launch, in order."""
    adjoints = {buffer.name: buffer.address for buffer in bound.buffers}
    todo = [addition for addition in additions if addition.blocks.value(at)]

    def address(name: str) -> int:
        return adjoints[name] if name in adjoints else int(own.supplied[name].value)

    if todo:
        own.after.append(lambda: _run(todo, at, address, launch, placement))


def _run(
    additions: list[Addition], at: Sized, address: Callable[[str], int], launch: Launch, placement: Placement
) -> None:
    for a in additions:
        places = (address(a.target) + a.target_offset, address(a.memory) + a.memory_offset, *map(address, a.more))
        numbers = (number.value(at) for number in a.numbers)
        packed = struct.pack(f"<{len(places)}Q{len(a.numbers)}q", *places, *numbers)
        a.kernel.run(
            flat_launch(a.blocks.value(at), a.threads, launch.stream), BoundArguments(packed, ()), placement, {}
        )
