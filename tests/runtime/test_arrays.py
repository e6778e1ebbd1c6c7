"""Arrays and streams of other packages. GPU arrays are stand-ins here: only their metadata is looked at."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelgrad.errors import ArgumentError, LaunchError
from kernelgrad.ir.types import BF16, F32
from kernelgrad.runtime.arguments import Binder, bind
from kernelgrad.runtime.arrays import BFLOAT16, view
from kernelgrad.runtime.streams import current_stream, stream_handle
from kernelgrad.runtime.written import written_params
from signatures import kernel, pointer, saxpy

NONE: frozenset[str] = frozenset()


class GpuArray:
    """A stand-in for CuPy's and Numba's arrays."""

    __array_interface__: Any

    def __init__(self, ordinal: int = 0, dtype: Any = "<f4", shape: tuple[int, ...] = (8,), **interface: Any):
        self.ordinal = ordinal
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "data": (0x7000, False),
            "version": 3,
            **interface,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal


class Lender:
    """Has DLPack and nothing else; `versioned=False` plays a producer older than DLPack 1.0."""

    def __init__(self, array: Any, versioned: bool = True):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("value", [None, 1, 2.5, "text", [1.0], np.float32(1), object(), {"a": 1}])
def test_what_is_no_array(value: Any) -> None:
    assert view(value) is None


def test_numpy() -> None:
    array = np.zeros((2, 3), np.int16)
    seen = view(array)
    assert seen is not None and seen.owner is array
    assert (seen.address, seen.nbytes, seen.dtype, seen.shape) == (array.ctypes.data, 12, np.int16, (2, 3))
    assert (seen.contiguous, seen.writable, seen.device) == (True, True, "cpu")
    strided = view(array[:, :2])
    assert strided is not None and not strided.contiguous


def test_the_array_interface_alone_is_enough() -> None:
    array = np.zeros(4, np.float32)
    seen = view(SimpleNamespace(__array_interface__=array.__array_interface__))
    assert seen is not None and (seen.address, seen.device) == (array.ctypes.data, "cpu")


def test_cuda_array_interface() -> None:
    seen = view(GpuArray(1))
    assert seen is not None
    assert (seen.address, seen.nbytes, seen.dtype, seen.device) == (0x7000, 32, np.float32, ("cuda", 1))
    assert seen.contiguous and seen.writable


def test_objects_of_one_type_lie_where_each_says() -> None:
    array = np.zeros(4, np.float32)
    there, here = GpuArray(), GpuArray()
    del here.__cuda_array_interface__
    here.__array_interface__ = array.__array_interface__
    both = [view(there), view(here)]
    assert [v.device for v in both if v] == [("cuda", 0), "cpu"]


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((2, 3), (12, 4), True),
        ((2, 3), (4, 8), False),
        ((1, 3), (400, 4), True),
        ((0, 3), (8, 8), True),
        ((), (), True),
    ],
)
def test_strides_of_the_cuda_array_interface(shape: Any, strides: Any, contiguous: bool) -> None:
    seen = view(GpuArray(shape=shape, strides=strides))
    assert seen is not None and seen.contiguous is contiguous


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)[1:]
    seen = view(Lender(array, versioned))
    assert seen is not None
    assert (seen.address, seen.nbytes, seen.dtype, seen.shape) == (array.ctypes.data, 24, np.float64, (1, 3))
    assert (seen.contiguous, seen.writable, seen.device) == (True, True, "cpu")
    transposed = view(Lender(np.zeros((2, 3)).T, versioned))
    assert transposed is not None and not transposed.contiguous


@pytest.mark.skipif(int(np.__version__.split(".")[0]) < 2, reason="NumPy lends what may be written alone")
def test_dlpack_says_read_only() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    seen = view(Lender(array))
    assert seen is not None and not seen.writable


def test_dlpack_keeps_the_memory_alive() -> None:
    bound, _ = bind(kernel(pointer("p", F32, "float *")), [Lender(np.arange(4, dtype=np.float32))], NONE)
    import ctypes

    assert list((ctypes.c_float * 4).from_address(bound.buffers[0].address)) == [0, 1, 2, 3]


# ---- devices --------------------------------------------------------------------------------------------------------


def test_gpu_arrays_place_the_launch() -> None:
    _, placement = bind(saxpy(), (GpuArray(1), GpuArray(1), 1.0, 8), NONE)
    assert placement.cuda == 1 and placement.stream() == 0


def test_devices_must_not_mix() -> None:
    cpu = np.zeros(8, np.float32)
    with pytest.raises(ArgumentError, match="'x' .* lies on cuda:0, but 'y' lies on the CPU\nhelp: all arrays"):
        bind(saxpy(), (cpu, GpuArray(), 1.0, 8), NONE)
    with pytest.raises(ArgumentError, match="'x' .* lies on cuda:1, but 'y' lies on cuda:0"):
        bind(saxpy(), (GpuArray(0), GpuArray(1), 1.0, 8), NONE)


def test_a_number_on_the_gpu_must_be_fetched() -> None:
    with pytest.raises(ArgumentError, match=r"'a' .*got a float32 array of shape \(\) on cuda:0\nhelp: .*value.item"):
        bind(saxpy(), (None, None, GpuArray(shape=()), 8), NONE)


# ---- torch ----------------------------------------------------------------------------------------------------------


def test_torch_tensors_are_used_in_place() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    seen = view(tensor)
    assert seen is not None
    assert (seen.address, seen.nbytes, seen.dtype, seen.shape) == (tensor.data_ptr(), 24, np.float32, (2, 3))
    assert (seen.contiguous, seen.writable, seen.device, seen.owner) == (True, True, "cpu", tensor)
    for strided in (tensor.T, tensor[:, :2], torch.zeros(3, dtype=torch.complex64).conj()):
        other = view(strided)
        assert other is not None and not other.contiguous
    assert view(torch.nn.Parameter(tensor)) is not None
    assert view(tensor.to_sparse()) is None


def test_every_torch_dtype_has_a_name() -> None:
    torch = pytest.importorskip("torch")
    for name in "bool int8 uint8 int16 int32 int64 float16 float32 float64 complex64".split():
        seen = view(torch.zeros(2, dtype=getattr(torch, name)))
        assert seen is not None and seen.dtype == np.dtype(name)
    half = torch.zeros(4, dtype=torch.bfloat16)
    seen = view(half)
    assert seen is not None and (seen.dtype, seen.nbytes) == (BFLOAT16, 8)
    bind(kernel(pointer("p", BF16, "__nv_bfloat16 *")), [half], NONE)
    with pytest.raises(ArgumentError, match="wants a float32 array, got a bfloat16 array"):
        bind(kernel(pointer("p", F32, "float *")), [half], NONE)


def test_torch_scalars_and_other_devices() -> None:
    torch = pytest.importorskip("torch")
    y = torch.zeros(4)
    bound, placement = bind(saxpy(), (y, y, torch.tensor(0.5), torch.tensor(4)), NONE)
    assert bound.packed[16:] == np.float32(0.5).tobytes() + np.int32(4).tobytes() and placement.source is y
    with pytest.raises(ArgumentError, match="an array on the CPU or on a CUDA device, got .* on meta:0"):
        bind(saxpy(), (torch.zeros(4, device="meta"), None, 1.0, 4), NONE)


def test_torch_streams() -> None:
    torch = pytest.importorskip("torch")
    assert current_stream(torch.zeros(1)) is None


# ---- jax ------------------------------------------------------------------------------------------------------------


class JaxArray:
    """A stand-in for `jax.Array`: immutable memory that may still be under computation."""

    def __init__(self, array: Any, platform: str = "cpu"):
        self.array, self.platform, self.waited = array, platform, False
        self.dtype, self.shape, self.nbytes = array.dtype, array.shape, array.nbytes

    def devices(self) -> set[Any]:
        return {_JaxDevice(self.platform)}

    def block_until_ready(self) -> None:
        self.waited = True

    def unsafe_buffer_pointer(self) -> int:
        return int(self.array.ctypes.data)


class _JaxDevice:
    local_hardware_id, id = 3, 11

    def __init__(self, platform: str):
        self.platform = platform


JaxArray.__module__ = "jaxlib._jax"


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("jax")
    module.Array = JaxArray
    monkeypatch.setitem(sys.modules, "jax", module)


@pytest.mark.usefixtures("jax")
def test_jax_arrays_are_read_only() -> None:
    function, x = saxpy(), JaxArray(np.zeros(4, np.float32))
    binder = Binder(function, written_params(function))
    binder.bind((np.zeros(4, np.float32), x, 1.0, 4))
    assert x.waited
    with pytest.raises(ArgumentError, match="'y' .* that is read-only\nhelp: JAX arrays never change"):
        binder.bind((x, x, 1.0, 4))


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_jax_arrays_on_the_gpu(platform: str) -> None:
    seen = view(JaxArray(np.zeros(4, np.float32), platform))
    assert seen is not None and seen.device == ("cuda", 3)


def test_real_jax() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(4.0)
    seen = view(x)
    assert seen is not None and (seen.dtype, seen.shape, seen.writable) == (np.float32, (4,), False)
    half = view(x.astype("bfloat16"))
    assert half is not None and half.dtype == BFLOAT16


# ---- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, None),
        (0, 0),
        (7, 7),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 8)), 8),
        (SimpleNamespace(__cuda_stream__=(0, 9)), 9),
        (SimpleNamespace(cuda_stream=10), 10),
        (SimpleNamespace(ptr=11), 11),
        (SimpleNamespace(handle=SimpleNamespace(value=None)), 0),
    ],
)
def test_stream_handles(stream: Any, handle: int | None) -> None:
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", [True, "main", 1.5, object()])
def test_what_is_no_stream(stream: Any) -> None:
    with pytest.raises(LaunchError, match="stream: wants None, a stream handle"):
        stream_handle(stream)


def test_current_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_stream(np.zeros(3)) is None
    assert current_stream(GpuArray()) == 0
    assert current_stream(GpuArray(stream=2)) == 2
    cupy: Any = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=42))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    array = type("ndarray", (GpuArray,), {"__module__": "cupy._core.core"})()
    assert current_stream(array) == 42
