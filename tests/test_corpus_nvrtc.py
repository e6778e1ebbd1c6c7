"""The CUDA C++ of every case compiles with NVRTC, which needs no GPU."""

from __future__ import annotations

import pytest

from .corpus import ALL, Case
from .corpus.build import build


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ALL if "nvrtc" not in case.skip])
def test_compiles(case: Case) -> None:
    pytest.importorskip("cuda.core")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(build(case).source, "sm_90")
