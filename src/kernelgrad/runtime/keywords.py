"""Arguments given by name: put in the order of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError

_MISSING = object()


@dataclass(frozen=True)
class Expected:
    """What a call takes: its own parameters, then derivatives of some. `kind`: "adjoints" or "tangents"."""

    own: tuple[str, ...]
    derivatives: tuple[str, ...] = ()
    kind: str = ""
    signature: str = ""

    def separate(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments in order, and the derivatives. Where one of these is named, those that are not are None."""
        count = len(self.own)
        if not keywords:
            if len(args) != count + len(self.derivatives):
                raise self._error(f"takes {count} arguments and {len(self.derivatives)} {self.kind}, got {len(args)}")
            return args[:count], args[count:]
        own, named = self.placed(args, keywords)
        if not named or len(own) != count:
            raise self._error(f"give {count} arguments and the {self.kind} {', '.join(self.derivatives)} by name")
        return own, tuple([named.get(name) for name in self.derivatives])

    def placed(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """With the call's own parameters by position, and only derivatives by name."""
        named = {name: value for name, value in keywords.items() if name in self.derivatives}
        rest = {name: value for name, value in keywords.items() if name not in named}
        if rest.keys() - set(self.own):
            raise self._error(
                f"give {len(self.own)} arguments and the {self.kind} {', '.join(self.derivatives)} by name"
            )
        return (in_order(self.own, args, rest, f"\n  {self.signature}") if rest else args), named

    def _error(self, problem: str) -> ArgumentError:
        return ArgumentError(f"{problem}\n  {self.signature}")


def in_order(
    names: Sequence[str], args: Sequence[Any], keywords: Mapping[str, Any], told: str, function: str = ""
) -> tuple[Any, ...]:
    """The arguments by position. `told`: the end of a message; `function`: its beginning."""
    start = f"{function}: " if function else ""
    given = dict(zip(names, args, strict=False))
    for name in keywords:
        if name not in names:
            raise ArgumentError(f"{start}no parameter '{name}'{told}")
        if name in given:
            raise ArgumentError(f"{start}'{name}' is given twice, by position and by name{told}")
    placed = [*args, *[keywords.get(name, _MISSING) for name in names[len(args) :]]]
    missing = [name for name, value in zip(names, placed, strict=False) if value is _MISSING]
    if missing or len(placed) > len(names):
        problem = f"no argument for {', '.join(missing)}" if missing else f"takes {len(names)} arguments"
        raise ArgumentError(f"{start}{problem}{told}")
    return tuple(placed)
