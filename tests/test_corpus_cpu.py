"""Every case of the corpus on the CPU, against NumPy; and again watched by check mode."""

from __future__ import annotations

import copy

import pytest

from kernelgrad.ir.parser import parse_module
from kernelgrad.ir.printer import print_module

from .corpus import ALL, Case
from .corpus.build import build

CPU = [pytest.param(case, id=case.name) for case in ALL if "cpu" not in case.skip]


@pytest.mark.parametrize("case", CPU)
def test_cpu(case: Case) -> None:
    kernel = build(case)
    args = case.args()
    want = case.want(copy.deepcopy(args))
    kernel[case.grid, case.block, case.shared](*args)
    case.compare(args, want)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("case", CPU)
def test_checked(case: Case, seed: int | None) -> None:
    pytest.importorskip("kernelgrad.runtime.check")
    kernel = build(case)
    args = case.args()
    want = case.want(copy.deepcopy(args))
    report = kernel.check(case.grid, case.block, *args, shared=case.shared, seed=seed)
    if not case.races:
        assert report.ok, str(report)
    case.compare(args, want)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ALL])
def test_ir_parses_back(case: Case) -> None:
    kernel = build(case)
    text = print_module(kernel.module)
    assert print_module(parse_module(text)) == text
