"""The memory that a launch allocates besides its arguments: tapes, shadows, partial sums, copies; freed after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import LaunchError
from .arguments import Supplied
from .config import MAX_SHARED_BYTES, Launch
from .launch import Buffer

if TYPE_CHECKING:
    from .scratch import Scratch


class LaunchMemory:
    """Memory a launch made for itself, kept until the launch is under way, and what it passes for it."""

    def __init__(self) -> None:
        self.supplied: dict[str, Supplied] = {}
        self.kept: list[Scratch] = []
        self.shared_bytes: int | None = None  # of dynamic shared memory, where the launch needs another size
        self.shadow_bytes = 0  # of these, for the shadow
        self.after: list[Callable[[], None]] = []  # what to launch afterwards
        self.originals: dict[Buffer, bool] = {}  # the user's memory that copies stand for, and whether it is written

    def finish(self) -> None:
        """The last step first: what was there for all others, as copies of adjoints, is put away last. Steps that are
        done are forgotten: some hold this object, and its memory would wait for the garbage collector."""
        while self.after:
            self.after.pop()()

    def double_shared(self, launch: Launch, name: str, widening: int = 1) -> None:
        """Makes room for the shadow of dynamic shared memory, behind it; parameter `name` tells where. `widening`: how
        often its bytes go into the shadow's."""
        own = -(-launch.shared_bytes // 16) * 16
        self.supplied[name] = Supplied(own)
        self.shadow_bytes = widening * own
        self.shared_bytes = own + self.shadow_bytes
        if self.shared_bytes > MAX_SHARED_BYTES:
            raise LaunchError(
                f"shared memory: at most {MAX_SHARED_BYTES} bytes per block, and a derivative needs {self.shared_bytes}"
                f" here, {self.shadow_bytes} of them for the shadow of the kernel's own"
            )

    def sized(self, launch: Launch) -> Launch:
        if self.shared_bytes is None:
            return launch
        return launch._replace(shared_bytes=self.shared_bytes, shadow_bytes=self.shadow_bytes)

    def add(self, name: str, memory: Scratch) -> Scratch:
        self.supplied[name] = Supplied(memory.address, memory.nbytes)
        self.kept.append(memory)
        return memory
