"""What is known of a launch before it runs: its shape, the sizes of its buffers, and the integers among its arguments,
which its index arithmetic and its loops depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from ..analysis.access.affine import BytesOf
from ..analysis.machine import VECTOR_BYTES
from ..ir.layout import param_layout
from ..ir.ops import BLOCKS, SEGMENT, Function, Value
from ..ir.types import Scalar
from ..locks import make_lock
from .config import Launch
from .launch import BoundArguments

Extents = tuple[int, int, int]
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


class Integers:
    """Those of one function, read back from its packed arguments."""

    def __init__(self, function: Function):
        self._values: list[Value] = []
        self._segments = [p.value for p in function.params if p.variable == SEGMENT]
        self._blocks = [p.value for p in function.params if p.variable == BLOCKS]
        layout, end = "<", 0
        for param, offset in zip(function.params, param_layout(function)[0], strict=True):
            if isinstance(param.type, Scalar) and param.variable is None and not param.type.is_float:
                self._values.append(param.value)
                layout += f"{offset - end}x{code_of(param.type)}"
                end = offset + param.type.size
        self.read = Struct(layout).unpack_from  # the numbers in the order of the parameters
        self._numbers = {value: number for number, value in enumerate(self._values)}

    def numbers(self, values: Iterable[Value]) -> list[int]:
        """Which of the integers these are."""
        return [self._numbers[value] for value in values if value in self._numbers]

    def known(self, packed: bytes, segment: int | None = None) -> Callable[[Any], Any]:
        """The number that a parameter's value is, None where it is none. `segment`: the length of segments."""
        return self.answers(self.read(packed), segment)

    def answers(
        self, integers: Iterable[int], segment: int | None = None, blocks: int | None = None
    ) -> Callable[[Any], Any]:
        """The same for numbers that were read already. `blocks`: of which those that are started take turns."""
        found: dict[Any, Any] = dict(zip(self._values, integers, strict=True))
        found |= dict.fromkeys(self._segments, segment)
        found |= dict.fromkeys(self._blocks, blocks)
        return found.get


class Looking:
    """Answers as `known` does, and remembers what it was asked for: what was found by its answers holds for every
    launch that agrees with them."""

    def __init__(self, known: Callable[[Any], Any]):
        self._known = known
        self.asked: dict[Value, None] = {}

    def __call__(self, value: Any) -> Any:
        answer = self._known(value)
        if answer is not None:
            self.asked[value] = None
        return answer


T = TypeVar("T")


class Growing(Generic[T]):
    """What results depend on, as far as is known. It only grows, at its end, so keys made from it never mean two
    things."""

    def __init__(self) -> None:
        self.parts: tuple[T, ...] = ()
        self._lock = make_lock()

    def add(self, parts: Iterable[T]) -> None:
        with self._lock:
            self.parts += tuple(dict.fromkeys(part for part in parts if part not in self.parts))


def code_of(type: Scalar) -> str:
    code = "?" if type.kind == "bool" else _CODES[type.size]
    return code.upper() if type.kind == "uint" else code


integers_of = lru_cache(256)(Integers)


# ---- launches -----------------------------------------------------------------------------------------------------


class Ways(NamedTuple):
    """How a launch may be carried out. `single`: by one kernel alone. `on_cpu`, `on_gpu`: by what is fastest there,
    with another number of blocks perhaps."""

    single: bool = False
    on_cpu: bool = False
    on_gpu: bool = False


ANY = Ways()


class KnownLaunch(NamedTuple):
    """What is known of a launch: all that its plan may depend on, and so the key under which that is kept. `wanted`:
    the listed parameters whose adjoint was given. `integers`: the kernel's, in the order of its parameters. `sizes`:
    the bytes of its buffers by name, and of adjoints if these are given already. `aligned`: which of them begin at
    multiples of 16 bytes, on a GPU. `segment`: the length of a checkpointed loop's segments. `parts`: the buffers that
    are parts of larger arrays, of which a kernel may reach more. `halves`: the listed parameters of half precision
    whose adjoints were given in it. `blocks`: how many there are along an axis on which fewer are started."""

    wanted: tuple[str, ...]
    grid: Extents
    block: Extents
    shared_bytes: int
    integers: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]
    aligned: tuple[bool, ...]
    ways: Ways = ANY
    segment: int | None = None
    parts: frozenset[str] = frozenset()
    halves: frozenset[str] = frozenset()
    blocks: int | None = None

    def answers(self, function: Function, segmented: bool = False) -> Callable[[Any], Any]:
        """The integers by the values of the parameters, and the sizes of buffers that are whole; `segmented`: the
        length of segments, too. Which form a launch gets does not depend on that: it is chosen for the form."""
        found = integers_of(function).answers(self.integers, self.segment if segmented else None, self.blocks)
        sizes, roots = dict(self.sizes), {p.value: p.name for p in function.params}

        def known(value: Any) -> Any:
            if not isinstance(value, BytesOf):
                return found(value)
            name = roots.get(value.root, "")
            return None if name in self.parts else sizes.get(name)

        return known

    def builtin(self, name: str, axis: int) -> int:
        return (self.block if name == "block_dim" else self.grid)[axis]

    def only(self, relevant: Iterable[int]) -> KnownLaunch:
        """Without the integers that decide nothing."""
        integers = self.integers
        return self._replace(integers=tuple([integers[k] for k in relevant]))


def known_launch(
    function: Function,
    wanted: tuple[str, ...],
    launch: Launch,
    bound: BoundArguments,
    ways: Ways = ANY,
    segment: int | None = None,
    halves: frozenset[str] = frozenset(),
) -> KnownLaunch:
    """`function`: the kernel's; `bound`: its arguments, perhaps with adjoints behind them."""
    integers = integers_of(function).read(bound.packed)
    sizes = tuple([buffer[:3:2] for buffer in bound.buffers])
    aligned = tuple([buffer.address % VECTOR_BYTES == 0 for buffer in bound.buffers]) if ways.on_gpu else ()
    parts = frozenset([buffer.name for buffer in bound.buffers if buffer.is_part])
    at = launch.grid, launch.block, launch.shared_bytes
    return KnownLaunch(wanted, *at, integers, sizes, aligned, ways, segment, parts, halves)
