"""The driver's functions as they are called, against NVIDIA's cuda.h and on a library of the test's own."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pytest

from kernelgrad.errors import DeviceError
from kernelgrad.runtime import devices, driver_library, nvrtc_library
from kernelgrad.runtime.driver_library import FUNCTIONS, NUMBERS, Driver

VALUES = {"int": "i", "unsigned int": "u", "unsigned char": "c", "unsigned long long": "l", "size_t": "z"}
VALUES |= {"CUdeviceptr": "d", "CUdevice": "i", "CUresult": "i", "void *": "p", "const void *": "p", "void **": "p"}
VALUES |= {"const char *": "p", "char *": "p"}
OUT = {"int *": "*i", "size_t *": "*z", "CUdeviceptr *": "*d", "CUdevice *": "*i", "const char **": "*s"}
HANDLES = "CUcontext CUmodule CUfunction CUstream CUevent CUgraph CUgraphExec CUmemoryPool".split()
VALUES |= dict.fromkeys(HANDLES, "p")
OUT |= dict.fromkeys([f"{handle} *" for handle in HANDLES], "*p") | {"CUstreamCaptureStatus *": "*i"}


@pytest.fixture(scope="module")
def header() -> str:
    """Without comments."""
    folder = nvrtc_library.headers(13)
    if folder is None:
        pytest.skip("there is no cuda.h")
    with open(f"{folder}/cuda.h", encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.DOTALL)


def letters(parameters: str) -> str:
    found = []
    for parameter in "" if parameters.strip() == "void" else re.findall(r"[^,]+", parameters):
        c_type = re.sub(r"\s*\w+$", "", re.sub(r"\s+", " ", parameter.strip()))
        if c_type.startswith("enum ") or re.fullmatch(r"CU\w+_attribute|CUstreamCaptureMode", c_type):
            found.append("i")
        else:
            found.append({**VALUES, **OUT}[c_type])
    return " ".join(found)


@pytest.mark.parametrize("symbol", FUNCTIONS)
def test_parameters_are_those_of_the_header(header: str, symbol: str) -> None:
    plain = next(symbol.removesuffix(end) for end in ("_v2", "WithFlags", "") if symbol.endswith(end))
    renamed = re.search(
        rf"#define {plain}\s+(?:__CUDA_API_PTSZ\(|__CUDA_API_PTDS\()?(\w+)\)?\s*$", header, re.MULTILINE
    )
    assert (renamed[1] if renamed else plain) == symbol
    prototypes = re.findall(rf"CUresult CUDAAPI (?:{plain}|{symbol})\s*\(([^)]*)\)", header)
    assert letters(prototypes[0]) == FUNCTIONS[symbol]


def test_numbers_are_those_of_the_header(header: str) -> None:
    known: dict[str, int] = {}
    for body in re.findall(r"typedef enum \w+\s*{([^}]*)}", header):
        last = -1
        for name, told in re.findall(r"(CU\w+)\s*(?:=\s*([^,]+))?,?", body):
            last = known[name] = int(told, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", told.strip()) else last + 1
    for prefix, names in NUMBERS.items():
        assert names == {name: known[prefix + name] for name in names}


# ---- calls -----------------------------------------------------------------------------------------------------------

POINTER, SIZE, UNSIGNED = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint


class Library:
    """Functions with the parameters of cuda.h; `log` has what reached them."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.status = 0
        self._add("cuInit", UNSIGNED)
        self._add("cuMemAlloc_v2", ctypes.POINTER(ctypes.c_uint64), SIZE, out={0: 1 << 47})
        self._add("cuMemGetInfo_v2", ctypes.POINTER(SIZE), ctypes.POINTER(SIZE), out={0: 5, 1: 1 << 40})
        self._add("cuStreamEndCapture", POINTER, ctypes.POINTER(POINTER), out={1: 77})
        self._add("cuCtxGetCurrent", ctypes.POINTER(POINTER), out={0: None})
        self._add("cuMemcpyHtoDAsync_v2", ctypes.c_uint64, ctypes.c_char_p, SIZE, POINTER)
        self._add("cuPointerGetAttribute", ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_uint64, out={0: 3})
        self._add("cuMemPoolSetAttribute", POINTER, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))
        self._add("cuLaunchKernel", POINTER, *[UNSIGNED] * 7, *[POINTER] * 3)
        self._add("cuGetErrorName", ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), out={1: b"CUDA_ERROR_OF_MINE"})
        self._add("cuGetErrorString", ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), out={1: b"it is"})

    def _add(self, name: str, *types: Any, out: dict[int, Any] | None = None) -> None:
        def called(*args: Any) -> int:
            for place, value in (out or {}).items():
                args[place][0] = value
            shown = [a[0] if hasattr(a, "contents") else a for k, a in enumerate(args) if k not in (out or {})]
            self.log.append((name, *shown))
            return self.status

        setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(called))


def test_calls() -> None:
    library = Library()
    driver = Driver(library)
    assert driver.cuMemAlloc(100) == (0, 1 << 47) and driver.cuMemGetInfo() == (0, 5, 1 << 40)
    assert driver.cuStreamEndCapture(9) == (0, 77) and driver.cuCtxGetCurrent() == (0, 0)
    assert driver.cuPointerGetAttribute(9, 1 << 46) == (0, 3)
    assert driver.cuMemPoolSetAttribute(4, 4, 1 << 36) == (0,)
    assert driver.cuMemcpyHtoDAsync(1 << 47, b"abc", 3, 2) == (0,)
    assert driver.cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0) == (0,)
    handle = ctypes.c_void_p
    assert driver.launch_kernel(handle(1 << 40), (1 << 31) - 1, *range(3, 9), handle(1 << 47), handle(10), None) == 0
    assert driver.launch_kernel(handle(1 << 40), 2, *range(3, 9), None, None, None) == 0
    assert library.log == [
        ("cuMemAlloc_v2", 100),
        ("cuMemGetInfo_v2",),
        ("cuStreamEndCapture", 9),
        ("cuCtxGetCurrent",),
        ("cuPointerGetAttribute", 9, 1 << 46),
        ("cuMemPoolSetAttribute", 4, 4, 1 << 36),
        ("cuMemcpyHtoDAsync_v2", 1 << 47, b"abc", 3, 2),
        ("cuLaunchKernel", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, None),
        ("cuLaunchKernel", 1 << 40, (1 << 31) - 1, 3, 4, 5, 6, 7, 8, 1 << 47, 10, None),
        ("cuLaunchKernel", 1 << 40, 2, 3, 4, 5, 6, 7, 8, None, None, None),
    ]


def test_errors_are_in_the_drivers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(devices, "library", lambda: library)
    devices.driver.cache_clear()
    assert devices.driver().cuMemAlloc(1)[0] == 0
    devices.driver.cache_clear()
    library.status = 999
    with pytest.raises(DeviceError, match="the CUDA driver reports CUDA_ERROR_OF_MINE: it is"):
        devices.driver()
    with pytest.raises(DeviceError, match="the NVIDIA driver has no cuMemAllocAsync: it is too old"):
        Driver(library).cuMemAllocAsync(1, 0)
    with pytest.raises(AttributeError, match="cuNothing"):
        Driver(library).cuNothing(1)
    assert driver_library.number("CU_STREAM_", "NON_BLOCKING") == 1
