"""Arrays of other packages, seen as memory. None of those packages is imported here: who has an array has loaded its
package, so `sys.modules` knows it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Device = Literal["cpu"] | tuple[str, int]
DType = np.dtype[Any] | str

BFLOAT16 = "bfloat16"


class ArrayView(NamedTuple):
    """The memory of an array. `dtype` is a NumPy dtype, or a name where NumPy has none ("bfloat16").
    `device` is "cpu" or (kind, ordinal), kind being "cuda" for all that kernels can run on."""

    address: int
    nbytes: int
    dtype: DType
    shape: tuple[int, ...]
    contiguous: bool
    writable: bool
    device: Device
    owner: Any
    tracked: bool = False  # PyTorch records what is done to it, and would not see a launch
    versioned: bool = False  # PyTorch counts writes to it
    around: tuple[int, int] | None = None  # bytes before and behind it that a kernel may touch; None: not known yet


def is_part(array: ArrayView) -> bool:
    """Whether an array is, or may be, a view of a part of another, as far as its package tells."""
    if array.around is not None:
        return array.around != (0, 0)
    storage = getattr(array.owner, "untyped_storage", None)
    if storage is not None:
        return bool(storage().nbytes() > array.nbytes)
    if array.device != "cpu" and not hasattr(array.owner, "base"):
        return hasattr(array.owner, "__cuda_array_interface__")  # Numba's do not tell, but the driver does
    base = getattr(array.owner, "base", None)
    return base is not None and getattr(base, "nbytes", array.nbytes + 1) > array.nbytes


def mark_written(tensors: tuple[Any, ...]) -> None:
    """Tells PyTorch that tensors were written in place, so that a graph that saved one of them refuses to go on."""
    graph = sys.modules["torch"].autograd.graph
    for tensor in tensors:
        if not tensor.is_inference():
            graph.increment_version(tensor)


def view(obj: Any) -> ArrayView | None:
    """The memory behind an array of any known package; None for what is no array."""
    reader = _readers.get(type(obj)) or _find_reader(obj)
    return None if reader is None else reader(obj)


_Reader = Callable[[Any], ArrayView | None]
_readers: dict[type, _Reader] = {}  # of types whose objects are all read alike


def _find_reader(obj: Any) -> _Reader | None:
    if isinstance(obj, np.generic):  # NumPy's scalars have the array protocols too, but are values
        return None
    reader = _package_reader(obj)
    if reader is not None:
        _readers[type(obj)] = reader
        return reader
    protocols: tuple[tuple[str, _Reader], ...] = (
        ("__cuda_array_interface__", _view_cuda_interface),
        ("__dlpack__", _view_dlpack),
        ("__array_interface__", lambda o: _view_numpy(np.asarray(o))),
    )  # an object's own: another of its type may be elsewhere
    return next((reader for name, reader in protocols if hasattr(obj, name)), None)


def _package_reader(obj: Any) -> _Reader | None:
    if isinstance(obj, ArrayView):  # memory of our own, or seen before
        return lambda seen: seen
    if isinstance(obj, np.ndarray):
        return _view_numpy
    packages: tuple[tuple[str, str, _Reader], ...] = (
        ("torch", "Tensor", _view_torch),
        ("jax", "Array", _view_jax),
        ("cupy", "ndarray", _view_cupy),
    )
    return next((reader for package, name, reader in packages if _is_a(obj, package, name)), None)


def _is_a(obj: Any, package: str, name: str) -> bool:
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(obj, kind)


# ---- one reader per package or protocol -----------------------------------------------------------------------------


def _view_numpy(array: Any) -> ArrayView:
    (address, read_only), dtype = array.__array_interface__["data"], array.dtype
    return ArrayView(
        address,
        array.nbytes,
        dtype if dtype.kind != "V" else _plain_dtype(dtype),
        array.shape,
        array.flags.c_contiguous,
        not read_only,
        "cpu",
        array,
    )


def _view_torch(tensor: Any) -> ArrayView | None:
    if tensor.layout is not sys.modules["torch"].strided:
        return None  # sparse and other layouts have no single piece of memory
    dtype, device = tensor.dtype, tensor.device
    # A lazily conjugated or negated view holds other numbers than it shows: as unusable in place as a strided one.
    plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return ArrayView(
        tensor.data_ptr(),
        tensor.numel() * dtype.itemsize,
        _torch_dtype(dtype),
        tuple(tensor.shape),
        plain,
        True,
        "cpu" if device.type == "cpu" else (device.type, device.index or 0),
        tensor,
        tensor.requires_grad and sys.modules["torch"].is_grad_enabled(),
        True,
    )


def _view_jax(array: Any) -> ArrayView | None:
    devices = tuple(array.devices())
    if len(devices) != 1:
        return None  # sharded over several devices
    array.block_until_ready()  # JAX computes on streams of its own
    platform = devices[0].platform
    return ArrayView(
        array.unsafe_buffer_pointer(),
        array.nbytes,
        _plain_dtype(np.dtype(array.dtype)),
        tuple(array.shape),
        True,
        False,
        "cpu" if platform == "cpu" else ("cuda" if platform in ("gpu", "cuda") else platform, _jax_ordinal(devices[0])),
        array,
    )


def _view_cupy(array: Any) -> ArrayView:
    """Straight from its attributes: building the interface's dictionary takes longer than all else in a launch."""
    memory, dtype = array.data, array.dtype
    return ArrayView(
        memory.ptr,
        array.nbytes,
        dtype if dtype.kind != "V" else _plain_dtype(dtype),
        array.shape,
        array.flags.c_contiguous,
        True,
        ("cuda", memory.device_id),
        array,
    )


