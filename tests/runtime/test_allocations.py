"""Where the memory ends that an array is a part of."""

from __future__ import annotations

import ctypes
import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelgrad.runtime import allocations
from kernelgrad.runtime.arrays import ArrayView, is_part, view
from kernelgrad.runtime.driver_library import NUMBERS


def around(array: Any) -> tuple[int, int] | None:
    found = view(array)
    assert found is not None
    return allocations.margins(found)


def test_numpy() -> None:
    whole = np.zeros((4, 10))
    assert around(whole) == (0, 0) and around(whole[1]) == (80, 160) and around(whole[2][3:]) == (184, 80)
    assert around(whole.T[:, 1].T) == (80, 160) and around(whole.reshape(-1)[5:10]) == (40, 240)


@pytest.mark.parametrize(
    "memory", [bytes(80), bytearray(80), mmap.mmap(-1, 80), (ctypes.c_double * 10)()], ids=lambda m: type(m).__name__
)
def test_what_has_a_buffer(memory: Any) -> None:
    assert around(np.frombuffer(memory, np.float64)[2:5]) == (16, 40)


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(10, dtype=torch.float64)
    assert around(whole[2:5]) == (16, 40) and around(whole[2:].numpy()[:3]) == (16, 40)


def test_unknown() -> None:
    assert around(np.from_dlpack(np.zeros(10))) is None


def on_gpu(owner: Any) -> ArrayView:
    return ArrayView(1064, 16, np.dtype("f8"), (2,), True, True, ("cuda", 0), owner)


def test_chunks_of_cupy() -> None:
    array = SimpleNamespace(data=SimpleNamespace(mem=SimpleNamespace(ptr=1000, size=512)))
    assert allocations.margins(on_gpu(array)) == (64, 432)


@pytest.mark.parametrize(("size", "expected"), [(80, (64, 0)), (512, (64, 432)), (70, None)])
def test_arrays_with_the_interface(monkeypatch: pytest.MonkeyPatch, size: int, expected: Any) -> None:
    """As Numba's: the driver knows."""
    names = NUMBERS["CU_POINTER_ATTRIBUTE_"]
    answers = {names["RANGE_START_ADDR"]: 1000, names["RANGE_SIZE"]: size}
    asked = SimpleNamespace(cuPointerGetAttribute=lambda attribute, at: (0, answers[attribute]))
    monkeypatch.setattr(allocations, "driver", lambda: asked)
    array = SimpleNamespace(__cuda_array_interface__={"data": (1064, False)})
    assert is_part(on_gpu(array)) and allocations.margins(on_gpu(array)) == expected
