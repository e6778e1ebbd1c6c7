"""NVIDIA devices through the CUDA driver: what there is, what it can do, its memory, its context.

The driver is looked for when it is first needed, never on import.
"""

from __future__ import annotations

import ctypes
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import DeviceError
from .driver_library import NAME, Driver, number

_INSTALL = "install it with: pip install 'kernelgrad[cuda13]', or cuda12 for older drivers"


@cache
def cuda_available() -> bool:
    """Whether kernels can run on a GPU here: a driver, a device, and NVRTC."""
    return _driver_device_count() > 0 and _has_compiler()


def _driver_device_count() -> int:
    try:
        found = driver()
        status, count = found.cuDeviceGetCount()
    except DeviceError:
        return 0
    return 0 if status else int(count)


def _has_compiler() -> bool:
    from .nvrtc_library import nvrtc

    try:
        return nvrtc() is not None
    except DeviceError:
        return False


@cache
def driver_version() -> tuple[int, int]:
    """The newest CUDA that the driver takes code of; any, where there is no driver."""
    try:
        status, version = Driver(library()).cuDriverGetVersion()
    except (OSError, DeviceError):
        return 1 << 30, 0
    return (1 << 30, 0) if status else divmod(version, 1000)


@cache
def library() -> Any:
    """The driver's library itself."""
    return ctypes.CDLL(NAME)


@cache
def driver() -> Driver:
    """The driver, initialised."""
    try:
        found = Driver(library())
    except OSError as error:
        raise DeviceError("no NVIDIA driver was found on this machine") from error
    check(found, found.cuInit(0))
    return found


def check(bindings: Driver, returned: tuple[Any, ...]) -> Any:
    """The values of a driver call `(status, *values)`, or the driver's error as ours."""
    if returned[0]:
        raise DeviceError(describe(bindings, returned[0]))
    return returned[1] if len(returned) == 2 else returned[1:]


def describe(bindings: Driver, status: int) -> str:
    (_, name), (_, text) = bindings.cuGetErrorName(status), bindings.cuGetErrorString(status)
    shown = name.decode() if isinstance(name, bytes) else f"status {status}"
    meaning = text.decode() if isinstance(text, bytes) else "unknown error"
    return f"the CUDA driver reports {shown}: {meaning}"


@dataclass(frozen=True)
class Limits:
    """What one device allows."""

    name: str
    arch: str  # "sm_90"
    threads_per_block: int
    registers_per_block: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared_per_block: int  # without asking
    shared_per_block_optin: int


def device_count() -> int:
    bindings = driver()
    return int(check(bindings, bindings.cuDeviceGetCount()))


@cache
def limits(device: int) -> Limits:
    bindings = driver()
    handle = _handle(device)

    def get(name: str) -> int:
        attribute = number("CU_DEVICE_ATTRIBUTE_", name)
        return int(check(bindings, bindings.cuDeviceGetAttribute(attribute, handle)))

    def get_3d(name: str) -> tuple[int, int, int]:
        x, y, z = (get(f"MAX_{name}_DIM_{axis}") for axis in "XYZ")
        return x, y, z

    major, minor = (get(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    name = check(bindings, bindings.cuDeviceGetName(256, handle)).decode()
    return Limits(
        name,
        f"sm_{major}{minor}",
        get("MAX_THREADS_PER_BLOCK"),
        get("MAX_REGISTERS_PER_BLOCK"),
        get_3d("BLOCK"),
        get_3d("GRID"),
        get("MAX_SHARED_MEMORY_PER_BLOCK"),
        get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )


@cache
def least_shared_bytes() -> int:
    """Of shared memory that a block may have on each of the devices; any, where there is none."""
    found = (limits(device).shared_per_block_optin for device in range(_driver_device_count()))
    return min(found, default=1 << 30)


def _handle(device: int) -> Any:
    bindings = driver()
    count = device_count()
    if not 0 <= device < count:
        raise DeviceError(f"there is no CUDA device {device}: this machine has {count}")
    return check(bindings, bindings.cuDeviceGet(device))


@cache
def primary_context(device: int) -> Any:
    """The context that PyTorch, CuPy and JAX use too. Kept until the process ends."""
    bindings = driver()
    return check(bindings, bindings.cuDevicePrimaryCtxRetain(_handle(device)))


@cache
def context_number(device: int) -> int:
    return int(primary_context(device))


class current:
    """Makes the device's primary context current on this thread, and puts back what was. A thread that has none keeps
    the first device's, which CUDA's runtime would give it with its first call: PyTorch's threads for backward are such,
    and to change it for each launch takes longer than the launch."""

    __slots__ = ("_device", "_pushed")

    def __init__(self, device: int):
        self._device, self._pushed = device, False

    def __enter__(self) -> None:
        bindings = driver()
        found = int(check(bindings, bindings.cuCtxGetCurrent()))
        if found != context_number(self._device):
            check(bindings, bindings.cuCtxPushCurrent(primary_context(self._device)))
            self._pushed = found != 0 or self._device != 0

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            bindings = driver()
            check(bindings, bindings.cuCtxPopCurrent())


class DeviceMemory:
    """Bytes on a device, freed with this object. Copies are ordered on the stream they are given."""

    def __init__(self, nbytes: int, device: int):
        self.nbytes, self.device = nbytes, device
        self._sent = b""
        bindings = driver()
        with current(device):
            self.address = int(check(bindings, bindings.cuMemAlloc(max(1, nbytes))))
        weakref.finalize(self, _free, self.address, device)

    def copy_from_host(self, data: bytes, stream: int = 0) -> None:
        if len(data) > self.nbytes:
            raise DeviceError(f"{len(data)} bytes do not fit into {self.nbytes} on the device")
        bindings = driver()
        with current(self.device):
            # A GPU that reads ordinary memory of the host may do so after the call: `data` stays until the next copy.
            self._sent = data
            check(bindings, bindings.cuMemcpyHtoDAsync(self.address, data, len(data), stream))

    def copy_to_host(self) -> bytes:
        """The contents after all work that was submitted to the device."""
        bindings = driver()
        data = bytearray(self.nbytes)
        address = ctypes.addressof((ctypes.c_char * max(1, self.nbytes)).from_buffer(data)) if data else 0
        with current(self.device):
            check(bindings, bindings.cuCtxSynchronize())
            check(bindings, bindings.cuMemcpyDtoH(address, self.address, self.nbytes))
        return bytes(data)


def _free(address: int, device: int) -> None:
    with suppress(Exception):  # at the interpreter's end the driver may be gone, and the memory with it
        bindings = driver()
        with current(device):
            bindings.cuMemFree(address)
