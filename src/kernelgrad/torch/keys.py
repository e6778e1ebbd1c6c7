"""What the plan of a call depends on, found quickly.

Note [Keys of calls]
A call whose shapes, dtypes, devices and integers were there before needs no checks: its plan is in a table. Its key is
made by a function that is written out for the operator's arguments (Note [Prepared calls]). What the user's functions
say of grids, sizes and shapes is part of it; they are asked at each call, for they may look at anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .launching import TENSORS
from .prepared import Lines

if TYPE_CHECKING:
    from .operator import Op

# The arguments, to the key, the tensors and the numbers; None for arguments that only the general way has words for.
Key = Callable[[tuple[Any, ...]], tuple[Any, Any, Any] | None]


def key_function(op: Op, count: int) -> Key | None:
    """For so many arguments; None where the operator does not take so many."""
    names = next((names for names in (op._all_names, op._names) if len(names) == count), None)
    return None if names is None else _Writer(op, names).made()


class _Writer:
    def __init__(self, op: Op, names: tuple[str, ...]):
        self._op, self._names, self._lines = op, names, Lines("key(args)")
        self._args = dict(zip(names, self._lines.unpack("a", len(names), "args"), strict=True))
        self._parts = [f"{self._lines.name(torch.is_grad_enabled)}()", str(len(names))]

    def made(self) -> Key:
        roles, args = self._op._roles, self._args
        tensors = self._lines.name(TENSORS)
        self._lines.leave_unless([f"type({args[name]}) in {tensors}" for name in roles.arrays])
        integers = [args[name] for name in roles.integers if name in args]
        self._lines.leave_unless([f"(type({a}) is int or type({a}) is bool)" for a in integers])
        numbers = [args[name] for name in roles.numbers]
        for number in numbers:
            self._lines.add(f"{number}_given = type({number}) in {tensors}")
        self._lines.leave_unless([f"({a}_given or type({a}) is float or type({a}) is int)" for a in numbers])
        for name in roles.arrays:
            self._parts += _facts(args[name])
        self._parts += integers
        self._parts += [f"({', '.join(_facts(a))}) if {a}_given else None" for a in numbers]
        self._ask_user()
        given = [f"*(({a},) if {a}_given else ())" for a in numbers]
        self._lines.add(
            f"return {_tuple(self._parts)}, {_tuple([*(args[n] for n in roles.arrays), *given])}, {_tuple(numbers)}"
        )
        return self._lines.made()

    def _ask_user(self) -> None:
        """What the user's functions say, in the order in which `Op` asks them."""
        op = self._op
        launch = {"block=": op._block, "grid=": op._grid, "shared=": op._shared}
        shapes = {f'outputs["{name}"]': shape for name, shape in op._outputs}
        if not any(callable(given) for given in (*op._sizes.values(), *shapes.values(), *launch.values())):
            return
        named = dict(self._args)
        if self._names == op._names and op._extent.inferred is not None:
            named[op._extent.inferred] = f"{self._args[op._extent.arrays[0]]}.numel()"
        self._lines.add(f"named = {{{', '.join(f'{name!r}: {value}' for name, value in named.items())}}}")
        for name, size in op._sizes.items():
            said = self._asked(size) if callable(size) else self._lines.name(size)
            self._lines.add(f"named[{name!r}] = {said}")
        for given in (*shapes.values(), *launch.values()):
            if callable(given):
                self._asked(given)

    def _asked(self, function: Any) -> str:
        said = f"said{len(self._parts)}"
        self._lines.add(f"{said} = {self._lines.name(_said)}({self._lines.name(function)}, named)")
        self._lines.leave_unless([f"{said} is not None"])
        self._parts.append(said)
        return said


def _facts(tensor: str) -> list[str]:
    return [f"{tensor}.{fact}" for fact in ("shape", "dtype", "device", "requires_grad")]


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if parts else ''})"


def _said(function: Callable[..., Any], named: dict[str, Any]) -> Any:
    """Integers, one or several; None for all else, and for errors."""
    try:
        found = function(**named)
    except Exception:  # of the user's; the general way tells of it
        return None
    if type(found) is int:
        return found
    parts = tuple(found) if isinstance(found, tuple | list) else (None,)
    return parts if all(type(part) is int for part in parts) else None
