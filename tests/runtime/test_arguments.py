"""Arguments against C signatures: what converts, what is refused, and what the refusal says."""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgrad.errors import ArgumentError
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, SCALARS, U8, Array, Field, Pointer, Scalar, Struct
from kernelgrad.runtime.arguments import Binder, Supplied, bind, with_variables
from kernelgrad.runtime.layouts import struct_dtype
from kernelgrad.runtime.written import written_params
from signatures import FLOAT2, FLOAT4, PARTICLE, VIEW, kernel, param, pointer, saxpy

NONE: frozenset[str] = frozenset()


def packed(function: Any, *args: Any, written: frozenset[str] = NONE) -> bytes:
    return bind(function, args, written)[0].packed


def scalar_bytes(scalar: Scalar, value: Any) -> bytes:
    return packed(kernel(param("v", scalar, "T")), value)


def refused(function: Any, *args: Any, match: str, written: frozenset[str] = NONE) -> None:
    with pytest.raises(ArgumentError, match=match):
        bind(function, args, written)


# ---- the whole ------------------------------------------------------------------------------------------------------


def test_arguments_lie_as_the_layout_says() -> None:
    function = saxpy()
    y, x = np.zeros(4, np.float32), np.ones(4, np.float32)
    bound, placement = bind(function, (y, x, 2.5, 4), written_params(function))
    assert bound.packed == struct.pack("<QQfi", y.ctypes.data, x.ctypes.data, 2.5, 4)
    assert len(bound.packed) == param_layout(function)[1]
    assert [(b.name, b.address, b.nbytes) for b in bound.buffers] == [
        ("y", y.ctypes.data, 16),
        ("x", x.ctypes.data, 16),
    ]
    assert placement.cuda is None and placement.source is y and placement.stream() is None
    assert bound.keep_alive == (y, x)


def test_padding_is_zero() -> None:
    function = kernel(param("c", I8, "char"), param("d", F64, "double"))
    assert packed(function, -1, 1.0) == b"\xff" + bytes(7) + struct.pack("<d", 1.0)


def test_no_parameters() -> None:
    bound, placement = bind(kernel(), (), NONE)
    assert bound.packed == b"" and placement.source is None


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3, 4, 5)])
def test_a_wrong_count_shows_the_signature(args: tuple[Any, ...]) -> None:
    text = re.escape(
        f"saxpy: takes 4 arguments, got {len(args)}\n  __global__ void saxpy(float *y, const float *x, float a, int n)"
    )
    refused(saxpy(), *args, match=text)


def test_arguments_by_name_go_to_their_places() -> None:
    binder = Binder(saxpy(), NONE)
    assert binder.bind((None, None), {"n": 3, "a": 1.0}) == binder.bind((None, None, 1.0, 3))
    with pytest.raises(ArgumentError, match=r"saxpy: no argument for n\n  __global__ void saxpy"):
        binder.bind((None, None), {"a": 1.0})


# ---- scalars --------------------------------------------------------------------------------------------------------

INTEGERS = [s for s in SCALARS.values() if s.kind in ("int", "uint")]


def limits(scalar: Scalar) -> tuple[int, int]:
    info = np.iinfo(f"{'i' if scalar.kind == 'int' else 'u'}{scalar.size}")
    return int(info.min), int(info.max)


@pytest.mark.parametrize("scalar", INTEGERS, ids=str)
def test_integers_up_to_their_limits(scalar: Scalar) -> None:
    low, high = limits(scalar)
    for value in (low, high, 0, 1):
        assert int.from_bytes(scalar_bytes(scalar, value), "little", signed=low < 0) == value
    for value in (low - 1, high + 1, 1 << 70):
        refused(kernel(param("n", scalar, "T")), value, match=f"'n' .T. wants an integer from {low} to {high}, got int")


