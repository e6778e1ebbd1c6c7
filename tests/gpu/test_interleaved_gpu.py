"""Adjoints that are added to side by side, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from interleaved_cases import CASES, NAMES, compiled, numbers
from kernelgrad.launches import interleaving
from kernelgrad.launches.choice import cell_widths

cupy = pytest.importorskip("cupy")
WANTED = f"y, {', '.join(NAMES)}"
OPTIONS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False, "keep": "y", "assign": "a, b, c"}}


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaving, "_FEWEST", 1)
    monkeypatch.setattr(cell_widths, "wide_memory", lambda *_, **__: frozenset())
    case, n = CASES[name], 200
    host = numbers(case, n)
    device = [cupy.asarray(v) if isinstance(v, np.ndarray) else v for v in host]
    gradient = kg.gradient(compiled(case), WANTED, **OPTIONS[how])
    text = gradient.source_for(4, 64, *device)
    assert "_together_0" in text
    for _ in range(3):
        for values in (host, device):
            gradient[4, 64](*values)
        for want, got in zip(host, device, strict=True):
            if isinstance(want, np.ndarray):
                np.testing.assert_allclose(got.get(), want, rtol=1e-3, atol=1e-3)
