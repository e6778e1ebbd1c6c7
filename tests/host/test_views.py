"""Views that a recording meets one after the other: what is known of a whole stays known of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
__global__ void scale(double *y, const double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""
N = 512


@pytest.fixture(scope="module")
def scale() -> Any:
    return kg.compile(SOURCE)["scale"][4, 128]


@pytest.mark.parametrize("part", [slice(0, 256), slice(256, 512), slice(100, 200)])
def test_unseen_writes_are_found_by_the_first_view_of_a_part(scale: Any, part: slice) -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    with kg.record():
        scale(y, x, 3.0, N)
        y *= 5
        with pytest.raises(kg.TapeError, match="scale: the memory of 'x' was changed since"):
            scale(z[part], y[part], 2.0, part.stop - part.start)


def test_unseen_writes_are_found_after_a_view_of_another_part(scale: Any) -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    with kg.record():
        scale(y, x, 3.0, N)
        scale(y[:256], x[:256], 3.0, 256)
        y[256:] *= 5
        with pytest.raises(kg.TapeError, match="scale: the memory of 'x' was changed since"):
            scale(z[256:], y[256:], 2.0, 256)


def test_parts_that_are_written_again_are_known(scale: Any) -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        scale(y, x, 3.0, N)
        y[256:] *= 5
        scale(y[256:], x[256:], 4.0, 256)
        scale(z[256:], y[256:], 2.0, 256)
    tape.backward(z[256:], np.ones(256))
    assert (tape.grad(x) == np.repeat([0.0, 8.0], 256)).all()


@pytest.mark.parametrize("part", [slice(0, 1024), slice(0, 8), slice(6, 10)])
def test_adjoints_of_parts_keep_their_dtype(scale: Any, part: slice) -> None:
    x, y = np.ones(N), np.zeros(N)
    with kg.record() as tape:
        scale(y, x, 3.0, N)
    tape.backward(y, np.ones(N))
    with pytest.raises(kg.TapeError, match="is used as float64 and as float32"):
        tape.grad(x.view(np.float32)[part])
    assert (tape.grad(x[3:7]) == 3.0).all()
