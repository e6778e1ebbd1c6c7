"""Fingerprints of memory on a GPU: computed there, compared when the reverse is done, so that nobody waits for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..runtime.config import flat_launch
from ..runtime.scratch import Scratch
from . import transfers

SOURCE = """
template <typename T> __global__ void fingerprint(unsigned long long *slot, const T *x, long long n) {
    unsigned long long sum = 0;
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n; i += step) {
        unsigned long long h = (x[i] + 0x9E3779B97F4A7C15ull) * (2 * i + 1);
        h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93ull;
        sum += h ^ (h >> 32);
    }
    atomicAdd(slot, sum);
}
"""
_SLOTS = 2048
_BLOCK, _BLOCKS = 256, 64


class DevicePrint(NamedTuple):
    """What a step's parameter held: `slot` is where the fingerprint will be."""

    name: str
    start: int
    nbytes: int
    device: int
    slot: int


class Slots:
    """Numbers on one device that are read all at once."""

    def __init__(self, device: int | None):
        self.device = device
        self._chunks: list[Scratch] = []
        self._used = _SLOTS

    def print(self, start: int, nbytes: int, stream: int | None) -> int:
        """The number of the slot that gets the fingerprint of memory, on the stream."""
        if self._used == _SLOTS:
            self._chunks.append(Scratch(8 * _SLOTS, self.device, stream).zero())
            self._used = 0
        address = self._chunks[-1].address + 8 * self._used
        self._used += 1
        size = 4 if nbytes % 4 == 0 and start % 4 == 0 else 1
        kernel = transfers.kernel(f"fingerprint<{'unsigned int' if size == 4 else 'unsigned char'}>")
        count = nbytes // size
        views = [
            transfers.raw(address, 8, np.dtype("u8"), self.device),
            transfers.raw(start, nbytes, np.dtype(f"u{size}"), self.device),
        ]
        bound, placement = kernel.bind((*views, count))
        blocks = max(1, min(_BLOCKS, -(-count // _BLOCK)))
        kernel.run(flat_launch(blocks, _BLOCK, stream), bound, placement, {})
        return (len(self._chunks) - 1) * _SLOTS + self._used - 1

    def read(self) -> Any:
        """All of them, when the streams have come this far."""
        parts = [np.frombuffer(chunk.read(), np.uint64) for chunk in self._chunks]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
