"""Unsigned integers as sums that may be negative, such as `i - 1`: what comes round is so large that it is told
apart."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...ir.ops import Apply, Value
from ...ir.types import Pointer, Scalar, Type

if TYPE_CHECKING:
    from .affine import Affine, Sums

_FAR = 1 << 62  # bytes


def wrapped_index(sums: Sums, index: Value, root: Value, size: int) -> Affine | None:
    """An index of elements of so many bytes. In 64 bits, what comes round is the same address; in 32, it is behind the
    end of a buffer that is no larger."""
    op = sums.structure.definition.get(index)
    if isinstance(op, Apply) and op.fn == "convert" and _is_whole(op.args[0].type, index.type):
        index = op.args[0]
    type = index.type
    if not isinstance(type, Scalar) or type.kind != "uint" or type.bits not in (32, 64):
        return None
    found = _bounded(sums, index, type.bits)
    if found is None:
        return None
    low, high = sums.range(found)
    if type.bits == 64:
        return found if max(-low, high) < _FAR // max(size, 1) else None
    small = _bytes(sums, root) <= size << 31
    return found if small and low >= -(1 << 31) and high < 1 << 32 else None


def signed(sums: Sums, value: Value) -> Affine | None:
    """What an unsigned number is as a signed one of as many bits, 32 or more: a negative one is at least half of the
    largest there is."""
    type = value.type
    if not isinstance(type, Scalar) or type.kind != "uint" or type.bits < 32:
        return None
    op = sums.structure.definition.get(value)
    if isinstance(op, Apply) and op.fn == "convert" and _has_sign(op.args[0], type.bits):
        return sums.of(op.args[0])
    found, far = _bounded(sums, value, type.bits), 1 << (type.bits - 1)
    if found is None:
        return None
    low, high = sums.range(found)
    return found if low >= -far and high < far else None


def as_signed(sums: Sums, value: Value, type: Type) -> Affine | None:
    """What is converted to a signed number of as many bits: `(int)(threadIdx.x - 1)`."""
    same = isinstance(type, Scalar) and type.kind == "int" and type.size == value.type.size
    return signed(sums, value) if same else None


def _has_sign(value: Value, bits: int) -> bool:
    return isinstance(value.type, Scalar) and value.type.kind == "int" and value.type.bits == bits


def _is_whole(source: Type, type: Type) -> bool:
    """Whether an unsigned number is converted with all of its bits."""
    return (
        isinstance(source, Scalar) and isinstance(type, Scalar) and source.kind == "uint" and source.bits <= type.bits
    )


def _bytes(sums: Sums, root: Value) -> float:
    """The size of a buffer, at most. What is of a block or of a thread has less than two gigabytes."""
    from .affine import BytesOf

    if isinstance(root.type, Pointer) and root.type.space in ("shared", "local"):
        return 1 << 31
    nbytes = sums.known(BytesOf(root))
    return inf if nbytes is None else float(nbytes)


def _bounded(sums: Sums, value: Value, bits: int) -> Affine | None:
    found = _modulo(sums, value, bits)
    return None if found is None or any(sums.extents[basis] is None for basis, _ in found.terms) else found


def _modulo(sums: Sums, value: Value, bits: int) -> Affine | None:
    """What integers of so many bits are but for what comes round."""
    op, known = sums.structure.definition.get(value), sums.of(value)
    if known is not None or not isinstance(op, Apply):
        return known
    if not all(isinstance(v.type, Scalar) and not v.type.is_float and v.type.bits == bits for v in op.args):
        return None
    parts = [_modulo(sums, arg, bits) for arg in op.args]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    match op.fn:
        case "add" | "sub":
            return found[0].plus(found[1], 1 if op.fn == "add" else -1)
        case "convert":
            return found[0]
        case "mul" if not (found[0].terms and found[1].terms):
            one, other = found if not found[1].terms else found[::-1]
            return one.times(other.const)
    return None
