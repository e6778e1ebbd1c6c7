"""Names, literals and copies, each alone."""

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgrad.backends.cuda.conversions import initialiser, literal
from kernelgrad.backends.cuda.names import Scope, identifier
from kernelgrad.backends.cuda.syntax import Expr, Prec, common_type, infix, negated
from kernelgrad.backends.cuda.types import Types
from kernelgrad.backends.cuda.variables import Copy, Save, Variable, in_sequence
from kernelgrad.ir.ops import Block
from kernelgrad.ir.types import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, U64, Array, Scalar, Type

TYPES = Types({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "x"),
        ("_d_x", "_d_x"),
        ("scale<float, 4>", "scale_float_4"),
        ("operator()", "operator_"),
        ("x.1", "x_1"),
        ("3d", "v3d"),
        ("float", "float_"),
        ("threadIdx", "threadIdx_"),
        ("__reserved", "_reserved"),
        ("", "v"),
    ],
)
def test_identifiers(text: str, expected: str) -> None:
    assert identifier(text) == expected


def test_names_may_repeat_side_by_side_but_not_shadow() -> None:
    outer = Scope(taken=["tile"])
    first, second = Scope(outer), Scope(outer)
    assert [first.declare("i"), second.declare("i"), first.declare("tile")] == ["i", "i", "tile_1"]
    assert outer.declare("i") == "i_1"


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (0.1, F32, "0.1f"),
        (1.0, F64, "1.0"),
        (-0.0, F32, "-0.0f"),
        (1e300, F64, "1e+300"),
        (5e-324, F64, "5e-324"),
        (1e-45, F32, "1e-45f"),
        (math.inf, F32, "__int_as_float(0x7f800000)"),
        (-math.inf, F64, "-__longlong_as_double(0x7ff0000000000000LL)"),
        (0.5, F16, "(__half)0.5f"),
        (-(2**31), I32, "-2147483647 - 1"),
        (-(2**63), I64, "-9223372036854775807LL - 1"),
        (2**64 - 1, U64, "0xffffffffffffffffULL"),
        (-1, U32, "0xffffffffu"),
        (7, U32, "7u"),
        (200, I8, "(signed char)-56"),
        (1, BOOL, "true"),
    ],
)
def test_literals(value: float, type: Scalar, text: str) -> None:
    assert literal(value, type, TYPES).text == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_literals_are_exact(value: float) -> None:
    text = literal(value, F32, TYPES).text
    assert text.endswith("f")
    (back,) = struct.unpack("f", struct.pack("f", float(text[:-1])))
    assert math.copysign(1, back) == math.copysign(1, value)
    assert back == value


def test_initialisers() -> None:
    data = struct.pack("<4h", 1, -2, 3, 4)
    assert initialiser(data, Array(Array(I16, 2), 2), TYPES) == "{{1, -2}, {3, 4}}"
    assert initialiser(b"\x00\x3c", F16, TYPES) == "__half_raw{0x3c00}"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (I32, U32, U32),
        (I8, U8, I32),
        (I64, U32, I64),
        (I64, U64, U64),
        (BOOL, BOOL, I32),
        (I64, F32, F32),
        (F32, F64, F64),
        (F16, F32, None),
    ],
)
def test_usual_arithmetic_conversions(left: Scalar, right: Scalar, expected: Scalar | None) -> None:
    assert common_type(left, right) == expected == common_type(right, left)


def test_negation_minds_nan() -> None:
    def less(type: Type) -> Expr:
        return infix("<", Expr("a", type), Expr("b", type), BOOL)

    assert negated(less(I32)).text == "a >= b"
    assert negated(less(F32)).text == "!(a < b)"
    assert negated(negated(less(F32))).text == "a < b"


def test_parentheses() -> None:
    a, b, c = (Expr(name, F32) for name in "abc")
    assert infix("-", a, infix("-", b, c, F32), F32).text == "a - (b - c)"
    assert infix("-", infix("-", a, b, F32), c, F32).text == "a - b - c"
    assert infix("*", infix("+", a, b, F32), c, F32).text == "(a + b) * c"
    assert infix("|", infix("<<", a, b, I32), c, I32).text == "(a << b) | c"
    assert infix("+", a, b, F32).prec == Prec.SUM


@given(st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_parallel_copies(sources: list[int]) -> None:
    """`v0, ..., v4 = v_sources[0], ..., v_sources[4]`, whatever the cycles."""
    block = Block((), (), ())
    variables = [Variable(I32, False, f"v{k}", [], block) for k in range(5)]
    values = [Expr(str(s), I32) for s in sources]
    copies = [Copy(variables[k], values[k], frozenset({variables[s]})) for k, s in enumerate(sources) if k != s]
    state: dict[str, Any] = {str(k): k for k in range(5)}
    for move in in_sequence(copies):
        if isinstance(move, Save):
            name = f"saved {move.copy.target.hint}"
            state[name] = state[move.copy.value.text]
            move.copy.value = Expr(name, I32)
        else:
            state[str(variables.index(move.target))] = state[move.value.text]
    assert [state[str(k)] for k in range(5)] == sources
