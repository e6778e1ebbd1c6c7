"""Zero seeds against infinities in memory, in loops tuned for a GPU: exchanged, in rings, tiles and windows."""

from __future__ import annotations

from typing import Any

import pytest

import kernelgrad as kg
import mask_cases
from mask_cases import SOURCE, Problem

cupy = pytest.importorskip("cupy")

PROBLEMS = {
    "product": lambda: mask_cases.product(128),
    "bodies": lambda: mask_cases.bodies(1024),
    "convolution": lambda: mask_cases.convolution(4096),
    "long convolution": lambda: mask_cases.convolution(1 << 21),
    "contraction": lambda: mask_cases.contraction(16, 32),
    "large contraction": lambda: mask_cases.contraction(128, 64),
}
FORMS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False}, "deterministic": {"deterministic": True}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_zero_seeds(name: str, form: str) -> None:
    problem: Problem = PROBLEMS[name]()
    if form == "deterministic" and name.startswith("l"):
        problem = {
            "long convolution": mask_cases.convolution(8192),
            "large contraction": mask_cases.contraction(8, 32),
        }[name]
    kernel = kg.load(SOURCE)[problem.kernel]
    gradient = kg.gradient(kernel, [*problem.outputs, *problem.inputs], **FORMS[form])
    mask_cases.check(problem, gradient, cupy.asarray, cupy.asnumpy)
