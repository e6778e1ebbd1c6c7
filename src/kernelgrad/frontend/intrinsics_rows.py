"""The kinds of rows in the tables of intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..ir.builder import Builder
from ..ir.functions import PURE
from ..ir.ops import Value
from ..ir.types import BOOL, Scalar, Type


class Intrinsic(Protocol):
    def lower(self, builder: Builder, args: list[Value], result: Type | None) -> Value | None: ...


@dataclass(frozen=True)
class Pure:
    """A function of `ir.functions`; what that gives is converted to the declared type (bool to int, mostly)."""

    fn: str

    def lower(self, builder: Builder, args: list[Value], result: Type | None) -> Value:
        assert result is not None
        given = result if PURE[self.fn].result == "given" else None
        return builder.convert(builder.apply(self.fn, *args, type=given), result)


@dataclass(frozen=True)
class Emit:
    """Anything else: `emit(builder, *args)`, its value converted to the declared type."""

    emit: Callable[..., Value]

    def lower(self, builder: Builder, args: list[Value], result: Type | None) -> Value:
        assert result is not None
        return builder.convert(self.emit(builder, *args), result)


@dataclass(frozen=True)
class Effect:
    """Something done for its effect alone; `emit(builder, *args)` gives nothing."""

    emit: Callable[..., None]

    def lower(self, builder: Builder, args: list[Value], result: Type | None) -> None:
        assert result is None
        self.emit(builder, *args)


def truth(builder: Builder, value: Value) -> Value:
    """A C condition as a bool."""
    if value.type == BOOL:
        return value
    assert isinstance(value.type, Scalar)
    return builder.apply("ne", value, builder.constant(0, value.type))