@pytest.mark.parametrize(
    "value", [True, np.True_, np.int8(1), np.uint64(1), np.array(1), np.array(1, np.uint8), IntEnum("E", "A").A]
)
def test_whatever_is_an_integer_converts(value: Any) -> None:
    assert scalar_bytes(I32, value) == struct.pack("<i", 1)


@pytest.mark.parametrize("value", [1.0, np.float32(1), np.array(1.0), 1j, "1", None, [1], np.array([1])])
def test_what_is_no_integer_is_refused(value: Any) -> None:
    refused(kernel(param("n", I32, "int")), value, match=r"k: parameter 'n' \(int\) wants an integer")


@given(st.integers(), st.sampled_from(INTEGERS))
def test_an_integer_converts_exactly_or_not_at_all(value: int, scalar: Scalar) -> None:
    low, high = limits(scalar)
    if low <= value <= high:
        assert int.from_bytes(scalar_bytes(scalar, value), "little", signed=low < 0) == value
    else:
        refused(kernel(param("n", scalar, "T")), value, match="wants an integer")


@pytest.mark.parametrize("value", [2, True, 0.5, np.float16(0.5), np.int32(7), np.array(0.25), Fraction(1, 4)])
def test_numbers_convert_to_floats(value: Any) -> None:
    assert scalar_bytes(F32, value) == struct.pack("<f", float(value))
    assert scalar_bytes(F64, value) == struct.pack("<d", float(value))
    assert scalar_bytes(F16, value) == np.float16(float(value)).tobytes()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_infinities_and_nan_pass(value: float) -> None:
    np.testing.assert_equal(np.frombuffer(scalar_bytes(F32, value), np.float32)[0], value)
    widened = np.frombuffer(b"\0\0" + scalar_bytes(BF16, value), np.float32)[0]
    np.testing.assert_equal(widened, value)


@pytest.mark.parametrize("value", ["1", b"1", 1j, np.complex64(1), None, [1.0], np.ones(1), np.datetime64(1, "s")])
def test_what_is_no_number_is_refused(value: Any) -> None:
    refused(kernel(param("a", F32, "float")), value, match=r"'a' \(float\) wants a number, got")


@pytest.mark.parametrize(("scalar", "value"), [(F32, 1e39), (F16, 70000.0), (BF16, 3.4e38), (BF16, 1e39)])
def test_a_float_out_of_range_is_refused(scalar: Scalar, value: float) -> None:
    refused(kernel(param("a", scalar, "T")), value, match="wants a number in its range, got float")


def test_an_integer_beyond_all_floats_is_refused() -> None:
    refused(kernel(param("a", F64, "double")), 10**400, match="wants a number")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120))
def test_bfloat16_rounds_to_nearest_even(value: float) -> None:
    bits = int(np.float32(value).view(np.uint32))
    low, remainder = bits >> 16, bits & 0xFFFF
    nearest = low + (remainder > 0x8000 or (remainder == 0x8000 and low & 1))
    assert scalar_bytes(BF16, value) == struct.pack("<H", nearest)


def test_bool() -> None:
    assert [scalar_bytes(BOOL, v) for v in (True, np.False_, 1, np.array(False))] == [b"\1", b"\0", b"\1", b"\0"]
    for value in (2, 1.0, "yes", None):
        refused(kernel(param("flag", BOOL, "bool")), value, match="'flag' .bool. wants True or False, got")


# ---- pointers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", [s for s in SCALARS.values() if s != BF16], ids=str)
def test_a_pointer_takes_arrays_of_its_own_type_only(scalar: Scalar) -> None:
    own = np.dtype("?" if scalar == BOOL else f"{ {'int': 'i', 'uint': 'u', 'float': 'f'}[scalar.kind] }{scalar.size}")
    function = kernel(pointer("p", scalar, "T *"))
    for dtype in map(np.dtype, "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 >i4 S3".split()):
        array = np.zeros(4, dtype)
        if dtype == own:
            assert packed(function, array) == struct.pack("<Q", array.ctypes.data)
        else:
            wants, got = (f"{'an' if str(t).startswith('int') else 'a'} {t} array" for t in (own, dtype))
            text = f"'p' (T *) wants {wants}, got {got} of shape (4,) on the CPU"
            refused(function, array, match=re.escape(text))


