"""Binding a launch's arguments to a kernel's parameters.

A `Binder` is made once per kernel: it holds one packer per parameter, which checks a value and writes its bytes. An
argument that does not fit raises `ArgumentError` before anything is launched. Arguments given by name are put in the
order of the parameters first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import ArgumentError, InternalError
from ..ir.layout import param_layout
from ..ir.ops import Function, Param
from ..ir.types import Pointer
from .launch import BoundArguments, Buffer
from .packers import Place, State, packer, write_address
from .signature import c_signature, user_params
from .streams import current_stream

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


# ---- binding --------------------------------------------------------------------------------------------------------


class Placement(NamedTuple):
    """Where a launch runs: on the CPU, or on the CUDA device of that ordinal. `source` is the array that said so, and
    None when no argument is an array."""

    cuda: int | None = None
    source: Any = None

    def stream(self) -> int | None:
        """The stream to use when the user names none: the current one of the arrays' package; None on the CPU."""
        return None if self.cuda is None else current_stream(self.source) or 0


class Binder:
    """Binds arguments to the parameters of one kernel. `written` are the pointers it stores through (see `written`)."""

    def __init__(self, function: Function, written: frozenset[str]):
        self.function = function
        params = user_params(function)
        self.names = tuple(p.called for p in params)
        offsets, _size = param_layout(function)
        if params != function.params[: len(params)]:
            raise InternalError(f"{function.name}: module variables must come after the parameters")
        self._slots = tuple(
            (packer(Place(function.called, p.name, p.c_type, p.called), p.type, written).pack, offset)
            for p, offset in zip(params, offsets, strict=False)
        )
        self.size = offsets[len(params) - 1] + params[-1].type.size if params else 0

    def bind(self, args: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> tuple[BoundArguments, Placement]:
        """The user's arguments, without the addresses of module variables: `with_variables` adds those."""
        if keywords:
            args = self.in_order(args, keywords)
        if len(args) != len(self._slots):
            raise self._miscounted(args)
        state = State(self.size)
        for (pack, offset), value in zip(self._slots, args, strict=True):
            pack(value, offset, state)
        bound = BoundArguments(
            bytes(state.packed), tuple(state.buffers), tuple(state.keep_alive), tuple(state.nulls), tuple(state.mutated)
        )
        return bound, _placement(state)

    def in_order(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments that are given by name, in their places."""
        return in_order(self.names, args, keywords, f"\n  {c_signature(self.function)}", self.function.called)

    def _miscounted(self, args: Sequence[Any]) -> ArgumentError:
        count = len(self._slots)
        problem = f"takes {count} argument{'s' * (count != 1)}, got {len(args)}"
        return ArgumentError(f"{self.function.called}: {problem}\n  {c_signature(self.function)}")


class Supplied(NamedTuple):
    """What a launcher passes for a parameter that is not the user's: an address of so many bytes, or a number."""

    value: int
    nbytes: int = 0


def _placement(state: State) -> Placement:
    source = state.keep_alive[0] if state.keep_alive else None
    return Placement(state.device[1] if isinstance(state.device, tuple) else None, source)


def with_variables(bound: BoundArguments, function: Function, supply: Callable[[Param], Supplied]) -> BoundArguments:
    """The arguments followed by what the launcher itself supplies: module variables, shadows, the tape."""
    placed, size = _launcher_params(function)
    if not placed:
        return bound
    packed = bytearray(bound.packed.ljust(size, b"\0"))
    buffers: list[Buffer] = []
    for param, offset, is_pointer in placed:
        supplied = supply(param)
        write_address(packed, offset, supplied.value)
        if is_pointer:
            buffers.append(Buffer(param.variable or "", supplied.value, supplied.nbytes))
    return bound._replace(packed=bytes(packed), buffers=bound.buffers + tuple(buffers))


@lru_cache(1024)
def _launcher_params(function: Function) -> tuple[tuple[tuple[Param, int, bool], ...], int]:
    """The parameters that are not the user's, where their bytes go, and the size of all arguments."""
    offsets, size = param_layout(function)
    placed = zip(function.params, offsets, strict=True)
    return tuple((p, offset, isinstance(p.type, Pointer)) for p, offset in placed if p.variable), size


def bind(
    function: Function,
    args: Sequence[Any],
    written: frozenset[str],
    supply: Callable[[Param], Supplied] | None = None,
) -> tuple[BoundArguments, Placement]:
    """Binds once; whoever launches often keeps a `Binder`. `supply` gives what is not the user's to pass."""
    bound, placement = Binder(function, written).bind(args)
    return (with_variables(bound, function, supply) if supply else bound), placement
