"""What the formulas of the derivative table need, and the code that they become, for every width."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelgrad.autodiff.calculus.expression import Number, rounded
from kernelgrad.autodiff.calculus.rules import RULES, Needs, Zero, rule_for, scaled
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Function, Module, Param, Value
from kernelgrad.ir.types import BF16, F16, F32, F64, I32, Scalar
from kernelgrad.ir.verifier import verify


@pytest.mark.parametrize(
    ("name", "k", "result", "args"),
    [
        ("add", 0, False, set()),
        ("mul", 0, False, {1}),
        ("fma", 2, False, set()),
        ("exp", 0, True, set()),
        ("div", 0, False, {1}),
        ("div", 1, True, {1}),
        ("sin", 0, False, {0}),
        ("hypot", 1, True, {1}),
        ("floor", 0, False, set()),
        ("pow", 0, False, {0, 1}),
        ("powi", 1, False, set()),
    ],
)
def test_needs(name: str, k: int, result: bool, args: set[int]) -> None:
    assert RULES[name].needs(k) == Needs(result, frozenset(args))


def emitted(name: str, k: int, type: Scalar) -> tuple[Builder, Value | None]:
    rule, b = RULES[name], Builder()
    args = tuple(Value(I32 if domain.integer else type) for domain in rule.domain)
    return b, scaled(b, Value(type), rule, k, Value(type), args)


def test_linear_functions_are_not_multiplied() -> None:
    assert emitted("add", 0, F32)[0].ops == []
    assert [op.fn for op in emitted("sub", 1, F32)[0].ops] == ["neg"]  # type: ignore[attr-defined]
    assert [op.fn for op in emitted("mul", 1, F32)[0].ops] == ["mul"]  # type: ignore[attr-defined]
    assert emitted("floor", 0, F32)[1] is None


@pytest.mark.parametrize("type", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if not isinstance(rule, Zero)])
def test_formulas_are_ir_of_any_width_that_has_rules_itself(name: str, type: Scalar) -> None:
    rule, b = RULES[name], Builder()
    args = tuple(Value(I32 if domain.integer else type, f"x{k}") for k, domain in enumerate(rule.domain))
    adjoint, result = Value(type, "adj"), Value(type, "r")
    for k in range(len(args)):
        value = scaled(b, adjoint, rule, k, result, args)
        assert value is None or value.type == type
    params = tuple(Param(v, "") for v in (adjoint, result, *args))
    verify(Module({"f": Function("f", "device", params, Block((), tuple(b.ops), ()))}), "rules")
    used = {op.fn for op in b.ops if hasattr(op, "fn") and op.result.type == type}
    assert all(rule_for(fn) is not None for fn in used - {"select"})


def test_half_precision_is_differentiated_in_the_type_of_the_adjoint() -> None:
    b = Builder()
    product = scaled(b, Value(F32), RULES["mul"], 0, None, (None, Value(F16)))
    assert product is not None and product.type == F32


def test_constants_are_rounded_to_their_type() -> None:
    assert rounded(0.1, F64) == 0.1
    assert rounded(0.1, F32) == float(np.float32(0.1))
    assert rounded(math.pi, F16) == float(np.float16(math.pi))
    assert rounded(math.pi, BF16) == 3.140625
    assert rounded(-0.0, F32) == 0 and rounded(math.inf, BF16) == math.inf
    assert all(isinstance(f, Number) for f in RULES["add"].formulas)