def test_none_is_a_null_pointer() -> None:
    bound, placement = bind(kernel(pointer("p", F32, "float *")), (None,), NONE)
    assert bound.packed == bytes(8) and bound.buffers == () and placement.source is None


@pytest.mark.parametrize("value", [0, 4096, 1.5, [1.0, 2.0], "x", np.float32(1)])
def test_a_pointer_wants_an_array(value: Any) -> None:
    refused(kernel(pointer("p", F32, "float *")), value, match=r"'p' \(float \*\) wants a float32 array, got")


def test_void_takes_any_array() -> None:
    function = kernel(pointer("p", U8, "const void *", const=True))
    for dtype in ("u1", "f8", [("a", "i4"), ("b", "f4")]):
        array = np.zeros(3, dtype)
        assert packed(function, array) == struct.pack("<Q", array.ctypes.data)


def test_plain_char_takes_bytes_of_either_sign() -> None:
    for c_type, dtypes in {"char *": "i1 u1 S1", "signed char *": "i1"}.items():
        for dtype in "i1 u1 S1".split():
            function, array = kernel(pointer("s", I8, c_type)), np.zeros(3, dtype)
            if dtype in dtypes.split():
                packed(function, array)
            else:
                refused(function, array, match="wants an int8 array")


def test_bfloat16_wants_the_exact_type() -> None:
    function = kernel(pointer("p", BF16, "__nv_bfloat16 *"))
    refused(function, np.zeros(4, np.uint16), match="wants a bfloat16 array, got a uint16 array")
    refused(function, np.zeros(4, np.float16), match="wants a bfloat16 array, got a float16 array")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    packed(function, np.zeros(4, ml_dtypes.bfloat16))
    refused(kernel(pointer("p", F32, "float *")), np.zeros(4, ml_dtypes.bfloat16), match="got a bfloat16 array")


def test_a_strided_array_is_refused_with_a_remedy() -> None:
    function = kernel(pointer("p", F32, "float *"))
    square = np.zeros((4, 4), np.float32)
    for array in (square.T, square[:, 1], square[::-1]):
        refused(function, array, match=r"wants a C-contiguous array, got .*\n?help: numpy.ascontiguousarray")
    packed(function, square[1:3])
    packed(function, square[:0].T)


def test_a_read_only_array_only_where_nothing_is_written() -> None:
    function, frozen = saxpy(), np.zeros(4, np.float32)
    frozen.flags.writeable = False
    written = written_params(function)
    packed(function, np.zeros(4, np.float32), frozen, 1.0, 4, written=written)
    text = (
        r"'y' \(float \*\) wants a writable array, since the kernel writes through it, got .* that is read-only\nhelp"
    )
    refused(function, frozen, frozen, 1.0, 4, match=text, written=written)


def test_a_misaligned_array_is_refused() -> None:
    raw = np.zeros(65, np.uint8)[1:].view(np.float32)
    refused(kernel(pointer("p", F32, "float *")), raw, match="wants memory aligned to 4 bytes, got .* at address 0x")


def test_pointer_to_pointer_takes_addresses() -> None:
    function = kernel(pointer("rows", Pointer(F32), "float **"))
    for dtype in (np.uint64, np.int64):
        packed(function, np.zeros(2, dtype))
    refused(function, np.zeros(2, np.float64), match=r"wants an array of addresses \(uint64\), got a float64 array")


# ---- pointers to structs and arrays ---------------------------------------------------------------------------------


def aligned(count: int, dtype: Any, align: int = 16) -> Any:
    dtype = np.dtype(dtype)
    raw = np.zeros(count * dtype.itemsize + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + count * dtype.itemsize].view(dtype)


