"""`report_nan=True` on a GPU: the same lines and threads as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from not_finite_cases import AT, CASES, N, arguments, compiled, line

cupy = pytest.importorskip("cupy")

FORMS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False}, "deterministic": {"deterministic": True}}


def on_gpu(values: Any) -> list[Any]:
    return [cupy.asarray(v) if isinstance(v, np.ndarray) else v for v in values]


@pytest.mark.parametrize("name", CASES)
def test_the_line(name: str) -> None:
    kernel, always = compiled(name), name in ("overflow", "sum")
    for options in FORMS.values() if name not in ("atomic", "while") else [FORMS["J"]]:
        g = kg.gradient(kernel, "y, x", report_nan=True, **options)
        with pytest.raises(kg.NotFiniteError) as caught:
            g[1, N](*on_gpu(arguments(always)), cupy.ones(N, "f4"), cupy.zeros(N, "f4"))
        text = str(caught.value)
        assert line(name) is None or caught.value.span.line == line(name), text
        assert f"thread ({AT}, 0, 0) of block (0, 0, 0)" in text
    if not always:
        found = [cupy.zeros(N, "f4") for _ in range(2)]
        for d_x, report in zip(found, (False, True), strict=True):
            g = kg.gradient(kernel, "y, x", report_nan=report)
            g[1, N](*on_gpu(arguments(True)), cupy.ones(N, "f4"), d_x)
        np.testing.assert_allclose(*map(cupy.asnumpy, found), rtol=1e-5)
    if CASES[name].by_tangent and name != "custom":
        with pytest.raises(kg.NotFiniteError):
            t = kg.jvp(kernel, "y, x", report_nan=True)
            t[1, N](*on_gpu(arguments(False)), cupy.zeros(N, "f4"), cupy.ones(N, "f4"))


def test_many_blocks() -> None:
    """Many threads find one; the others are not disturbed."""
    source = "__global__ void k(float *y, const float *x, int n) { int i = blockIdx.x * 256 + threadIdx.x;" + (
        " if (i < n) y[i] = logf(x[i]); }"
    )
    n = 1 << 20
    x, d_x = cupy.ones(n, "f4"), cupy.zeros(n, "f4")
    x[77777] = 0
    g = kg.gradient(kg.compile(source)["k"], "y, x", report_nan=True)
    with pytest.raises(kg.NotFiniteError, match=rf"thread \({77777 % 256}, 0, 0\) of block \({77777 // 256}, 0, 0"):
        g[n // 256, 256](cupy.zeros(n, "f4"), x, n, cupy.ones(n, "f4"), d_x)
    assert int(cupy.isinf(d_x).sum()) == 1 and float(d_x[0]) == 1
