"""The backward of calls outside of all transformations: Note [Eager calls], Note [Prepared calls]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..runtime.config import Launch
from . import prepared
from .calls import Maybe, Tensor
from .launching import TENSORS, lending, refuse_recording
from .prepared import Lines, Ready, fetched

if TYPE_CHECKING:
    from .eager import Eager, Plan


class Backward:
    """The backward of calls with one plan, where gradients of the same results come. What a launch is given is a line
    for each argument: it makes an array of the gradients (g0, g1, ...) and of what was saved (s0, s1, ...)."""

    def __init__(self, eager: Eager, plan: Plan, grads: Sequence[Maybe], numbers: Any, deterministic: bool):
        self._eager, self._plan, self._roles = eager, plan, eager.roles
        roles = eager.roles
        self._place = {name: k for k, name in enumerate(roles.results)}
        self._saved = {roles.arrays[k]: f"s{at}" for at, k in enumerate(plan.saved[: plan.kept])}
        self._tensors = [n for n, t in zip(roles.numbers, numbers, strict=True) if type(t) in TENSORS]
        self._reverse, self._deterministic = eager.derived.reverse(deterministic), deterministic
        self._missing = tuple(grad is None for grad in grads)
        self._own = tuple(p.name for p in roles.parameters if p.pointer)
        self._names = [f"a{k}" for k in range(len(self._own) + len(eager.derived.listed))]
        self._arrays = self._array_function()
        self._prepared: Callable[..., tuple[Maybe, ...] | None] | None = None
        self._ready = None
        if plan.launch is not None:
            gradient, launch = self._reverse.gradient, plan.launch
            slowly = partial(_slowly, gradient, launch, eager.derived.options.tape_bytes)
            self._ready = Ready(gradient.replays, launch, slowly)

    def run(self, grads: Sequence[Maybe], saved: Sequence[Any], numbers: Any) -> Sequence[Maybe]:
        """A gradient for each tensor that went in."""
        if self._plan.fetched and self._ready is not None:
            numbers = fetched(numbers)
        if self._prepared is not None:
            found = self._prepared(grads, saved, numbers)
            if found is not None:
                return found[1:]
        arrays, gradients = self._arrays(grads, saved)
        if self._ready is not None:
            self._eager.launcher.before_derivative()
            if not self._reverse.joint:
                apart = self._eager.launcher.apart(dict(zip(self._own, arrays, strict=False)))
                arrays[: len(self._own)] = apart.values()
            if self._ready.run(arrays, self._arguments(arrays, numbers)):
                self._prepared = self._prepared_function(self._ready, arrays)
                if not self._plan.fetched:
                    self._plan.usual = self._prepared
        return gradients()  # type: ignore[no-any-return]

    def _arguments(self, arrays: list[Maybe], numbers: list[float]) -> tuple[Any, ...]:
        roles = self._roles
        of_kernel = iter(arrays)
        others = dict(zip((*roles.numbers, *roles.integers), (*numbers, *self._plan.integers), strict=True))
        own = [next(of_kernel) if p.pointer else others[p.name] for p in roles.parameters]
        return (*own, *of_kernel)

    # ---- the functions that are written out

    def _array_function(self) -> Callable[..., Any]:
        """The arrays of a launch, and a function that gives what becomes of them."""
        lines = Lines("arrays(grads, saved)")
        self._unpack(lines)
        self._add_arrays(lines)
        lines.add(f"return [{', '.join(self._names)}], lambda: [{self._returned()}]")
        return lines.made()

    def _prepared_function(self, ready: Ready, arrays: Sequence[Maybe]) -> Callable[..., Any]:
        """A graph's node gives None for what is no tensor, then the gradients."""
        lines = Lines("backward(grads, saved, numbers)")
        self._unpack(lines)
        lines.leave_unless(self._conditions(lines))
        lines.add(f"{lines.name(refuse_recording)}()")
        self._add_arrays(lines)
        if self._eager.launcher.has_conditions:
            lines.add(f"{lines.name(self._eager.launcher.before_derivative)}()")
        given = [name for name, array in zip(self._names, arrays, strict=True) if array is not None]
        prepared.run(lines, ready, given, "numbers")
        lines.add(f"return None, {self._returned()}")
        return lines.made()

    def _conditions(self, lines: Lines) -> list[str]:
        """That it is such a backward, of plain tensors."""
        kinds = lines.name(TENSORS)
        plain = [f"s{k}" for k in range(len(self._plan.saved))]
        plain += [f"g{k}" for k, is_missing in enumerate(self._missing) if not is_missing]
        found = [f"type({tensor}) in {kinds}" for tensor in plain]
        found += [f"g{k} is None" for k, is_missing in enumerate(self._missing) if is_missing]
        if self._eager.derived.options.deterministic is None:
            asked = lines.name(torch.are_deterministic_algorithms_enabled)
            found.append(f"{asked}() is {self._deterministic}")
        return found

    def _unpack(self, lines: Lines) -> None:
        lines.unpack("g", len(self._missing), "grads")
        lines.unpack("s", len(self._plan.saved), "saved")

    def _add_arrays(self, lines: Lines) -> None:
        recipes = [self._array(lines, name) for name in self._own]
        recipes += [self._adjoint(lines, name) for name in self._eager.derived.listed]
        for name, recipe in zip(self._names, recipes, strict=True):
            lines.add(f"{name} = {recipe}")

    def _returned(self) -> str:
        return ", ".join(self._gradient(name) for name in (*self._roles.arrays, *self._tensors))

    def _gradient(self, name: str) -> str:
        """Of an input; a number's has the form of its tensor."""
        if name not in self._plan.wanted:
            return "None"
        array = self._names[len(self._own) + self._eager.derived.listed.index(name)]
        if name not in self._tensors:
            return array
        tensor = f"s{self._plan.kept + self._tensors.index(name)}"
        return f"{array}.reshape({tensor}.shape).to({tensor}.device, {tensor}.dtype)"

    # ---- the lines

    def _adjoint(self, lines: Lines, name: str) -> str:
        """Of each parameter: what the gradient starts from, None where nothing is wanted."""
        roles, plan = self._roles, self._plan
        if name in self._place:
            at = self._place[name]
            if self._missing[at]:
                return self._zeros(lines, name) if name in roles.updated and name in plan.wanted else "None"
            return self._plain(lines, name, f"g{at}") if name in roles.pure_outputs else self._copied(lines, f"g{at}")
        if name not in plan.wanted:
            return "None"
        return self._zeros(lines, name) if plan.launch is None else self._empty(lines, name)

    def _array(self, lines: Lines, name: str) -> str:
        """Of the kernel's own: what its reverse reads; for what runs the kernel again, all of them."""
        roles, joint, saved = self._roles, self._reverse.joint, self._saved.get(name)
        if name in roles.outputs:
            return self._output(lines, name) if joint or roles[name].read else "None"
        if saved is None:
            return self._zeros(lines, name) if joint else "None"
        return self._copied(lines, saved) if joint and name in roles.updated else self._plain(lines, name, saved)

    def _plain(self, lines: Lines, name: str, tensor: str) -> str:
        plain = f"{lines.name(self._eager.launcher.plain)}({name!r}, {tensor})"
        if name in self._eager.launcher.alignments:
            return plain
        return f"{tensor} if {prepared.plain_memory(lines, tensor)} else {plain}"

    @staticmethod
    def _copied(lines: Lines, tensor: str) -> str:
        return f"{lines.name(_copied)}({tensor})"

    def _output(self, lines: Lines, name: str) -> str:
        fill = self._eager.launcher.fills[name]
        if fill is None:
            return prepared.new(lines, *self._described(name), None)
        return self._filled(lines, name, fill)

    def _zeros(self, lines: Lines, name: str) -> str:
        return self._filled(lines, name, 0)

    def _filled(self, lines: Lines, name: str, fill: float) -> str:
        shape, dtype, device = self._described(name)
        make = partial(torch.zeros, shape) if fill == 0 else partial(torch.full, shape, fill)
        return f"{lines.name(partial(make, dtype=dtype, device=device))}()"

    def _empty(self, lines: Lines, name: str) -> str:
        """Like a tensor that is there, where one is: that is quicker."""
        saved = self._saved.get(name)
        place = None if saved is None else self._names[self._own.index(name)]
        return prepared.new(lines, *self._described(name), place)

    def _described(self, name: str) -> tuple[Any, torch.dtype, torch.device]:
        shape = self._eager.launcher.shape_of(name, self._plan.call)
        return shape, self._eager.launcher.dtypes[name], self._plan.device


def _slowly(gradient: Any, launch: Launch, tape_bytes: int | None, args: tuple[Any, ...]) -> None:
    with torch.no_grad(), lending(tape_bytes):
        gradient._launch_plainly(launch, args)


def _copied(tensor: Maybe) -> Tensor:
    assert tensor is not None
    strided = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return strided.detach().clone(memory_format=torch.contiguous_format)
