"""What a launch is, and what a backend's executable must offer."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

Dim3 = tuple[int, int, int]


class LaunchConfig(NamedTuple):
    """`stream` is a CUDA stream handle (an integer), None on the CPU; `device` the CUDA device's ordinal;
    `shadow_bytes`: how many of the shared bytes are for a shadow, for messages."""

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    stream: int | None = None
    device: int = 0
    shadow_bytes: int = 0


class Buffer(NamedTuple):
    """Memory that an argument points to."""

    name: str  # the parameter, "p" or "s.p" for a pointer inside a struct
    address: int
    nbytes: int
    is_part: bool = False  # of a larger array, of which a kernel may reach more than it was given
    around: tuple[int, int] | None = (0, 0)  # so many bytes before and behind it; None: nobody knows


class BoundArguments(NamedTuple):
    """Arguments that fit the kernel's parameters: their bytes (see ir.layout) and the memory they point to. `nulls`:
    the pointers that None was passed for, named like buffers. `mutated`: PyTorch's tensors among what is written."""

    packed: bytes
    buffers: tuple[Buffer, ...] = ()
    keep_alive: tuple[Any, ...] = ()
    nulls: tuple[str, ...] = ()
    mutated: tuple[Any, ...] = ()


class Executable(Protocol):
    """A kernel compiled for a device. `launch` is asynchronous on a GPU's stream, complete on return on the CPU."""

    def launch(self, config: LaunchConfig, arguments: BoundArguments) -> None: ...
