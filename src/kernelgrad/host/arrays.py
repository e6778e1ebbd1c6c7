"""Arrays as users hold them: like another one, copied, filled, in the package of the array at hand."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..runtime.arrays import ArrayView, view
from ..runtime.streams import current_stream
from . import transfers

_NUMBA = ("numba", "numba_cuda")


def seen(what: str, array: Any) -> ArrayView:
    """The memory of an array that is whole."""
    found = view(array)
    if found is None:
        raise ArgumentError(f"{what}: wants an array, got {type(array).__name__}")
    if not found.contiguous:
        raise ArgumentError(f"{what}: wants a C-contiguous array, got one of shape {found.shape} that is not")
    return found


def device_of(array: ArrayView) -> int | None:
    return array.device[1] if isinstance(array.device, tuple) else None


def empty_like(array: Any) -> tuple[Any, ArrayView]:
    """An array of the same package, shape, dtype and device, and its memory."""
    made = _empty_like(array)
    found = view(made)
    assert found is not None
    return made, found


def _empty_like(array: Any) -> Any:
    package = type(array).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.empty(array.shape, dtype=array.dtype, device=array.device)
    if package == "cupy":
        return sys.modules["cupy"].empty(array.shape, array.dtype)
    if package in _NUMBA:
        return _on_numba(array.shape, array.dtype)
    found = seen("grad", array)
    if device_of(found) is None and isinstance(found.dtype, np.dtype):
        return np.empty(found.shape, found.dtype)
    raise ArgumentError(f"grad: cannot make an array like {type(array).__name__}")


def _on_numba(shape: tuple[int, ...], dtype: Any) -> Any:
    cuda: Any = sys.modules["numba.cuda"]
    return cuda.device_array(shape, dtype)


def zero_like(array: Any) -> Any:
    """The same, of zeros."""
    return _zeroed(_empty_like(array))


def _zeroed(made: Any) -> Any:
    found = seen("zeros", made)
    transfers.zero(found.address, found.nbytes, device_of(found), current_stream(made))
    return made


def zeros_like(shape: Any, dtype: Any, like: Any) -> Any:
    extents = _extents(shape)
    try:
        return _zeros(extents, dtype, like)
    except ArgumentError:
        raise
    except TypeError as error:
        raise ArgumentError(f"zeros: dtype= wants a dtype of the array's package, got {dtype!r}") from error


def _extents(shape: Any) -> tuple[int, ...]:
    try:
        found = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        found = (-1,)
    if any(extent < 0 for extent in found):
        raise ArgumentError(f"zeros: the shape is a number of elements or a tuple of such numbers, got {shape!r}")
    return found


def _zeros(shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
    torch = sys.modules.get("torch")
    if like is None or isinstance(like, np.ndarray):
        return np.zeros(shape, np.float32 if dtype is None else dtype)
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.zeros(shape, dtype=dtype or like.dtype, device=like.device)
    package = type(like).__module__.partition(".")[0]
    if package == "cupy":
        return sys.modules["cupy"].zeros(shape, dtype or like.dtype)
    if package in _NUMBA:
        return _zeroed(_on_numba(shape, dtype or like.dtype))
    raise ArgumentError(f"zeros: like= wants an array of NumPy, CuPy, PyTorch or Numba, got {type(like).__name__}")
