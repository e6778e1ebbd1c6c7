"""Damaged sources are refused, or mean what they say: the short form of `python -m tests.frontend.mutations`."""

from __future__ import annotations

import os

from .mutations import BASES, HOST, check, meaning, run

MUTANTS = int(os.environ.get("KERNELGRAD_MUTANTS", "300"))


def test_mutants() -> None:
    outcomes = run(MUTANTS, seed=11)
    assert min(outcomes.values()) > MUTANTS // 60  # all three happen


def test_the_unharmed_texts_are_valid() -> None:
    for base in BASES:
        assert meaning(base) != "error"
        assert meaning(base + HOST) == meaning(base)
        assert check(base, base) == "valid"
