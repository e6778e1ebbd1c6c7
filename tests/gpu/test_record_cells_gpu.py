"""Adjoints of small inputs of vectors and records that blocks add up in shared memory, on the GPU, against the same
kernel with an array of numbers on the CPU in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cell_cases import LAUNCHES, chosen
from every_plan import forced
from record_cell_cases import BODIES, LAYOUTS, arguments, elements, rows, source, viewed

cp = pytest.importorskip("cupy")

PLANS = ("in cells of blocks", "blocks in turns, with cells", "as launched")
LAUNCH = (50, 64)


class Records:
    """A structured array on the GPU: CuPy has no such dtypes, so its bytes stand behind the interface of one."""

    def __init__(self, array: Any):
        self.bytes, self.dtype = cp.asarray(array.view(np.uint8)), array.dtype
        self._told(self.bytes.data.ptr, array.shape)

    def _told(self, address: int, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (address, False),
            "version": 3,
        }

    def __getitem__(self, part: slice) -> Records:
        found = object.__new__(Records)
        found.bytes, found.dtype = self.bytes, self.dtype
        found._told(self.bytes.data.ptr + part.start * self.dtype.itemsize, (part.stop - part.start,))
        return found

    def get(self) -> Any:
        return self.bytes.get().view(self.dtype)


def _on_gpu(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    return Records(array) if array.dtype.names else cp.asarray(array)


def _run(body: str, name: str, launch: Any, n: int, real: Any, on_gpu: bool = True) -> tuple[Any, Any, Any]:
    layout, spelled = LAYOUTS[name], {np.float32: "float", np.float64: "double"}[real]
    gradient: Any = kg.gradient(kg.compile(source(body, layout, spelled))["k"], "y, x, w")
    given = arguments(n, layout, real)
    given = list(map(_on_gpu, given)) if on_gpu else given
    gradient[launch](*viewed(given, layout))
    return (given[6].get() if on_gpu else given[6]), rows(given[7]), gradient


def _agree(got: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(got[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(other).max())))


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize("body", BODIES)
def test_odd_launches(body: str, launch: Any) -> None:
    for n in (elements(body, launch), 0):
        expected = _run(body, "numbers", launch, n, np.float64, on_gpu=False)
        for name in ("vectors", "cast to vectors", "an integer"):
            for real, tolerance in ((np.float64, 1e-10), (np.float32, 2e-4)):
                with forced(PLANS[0]):
                    got = _run(body, name, launch, n, real)
                assert n == 0 or chosen(got[2]) == {"w"}
                _agree(got, expected, tolerance)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, plan: str) -> None:
    for body in ("columns", "loop", "branches", "anywhere"):
        n = elements(body, LAUNCH)
        expected = _run(body, "numbers", LAUNCH, n, np.float64, on_gpu=False)
        for real, tolerance in ((np.float64, 1e-10), (np.float32, 2e-4)):
            with forced(plan):
                _agree(_run(body, name, LAUNCH, n, real), expected, tolerance)


@pytest.mark.parametrize("name", ["vectors", "an integer"])
def test_long_sums(name: str) -> None:
    """A launch that gets cells as it is, of equal floats."""
    n, layout = 1 << 22, LAYOUTS[name]
    body = f"y[i] = {' + '.join(layout.read[a].replace('@', 'i % 6') for a in 'abcd')};"
    text = f"{layout.declared} __global__ void k(float *y, const {layout.type} *w, int n) {{"
    text += f" int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}"
    kernel = kg.compile(text.replace("T4", "float4").replace("{ T ", "{ float ").replace("; T ", "; float "))["k"]
    gradient: Any = kg.gradient(kernel, "y, w", primal=False)
    w, d_w = (_on_gpu(arguments(1, layout, np.float32)[k])[2 * layout.four : 8 * layout.four] for k in (2, 7))
    gradient[n // 256, 256](cp.zeros(n, "f4"), w, n, cp.ones(n, "f4"), d_w)
    assert chosen(gradient) == {"w"}
    found = rows(d_w) if layout.fields is None else rows(d_w)[2:8]
    counts = np.bincount(np.arange(n) % 6)
    np.testing.assert_allclose(found, 1 + np.repeat(counts, 4).reshape(6, 4), rtol=1e-5)
