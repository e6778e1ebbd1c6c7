"""Writes that nobody recorded: `u *= 2` by NumPy between two launches has a derivative that the tape knows nothing of.

What a recorded step leaves is remembered, by a fingerprint of the contents (on the CPU; by default of ranges below
`SMALL` bytes), or by PyTorch's count of the writes to a tensor. The next recorded step that reads it looks again.

Note [Unseen and overwritten]
A step that writes it, and does not read it, makes the unseen write harmless: if it writes all of it, and if nobody
needs what was there before. A reverse that reads it does, and so does a step that read it and may be run again: that
content is lost, and this is an error at once. How much of an array a launch writes nobody knows. Of what it leaves, the
adjoint would go past the unseen write, to whoever wrote before: an `UnseenStep` stands for it, in whose reverse there
must be no adjoint any more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TapeError
from ..runtime.arrays import ArrayView
from .device_prints import DevicePrint, Slots
from .memory_map import Cell, MemoryMap, Span
from .segments import ALL
from .steps import Step
from .transfers import host_array

if TYPE_CHECKING:
    from .shadow_memory import ShadowMemory

SMALL = 1 << 20
LIMITS = {None: SMALL, True: 1 << 62, False: -1}  # by `check`: bytes of the largest range that is looked at
_LITTLE = 1 << 11  # bytes
_ALL = (1 << 64) - 1
_MIXED = np.uint64(31)  # no distance between signs of neighbouring floats, which would cancel
_READ = 0x100  # PyBUF_READ
_CHANGED = "was changed since the last recorded step that used it"
_SINCE = "was changed after the recorded launch, and its reverse reads it"
_AGAIN = "was changed after the recorded launch, which runs again within the tape_budget"

_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


def fingerprint(address: int, nbytes: int) -> int:
    """64 bits of the contents of the CPU's memory: of more than a little, words times random odd numbers, which is
    faster than Python's hash. A product has no trace of a bit in the bits below it: without the upper bits
    mixed into the lower ones, an even number of changed signs of doubles would cancel."""
    if nbytes < _LITTLE or nbytes % 8 or address % 8:
        return hash(_memory(address, nbytes, _READ))
    words, weights = host_array(address, nbytes, np.uint64), _weights()
    total = 0
    for number, start in enumerate(range(0, len(words), len(weights))):
        part = words[start : start + len(weights)]
        mixed = part >> _MIXED
        mixed ^= part
        total += int(mixed @ weights[: len(part)]) * (2 * number + 1)
    return total & _ALL


@cache
def _weights() -> Any:
    return np.random.default_rng(1).integers(0, 1 << 63, SMALL // 8, np.uint64) * np.uint64(2) + np.uint64(1)


class Watcher:
    """`limit`: bytes of the largest range that gets a fingerprint."""

    def __init__(self, cells: MemoryMap, limit: int):
        self._cells, self.limit = cells, limit
        self._tensors = VersionCounts(cells)
        self.slots: dict[int, Slots] = {}

    def before(self, step: Step) -> None:
        """Looks whether what a step reads is what the last one left; remembers what its reverse reads."""
        self._tensors.look(step)
        for span in step.reads:
            for cell in self._cells.cover(span):
                self._look(step, span, cell)
        step.prints = tuple(self._prints(step.reread))
        step.device_prints = tuple(self._device_prints(step))

    def after(self, step: Step) -> None:
        for span in step.writes:
            for cell in self._cells.cover(span):
                cell.print = self._print(cell)
                cell.touched = False
        self._tensors.count(step)

    def split(self, cell: Cell, rest: Cell, print: int | None) -> None:
        """Both parts of a cell get a fingerprint of their own. Where the whole is not what it was, nobody can tell any
        more which part has changed."""
        if print is None:
            return
        if fingerprint(cell.start, cell.nbytes + rest.nbytes) != print:
            cell.touched = rest.touched = True
        cell.print, rest.print = self._print(cell), self._print(rest)

    def see(self, span: Span) -> None:
        """Remembers what is there now: whoever writes it from now on is a recorded step."""
        for cell in self._cells.cover(span):
            cell.print = self._print(cell)

    def find_overwritten(self, step: Step, is_run_again: bool) -> tuple[Span, ...]:
        """What a step is about to overwrite, perhaps in part, that was changed by something that was not recorded."""
        found = []
        for span in step.writes:
            for cell in self._cells.cover(span):
                if cell.touched or self._has_changed(cell):
                    if cell.need is not None:
                        raise unseen(cell.need.kernel, cell.need.parameter, _SINCE)
                    if is_run_again and (cell.is_read or cell.pattern not in (None, ALL)):
                        raise unseen(step.name, span.name, _CHANGED)
                    found.append(Span(span.name, cell.start, cell.nbytes, cell.device))
        return () if step.writes_all else tuple(found)

    def changed(self) -> list[tuple[int, int]]:
        """The ranges that somebody else wrote since the last recorded step that used them."""
        return [(cell.start, cell.end) for cell in self.changed_cells()]

    def changed_cells(self) -> set[Cell]:
        self._tensors.look_at_all()
        return {cell for cell in self._cells if cell.touched or self._has_changed(cell)}

    def _has_changed(self, cell: Cell) -> bool:
        return cell.print is not None and self._print(cell) != cell.print

    def _look(self, step: Step, span: Span, cell: Cell) -> None:
        found = self._print(cell)
        if cell.touched or (found is not None and cell.print is not None and found != cell.print):
            raise unseen(step.name, span.name, _CHANGED)
        cell.print = found

    def _print(self, cell: Cell) -> int | None:
        if cell.device is not None or cell.nbytes > self.limit:
            return None
        return fingerprint(cell.start, cell.nbytes)

    def _prints(self, spans: Iterable[Span]) -> Iterable[tuple[str, int, int, int]]:
        for span in spans:
            for cell in self._cells.cover(span):
                found = cell.print if cell.print is not None else self._print(cell)
                if found is not None:
                    yield span.name, cell.start, cell.nbytes, found

    def _device_prints(self, step: Step) -> Iterable[DevicePrint]:
        """On a GPU, of what the reverse reads and nobody counts the writes to."""
        for span in step.reread if step.device is not None else ():
            if span.nbytes <= self.limit and span.device is not None and not step.is_counted(span):
                slots = self.slots.setdefault(span.device, Slots(span.device))
                slot = slots.print(span.address, span.nbytes, step.stream)
                yield DevicePrint(span.name, span.address, span.nbytes, span.device, slot)

    def count_again(self) -> None:
        """After a reverse: what it wrote is as it was."""
        self._tensors.count_all()

    def look_at_the_end(self) -> None:
        """When all of the program is about to be reversed."""
        self._tensors.look_at_all()
        for cell in self._cells:
            if cell.touched and cell.need is not None:
                raise unseen(cell.need.kernel, cell.need.parameter, _SINCE)


class UnseenStep(Step):
    """A write that nobody recorded to what the next step, called `by`, overwrites, perhaps in part."""

    name = "unseen write"
    varies = "it was not recorded"
    is_opaque = False

    def __init__(self, by: str, spans: tuple[Span, ...]):
        super().__init__()
        self._by, self.writes = by, spans

    def run_again(self, stream: int | None) -> None:
        pass

    def reverse(self, shadows: ShadowMemory, keep: bool) -> None:
        for span in self.writes:
            if not shadows.is_zero(span):
                raise unseen(self._by, span.name, "was changed before it, which leaves some of it as it was")


class Counted:
    """A tensor, the count of writes to it when a recorded step last used it, and the memory that steps used of it."""

    def __init__(self, tensor: Any):
        self.tensor, self.version = tensor, -1
        self.spans: dict[tuple[int, int], Span] = {}


class VersionCounts:
    """PyTorch's counts of writes. Tensors that share memory are looked at together; views share the count of what they
    are views of. Only those that a step uses are looked at: a program may have as many tensors as steps."""

    def __init__(self, cells: MemoryMap):
        self._cells = cells
        self._groups: dict[int, dict[int, Counted]] = {}  # by storage, by tensor

    def look(self, step: Step) -> None:
        step.counted = tuple(_counted(step))
        for array, _ in step.counted:
            self._look_at(self._groups.get(_storage(array), {}))

    def look_at_all(self) -> None:
        for group in self._groups.values():
            self._look_at(group)

    def _look_at(self, group: dict[int, Counted]) -> None:
        for counted in group.values():
            if counted.tensor._version != counted.version:
                for cell in self._cells.covers(counted.spans.values()):
                    cell.touched = True

    def count(self, step: Step) -> None:
        """After a step, which may have written."""
        groups = []
        for array, span in step.counted:
            tensor = array.owner if array.owner._base is None else array.owner._base
            groups.append(self._groups.setdefault(_storage(array), {}))
            groups[-1].setdefault(id(tensor), Counted(tensor)).spans[span.address, span.nbytes] = span
        self._count(groups)

    def count_all(self) -> None:
        self._count(self._groups.values())

    def _count(self, groups: Iterable[dict[int, Counted]]) -> None:
        for group in groups:
            for counted in group.values():
                counted.version = counted.tensor._version


def _counted(step: Step) -> Iterable[tuple[ArrayView, Span]]:
    arrays = ((array, span) for array, span in step.arrays if array.versioned and array.nbytes)
    return (pair for pair in arrays if not pair[0].owner.is_inference())


def _storage(array: ArrayView) -> int:
    found: int = array.owner.untyped_storage().data_ptr()
    return found


class DeviceChecks:
    """Fingerprints on GPUs, taken again in the reverse."""

    def __init__(self, watcher: Watcher, cells: MemoryMap):
        self._before, self._cells = watcher.slots, cells
        self._after = {device: Slots(device) for device in watcher.slots}
        self._taken: list[tuple[Step, DevicePrint, int]] = []

    def take(self, step: Step, stream: int | None, was_run_again: bool) -> None:
        for entry in step.device_prints:
            if was_run_again and any(c.is_written for c in self._cells.known(entry.start, entry.nbytes) or ()):
                continue
            slot = self._after[entry.device].print(entry.start, entry.nbytes, stream)
            self._taken.append((step, entry, slot))

    def compare(self) -> None:
        before = {device: slots.read() for device, slots in self._before.items()} if self._taken else {}
        after = {device: slots.read() for device, slots in self._after.items()} if self._taken else {}
        for step, entry, slot in self._taken:
            if before[entry.device][entry.slot] != after[entry.device][slot]:
                raise unseen(step.name, entry.name, _SINCE)


def check_again(step: Step, cells: MemoryMap, was_run_again: bool) -> None:
    """When its reverse is about to run: that what it reads is what the step read. What was computed again may differ in
    the last bits, where threads add in another order; then only what no step writes is looked at."""
    for name, start, nbytes, expected in step.prints:
        if was_run_again and any(cell.is_written for cell in cells.known(start, nbytes) or ()):
            continue
        if fingerprint(start, nbytes) != expected:
            raise unseen(step.name, name, _SINCE)


def require_unchanged(number: int, step: Step, spans: Iterable[Span], cells: MemoryMap, changed: set[Cell]) -> None:
    """When it is about to run again, or its reverse where steps did: that what it reads there is what it read.
    `changed`: by something else, until the reverse began, and not put back since. It is as it was where steps overwrite
    all of it before (Note [Dead contents]). Numbers are read once."""
    numbers = {n.path for n in step.numbers}
    for span in spans:
        for cell in cells.cover(span) if span.name not in numbers else ():
            if cell in changed and (cell.made < number or cell.pattern not in (None, ALL)):
                raise unseen(step.name, span.name, _AGAIN)


def unseen(step: str, name: str, problem: str) -> TapeError:
    return TapeError(
        f"{step}: the memory of '{name}' {problem}, by something that was not recorded; inside kg.record() use kernels,"
        " kg.copy and kg.fill to write arrays"
    )