def test_pointer_to_a_vector_takes_structured_and_flat_arrays() -> None:
    function = kernel(pointer("p", FLOAT4, "float4 *"))
    packed(function, aligned(3, [(c, "f4") for c in "xyzw"]))
    packed(function, aligned(12, "f4"))
    packed(function, aligned(12, "f4").reshape(3, 4))
    refused(function, aligned(10, "f4"), match="wants a whole number of items of 16 bytes, got .* of 40 bytes")
    refused(function, aligned(8, "f4")[1:5], match="wants memory aligned to 16 bytes")
    refused(function, aligned(4, "f8"), match=r"laid out as float4 \(16 bytes\) or a flat array of float32, got")
    refused(function, aligned(3, [(c, "f4") for c in "abcd"]), match=r"help: its layout is numpy.dtype\(")


def test_pairs_take_complex_numbers() -> None:
    packed(kernel(pointer("p", FLOAT2, "float2 *")), aligned(3, "c8"))
    refused(kernel(pointer("p", FLOAT2, "float2 *")), aligned(3, "c16"), match="complex64 or float32, got a complex128")


def test_pointer_to_a_struct_wants_its_layout() -> None:
    function = kernel(pointer("p", PARTICLE, "Particle *"))
    fits = struct_dtype(PARTICLE)
    packed(function, np.zeros(3, fits))
    packed(function, np.zeros(3, [("mass", "f8"), ("id", "i4"), ("at", "f4", 3)]))
    for wrong in (
        [("mass", "f8"), ("id", "u4"), ("at", "f4", 3)],
        [("id", "i4"), ("mass", "f8"), ("at", "f4", 3)],
        [("mass", "f8"), ("id", "i4"), ("at", "f4", 4)],
        "f8",
        "u1",
    ):
        refused(function, np.zeros(24, wrong), match=r"laid out as Particle \(24 bytes\), got")


def test_pointer_to_an_array_takes_flat_and_shaped_arrays() -> None:
    function = kernel(pointer("m", Array(F32, 3), "float (*)[3]"))
    packed(function, np.zeros((5, 3), np.float32))
    packed(function, np.zeros(6, np.float32))
    refused(function, np.zeros(4, np.float32), match="a whole number of items of 12 bytes")


# ---- structs by value -----------------------------------------------------------------------------------------------


def view_bytes(address: int) -> bytes:
    return struct.pack("<Qi4x4f", address, 5, 1, 2, 3, 4)


def test_a_struct_takes_dict_tuple_and_structured_scalar() -> None:
    function = kernel(param("v", VIEW, "View"))
    x = np.zeros(5, np.float32)
    expected = view_bytes(x.ctypes.data)
    for value in (
        {"data": x, "n": 5, "pos": (1, 2, 3, 4)},
        (x, 5, {"w": 4, "x": 1, "y": 2, "z": 3}),
        [x, 5, np.array([1, 2, 3, 4], np.float32)],
    ):
        bound, placement = bind(function, (value,), NONE)
        assert bound.packed == expected
        assert [(b.name, b.address) for b in bound.buffers] == [("v.data", x.ctypes.data)] and placement.source is x
    record = np.zeros((), struct_dtype(VIEW))
    record["data"], record["n"], record["pos"] = x.ctypes.data, 5, (1, 2, 3, 4)
    assert packed(function, record) == packed(function, record[()]) == expected


def test_struct_errors_name_the_member() -> None:
    function, x = kernel(param("v", VIEW, "View")), np.zeros(5, np.float32)
    ok = {"data": x, "n": 5, "pos": (1, 2, 3, 4)}
    refused(function, {**ok, "n": 1.5}, match=r"parameter 'v.n' \(int\) wants an integer")
    refused(function, {**ok, "data": x.astype("f8")}, match=r"parameter 'v.data' \(float \*\) wants a float32 array")
    refused(function, {**ok, "pos": (1, 2, "3", 4)}, match=r"parameter 'v.pos.z' \(float\) wants a number")
    refused(function, {**ok, "pos": (1, 2)}, match=r"'v.pos' \(float4\) wants .* with x, y, z, w, got 2 values")
    refused(function, {"data": x, "m": 5}, match="got unknown member 'm' and a dict without 'n', 'pos'")
    refused(function, 3, match=r"'v' \(View\) wants a dict, tuple or structured scalar with data, n, pos, got int 3")
    refused(function, np.zeros((), "f4,f4"), match="wants the layout of View, got a structured scalar")


