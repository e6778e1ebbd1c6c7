"""Lists of passes: a pass that breaks a rule is named, wherever it stands."""

from __future__ import annotations

import pytest

import kernelgrad as kg
from kernelgrad import pipeline
from kernelgrad.errors import InternalError
from kernelgrad.ir.ops import Block, Function, Module
from kernelgrad.ir.traverse import with_body
from kernelgrad.pipeline import Pass
from kernelgrad.transforms import simplify


def without_its_first_value(function: Function, module: Module) -> Function:
    body = function.body
    return with_body(function, Block(body.args, body.ops[1:], body.results))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_who_broke_it(place: int) -> None:
    kernel = kg.compile("__global__ void k(float *x) { x[threadIdx.x] *= 2.0f; }")["k"]
    passes = [Pass("tidy", simplify.run), Pass("tidy again", simplify.run)]
    passes.insert(place, Pass("vandal", without_its_first_value))
    with pytest.raises(InternalError, match="vandal"):
        pipeline.for_target(kernel.module, "k", tuple(passes))
