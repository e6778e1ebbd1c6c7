"""Passes as rows of tables: where each is, and which functions it concerns.

A row names the operations (or pure functions) without which its pass leaves a function as it is. What a function holds
is found once (`traverse.kinds`), and passes that have nothing to do in it are neither entered nor imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ..ir.ops import Function, Kind, Module
from ..ir.traverse import kinds

_PACKAGE = __package__.rpartition(".")[0]


class Pass(NamedTuple):
    """`run`: a function, or where it is: "file" or "file:name". `needs`: at least one of these, if any are said.
    `arguments`: what it takes besides function and module."""

    name: str
    run: str | Callable[..., Function]
    needs: tuple[Kind, ...] = ()
    arguments: tuple[Any, ...] = ()

    def concerns(self, function: Function) -> bool:
        return not self.needs or not kinds(function.body).isdisjoint(self.needs)


def applied(stage: Pass, function: Function, module: Module) -> Function:
    """The function after a pass."""
    if not stage.concerns(function):
        return function
    run = _imported(stage.run) if isinstance(stage.run, str) else stage.run
    return run(function, module, *stage.arguments)


def _imported(path: str) -> Callable[..., Function]:
    file, _, name = path.partition(":")
    return getattr(import_module(f".{file}", _PACKAGE), name or "run")  # type: ignore[no-any-return]


TIES = Pass("ties", "transforms.ties", ("max", "min", "select", "abs", "fdim"))  # before derivatives, in either mode
