"""The derivatives of the primitives in terms of each other: Note [Second derivatives of operators] in
frameworks/derived.py, with F(t, u, x) = f''[t, u] besides.

Tangents of T(t, x) along (t', x') are T(t', x) + F(t, x', x); of B(g, x) along (g', x') B(g', x) + S(g, x', x). S is
linear in g and in t, F in t and in u; along x they would be third derivatives. Transposed, T goes to B, B to T, S to S
in t and to F in g, F to S in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.interpreters import ad

from ..errors import UnsupportedError
from .calls import Call, Kind, Role, Slot
from .primitives import PRIMITIVES, aval_of, bind

_ROLES: dict[Kind, tuple[Role, ...]] = {
    "tangent": ("tangent", "primal"),
    "backward": ("cotangent", "primal"),
    "second": ("cotangent", "tangent", "primal"),
    "bend": ("tangent", "along", "primal"),
}


class Given(NamedTuple):
    """An array, and whether it has an entry for each call of a batch."""

    array: Any
    batched: bool


Arrays = Mapping[str, Given]


class Operation:
    """The calls around one: with the same launch, on arrays of other roles."""

    def __init__(self, call: Call, arrays: Sequence[Any]):
        self.call, self.roles = call, call.family.roles
        self._arrays = tuple(Given(array, call.is_batched(k)) for k, array in enumerate(arrays))

    def of(self, role: Role, among: Iterable[Any] | None = None) -> dict[str, Given]:
        """The arrays of a role by name, or what `among` has in their places."""
        values = [given.array for given in self._arrays] if among is None else among
        slots = zip(self.call.slots, values, self._arrays, strict=True)
        return {slot.name: Given(value, given.batched) for slot, value, given in slots if slot.role == role}

    def moving(self, tangents: Sequence[Any]) -> dict[str, Given]:
        """The tangents of the kernel's own arrays, without those of integers."""
        return {n: g for n, g in _nonzero(self.of("primal", tangents)).items() if n in self.roles.active_inputs}

    def results(self, kind: Kind, values: Iterable[Any]) -> dict[str, Given]:
        """What belongs to an operation's results, as far as it is not zero."""
        in_batch = self.call.batch is not None
        names = self.call.results(kind)
        return {n: Given(v, in_batch) for n, v in zip(names, values, strict=True) if not is_zero(v)}

    def bind(self, kind: Kind, wanted: Iterable[str] = (), **arrays: Arrays) -> dict[str, Given]:
        """By name; nothing where one of those that it is linear in is zero. Adjoints come in the arrays' types."""
        roles = _ROLES[kind]
        if not all(arrays[role] for role in roles if role != "primal"):
            return {}
        wanted = tuple(name for name in self.roles.active_inputs if name in set(wanted))
        if kind in ("backward", "second") and not wanted:
            return {}
        primal = self._needed(wanted, arrays["primal"]) if kind == "backward" else arrays["primal"]
        slots: list[Slot] = []
        given: list[Given] = []
        for role in roles:
            for name, found in (primal if role == "primal" else arrays[role]).items():
                slots.append(Slot(role, name))
                given.append(self._cast(found, role, name))
        batched = tuple(g.batched for g in given) if self.call.batch is not None else ()
        call = self.call.with_slots(tuple(slots), batched, wanted)
        made = bind(kind, call, [g.array for g in given])
        return {n: Given(array, call.batch is not None) for n, array in zip(call.results(kind), made, strict=True)}

    def _needed(self, wanted: tuple[str, ...], primal: Arrays) -> dict[str, Given]:
        """Only what the backward reads: XLA need not keep the rest."""
        if self.call.is_idle:
            return {n: g for n, g in primal.items() if n in self.roles.numbers}
        read = self.call.family.derived.needed(wanted)
        return {n: g for n, g in primal.items() if n in read or n in self.roles.numbers}

    def _cast(self, given: Given, role: Role, name: str) -> Given:
        """Inside gradients, adjoints in half precision are floats; tangents are not."""
        if role == "primal" or name in self.roles.numbers:
            return given
        family = self.call.family
        dtype = jnp.dtype(family.wide(name) if role == "cotangent" else family.dtype(name))
        return given if given.array.dtype == dtype else given._replace(array=given.array.astype(dtype))

    def no_third_order(self) -> UnsupportedError:
        kernel = self.call.family.kernel
        reason = f"{kernel.name}: operators have first and second derivatives, this would be another one"
        hint = "the text of its gradient, kg.gradient(kernel, ...).source, is a kernel with two derivatives more"
        return UnsupportedError(reason, kernel.function.span, hint)


def is_zero(value: Any) -> bool:
    return type(value) is ad.Zero


def _nonzero(arrays: Arrays) -> dict[str, Given]:
    return {name: given for name, given in arrays.items() if not is_zero(given.array)}


def _added(*found: Arrays) -> dict[str, Given]:
    total: dict[str, Given] = {}
    for part in found:
        for name, given in part.items():
            total[name] = given if name not in total else given._replace(array=total[name].array + given.array)
    return total


