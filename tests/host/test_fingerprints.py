"""Fingerprints of memory, on the CPU and as a GPU takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgrad.host.device_prints import Slots
from kernelgrad.host.fingerprints import fingerprint


@pytest.mark.parametrize("size", [4096, 4097])
def test_every_change_shows(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    slots = Slots(None)
    changes = [
        lambda a: a,
        lambda a: a[::-1],
        lambda a: np.roll(a, 4),
        lambda a: np.where(np.arange(size) == 7, a + 1, a),
    ]
    arrays = [np.ascontiguousarray(change(data)) for change in changes]
    on_cpu = [fingerprint(a.ctypes.data, size) for a in (*arrays, data.copy())]
    for array in (*arrays, data.copy()):
        slots.print(array.ctypes.data, size, None)
    on_gpu = slots.read()[:5].tolist()
    for prints in (on_cpu, on_gpu):
        assert prints[0] == prints[4] and len(set(prints)) == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("change", [-1.0, 2.0, 2.0**-40])
def test_changes_of_upper_bits_alone_show(dtype: Any, change: float) -> None:
    """An even number of changed signs and exponents."""
    data = np.random.default_rng(0).random(1024).astype(dtype)
    changed = data * dtype(change)
    assert fingerprint(data.ctypes.data, data.nbytes) != fingerprint(changed.ctypes.data, data.nbytes)


def test_more_than_a_chunk_of_slots() -> None:
    slots, data = Slots(None), np.arange(8, dtype=np.uint32)
    numbers = [slots.print(data.ctypes.data, 4 * (1 + k % 2), None) for k in range(2050)]
    found = slots.read()
    assert numbers == list(range(2050)) and len(set(found[:2050].tolist())) == 2
