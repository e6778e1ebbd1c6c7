"""Checking one argument and writing its bytes: a packer for each kind of C type."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.types import I8, Array, Pointer, Scalar, Struct, Type
from .arrays import ArrayView, Device, DType, is_part, view
from .describe import array_text, device_name, layout_hint, value_text, wanted_array
from .launch import Buffer
from .layouts import Unfit, array_shape, converter, flat_dtypes, same_layout, scalar_dtype
from .signature import c_name

write_address = struct.Struct("<Q").pack_into


@dataclass(frozen=True)
class Place:
    """Which parameter or member a packer fills: `s.p` of type `float *`. `shown`: what messages call it."""

    function: str
    path: str
    c_type: str
    shown: str

    def refuse(self, wants: str, got: str, hint: str | None = None) -> ArgumentError:
        return self.error(f"wants {wants}, got {got}", hint)

    def error(self, problem: str, hint: str | None = None) -> ArgumentError:
        help_line = f"\nhelp: {hint}" if hint else ""
        return ArgumentError(f"{self.function}: parameter '{self.shown}' ({self.c_type}) {problem}{help_line}")

    def inner(self, suffix: str, type: Type) -> Place:
        return Place(self.function, self.path + suffix, c_name(type), self.shown + suffix)


class State:
    """What one call of a binder has gathered so far."""

    __slots__ = ("packed", "buffers", "keep_alive", "nulls", "mutated", "device", "first")

    def __init__(self, size: int):
        self.packed = bytearray(size)
        self.buffers: list[Buffer] = []
        self.keep_alive: list[Any] = []
        self.nulls: list[str] = []
        self.mutated: list[Any] = []
        self.device: Device | None = None
        self.first = ""


class Packer:
    """Checks one argument and writes its bytes at an offset of the buffer, which starts out zero."""

    __slots__ = ("place",)

    def __init__(self, place: Place):
        self.place = place

    def pack(self, value: Any, offset: int, state: State) -> None:
        raise NotImplementedError


class _ScalarPacker(Packer):
    __slots__ = ("_write",)

    def __init__(self, place: Place, scalar: Scalar):
        super().__init__(place)
        self._write = converter(scalar).write

    def pack(self, value: Any, offset: int, state: State) -> None:
        try:
            self._write(value, state.packed, offset)
        except Unfit as unfit:
            array = view(value)
            if array is not None and array.tracked:
                raise _tracked(self.place) from None
            raise self.place.refuse(unfit.wants, value_text(value), unfit.hint) from None


class _PointerPacker(Packer):
    __slots__ = ("pointee", "anything", "written", "accepted", "granule", "align")

    def __init__(self, place: Place, pointee: Type, written: bool):
        super().__init__(place)
        self.pointee, self.written = pointee, written
        self.anything = re.search(r"\bvoid\b", place.c_type) is not None
        self.accepted: set[DType] = set(flat_dtypes(pointee)) | _char_dtypes(place.c_type, pointee)
        self.align = 1 if self.anything else pointee.align
        self.granule = 1 if self.anything or isinstance(pointee, Scalar | Pointer) else max(1, pointee.size)

    def pack(self, value: Any, offset: int, state: State) -> None:
        if value is None:
            state.nulls.append(self.place.path)
            return
        array = view(value)
        if array is None:
            raise self.place.refuse(wanted_array(self.pointee, self.anything), value_text(value))
        if array.dtype not in self.accepted:
            self._check_dtype(array)
        if not array.contiguous or (self.written and not array.writable):
            raise self._refuse_memory(array)
        if array.tracked:
            raise _tracked(self.place)
        if self.written and array.versioned:
            state.mutated.append(array.owner)
        if array.address % self.align or array.nbytes % self.granule:
            raise self._refuse_extent(array)
        if array.device != state.device:
            self._move(array, state)
        write_address(state.packed, offset, array.address)
        around = _around(array) if is_part(array) else (0, 0)
        state.buffers.append(Buffer(self.place.path, array.address, array.nbytes, around != (0, 0), around))
        state.keep_alive.append(array.owner)

    def _check_dtype(self, array: ArrayView) -> None:
        _, item = array_shape(self.pointee)
        if not self.anything and not (isinstance(item, Struct) and same_layout(array.dtype, item)):
            wants = wanted_array(self.pointee, self.anything)
            raise self.place.refuse(wants, array_text(array), layout_hint(self.pointee))
        self.accepted.add(array.dtype)

    def _refuse_memory(self, array: ArrayView) -> ArgumentError:
        if not array.contiguous:
            hint = "numpy.ascontiguousarray(a), or .contiguous() of a tensor, makes a copy that fits"
            return self.place.refuse("a C-contiguous array", f"{array_text(array)} that is not", hint)
        return self.place.refuse(
            "a writable array, since the kernel writes through it",
            f"{array_text(array)} that is read-only",
            _writable_hint(array.owner),
        )

    def _refuse_extent(self, array: ArrayView) -> ArgumentError:
        if array.address % self.align:
            return self.place.refuse(
                f"memory aligned to {self.align} bytes", f"{array_text(array)} at address {array.address:#x}"
            )
        return self.place.refuse(
            f"a whole number of items of {self.granule} bytes", f"{array_text(array)} of {array.nbytes} bytes"
        )

    def _move(self, array: ArrayView, state: State) -> None:
        if state.device is not None:
            raise self.place.error(
                f"lies on {device_name(array.device)}, but '{state.first}' lies on {device_name(state.device)}",
                "all arrays of a launch must lie on the same device",
            )
        if array.device != "cpu" and array.device[0] != "cuda":
            raise self.place.refuse("an array on the CPU or on a CUDA device", array_text(array))
        state.device, state.first = array.device, self.place.shown


class _StructPacker(Packer):
    __slots__ = ("struct", "members")

    def __init__(self, place: Place, struct: Struct, written: frozenset[str]):
        super().__init__(place)
        self.struct = struct
        self.members = {
            f.name: (packer(place.inner(f".{f.name}", f.type), f.type, written), f.offset) for f in struct.fields
        }

    def pack(self, value: Any, offset: int, state: State) -> None:
        if isinstance(value, np.void) or (isinstance(value, np.ndarray) and value.ndim == 0):
            self._copy(value, offset, state)
            return
        for name, part in self._parts(value).items():
            member, start = self.members[name]
            member.pack(part, offset + start, state)

    def _copy(self, value: Any, offset: int, state: State) -> None:
        if not same_layout(value.dtype, self.struct):
            got = f"a structured scalar of dtype {value.dtype}"
            raise self.place.refuse(f"the layout of {self.struct.name}", got, layout_hint(self.struct))
        state.packed[offset : offset + self.struct.size] = value.tobytes()

    def _parts(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return self._named(value)
        if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1):
            if len(value) == len(self.members) and not self.struct.is_union:
                return dict(zip(self.members, value, strict=True))
            raise self.place.refuse(self._wants(), f"{len(value)} values in a {type(value).__name__}")
        raise self.place.refuse(self._wants(), value_text(value))

    def _named(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        unknown = [repr(name) for name in value if name not in self.members]
        missing = [repr(name) for name in self.members if name not in value]
        if self.struct.is_union:
            missing = [] if len(value) == 1 else ["exactly one member"]
        problems = [f"no member {', '.join(unknown)}"] if unknown else []
        problems += [f"a dict without {', '.join(missing)}"] if missing else []
        if problems:
            raise self.place.refuse(self._wants(), " and ".join(problems).replace("no member", "unknown member"))
        return value

    def _wants(self) -> str:
        members = ", ".join(self.members)
        if self.struct.is_union:
            return f"a dict with one of {members}"
        return f"a dict, tuple or structured scalar with {members or 'no members'}"


class _ArrayPacker(Packer):
    """An array inside a struct that is passed by value."""

    __slots__ = ("array", "dtype", "elements")

    def __init__(self, place: Place, array: Array, written: frozenset[str]):
        super().__init__(place)
        self.array = array
        self.dtype = scalar_dtype(array.element) if isinstance(array.element, Scalar) else None
        self.elements = [
            packer(place.inner(f"[{k}]", array.element), array.element, written) for k in range(array.count)
        ]

    def pack(self, value: Any, offset: int, state: State) -> None:
        if not _is_sequence(value) or len(value) != self.array.count:
            got = f"{len(value)} values" if _is_sequence(value) else value_text(value)
            raise self.place.refuse(f"a sequence of {self.array.count} values", got)
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == self.dtype:
            state.packed[offset : offset + self.array.size] = value.tobytes()
            return
        for k, element in enumerate(self.elements):
            element.pack(value[k], offset + k * self.array.element.size, state)


def _is_sequence(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def packer(place: Place, type: Type, written: frozenset[str]) -> Packer:
    match type:
        case Scalar():
            return _ScalarPacker(place, type)
        case Pointer():
            return _PointerPacker(place, type.pointee, _is_written(place.path, written))
        case Struct():
            return _StructPacker(place, type, written)
        case Array():
            return _ArrayPacker(place, type, written)


def _is_written(path: str, written: frozenset[str]) -> bool:
    """`written` may name a parameter, and so all pointers in it, or one member of it."""
    return any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in written)


def _char_dtypes(c_type: str, pointee: Type) -> set[DType]:
    """Plain `char` is text or bytes more often than a number: its sign does not matter then."""
    plain = pointee == I8 and re.search(r"\bchar\b", c_type) and not re.search(r"\b(un)?signed\b", c_type)
    return {np.dtype("u1"), np.dtype("S1")} if plain else set()


def _writable_hint(owner: Any) -> str:
    if type(owner).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return "JAX arrays never change: pass a NumPy or CuPy array for the result, and make a JAX array of it"
    return "pass a copy: a.copy()"


def _around(part: ArrayView) -> tuple[int, int] | None:
    """The bytes before and behind an array that is part of a larger one; None where nobody knows."""
    if part.around is not None:
        return part.around
    return _margins()(part)


@cache
def _margins() -> Callable[[ArrayView], tuple[int, int] | None]:
    """Loaded for who passes such an array, and found once: every launch asks."""
    from .allocations import margins

    return margins


def _tracked(place: Place) -> ArgumentError:
    return place.error(
        "got a tensor that requires grad: PyTorch does not see launches, and its graph would end here",
        "make an operator of the kernel, kg.torch.op(kernel), which PyTorch sees; or pass x.detach(), or launch under"
        " torch.no_grad()",
    )
