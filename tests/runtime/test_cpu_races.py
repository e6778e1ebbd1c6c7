"""The analysis of access logs against one that compares every two accesses."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kernelgrad.runtime import races
from kernelgrad.runtime.races import ATOMIC, READ, WRITE, Log


def random_log(seed: int) -> Log:
    """A few threads of two blocks on a few addresses: sparse enough that many logs are clean."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 14))
    size = rng.choice([1, 2, 4], n) if seed % 2 else np.full(n, 4)
    address = 4096 + rng.integers(0, 6, n) * size
    epoch = np.sort(rng.integers(0, 3, n))
    phase = np.maximum.accumulate(epoch * 3 + rng.integers(0, 3, n))
    columns = (
        address.astype(np.uint64),
        size.astype(np.uint8),
        rng.choice([READ, WRITE, ATOMIC], n, p=[0.5, 0.3, 0.2]),
    )
    op, region = np.arange(n), np.zeros(n, np.int32)
    return Log(*columns, op, region, rng.integers(0, 2, n), rng.choice([0, 1, 40], n), epoch, phase)


def overlap(log: Log, i: int, j: int) -> bool:
    start, end = log.address.astype(int), log.address.astype(int) + log.size
    return bool(start[i] < end[j] and start[j] < end[i])


def clash(log: Log, i: int, j: int) -> bool:
    kinds = {int(log.kind[i]), int(log.kind[j])}
    return overlap(log, i, j) and kinds != {READ} and kinds != {ATOMIC}


def unordered_in_block(log: Log, i: int, j: int) -> bool:
    if log.block[i] != log.block[j] or log.thread[i] == log.thread[j] or log.epoch[i] != log.epoch[j]:
        return False
    return bool(log.thread[i] // 32 != log.thread[j] // 32 or log.phase[i] == log.phase[j])


@pytest.mark.parametrize("seed", range(60))
def test_conflicts(seed: int) -> None:
    log = random_log(seed)
    pairs = list(combinations(range(len(log)), 2))
    inside = {p for p in pairs if clash(log, *p) and unordered_in_block(log, *p)}
    between = {p for p in pairs if clash(log, *p) and log.block[p[0]] != log.block[p[1]]}
    for want, (left, right) in (
        (inside, races.conflicts_in_blocks(log)),
        (between, races.conflicts_between_blocks(log)),
        (between, races.conflicts_between_blocks(races.summary(log))),
    ):
        assert bool(len(left)) == bool(want)
        if len(left) and right.max() < len(log) and want is inside:
            assert {(min(i, j), max(i, j)) for i, j in zip(left, right, strict=True)} <= want


@pytest.mark.parametrize("seed", range(60))
def test_unwritten_reads(seed: int) -> None:
    log = random_log(seed)

    def is_early(row: int) -> bool:
        """Some byte of it was not written before by its block."""
        written = {
            byte
            for other in range(row)
            if log.block[other] == log.block[row] and log.kind[other] != READ
            for byte in range(int(log.address[other]), int(log.address[other]) + int(log.size[other]))
        }
        first = int(log.address[row])
        return log.kind[row] != WRITE and not written.issuperset(range(first, first + int(log.size[row])))

    assert races.unwritten_reads(log).tolist() == [row for row in range(len(log)) if is_early(row)]


def test_an_empty_log() -> None:
    empty = random_log(0).at(np.zeros(0, np.int64))
    assert not len(races.conflicts_in_blocks(empty)[0]) and not len(races.unwritten_reads(empty))
    assert not len(races.conflicts_between_blocks(races.summary(empty))[0])