def test_a_read_only_array_inside_a_struct() -> None:
    function, x = kernel(param("v", VIEW, "View")), np.zeros(5, np.float32)
    x.flags.writeable = False
    value = (x, 5, (1, 2, 3, 4))
    packed(function, value, written=frozenset(("v.other", "vv")))
    for written in ("v", "v.data"):
        refused(function, value, match="'v.data' .* read-only", written=frozenset((written,)))


def test_array_members_take_sequences() -> None:
    function = kernel(param("p", PARTICLE, "Particle"))
    expected = struct.pack("<di3f", 2.0, 7, 1, 2, 3)
    for at in ([1, 2, 3], (1, 2, 3), np.array([1, 2, 3]), np.array([1, 2, 3], np.float32)):
        assert packed(function, (2.0, 7, at)) == expected
    refused(function, (2.0, 7, [1, 2]), match=r"'p.at' \(float\[3\]\) wants a sequence of 3 values, got 2 values")
    refused(function, (2.0, 7, 1.0), match="wants a sequence of 3 values, got float 1.0")
    refused(function, (2.0, 7, [1, 2, None]), match=r"'p.at\[2\]' \(float\) wants a number, got None")


def test_arrays_of_pointers_inside_a_struct() -> None:
    tables = Struct("Tables", (Field("t", Array(Pointer(F32), 2), 0),), 16, 8)
    x, y = np.zeros(2, np.float32), np.zeros(2, np.float32)
    bound, _ = bind(kernel(param("s", tables, "Tables")), [{"t": [x, y]}], NONE)
    assert bound.packed == struct.pack("<QQ", x.ctypes.data, y.ctypes.data)
    assert [b.name for b in bound.buffers] == ["s.t[0]", "s.t[1]"]


def test_a_union_takes_one_member() -> None:
    union = Struct("U", (Field("f", F32, 0), Field("i", I32, 0)), 4, 4)
    function = kernel(param("u", union, "U"))
    assert packed(function, {"i": 7}) == struct.pack("<i", 7)
    assert packed(function, {"f": 1.0}) == struct.pack("<f", 1.0)
    for value in ({}, {"f": 1.0, "i": 7}, (1.0,)):
        refused(function, value, match="wants a dict with one of f, i, got")


def test_an_empty_struct() -> None:
    function = kernel(param("tag", Struct("Tag", (), 1, 1), "Tag"), param("n", I32, "int"))
    assert packed(function, (), 5) == packed(function, {}, 5) == struct.pack("<xxxxi", 5)


# ---- module variables -----------------------------------------------------------------------------------------------


def test_module_variables_are_not_the_users() -> None:
    counter = param("counter", Pointer(Array(I32, 4), "global"), "int (*)[4]", variable="ns::counter")
    function = kernel(param("n", I32, "int"), counter)
    bound, _ = bind(function, (3,), NONE, lambda p: {"ns::counter": Supplied(4096, 16)}[p.variable or ""])
    assert bound.packed == struct.pack("<i4xQ", 3, 4096)
    assert [(b.name, b.address, b.nbytes) for b in bound.buffers] == [("ns::counter", 4096, 16)]
    user, _ = Binder(function, NONE).bind((3,))
    assert user.packed == struct.pack("<i", 3)
    assert with_variables(user, function, lambda _: Supplied(4096, 16)) == bound
    assert with_variables(user, kernel(param("n", I32, "int")), lambda _: Supplied(0)) is user
