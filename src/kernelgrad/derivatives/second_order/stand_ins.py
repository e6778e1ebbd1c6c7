"""Memory of the launcher's own where a user would give an array: adjoints of zeros, copies of what is to stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...analysis.roots import holds_pointers
from ...autodiff.calculus.shadows import adjoint_type
from ...errors import ArgumentError
from ...ir.types import Array, Pointer, Struct, Type
from ...runtime.arguments import Placement
from ...runtime.arrays import ArrayView, view
from ...runtime.launch_memory import LaunchMemory
from ...runtime.layouts import flat_dtypes, struct_dtype
from ...runtime.scratch import Scratch, zero_bytes


class StandIns:
    """Makes them for one launch, which keeps them."""

    def __init__(self, placement: Placement, stream: int | None, own: LaunchMemory):
        self.placement, self.stream, self.own = placement, stream, own

    def zeros(self, type: Type, argument: Any, nbytes: int | None = None) -> Any:
        """An adjoint for a parameter with this argument. `nbytes`: of a module variable, which has none."""
        if isinstance(type, Pointer):
            size = nbytes if nbytes is not None else _nbytes(argument)
            return None if size is None else self._array(type.pointee, size)
        return self._parts(type, argument) if holds_pointers(type) else self._array(type, type.size)

    def _parts(self, type: Type, argument: Any) -> Any:
        """Of a struct with pointers."""
        match type:
            case Pointer(inner):
                size = _nbytes(argument)
                return None if size is None or not flat_or_struct(inner) else self._array(inner, size)
            case Struct(fields=fields):
                by_name = isinstance(argument, Mapping)
                return {f.name: self._parts(f.type, argument[f.name if by_name else k]) for k, f in enumerate(fields)}
            case Array(element):
                return [self._parts(element, part) for part in argument]
        return 0

    def _array(self, type: Type, nbytes: int) -> ArrayView:
        """`nbytes`: what the values take; their adjoints may be wider."""
        wide = adjoint_type(type)
        size = nbytes // max(1, type.size) * wide.size
        return self._view(size, flat_or_struct(wide)).filled(0)

    def _view(self, nbytes: int, dtype: Any) -> _Memory:
        scratch = Scratch(nbytes, self.placement.cuda, self.stream)
        self.own.kept.append(scratch)
        return _Memory(scratch, dtype)

    def copy(self, value: Any) -> Any:
        """The same numbers elsewhere; arrays in structs too."""
        return _each(value, self._copied)

    def _copied(self, array: ArrayView) -> ArrayView:
        return self._view(array.nbytes, array.dtype).copied(array)

    def clear(self, value: Any) -> None:
        """Zeroes arrays of the user's, on the launch's stream."""

        def zero(array: ArrayView) -> ArrayView:
            zero_bytes(array.address, array.nbytes, self.placement.cuda, self.stream)
            return array

        _each(value, zero)


class _Memory:
    """Scratch that becomes an array."""

    def __init__(self, scratch: Scratch, dtype: Any):
        self.scratch, self.dtype = scratch, dtype

    def filled(self, byte: int) -> ArrayView:
        self.scratch.fill(byte)
        return self._as_array((self.scratch.nbytes // max(1, _itemsize(self.dtype)),))

    def copied(self, array: ArrayView) -> ArrayView:
        self.scratch.copy_from(array.address)
        return self._as_array(array.shape)

    def _as_array(self, shape: tuple[int, ...]) -> ArrayView:
        scratch = self.scratch
        device: Any = "cpu" if scratch.device is None else ("cuda", scratch.device)
        return ArrayView(scratch.address, scratch.nbytes, self.dtype, shape, True, True, device, scratch)


def _itemsize(dtype: Any) -> int:
    return 2 if isinstance(dtype, str) else int(dtype.itemsize)  # NumPy has no bfloat16


def flat_or_struct(type: Type) -> Any:
    """The dtype of an array of such values; None where there is none."""
    flat = sorted(flat_dtypes(type), key=_itemsize)
    return flat[0] if flat else struct_dtype(type) if isinstance(type, Struct) else None


def _nbytes(argument: Any) -> int | None:
    found = None if argument is None else view(argument)
    return None if found is None else found.nbytes


def _each(value: Any, change: Callable[[ArrayView], ArrayView]) -> Any:
    if isinstance(value, Mapping):
        return {name: _each(part, change) for name, part in value.items()}
    if isinstance(value, tuple | list) and not isinstance(value, ArrayView):
        return [_each(part, change) for part in value]
    array = None if value is None else view(value)
    if array is None:
        return value
    if not array.contiguous:
        raise ArgumentError("second derivatives want contiguous arrays")
    return change(array)