def _view_cuda_interface(array: Any) -> ArrayView:
    interface = array.__cuda_array_interface__
    address, read_only = interface["data"]
    dtype = getattr(array, "dtype", None)
    dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    return ArrayView(
        address,
        _count(shape) * dtype.itemsize,
        _plain_dtype(dtype),
        shape,
        strides is None or _is_c_order(shape, tuple(strides), dtype.itemsize),
        not read_only,
        ("cuda", _cuda_ordinal(array, address)),
        array,
    )


def _view_dlpack(array: Any) -> ArrayView:
    from . import dlpack

    lent = dlpack.borrow(array)
    kind, ordinal = lent.device
    on_host, on_gpu = kind in (dlpack.CPU, dlpack.CUDA_HOST), kind in (dlpack.CUDA, dlpack.CUDA_MANAGED)
    itemsize = lent.dtype.itemsize if isinstance(lent.dtype, np.dtype) else 2
    return ArrayView(
        lent.address,
        _count(lent.shape) * itemsize,
        lent.dtype,
        lent.shape,
        lent.strides is None or _is_c_order(lent.shape, lent.strides, 1),
        not lent.read_only,
        "cpu" if on_host else ("cuda" if on_gpu else f"DLPack {kind}", ordinal),
        (array, lent.capsule),
    )


# ---- details of types, strides and devices --------------------------------------------------------------------------


def _plain_dtype(dtype: np.dtype[Any]) -> DType:
    """ml_dtypes gives NumPy a bfloat16 of its own, of kind "V": known by its name."""
    return BFLOAT16 if dtype.kind == "V" and dtype.name == BFLOAT16 else dtype


_torch_dtypes: dict[Any, DType] = {}


def _torch_dtype(dtype: Any) -> DType:
    known = _torch_dtypes.get(dtype)
    if known is None:
        known = _torch_dtypes[dtype] = _named_dtype(str(dtype).removeprefix("torch."))
    return known


def _named_dtype(name: str) -> DType:
    try:
        return _plain_dtype(np.dtype(name))  # once ml_dtypes is loaded, NumPy knows "bfloat16" by name
    except TypeError:
        return name


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _is_c_order(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> bool:
    """Whether elements lie one after another, the last index fastest; extents of 1 have no say."""
    if 0 in shape:
        return True
    expected = unit
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _jax_ordinal(device: Any) -> int:
    """`id` counts over all processes of a distributed run; the hardware's own number only over this machine."""
    ordinal = getattr(device, "local_hardware_id", None)
    return int(device.id if ordinal is None else ordinal)


def _cuda_ordinal(array: Any, address: int) -> int:
    """The interface does not say on which device an array lies: ask the array by DLPack, then the driver."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    if address == 0:
        return 0
    from ..errors import DeviceError
    from .devices import driver
    from .driver_library import number

    try:
        bindings = driver()
    except DeviceError:
        return 0
    failed, ordinal = bindings.cuPointerGetAttribute(number("CU_POINTER_ATTRIBUTE_", "DEVICE_ORDINAL"), address)
    return 0 if failed else ordinal
