"""What a user promises of a kernel's arguments, beyond what its code shows, by their names (`kg.assume`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.ops import Function, Value


@dataclass(frozen=True)
class Segments:
    """Of buffers of integers: begin[s] .. begin[s] + count[s] overlap for no two s; without `count`, what lies between
    begin[s] and begin[s + 1]."""

    begin: str
    count: str | None = None

    @property
    def buffers(self) -> tuple[str, ...]:
        return (self.begin,) if self.count is None else (self.begin, self.count)

    @property
    def shown(self) -> str:
        end = f"{self.begin}[s + 1]" if self.count is None else f"{self.begin}[s] + {self.count}[s]"
        return f"{self.begin}[s] .. {end}"


@dataclass(frozen=True)
class Promises:
    """`unique`: buffers that hold no value twice among the elements that a launch reads. `disjoint`: segments that do
    not overlap. `multiple`, `within`: of an integer, or all that a buffer holds: what divides it, from where to where
    it goes. `results`: outputs that still hold what the kernel wrote when a reverse alone runs."""

    unique: tuple[str, ...] = ()
    disjoint: tuple[Segments, ...] = ()
    multiple: tuple[tuple[str, int], ...] = ()
    within: tuple[tuple[str, tuple[int, int]], ...] = ()
    results: tuple[str, ...] = ()

    @property
    def buffers(self) -> tuple[str, ...]:
        """All that it may be about what they hold: integers among the arguments, too."""
        segments = (name for one in self.disjoint for name in one.buffers)
        numbers = (name for name, _ in (*self.multiple, *self.within))
        return tuple(dict.fromkeys((*self.unique, *segments, *numbers)))

    @property
    def of_inputs(self) -> Promises:
        """What is promised of more than outputs."""
        return replace(self, results=())

    @property
    def is_given(self) -> bool:
        return self != NONE

    def number(self, name: str, usual: int) -> int:
        """A number that keeps what is promised of it, near the usual one."""
        step = dict(self.multiple).get(name, 1)
        low, high = dict(self.within).get(name, (usual, usual))
        return max(min(usual, high) // step * step, -(-low // step) * step if name in dict(self.within) else step)

    def of_roots(self, function: Function) -> Promised:
        """The same by the memory that parameters lead to."""
        root = {p.name: p.value for p in function.params}
        segments = ((root[s.begin], None if s.count is None else root[s.count]) for s in self.disjoint)
        return Promised(
            frozenset(root[name] for name in self.unique),
            frozenset(segments),
            frozenset((root[name], number) for name, number in self.multiple),
            frozenset((root[name], ends) for name, ends in self.within),
            tuple((root[name], name) for name in root),
            self,
        )


NONE = Promises()


@dataclass(frozen=True)
class Promised:
    """What is promised, by the memory that it is about."""

    unique: frozenset[Value] = frozenset()
    segments: frozenset[tuple[Value, Value | None]] = frozenset()
    multiple: frozenset[tuple[Value, int]] = frozenset()
    within: frozenset[tuple[Value, tuple[int, int]]] = frozenset()
    names: tuple[tuple[Value, str], ...] = ()
    by_name: Promises = NONE

    @property
    def looked_up(self) -> frozenset[Value]:
        """The buffers of which it is told what they hold."""
        return self.unique | {root for pair in self.segments for root in pair if root is not None}


NOTHING = Promised()


def told_apart(promises: Promises) -> list[str]:
    """What tells elements apart, in words."""
    return [*map(told_unique, promises.unique), *map(told_disjoint, promises.disjoint)]


def told_unique(name: str) -> str:
    return f"'{name}' holds no value twice"


def told_disjoint(segments: Segments) -> str:
    return f"the segments {segments.shown} do not overlap"
