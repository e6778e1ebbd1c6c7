"""Values that threads pass each other through global memory, across barriers: on a GPU as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from passing_cases import CASES, run

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, case in CASES.items() for mode in case.modes])
def test_gpu_gives_what_the_cpu_gives(name: str, mode: str) -> None:
    case = CASES[name]
    found = run(case, mode, cupy.asarray, cupy.asnumpy)
    for want, got in zip(run(case, mode), found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
