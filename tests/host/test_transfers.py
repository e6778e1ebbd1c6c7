"""Sums and fills of memory by address; the kernels of our own that do it on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgrad import UnsupportedError
from kernelgrad.host import transfers

KERNELS = [
    *(f"add<{type}>" for type in ("float", "double", "__half", "__nv_bfloat16")),
    *(f"add_each<{type}>" for type in ("float", "double", "__half")),
    *(f"fill<{type}>" for type in ("unsigned char", "unsigned short", "unsigned int", "unsigned long long")),
    *(f"fingerprint<{type}>" for type in ("unsigned int", "unsigned char")),
]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile(name: str) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(transfers.kernel(name).source, "sm_90")


PAIR = np.dtype([("x", "f4"), ("k", "i4"), ("y", "f4", (2,))])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", PAIR], ids=str)
def test_sums(dtype: Any) -> None:
    a, b = np.zeros(5, dtype), np.zeros(5, dtype)
    for array, value in ((a, 1.5), (b, 2.0)):
        if array.dtype.names:
            array["x"], array["k"], array["y"] = value, 7, 2 * value
        else:
            array[:] = value
    transfers.add(a.ctypes.data, b.ctypes.data, a.nbytes, a.dtype, None, None)
    if a.dtype.names:
        assert (a["x"] == 3.5).all() and (a["k"] == 7).all() and (a["y"] == 7).all()
    else:
        assert (a == 3.5).all()


def test_what_has_several_kinds_of_numbers() -> None:
    assert transfers.kinds(PAIR) == {"f4", "i4"} and transfers.kinds(np.dtype("c16")) == {"f8"}
    with pytest.raises(UnsupportedError, match="a member is not aligned"):
        transfers.add(0, 0, 12, np.dtype([("k", "i4"), ("x", "f8")]), 0, None)


def test_sums_of_members_as_on_a_gpu() -> None:
    """A launch for each; integers stay."""
    mixed = np.dtype([("x", "f4"), ("k", "i4"), ("y", "f8", (2,)), ("z", "c8")])
    a, b = np.zeros(5, mixed), np.zeros(5, mixed)
    for array, value in ((a, 1.5), (b, 2.0)):
        array["x"], array["k"], array["y"], array["z"] = value, value + 10, 2 * value, value + 3j
    transfers._add_leaves(a.ctypes.data, b.ctypes.data, a.nbytes, mixed, None, None)
    assert (a["x"] == 3.5).all() and (a["k"] == 11).all() and (a["y"] == 7).all() and (a["z"] == 3.5 + 6j).all()


def test_fills() -> None:
    a = np.zeros(5, np.float64)
    transfers.fill(a.ctypes.data, a.nbytes, np.float64(2.5).tobytes(), None, None)
    assert (a == 2.5).all()
    transfers.zero(a.ctypes.data, 16, None, None)
    np.testing.assert_array_equal(a, [0, 0, 2.5, 2.5, 2.5])
