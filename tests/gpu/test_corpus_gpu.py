"""Every case of the corpus on a GPU, with CuPy arrays, against NumPy."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ..corpus import ALL, Case
from ..corpus.build import build

CASES = [pytest.param(case, id=case.name) for case in ALL if "gpu" not in case.skip]


class Records:
    """A structured array on the GPU: CuPy has no such dtypes, so its bytes stand behind the interface of one."""

    def __init__(self, array: np.ndarray[Any, Any]):
        import cupy

        self.dtype, self.shape = array.dtype, array.shape
        self.data = cupy.asarray(np.ascontiguousarray(array).view(np.uint8).reshape(-1))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.data.data.ptr, False),
            "version": 3,
            "stream": None,
        }

    def get(self) -> np.ndarray[Any, Any]:
        return self.data.get().view(self.dtype).reshape(self.shape)


def to_device(value: Any) -> Any:
    import cupy

    if isinstance(value, Mapping):
        return {key: to_device(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.names:
        return Records(value)
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


def to_host(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: to_host(inner) for key, inner in value.items()}
    return value.get() if hasattr(value, "get") else value


@pytest.mark.parametrize("case", CASES)
def test_gpu(case: Case) -> None:
    pytest.importorskip("cupy")
    args = case.args()
    want = case.want(copy.deepcopy(args))
    on_device = [to_device(value) for value in args]
    build(case)[case.grid, case.block, case.shared](*on_device)
    case.compare([to_host(value) for value in on_device], want)
