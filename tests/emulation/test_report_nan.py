"""`report_nan=True` in the emitted text: the record is that of the thread that found something, and of no other."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from run_text import run_emitted

import kernelgrad as kg
from kernelgrad.autodiff.sweep import finite_tests as layout
from not_finite_cases import AT, N, arguments, compiled

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.mark.parametrize("name", ["root", "for", "shared", "warp", "branch"])
def test_emitted_text(name: str) -> None:
    g = kg.gradient(compiled(name), "y, x", report_nan=True)
    for good in (True, False):
        records = np.zeros((layout.RECORDS, layout.WORDS), np.int64)
        y, x, a, n = arguments(good)
        run_emitted(
            g.source, "k_grad", 1, N, (y, x, a, np.int32(n), np.ones_like(x), np.zeros_like(x), records.reshape(-1))
        )
        found = np.flatnonzero(records[:, layout.OWNER])
        if good:
            assert not found.size
            continue
        tests = g.variant().derivative.tests
        assert tests is not None
        arose = [k for k in found if tests.sites[records[k, layout.SITE]].function is not None]
        assert arose == [AT + 1] and records[AT + 1, layout.OWNER] == AT + 1
        assert not np.isfinite(records[AT + 1, layout.FOUND].view(np.float64))
