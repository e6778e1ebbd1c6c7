"""The CUDA C++ of every case, compiled by g++ against an emulation of CUDA and executed, against NumPy."""

from __future__ import annotations

import copy
import shutil

import pytest

from .corpus import ALL, Case
from .corpus.emulated import Libraries, run

CASES = [case for case in ALL if "emulated" not in case.skip]


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest) -> Libraries:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    wanted = {item.callspec.params["case"].name for item in request.session.items if item.module is request.module}
    return Libraries([case for case in CASES if case.name in wanted])


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_emulated(case: Case, built: Libraries) -> None:
    library = built[case.name]
    if isinstance(library, str):
        pytest.fail(library, pytrace=False)
    args = case.args()
    want = case.want(copy.deepcopy(args))
    run(case, library, args)
    case.compare(args, want)
