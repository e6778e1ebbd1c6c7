"""Pointers over the tape, into local arrays and buffers, on a GPU: as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pointer_cases import BODIES, arguments, gradient

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("options", [{}, {"tape_budget": "1 MB"}], ids=str)
def test_as_on_the_cpu(name: str, options: dict[str, Any]) -> None:
    want = arguments()
    found = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments()]
    made = gradient(name, **options)
    made[3, 16](*want)
    made[3, 16](*found)
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(got), expected, rtol=1e-11, atol=1e-13)
