"""Operators under `torch.vmap`: one launch after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def in_sequence(operator: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """The rule that calls the operator for each entry and stacks what comes out. `fake` tells the shapes where there
    is no entry."""

    def rule(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        found = [_listed(operator(*_entry(args, in_dims, k))) for k in range(info.batch_size)]
        if found:
            stacked = [torch.stack(parts) for parts in zip(*found, strict=True)]
        else:
            like = [_without(arg, dim) for arg, dim in zip(args, in_dims, strict=True)]
            stacked = [part.new_empty((0, *part.shape)) for part in _listed(fake(*like))]
        return (stacked[0], 0) if len(stacked) == 1 else (tuple(stacked), (0,) * len(stacked))

    return rule


def _entry(args: Sequence[Any], in_dims: Sequence[Any], k: int) -> list[Any]:
    return [a.select(d, k) if _is_mapped(a, d) else a for a, d in zip(args, in_dims, strict=True)]


def _without(arg: Any, dim: Any) -> Any:
    return arg.new_empty([s for k, s in enumerate(arg.shape) if k != dim]) if _is_mapped(arg, dim) else arg


def _is_mapped(arg: Any, dim: Any) -> bool:
    return isinstance(arg, torch.Tensor) and isinstance(dim, int)


def _listed(found: Any) -> Sequence[torch.Tensor]:
    return found if isinstance(found, tuple | list) else (found,)
