"""Sums over all executions of a place, by which the owner of an element is told: parts of divisions, ends of loops.

A quotient and the remainder that belongs to it say together what was divided, as two digits do: who knows both knows
the sum, and, if no two threads have the same, the thread. `C * (i / C) + i % C` is i again. Only what is not negative
is divided, so that C++'s rounding towards zero is rounding down. And `for (c = t; c < n; c += 256)` bounds c as an `if`
does, though each thread has its own number of iterations.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.ops import Apply, For, Value, While
from ..structure import Place
from .affine import Affine, Basis, Guard, Part, Sums
from .leaps import Digit, leaps
from .loop_bounds import End, ends_of


def executions(sums: Sums) -> Sums:
    """The same launch's, made once."""
    if sums.executions is None:
        sums.executions = Executions(sums.structure, sums.shape, sums.known, sums.unique)
    return sums.executions


class Executions(Sums):
    """Sums in which quotients and remainders may stand, and guards by the ends of loops."""

    def _apply(self, op: Apply, fn: str, args: tuple[Value, ...]) -> Affine | None:
        found = super()._apply(op, fn, args)
        if found is None and fn in _DIVISIONS:
            over, under = map(self.of, args)
            if over is not None and under is not None and not under.terms and under.const > 0:
                found = self._divided(over, under.const, fn == "div")
        return None if found is None else whole(found)

    def _divided(self, over: Affine, by: int, is_quotient: bool) -> Affine | None:
        """What is a multiple of the divisor, and less than it besides, is told apart at once."""
        if any(self.extents[b] is None for b, _ in over.terms) or self.range(over)[0] < 0:
            return None
        multiples = tuple((b, c // by) for b, c in over.terms if c % by == 0)
        rest = Affine(over.const % by, tuple((b, c) for b, c in over.terms if c % by))
        low, high = self.range(rest)
        if low >= 0 and high < by:
            return Affine(over.const // by, multiples) if is_quotient else rest
        part = Part(over, by, is_quotient)
        self.extents[part] = self.range(over)[1] // by + 1 if is_quotient else by
        return Affine(0, ((part, 1),))

    def address(self, ptr: Value, root: Value) -> Affine | None:
        found = super().address(ptr, root)
        return None if found is None else whole(found)

    # ---- guards

    def guards(self, place: Place | None) -> set[Guard]:
        """Also of what loops count: it stays below where they end."""
        found, inner = super().guards(place), place
        while inner is not None:
            if isinstance(inner.owner, For | While) and inner.block is inner.owner.body:
                found |= self._of_loop(inner.owner)
            inner = inner.parent
        return found

    def _of_loop(self, loop: For | While) -> set[Guard]:
        if isinstance(loop, For):
            ends = [End(loop.body.args[0], (loop.upper,), 0)] if loop.step > 0 else []
        else:
            ends = ends_of(loop, self.structure)
        found = set()
        for value, bounds, more in ends:
            small, large = self.of(value), self.common(bounds)
            if small is not None and large is not None and small.terms and not large.terms:
                found.add(Guard(small, large.const + more))
        return found


_DIVISIONS = ("div", "rem")


def whole(sum_: Affine) -> Affine:
    """With quotients and remainders that make up what was divided as that."""
    terms = sum_.coefficients
    for basis, coefficient in sum_.terms:
        if isinstance(basis, Part) and basis.is_quotient and coefficient % basis.by == 0:
            each = coefficient // basis.by
            if terms.get(basis.other) == each:
                parts = Affine(0, ((basis, coefficient), (basis.other, each)))
                return whole(sum_.plus(parts, -1).plus(basis.of, each))
    return sum_


def extent(basis: Basis, sums: Sums, guards: Iterable[Guard]) -> int | None:
    """How many values a basis has where guards hold, which may bound what it is a part of."""
    if not isinstance(basis, Part):
        return sums.extents[basis]
    most = _most(basis.of, sums, guards)
    return most // basis.by + 1 if basis.is_quotient else min(basis.by, most + 1)


def _most(sum_: Affine, sums: Sums, guards: Iterable[Guard]) -> int:
    """The greatest value of what is divided; none of it is negative."""
    extents = [(c, extent(b, sums, guards) or 1) for b, c in sum_.terms]
    most = sum_.const + sum(max(0, c * (length - 1)) for c, length in extents)
    for guard in guards:
        if guard.sum.coefficients == sum_.coefficients:
            most = min(most, guard.bound - 1 - guard.sum.const + sum_.const)
    return max(0, most)


def determined(bases: Iterable[Basis], sums: Sums, guards: set[Guard]) -> set[Basis]:
    """All that follows from these: a quotient and a remainder tell what was divided, and that its own digits."""
    found, todo = set[Basis](), list(bases)
    while todo:
        basis = todo.pop()
        if basis in found:
            continue
        found.add(basis)
        if isinstance(basis, Part) and (basis.other in found or extent(basis.other, sums, guards) == 1):
            todo += tells(basis.of, sums, guards)
    return found


def tells(sum_: Affine, sums: Sums, guards: set[Guard]) -> list[Basis]:
    """What a sum is made of, where it has no value twice."""
    digits = [Digit(b, abs(c), extent(b, sums, guards)) for b, c in sum_.terms]
    return [b for b, _ in sum_.terms] if leaps(digits, 1, sum_.coefficients, guards) else []
