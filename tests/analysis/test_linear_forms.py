"""Differences that are the same but for a factor."""

from __future__ import annotations

import pytest

from kernelgrad.analysis.linear_forms import LinearForms
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Value
from kernelgrad.ir.types import F32, F64


def test_differences() -> None:
    b, x, y = Builder(), Value(F64), Value(F64)
    two, half = b.constant(2.0, F64), b.constant(0.5, F64)
    doubled = b.apply("mul", two, x), b.apply("mul", y, two)
    lower = b.apply("neg", b.apply("sub_rn", x, y))
    shifted = b.apply("fma", half, b.apply("add", x, y), b.constant(-0.0, F64))
    narrow = b.apply("convert", x, type=F32)
    forms = LinearForms(b.ops)
    plain = forms.difference(x, y)
    assert plain is not None and plain.factor == 1
    pairs = (doubled, 2), ((shifted, y), 0.5), ((x, shifted), 0.5), ((narrow, y), 1), ((y, x), -1)
    for pair, factor in pairs:
        found = forms.difference(*pair)
        assert found is not None and (found.key, found.factor) == (plain.key, factor)
    assert forms.itself(lower) == (plain.key, -1)
    assert forms.difference(two, half) is None and forms.difference(x, x) is None
    assert forms.itself(x) != forms.difference(x, half)


@pytest.mark.parametrize("fn", ["add", "mul"])
def test_long_chains_are_not_followed(fn: str) -> None:
    b = Builder()
    value = Value(F64)
    for _ in range(200):
        value = b.apply(fn, value, b.constant(0.1, F64) if fn == "mul" else Value(F64))
    (_, factor), *rest = LinearForms(b.ops).of(value).items()
    assert len(rest) < 4 and factor.denominator < 1 << 512
