"""The same kernels in Numba and in Warp, where those are installed."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

from cases import Case

Work = Callable[[], object]


def contenders(case: Case, arrays: tuple[Any, ...], threads: int) -> dict[str, Work]:
    makers: dict[str, Callable[[Case, tuple[Any, ...], int], Work | None]] = {"numba": _numba, "warp": _warp}
    found: dict[str, Work] = {}
    for name, make in makers.items():
        work = make(case, arrays, threads) if importlib.util.find_spec(name) else None
        if work is not None:
            found[name] = work
    return found


def _numba(case: Case, arrays: tuple[Any, ...], threads: int) -> Work:
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    function = numba.njit(parallel=threads > 1)(_NUMBA[case.kernel](numba.prange))
    return lambda: function(*arrays)


def _numba_elementwise(prange: Any) -> Any:
    def elementwise(y: Any, x: Any) -> None:
        for i in prange(x.size):
            y[i] = math.sin(x[i]) * x[i]

    return elementwise


def _numba_stencil(prange: Any) -> Any:
    def stencil(out: Any, a: Any) -> None:
        n = a.shape[0]
        for z in prange(1, n - 1):
            for y in range(1, n - 1):
                for x in range(1, n - 1):
                    around = a[z, y, x - 1] + a[z, y, x + 1] + a[z, y - 1, x] + a[z, y + 1, x]
                    around += a[z - 1, y, x] + a[z + 1, y, x]
                    out[z, y, x] = 0.4 * a[z, y, x] + 0.1 * around

    return stencil


def _numba_matmul(prange: Any) -> Any:
    def matmul(c: Any, a: Any, b: Any) -> None:
        n = a.shape[0]
        for row in prange(n):
            for column in range(n):
                total = a[row, 0] * b[0, column]
                for k in range(1, n):
                    total += a[row, k] * b[k, column]
                c[row, column] = total

    return matmul


def _numba_softmax(prange: Any) -> Any:
    def softmax(y: Any, x: Any) -> None:
        for r in prange(x.shape[0]):
            largest, total = x[r, 0], 0.0
            for i in range(x.shape[1]):
                largest = max(largest, x[r, i])
            for i in range(x.shape[1]):
                y[r, i] = math.exp(x[r, i] - largest)
                total += y[r, i]
            for i in range(x.shape[1]):
                y[r, i] /= total

    return softmax


_NUMBA = {
    "elementwise": _numba_elementwise,
    "stencil": _numba_stencil,
    "matmul": _numba_matmul,
    "matmul_tiled": _numba_matmul,
    "softmax": _numba_softmax,
}


def _warp(case: Case, arrays: tuple[Any, ...], threads: int) -> Work | None:
    """Warp runs CPU kernels on one core, and its kernels have no blocks to tile or reduce in."""
    if threads > 1 and (os.cpu_count() or 1) > 1:
        return None
    import warp as wp

    import warp_kernels

    kernel = getattr(warp_kernels, case.kernel, None)
    if kernel is None:
        return None
    inputs = [wp.from_numpy(a, dtype=wp.float32, device="cpu") for a in arrays]
    extent = arrays[0].shape
    return lambda: wp.launch(kernel, dim=extent, inputs=inputs, device="cpu")
