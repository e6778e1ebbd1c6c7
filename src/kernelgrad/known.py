"""The integers among a launch's arguments: what its index arithmetic and its loops depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Any, Generic, TypeVar

from .autodiff.keeping import checkpoint
from .ir.layout import param_layout
from .ir.ops import Function, Value
from .ir.types import Scalar
from .locks import make_lock

_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


class Integers:
    """Those of one function, read back from its packed arguments."""

    def __init__(self, function: Function):
        self._values: list[Value] = []
        self._segments = [p.value for p in function.params if p.variable == checkpoint.SEGMENT]
        layout, end = "<", 0
        for param, offset in zip(function.params, param_layout(function)[0], strict=True):
            if isinstance(param.type, Scalar) and param.variable is None and not param.type.is_float:
                self._values.append(param.value)
                layout += f"{offset - end}x{_code(param.type)}"
                end = offset + param.type.size
        self.read = Struct(layout).unpack_from  # the numbers in the order of the parameters
        self._numbers = {value: number for number, value in enumerate(self._values)}

    def numbers(self, values: Iterable[Value]) -> list[int]:
        """Which of the integers these are."""
        return [self._numbers[value] for value in values if value in self._numbers]

    def known(self, packed: bytes, segment: int | None = None) -> Callable[[Any], Any]:
        """The number that a parameter's value is, None where it is none. `segment`: the length of segments."""
        found: dict[Any, Any] = dict(zip(self._values, self.read(packed), strict=True))
        found |= dict.fromkeys(self._segments, segment)
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


def _code(type: Scalar) -> str:
    code = "?" if type.kind == "bool" else _CODES[type.size]
    return code.upper() if type.kind == "uint" else code


integers_of = lru_cache(256)(Integers)
