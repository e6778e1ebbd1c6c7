"""One form of a derivative: which adjoints are wanted, and what is known of the launches it is for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from . import pipeline
from .autodiff import capacity
from .autodiff.accumulate import Facts
from .autodiff.affine import Shape, Sums
from .autodiff.cooperate import widening
from .autodiff.coverage import Threads, is_covered
from .autodiff.exclusive import exclusive_loads
from .autodiff.private import private_roots
from .autodiff.reverse import Gradient as Derivative
from .autodiff.reverse import Options, gradient
from .autodiff.shadows import is_dynamic
from .autodiff.tiles import Tile
from .ir.ops import Function
from .ir.types import Type
from .kernels import Kernel
from .runtime.config import Launch

RESULT = "_result"  # the parameter through which a function's value leaves
_MANY_BLOCKS = 2048  # that update one address: beyond, a finishing step is faster


class Variant:
    """The code for one choice of wanted adjoints and one accumulation plan."""

    def __init__(self, kernel: Kernel, options: Options):
        self.kernel, self.options = kernel, options
        self._facts: dict[Any, Facts] = {}
        self.derivative: Derivative = gradient(kernel.function, kernel.module, options)
        self.kernels = tuple(self._finished(_with_hidden(f, self.derivative)) for f in self.derivative.functions)

    def _finished(self, function: Function) -> Kernel:
        shadows = frozenset(p.name for p in self.derivative.adjoints.values())
        variables = {**self.kernel.module.globals, **{g.name: g for g in self.derivative.shared.values()}}
        module = pipeline.finish_derivative(function, replace(self.kernel.module, globals=variables), shadows)
        return Kernel(function.name, module, self.kernel.variable)

    def source(self, number: int) -> str:
        """One of its kernels as CUDA C++, with what its launches must be like."""
        kernel = self.kernels[number]
        plan = self.derivative.prepared.accumulation
        head, _, rest = kernel.source.partition("\n")
        names = sorted(plan.private | {name for name, _ in plan.exclusive})
        shadows = [f"_d_{name}" for name in names if f"_d_{name}" in rest]
        if kernel is not self.reverse or not shadows or self.options.facts.alone:
            return kernel.source
        listed = ", ".join(shadows)
        return f"{head}\n// Without atomics, for launches whose threads touch different elements: {listed}.\n{rest}"

    @property
    def reverse(self) -> Kernel:
        """The kernel that takes the adjoints."""
        return self.kernels[0 if len(self.kernels) == 1 else 1]

    @property
    def doubles_shared(self) -> bool:
        """Whether the shadow of dynamic shared memory needs as many bytes again."""
        return any(map(is_dynamic, self.derivative.shared.values()))

    @property
    def shared_widening(self) -> int:
        """How often they go into the shadow's."""
        return max(widening(v) for v in self.derivative.shared.values() if is_dynamic(v))

    @property
    def stack_types(self) -> tuple[Type, ...]:
        return tuple(s.type for s in self.derivative.stacks)

    def facts_of(self, launch: Launch, known: Callable[[Any], Any]) -> Facts:
        """What holds for a launch: these facts themselves, where they do."""
        scalars = tuple(known(p.value) for p in self.kernel.function.params)
        key = (launch.grid, launch.block, launch.shared_bytes, scalars)
        if key not in self._facts:
            self._facts[key] = self._find_facts(launch, known)
        return self._facts[key]

    def _find_facts(self, launch: Launch, known: Callable[[Any], Any]) -> Facts:
        usual, prepared = self.options.facts, self.derivative.prepared
        if usual.alone:
            return usual
        sums = Sums(prepared.structure, Shape(launch.grid, launch.block), known)
        private = private_roots(prepared.memory, prepared.structure, prepared.function, prepared.activity.roots, sums)
        partials = self.derivative.sums and math.prod(launch.grid) > _MANY_BLOCKS
        threads = Threads(launch.block, prepared.structure, known)
        exclusive = exclusive_loads(prepared.function, prepared.memory, prepared.activity.roots, threads)
        plan, may_alias = prepared.accumulation, self.options.may_alias
        return replace(
            usual,
            private=None if may_alias or private == plan.private else private,
            exclusive=None if may_alias or exclusive == plan.exclusive else exclusive,
            refill=self.can_refill(launch, known),
            partials=partials,
        )

    def can_refill(self, launch: Launch, known: Callable[[Any], Any]) -> bool:
        """Whether every tile that the reverse fills again is filled wherever it is read."""
        prepared = self.derivative.prepared
        tiles = [tile for used in prepared.plan.refilled.values() for tile in used]
        return all(
            is_covered(tile, self._shared_bytes(tile, launch), launch.block, prepared.structure, known)
            for tile in tiles
        )

    def _shared_bytes(self, tile: Tile, launch: Launch) -> int:
        variable = self.kernel.module.globals[tile.variable]
        return launch.shared_bytes if is_dynamic(variable) else variable.type.size

    @cached_property
    def counting(self) -> tuple[Kernel, bool]:
        """The kernel that counts, and whether it must run on copies."""
        prepared = self.derivative.prepared
        counted = capacity.counting_function(prepared.function, prepared.plan, prepared.memory, self.stack_types)
        *params, counts = counted.function.params
        function = replace(counted.function, params=(*params, replace(counts, variable="_counts")))
        return self._finished(function), counted.stores


def _with_hidden(function: Function, derivative: Derivative) -> Function:
    """Marks the parameters that the launcher supplies: shadows of unlisted buffers, the tape."""
    ours = {p.name for p in derivative.internal.values()}
    supplied = {p.name for p in function.params if p.variable == RESULT}
    ours |= {p.name for name, p in derivative.adjoints.items() if name in supplied}
    ours |= {p.name for p in derivative.partials.values()}
    ours |= {p.name for s in derivative.stacks for p in s.params}
    ours |= {p.name for c in derivative.claims for p in c.params}
    params = [replace(p, variable=p.name) if p.name in ours else p for p in function.params]
    return replace(function, params=tuple(sorted(params, key=lambda p: p.variable is not None)))
