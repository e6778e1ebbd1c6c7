"""Accesses to memory in the order in which they stand, and what memory is known to hold, both looked up by address.

What one access may do to another is `Aliases`' to say, for two pointers. Passes ask it of one pointer and all accesses
of a long program, or the other way round: so both are kept in groups within which only equal offsets meet, and whatever
is in another group of the same memory may be the same element.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..analysis.aliases import Aliases, Group
from ..ir.effects import MEETINGS
from ..ir.ops import Atomic, Load, Op, Store, Value

Touched = Value | bool | None  # the address; True: all memory; False: all that other threads can reach; None: nothing


def writes(op: Op) -> Touched:
    """What an operation without regions may change, or wait for."""
    if isinstance(op, MEETINGS):
        return False
    return op.ptr if isinstance(op, Store | Atomic) else None


def looks(op: Op) -> Touched:
    """What an operation without regions may read, or let others read."""
    if isinstance(op, MEETINGS):
        return False
    if isinstance(op, Store):
        return True if op.volatile else None
    return op.ptr if isinstance(op, Load | Atomic) else None


class _OfRoot:
    """The accesses through pointers with one root, by their places in the order."""

    def __init__(self) -> None:
        self.all: list[int] = []
        self.groups: dict[Group, list[int]] = {}
        self.spots: dict[tuple[Group, int], list[int]] = {}
        self.last: tuple[int, Group | None] = (-1, None)
        self.last_of_other: int = -1  # group than the last one's

    def add(self, group: Group, offset: int, at: int) -> None:
        self.all.append(at)
        self.groups.setdefault(group, []).append(at)
        self.spots.setdefault((group, offset), []).append(at)
        if group != self.last[1]:
            self.last_of_other = self.last[0]
        self.last = at, group

    def last_at(self, group: Group, offset: int) -> int:
        other = self.last_of_other if self.last[1] == group else self.last[0]
        same = self.spots.get((group, offset))
        return max(other, same[-1]) if same else other

    def any_at(self, group: Group, offset: int, start: int, stop: int) -> bool:
        count = _count(self.all, start, stop)
        if not count:
            return False
        mine = _count(self.groups.get(group, ()), start, stop)
        return count > mine or _count(self.spots.get((group, offset), ()), start, stop) > 0


def _count(places: list[int] | tuple[()], start: int, stop: int) -> int:
    return bisect_left(places, stop) - bisect_left(places, start)


class Accesses:
    """Those that `touched` tells of, in the order in which they are added."""

    def __init__(self, aliases: Aliases, touched: Callable[[Op], Touched] = writes):
        self._aliases, self._touched = aliases, touched
        self.ops: list[Op] = []
        self._meetings: list[int] = []
        self._everything: list[int] = []
        self._roots: dict[Value, _OfRoot] = {}
        self._exposed: list[Value] = []  # those of the roots that may share memory with others that have names

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, op: Op) -> bool:
        """Whether it is one."""
        touched, at = self._touched(op), len(self.ops)
        if touched is None:
            return False
        self.ops.append(op)
        if isinstance(touched, bool):
            (self._everything if touched else self._meetings).append(at)
            return True
        root, group, offset = self._aliases.spot(touched)
        if root not in self._roots:
            self._roots[root] = _OfRoot()
            if not self._aliases.is_own(root):
                self._exposed.append(root)
        self._roots[root].add(group, offset, at)
        return True

    def last(self, pointer: Value) -> int:
        """The last one that may touch what is behind a pointer; -1 if none does."""
        root, group, offset = self._aliases.spot(pointer)
        found = self._everything[-1:]
        found += self._meetings[-1:] if root not in self._aliases.local else []
        found += [self._roots[other].last[0] for other in self._sharing(root)]
        found += [self._roots[root].last_at(group, offset)] if root in self._roots else []
        return max(found, default=-1)

    def any(self, pointer: Value, start: int, stop: int) -> bool:
        """Whether one of those from `start` to before `stop` may touch what is behind a pointer."""
        root, group, offset = self._aliases.spot(pointer)
        if _count(self._everything, start, stop):
            return True
        if root not in self._aliases.local and _count(self._meetings, start, stop):
            return True
        if any(_count(self._roots[other].all, start, stop) for other in self._sharing(root)):
            return True
        return root in self._roots and self._roots[root].any_at(group, offset, start, stop)

    def _sharing(self, root: Value) -> list[Value]:
        others = self._exposed if self._aliases.is_named(root) else self._roots
        return [other for other in others if other is not root and self._aliases.may_share(other, root)]


class Contents:
    """What memory is known to hold, by address."""

    def __init__(self, aliases: Aliases, touched: Callable[[Op], Touched] = writes):
        self._aliases, self._touched = aliases, touched
        self._held: dict[Value, Value] = {}
        self._roots: dict[Value, dict[Group, dict[int, dict[Value, None]]]] = {}
        self._exposed: dict[Value, None] = {}
        self._log: list[tuple[Value, Value | None]] = []  # addresses of this scope, and what was known before
        self._logging = False

    def get(self, pointer: Value) -> Value | None:
        return self._held.get(pointer)

    def put(self, pointer: Value, contents: Value) -> None:
        if self._logging:
            self._log.append((pointer, self._held.get(pointer)))
        self._put(pointer, contents)

    def forget(self, op: Op) -> None:
        """What the operation may change."""
        touched = self._touched(op)
        if touched is True:
            self._drop(list(self._held))
        elif touched is False:
            self._drop([p for root in self._roots if root not in self._aliases.local for p in self._of_root(root)])
        elif touched is not None:
            self._drop(list(self._reached(touched)))

    def forget_all(self, accesses: Accesses, start: int, stop: int) -> None:
        """What those from `start` to before `stop` may change. Inside of a scope, only what was put there is looked
        at: what was known before was looked at for more than these."""
        known = [p for p, _ in self._log] if self._logging else list(self._held)
        if stop - start <= len(known):
            for op in accesses.ops[start:stop]:
                self.forget(op)
        else:
            self._drop([p for p in dict.fromkeys(known) if p in self._held and accesses.any(p, start, stop)])

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is known at its end is what was known before."""
        outer, self._log, logging, self._logging = self._log, [], self._logging, True
        yield
        for pointer, contents in reversed(self._log):
            if contents is not None:
                self._put(pointer, contents)
            elif pointer in self._held:
                self._remove(pointer)
        self._log, self._logging = outer, logging

    # ---- by root and group

    def _put(self, pointer: Value, contents: Value) -> None:
        if pointer not in self._held:
            root, group, offset = self._aliases.spot(pointer)
            self._roots.setdefault(root, {}).setdefault(group, {}).setdefault(offset, {})[pointer] = None
            if not self._aliases.is_own(root):
                self._exposed[root] = None
        self._held[pointer] = contents

    def _remove(self, pointer: Value) -> None:
        root, group, offset = self._aliases.spot(pointer)
        groups = self._roots[root]
        del self._held[pointer], groups[group][offset][pointer]
        if not groups[group][offset]:
            del groups[group][offset]
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._roots[root]
            self._exposed.pop(root, None)

    def _drop(self, pointers: list[Value]) -> None:
        for pointer in pointers:
            if self._logging:
                self._log.append((pointer, self._held[pointer]))
            self._remove(pointer)

    def _reached(self, pointer: Value) -> Iterator[Value]:
        root, group, offset = self._aliases.spot(pointer)
        for other in self._exposed if self._aliases.is_named(root) else self._roots:
            if other is not root and self._aliases.may_share(other, root):
                yield from self._of_root(other)
        for same, offsets in self._roots.get(root, {}).items():
            for pointers in offsets.values() if same != group else (offsets.get(offset, {}),):
                yield from pointers

    def _of_root(self, root: Value) -> Iterator[Value]:
        for offsets in self._roots[root].values():
            for pointers in offsets.values():
                yield from pointers
