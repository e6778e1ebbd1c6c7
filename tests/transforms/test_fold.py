"""Constants fold exactly as the device computes them, or not at all."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgrad.analysis.fold import evaluate
from kernelgrad.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64, Scalar

from .checking import reference

INTEGERS = {
    t: st.integers(*((-(1 << t.bits - 1), (1 << t.bits - 1) - 1) if t.is_signed else (0, (1 << t.bits) - 1)))
    for t in (I8, U8, I32, U32, I64, U64)
}


@given(
    data=st.data(),
    type=st.sampled_from(sorted(INTEGERS, key=str)),
    fn=st.sampled_from("add sub mul div rem min max and or xor shl shr lt le gt ge eq ne".split()),
)
def test_integers_wrap_and_truncate(data: st.DataObject, type: Scalar, fn: str) -> None:
    a, b = data.draw(INTEGERS[type]), data.draw(INTEGERS[type])
    result = BOOL if fn in ("lt", "le", "gt", "ge", "eq", "ne") else type
    folded = evaluate(fn, (a, b), (type, type), result)
    if folded is None:
        assert fn in ("div", "rem") and b in (0, -1)
    else:
        assert folded == reference(fn, [a, b], [type, type], result)


@given(a=st.floats(width=32), b=st.floats(width=32), fn=st.sampled_from("add sub mul div min max lt eq".split()))
def test_single_precision_is_rounded_to_single(a: float, b: float, fn: str) -> None:
    folded = evaluate(fn, (a, b), (F32, F32), BOOL if fn in ("lt", "eq") else F32)
    if folded is None:
        assert b == 0
    elif not math.isnan(a) and not math.isnan(b):
        assert repr(folded) == repr(reference(fn, [a, b], [F32, F32], BOOL if fn in ("lt", "eq") else F32))


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (3.99, F64, I32, 3),
        (-3.99, F64, I32, -3),
        (1e20, F64, I32, 2**31 - 1),
        (-1.0, F32, U32, 0),
        (math.nan, F32, I32, 0),
        (-1, I32, U64, 2**64 - 1),
        (300, I32, U8, 44),
        (0.1, F64, F32, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        (65520.0, F64, F16, math.inf),
        (1e300, F64, F32, math.inf),
        (5, I32, BOOL, True),
        (True, BOOL, F32, 1.0),
        (16777217, I32, F32, 16777216.0),
        ((1 << 60) + 1, I64, F32, None),  # would be rounded twice
        (1.0, F32, BF16, None),
    ],
)
def test_conversions(value: float, source: Scalar, target: Scalar, expected: float | None) -> None:
    assert evaluate("convert", (value,), (source,), target) == expected


@pytest.mark.parametrize(
    ("fn", "args", "type"),
    [
        ("div", (1.0, 0.0), F32),
        ("div", (1, 0), I32),
        ("rem", (1, 0), I32),
        ("div", (-(2**31), -1), I32),
        ("sqrt", (-1.0,), F32),
        ("sin", (1.0,), F64),
        ("min", (0.0, -0.0), F32),
    ],
)
def test_what_must_not_be_folded(fn: str, args: tuple[float, ...], type: Scalar) -> None:
    assert evaluate(fn, args, (type,) * len(args), type) is None


def test_bit_patterns() -> None:
    assert evaluate("bitcast", (1.0,), (F32,), U32) == 0x3F800000
    assert evaluate("bitcast", (0x3F800000,), (I32,), F32) == 1.0
    assert evaluate("bitcast", (math.nan,), (F32,), U32) is None