def _as_results(kind: Kind, call: Call, primals: Sequence[Any], found: Arrays) -> list[Any]:
    """The tangents of an operation's results: zero where nothing was found."""
    tangents = []
    for name, primal in zip(call.results(kind), primals, strict=True):
        given = found.get(name)
        zero = ad.Zero(aval_of(primal).to_tangent_aval())
        tangents.append(zero if given is None else given.array.astype(primal.dtype))
    return tangents


# ---- forward --------------------------------------------------------------------------------------------------------


def _jvp(kind: Kind, moved: Callable[[Operation, Sequence[Any]], Arrays]) -> None:
    def rule(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
        results = bind(kind, call, primals)
        found = moved(Operation(call, primals), tangents)
        return results, _as_results(kind, call, results, found)

    ad.primitive_jvps[PRIMITIVES[kind]] = rule


def _move_value(at: Operation, tangents: Sequence[Any]) -> Arrays:
    if not at.roles.active_results:
        return {}
    primal = at.of("primal")
    read = {n: g for n, g in primal.items() if n in at.roles.numbers or at.roles[n].read}
    return at.bind("tangent", tangent=at.moving(tangents), primal=read)


def _move_tangent(at: Operation, tangents: Sequence[Any]) -> Arrays:
    primal = at.of("primal")
    linear = at.bind("tangent", tangent=_nonzero(at.of("tangent", tangents)), primal=primal)
    bent = at.bind("bend", tangent=at.of("tangent"), along=at.moving(tangents), primal=primal)
    return _added(linear, bent)


def _move_backward(at: Operation, tangents: Sequence[Any]) -> Arrays:
    primal, wanted = at.of("primal"), at.call.wanted
    linear = at.bind("backward", wanted, cotangent=_nonzero(at.of("cotangent", tangents)), primal=primal)
    along = at.moving(tangents)
    return _added(linear, at.bind("second", wanted, cotangent=at.of("cotangent"), tangent=along, primal=primal))


def _move_bilinear(kind: Kind, one: Role, other: Role) -> Callable[[Operation, Sequence[Any]], Arrays]:
    def moved(at: Operation, tangents: Sequence[Any]) -> Arrays:
        if at.moving(tangents):
            raise at.no_third_order()
        primal, wanted = at.of("primal"), at.call.wanted
        first = {one: _nonzero(at.of(one, tangents)), other: at.of(other), "primal": primal}
        second = {one: at.of(one), other: _nonzero(at.of(other, tangents)), "primal": primal}
        return _added(at.bind(kind, wanted, **first), at.bind(kind, wanted, **second))

    return moved


_jvp("value", _move_value)
_jvp("tangent", _move_tangent)
_jvp("backward", _move_backward)
_jvp("second", _move_bilinear("second", "cotangent", "tangent"))
_jvp("bend", _move_bilinear("bend", "tangent", "along"))


# ---- transposed -----------------------------------------------------------------------------------------------------


def _transpose(kind: Kind, found: Callable[[Operation, Role, tuple[str, ...], Arrays], Arrays]) -> None:
    def rule(cotangents: Sequence[Any], *arrays: Any, call: Call) -> list[Any]:
        at = Operation(call, arrays)
        asked = [k for k, array in enumerate(arrays) if ad.is_undefined_primal(array)]
        role = call.slots[asked[0]].role
        names = tuple(call.slots[k].name for k in asked)
        made = found(at, role, names, at.results(kind, cotangents))
        answers: list[Any] = [None] * len(arrays)
        for k in asked:
            answers[k] = _answer(made.get(call.slots[k].name), arrays[k].aval, call.is_batched(k))
        return answers

    ad.primitive_transposes[PRIMITIVES[kind]] = rule


def _answer(given: Given | None, aval: Any, batched: bool) -> Any:
    """In the form of what it belongs to: summed up, if that is the same for all entries of a batch. None for zero."""
    if given is None:
        return None
    array = given.array.sum(axis=0) if given.batched and not batched else given.array
    return array.astype(aval.dtype)


def _transposed_tangent(at: Operation, role: Role, names: tuple[str, ...], cotangents: Arrays) -> Arrays:
    return at.bind("backward", names, cotangent=cotangents, primal=at.of("primal"))


def _transposed_backward(at: Operation, role: Role, names: tuple[str, ...], cotangents: Arrays) -> Arrays:
    return at.bind("tangent", tangent=cotangents, primal=at.of("primal"))


def _transposed_second(at: Operation, role: Role, names: tuple[str, ...], cotangents: Arrays) -> Arrays:
    primal = at.of("primal")
    if role == "tangent":  # Hessians are symmetric
        return at.bind("second", names, cotangent=at.of("cotangent"), tangent=cotangents, primal=primal)
    return at.bind("bend", tangent=at.of("tangent"), along=cotangents, primal=primal)


def _transposed_bend(at: Operation, role: Role, names: tuple[str, ...], cotangents: Arrays) -> Arrays:
    other: Role = "along" if role == "tangent" else "tangent"
    return at.bind("second", names, cotangent=cotangents, tangent=at.of(other), primal=at.of("primal"))


_transpose("tangent", _transposed_tangent)
_transpose("backward", _transposed_backward)
_transpose("second", _transposed_second)
_transpose("bend", _transposed_bend)
