"""Operators under `torch.vmap`: one launch for the whole batch where the kernel leaves the grid's z free, else one
launch after another.

Note [Batches]
The kernel of a batch (`frameworks/batches`) is a kernel like any other, with operators of its own; a derivative of it
is that of all entries together, so its adjoints have an entry each. An array that all entries share has a stride of
zero, but not where its adjoint or tangent is an entry's own: it is repeated then. What the entries of a batch may not
share, or what is no array, goes one after another: numbers of their own, and the gradients of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..frameworks.batches import MOST, stride_of
from .calls import Call, Maybe

if TYPE_CHECKING:
    from .registration import Registered

Rule = Callable[..., tuple[Any, Any]]


def rule_of(registered: Registered, kind: str, operator: Callable[..., Any], fake: Callable[..., Any]) -> Rule:
    """What PyTorch asks for the operator of a batch."""
    in_turn = in_sequence(operator, fake)

    def rule(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        together = registered.in_batch
        if together is not None and 0 < info.batch_size <= MOST:
            found = _Batch(registered, together, kind, info.batch_size, in_dims, args).run()
            if found is not None:
                return found
        return in_turn(info, in_dims, *args)

    return rule


class _Batch:
    """A call of one of the operators for all entries of a batch."""

    def __init__(
        self, one: Registered, together: Registered, kind: str, count: int, in_dims: Sequence[Any], args: Sequence[Any]
    ):
        self.one, self.together, self.kind, self.count = one, together, kind, count
        roles, f = one.roles, one.formulas
        first = [_first(arg, dim) for arg, dim in zip(args, in_dims, strict=True)]
        mapped = [_is_mapped(arg, dim) for arg, dim in zip(args, in_dims, strict=True)]
        own, self.call = f.call(kind, first)
        self.mask = args[-1] if kind in ("backward", "second") else None
        self.wanted = f.names(self.mask) if self.mask is not None else ()
        results = roles.active_results if kind in ("backward", "second") else ()
        inputs = roles.active_inputs if kind in ("tangent", "second") else ()
        self.grads = dict(zip(results, own[: len(results)], strict=True))
        self.tangents = dict(zip(inputs, own[len(results) :], strict=True))
        names = (*(("grad", n) for n in results), *(("tangent", n) for n in inputs))
        self.mapped = {name for name, is_one in zip(names, mapped[: len(own)], strict=True) if is_one}
        every = (*roles.arrays, *roles.numbers)
        self.mapped |= {("primal", name) for name in every if mapped[f.place(kind, name)]}

    def run(self) -> tuple[Any, Any] | None:
        roles = self.one.roles
        own_numbers = {("primal", n) for n in roles.numbers} | {("tangent", n) for n in roles.numbers}
        if self.mapped & own_numbers or set(roles.numbers) & set(self.wanted) or self.call.launch[2] != 1:
            return None
        apart = self._apart()
        if any(self._numbers(name, apart) % count for name, count in self.one.numbers_in_elements.items()):
            return None
        tensors = [self._own("grad", n, t, True) for n, t in self.grads.items()]
        tensors += [self._own("tangent", n, t, n in apart) for n, t in self.tangents.items()]
        packed = self.together.formulas.layout(self.kind).pack(self._batched(apart))
        masked = [] if self.mask is None else [self.mask]
        found = self.together.operators[self.kind](*tensors, *packed, *masked)
        listed = list(found) if isinstance(found, tuple | list) else [found]
        if self.mask is not None:  # those that nobody wants are without elements
            listed = [t if self.mask >> k & 1 else t.new_empty((self.count, 0)) for k, t in enumerate(listed)]
        return (listed[0], 0) if len(listed) == 1 else (tuple(listed), (0,) * len(listed))

    def _apart(self) -> set[str]:
        """The arrays of which each entry has one of its own."""
        roles = self.one.roles
        found = {name for name in roles.arrays if ("primal", name) in self.mapped or ("tangent", name) in self.mapped}
        return found | set(roles.updated) | {name for name in self.wanted if name in roles.arrays}

    def _batched(self, apart: set[str]) -> Call:
        call, roles = self.call, self.one.roles
        shapes = {n: self._shape(n, call.array_shapes[n]) for n in roles.arrays}
        arrays = {n: self._own("primal", n, a, n in apart) for n, a in call.arrays.items()}
        sizes = self.one.numbers_in_elements.items()
        integers = call.integers | {stride_of(n): self._numbers(n, apart) // count for n, count in sizes}
        return Call(
            arrays,
            {n: [self.count, *shape] if n in apart else list(shape) for n, shape in shapes.items()},
            call.tensors,
            call.numbers,
            {name: integers[name] for name in self.together.roles.integers},
            {n: [self.count, *shape] for n, shape in call.shapes.items()},
            [*call.launch[:2], self.count, *call.launch[3:]],
        )

    def _numbers(self, name: str, apart: set[str]) -> Any:
        """By how many the entries of an array are apart."""
        if name in self.call.shapes:
            return math.prod(self.call.shapes[name])
        return math.prod(self._shape(name, self.call.array_shapes[name])) if name in apart else 0

    def _shape(self, name: str, shape: Sequence[Any]) -> list[Any]:
        """Of one entry: where the operator is given arrays alone, they tell it with the batch before it."""
        has_batch = not self.one.formulas.layout(self.kind).partial and ("primal", name) in self.mapped
        return list(shape[1:] if has_batch else shape)

    def _own(self, role: str, name: str, tensor: Maybe, apart: bool) -> Maybe:
        if tensor is None or not apart or (role, name) in self.mapped or name in self.one.roles.numbers:
            return tensor
        return tensor.unsqueeze(0).expand(self.count, *tensor.shape)


def _first(arg: Any, dim: Any) -> Any:
    """With the batch before all else."""
    return arg.movedim(dim, 0) if _is_mapped(arg, dim) else arg


def in_sequence(operator: Callable[..., Any], fake: Callable[..., Any]) -> Rule:
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
