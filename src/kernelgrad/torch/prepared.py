"""Calls that come again as straight lines of Python.

Note [Prepared calls]
What is left of a call once its shapes are known is little: a look into a table, new tensors, one call of machine code.
Loops over arguments and recipes for each of them cost more than that. So functions are written out for an operator's
arguments, for a plan and for a backward, as text that Python compiles: a line for each tensor. They do what the general
way does (`eager`), for tensors in plain memory at addresses that vector loads like; for others they give None, having
launched nothing, and the general way is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..runtime.config import Launch
from ..runtime.replay import Replay, Replays
from .calls import Maybe
from .launching import TENSORS, lending

_UNALIGNED = 15


class Lines:
    """A function in the making: its lines, and the objects that they name."""

    def __init__(self, signature: str):
        self._lines, self._names, self._function = [f"def {signature}:"], dict[str, Any](), signature.split("(")[0]

    def name(self, given: Any) -> str:
        """By which the lines call an object."""
        name = f"_{len(self._names)}"
        self._names[name] = given
        return name

    def add(self, line: str) -> None:
        self._lines.append(f"    {line}")

    def unpack(self, letter: str, count: int, given: str) -> list[str]:
        """Names for the elements of a sequence."""
        names = [f"{letter}{k}" for k in range(count)]
        if names:
            self.add(f"{', '.join(names)}, = {given}")
        return names

    def leave_unless(self, conditions: Sequence[str]) -> None:
        if conditions:
            self.add(f"if not ({' and '.join(conditions)}): return None")

    def made(self) -> Callable[..., Any]:
        exec(compile("\n".join(self._lines), "<a prepared call of kernelgrad.torch>", "exec"), self._names)
        return self._names[self._function]  # type: ignore[no-any-return]


def plain_memory(lines: Lines, tensor: str) -> str:
    """That a tensor is what `launching.is_plain_memory` asks for."""
    strided = f"{tensor}.layout is {lines.name(torch.strided)} and {tensor}.is_contiguous()"
    return f"{strided} and not {tensor}.is_neg() and not {tensor}._is_zerotensor()"


def new(lines: Lines, shape: Sequence[int], dtype: torch.dtype, device: torch.device, like: str | None) -> str:
    """A tensor; to make it like another is quicker."""
    if like is not None:
        return f"{lines.name(torch.empty_like)}({like})"
    names = [lines.name(given) for given in (torch.empty, tuple(shape), dtype, device)]
    return "{}({}, dtype={}, device={})".format(*names)


def copied(lines: Lines, tensor: str) -> str:
    return f"{tensor}.detach().clone(memory_format={lines.name(torch.contiguous_format)})"


class Ready:
    """A launch of which only addresses and numbers differ from call to call. `replay`: what was found of it, where its
    arrays are well aligned; `sizes`: the bytes of each."""

    def __init__(self, replays: Replays, launch: Launch, slowly: Callable[[tuple[Any, ...]], None]):
        self._replays, self._launch, self._slowly = replays, launch, slowly
        self.replay: Replay | None = None
        self.sizes: list[int] = []

    def run(self, arrays: Sequence[Maybe], args: tuple[Any, ...]) -> bool:
        """`arrays`: those of all arguments; contiguous. Whether it may be prepared from now on."""
        found = self._replays.find(self._launch, args, True)
        if found is None or not _going(found[0])((), *found[1:]):
            self._slowly(args)
            return False
        if any(address & _UNALIGNED for address in found[1]):
            return False
        self.replay, self.sizes = found[0], [a.nbytes for a in arrays if a is not None]
        return True


def run(lines: Lines, ready: Ready, arrays: Sequence[str], numbers: str) -> None:
    """The launch; `arrays`: those that are there."""
    replay = ready.replay
    assert replay is not None
    addresses = [f"p_{name}" for name in arrays]
    for name, address in zip(arrays, addresses, strict=True):
        lines.add(f"{address} = {name}.data_ptr()")
    conditions = [f"not ({' | '.join(addresses)}) & {_UNALIGNED}"] if addresses else []
    if not replay.inside:  # then they may not be parts of larger ones
        sizes = zip(arrays, ready.sizes, strict=True)
        conditions += [f"{name}.untyped_storage().nbytes() == {nbytes}" for name, nbytes in sizes]
    given = f"({''.join(f'{a}, ' for a in addresses)})"
    lines.leave_unless([*conditions, f"{lines.name(_going(replay))}((), {given}, {numbers})"])


def _going(replay: Replay) -> Callable[[Sequence[Any], Sequence[int], Sequence[float]], bool]:
    """With memory that PyTorch lends, where some is needed."""
    if not replay.needs_memory:
        return replay.run

    def lent(args: Sequence[Any], addresses: Sequence[int], numbers: Sequence[float]) -> bool:
        with lending():
            return replay.run(args, addresses, numbers)

    return lent


def fetched(numbers: Sequence[Any]) -> list[float]:
    """Those that are tensors, from where they are."""
    return [n.item() if type(n) in TENSORS else n for n in numbers]
