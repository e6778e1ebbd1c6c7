"""What describes a call of one of the primitives: all but the arrays that go in. It is a parameter of the primitive, so
it is hashable, and the same where the same code serves.

Five kinds belong to a kernel, in terms of each other (Note [Second derivatives of operators] in frameworks/derived.py):
the value; the tangent T(t, x); the backward B(g, x); the second S(g, t, x), which is forward over reverse; and the bend
F(t, u, x), forward over forward, which is there to be transposed: that gives S.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ..frameworks.derived import Derived
from ..frameworks.numbers import by_pointer
from ..frameworks.roles import Roles, roles_of
from ..frameworks.settings import Fill
from ..kernel import Kernel
from ..locks import COMPILING, cached_property

Kind = Literal["value", "tangent", "backward", "second", "bend"]
Role = Literal["cotangent", "tangent", "along", "primal"]
Shape = tuple[int, ...]

HALVES = ("float16", "bfloat16")


class Slot(NamedTuple):
    """What an array that goes in is: the kernel's own, or belonging to one of those."""

    role: Role
    name: str


class Family:
    """A kernel with its derivatives, as operators. `name` is the same in every process. `fills`: what outputs hold
    before the kernel runs, None for nothing in particular."""

    def __init__(self, name: str, kernel: Kernel, roles: Roles, derived: Derived, fills: Mapping[str, Fill]):
        self.name, self.kernel, self.roles, self.derived, self.fills = name, kernel, roles, derived, dict(fills)
        self._with_pointers: dict[frozenset[str], Family] = {}

    def __repr__(self) -> str:
        return self.name

    def dtype(self, name: str) -> str:
        return self.roles[name].dtype or ""

    def with_pointers(self, names: frozenset[str]) -> Family:
        """Whose numbers of these names lie in memory, as arrays do."""
        with COMPILING:
            if names not in self._with_pointers:
                kernel = by_pointer(self.kernel, names)
                roles = roles_of(kernel, dict.fromkeys(self.roles.outputs))
                derived = Derived(kernel, roles, self.derived.options)
                self._with_pointers[names] = Family(self.name, kernel, roles, derived, self.fills)
            return self._with_pointers[names]

    def wide(self, name: str) -> str:
        """Inside gradients, adjoints in half precision are floats."""
        return "float32" if self.dtype(name) in HALVES else self.dtype(name)


@dataclass(frozen=True)
class Call:
    """`launch`: grid, block, bytes of shared memory. `shapes`: of arrays and outputs. `numbers`: those that are part of
    the code, in hexadecimal (0.0 and -0.0 are two); others are arrays that go in. `slots`: the arrays that go in, in
    order. `wanted`: the inputs whose adjoints come out. `batch`: so many calls are made, one after another, of the
    entries of what is `batched`."""

    family: Family
    launch: tuple[int, ...]
    integers: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, str], ...]
    shapes: tuple[tuple[str, Shape], ...]
    slots: tuple[Slot, ...]
    wanted: tuple[str, ...] = ()
    batch: int | None = None
    batched: tuple[bool, ...] = ()
    _hash: list[int] = field(default_factory=list, compare=False, repr=False)

    def __hash__(self) -> int:
        if not self._hash:
            parts = self.launch, self.integers, self.numbers, self.shapes, self.slots, self.wanted
            self._hash.append(hash((id(self.family), *parts, self.batch, self.batched)))
        return self._hash[0]

    @cached_property
    def shape(self) -> dict[str, Shape]:
        """Of one entry; numbers have none."""
        return dict.fromkeys(self.family.roles.numbers, ()) | dict(self.shapes)

    def with_slots(self, slots: tuple[Slot, ...], batched: tuple[bool, ...], wanted: tuple[str, ...]) -> Call:
        return replace(self, slots=slots, batched=batched, wanted=wanted, _hash=[])

    def with_pointers(self, names: frozenset[str]) -> Call:
        """The same where these numbers lie in memory."""
        shapes = (*self.shapes, *((name, ()) for name in sorted(names)))
        return replace(self, family=self.family.with_pointers(names), shapes=shapes, _hash=[])

    def in_batch(self, count: int, batched: tuple[bool, ...]) -> Call:
        return replace(self, batch=count, batched=batched, _hash=[])

    def is_batched(self, slot: int) -> bool:
        return bool(self.batched) and self.batched[slot]

    @property
    def is_idle(self) -> bool:
        """No threads: the extent of an empty array."""
        return math.prod(self.launch[:6]) == 0

    def results(self, kind: Kind) -> tuple[str, ...]:
        roles = self.family.roles
        match kind:
            case "value":
                return roles.results
            case "tangent" | "bend":
                return roles.active_results
        return self.wanted

    def entry_shape(self, shape: Shape) -> Shape:
        return shape if self.batch is None else (self.batch, *shape)

    def aliases(self, kind: Kind) -> dict[int, int]:
        """Which result has the memory of which array that goes in: what a kernel updates there."""
        role: Role | None = {"value": "primal", "tangent": "tangent", "backward": "cotangent"}.get(kind)  # type: ignore[assignment]
        places = {name: k for k, name in enumerate(self.results(kind))}
        return {
            k: places[slot.name]
            for k, slot in enumerate(self.slots)
            if slot.role == role and slot.name in self.family.roles.updated and slot.name in places
        }
