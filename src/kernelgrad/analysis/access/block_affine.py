"""Integers and addresses of a block's threads as affine sums, `4 * threadIdx.x + 128 * k + base`: of thread indices, of
one loop's counter `k`, and of values that are uniform, which stay symbols. `affine` has those of a launch."""

from __future__ import annotations

from ...ir.ops import Apply, Builtin, Constant, GlobalRef, Member, Offset, Op, PtrCast, Value
from ...ir.types import Pointer, Scalar, Struct
from .affine import Affine

_SPARE = 12  # bits of an integer: a coefficient that leaves as many free does not wrap around within a block's axes


class BlockAffine:
    """`counter`: the loop's. `uniform`: values that are the same for all threads."""

    def __init__(self, definition: dict[Value, Op], uniform: set[Value], counter: Value):
        self.definition, self.uniform, self.counter = definition, uniform, counter
        self._found: dict[Value, Affine | None] = {}

    def of(self, value: Value) -> Affine | None:
        if value not in self._found:
            self._found[value] = self._compute(value)
        return self._found[value]

    def _compute(self, value: Value) -> Affine | None:
        if value is self.counter:
            return Affine(0, ((value, 1),))
        op = self.definition.get(value)
        found = None
        match op:
            case Constant(number) if isinstance(number, int):
                return Affine(int(number))
            case Builtin("thread_idx", axis):
                return Affine(0, ((("thread_idx", axis), 1),))
            case Apply(fn, args) if _is_index(value) and all(map(_is_index, args)):
                found = self._apply(fn, args)
                found = found if found is None or self._keeps_differences(found, value) else None
        return Affine(0, ((value, 1),)) if found is None and value in self.uniform else found

    def _apply(self, fn: str, args: tuple[Value, ...]) -> Affine | None:
        parts = [self.of(a) for a in args]
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            return None
        match fn, known:
            case "add", [a, b]:
                return a.plus(b)
            case "sub", [a, b]:
                return a.plus(b, -1)
            case "neg", [a]:
                return a.times(-1)
            case "convert", [a]:
                return a
            case "mul", [a, b] if not a.terms or not b.terms:
                return a.times(b.const) if not b.terms else b.times(a.const)
            case "shl", [a, b] if not b.terms and 0 <= b.const < 31:
                return a.times(1 << b.const)
        return None

    def _keeps_differences(self, sum_: Affine, value: Value) -> bool:
        """Whether the value differs between threads as the sum does: with a large coefficient it wraps around within a
        block, as `((t << 16) + n) << 16` in 32 bits, the same for all t. What is uniform wraps in all threads alike."""
        assert isinstance(value.type, Scalar)
        most = 1 << (value.type.bits - _SPARE)
        return all(abs(coefficient) <= most or basis in self.uniform for basis, coefficient in sum_.terms)

    def address(self, ptr: Value) -> Affine | None:
        """In bytes from where the pointer's memory begins."""
        op = self.definition.get(ptr)
        match op:
            case PtrCast(base):
                return self.address(base)
            case Offset(base, index):
                start, by = self.address(base), self.of(index)
                assert isinstance(ptr.type, Pointer)
                return None if start is None or by is None else start.plus(by, ptr.type.pointee.size)
            case Member(base, index):
                start = self.address(base)
                assert isinstance(base.type, Pointer) and isinstance(base.type.pointee, Struct)
                return None if start is None else start.plus(Affine(base.type.pointee.fields[index].offset))
        return Affine(0) if isinstance(op, GlobalRef) or ptr in self.uniform else None


def _is_index(value: Value) -> bool:
    """32 bits or more: arithmetic of those that wraps around would lead out of any array that a kernel has."""
    return isinstance(value.type, Scalar) and value.type.kind in ("int", "uint") and value.type.bits >= 32
