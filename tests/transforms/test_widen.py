"""Widening: everything floating is double, records are laid out anew."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.ir.traverse import walk
from kernelgrad.ir.types import BF16, F16, F32, F64, I32, Array, Field, Pointer, Scalar, Struct
from kernelgrad.ir.verifier import verify
from kernelgrad.transforms import widen

SOURCE = """
#include <cuda_fp16.h>
struct Inner { __half h; float f; };
struct Outer { int k; Inner in[2]; double d; Outer *next; };
__constant__ float table[2] = {1.5f, 2.5f};
__global__ void k(float *y, const Outer *o, float a, int n) {
    int i = threadIdx.x;
    float window[3] = {a, o->in[1].f, table[i % 2]};
    double wide = y[i];
    window[i % 3] = (float)wide * __expf(a) + __half2float(o->in[0].h);
    y[i] = window[n % 3] + (int)a;
}
__global__ void bits(float *y) { y[0] = __int_as_float(__float_as_int(y[0]) + 1); }
__global__ void seen_as_integers(float *y) { ((int *)y)[0] = 1; }
union U { float f; int k; };
__global__ void in_union(U *u) { u->f = u->f * 2; }
"""


@pytest.fixture(scope="module")
def module() -> kg.Module:
    return kg.compile(SOURCE)


def test_no_narrow_float_is_left(module: kg.Module) -> None:
    kernel = module["k"]
    wide = widen.run(kernel.module, "k")
    verify(wide, "widen")
    values = [v for op in walk(wide.functions["k"].body) for v in op.results]
    values += [p.value for p in wide.functions["k"].params]
    assert not {F16, BF16, F32} & {t for v in values for t in _scalars(v.type)}
    assert [p.c_type for p in wide.functions["k"].params] == ["double *", "const Outer *", "double", "int"]
    assert wide.globals["table"].init == np.array([1.5, 2.5]).tobytes()


def _scalars(type: object, depth: int = 4) -> set[Scalar]:
    match type:
        case Scalar():
            return {type}
        case Pointer(inner) | Array(inner):
            return _scalars(inner, depth)
        case Struct():
            return {s for f in type.fields for s in _scalars(f.type, depth - 1)} if depth else set()
    return set()


def test_records_are_laid_out_anew() -> None:
    inner = Struct("Inner", (Field("h", F16, 0), Field("f", F32, 4)), 8, 4)
    outer = Struct("Outer", (Field("k", I32, 0), Field("in", Array(inner, 2), 4), Field("d", F64, 24)), 32, 8)
    new = widen.Widened()(outer)
    assert isinstance(new, Struct)
    assert [(f.name, f.offset) for f in new.fields] == [("k", 0), ("in", 8), ("d", 40)]
    assert (new.size, new.align) == (48, 8)
    plain = Struct("Plain", (Field("k", I32, 0),), 4, 4)
    assert widen.Widened()(plain) is plain


def test_contents() -> None:
    pair = Struct("Pair", (Field("h", F16, 0), Field("k", I32, 4), Field("f", BF16, 8)), 12, 4)
    new = widen.Widened()(pair)
    data = b"".join(
        np.float16(h).tobytes()
        + bytes(2)
        + np.int32(k).tobytes()
        + (np.float32(f).view("u4") >> 16).astype("u2").tobytes()
        + bytes(2)
        for h, k, f in [(1.5, 7, 2.5), (-2.0, 8, -0.25)]
    )
    dtype = np.dtype([("h", "f8"), ("k", "i4"), ("f", "f8")], align=True)
    got = np.frombuffer(widen.widen_bytes(data, pair, new), dtype)
    assert got.tolist() == [(1.5, 7, 2.5), (-2.0, 8, -0.25)]


@pytest.mark.parametrize(
    ("name", "words"),
    [("bits", "bits of a float"), ("seen_as_integers", "read as another type"), ("in_union", "union U holds a float")],
)
def test_refused(module: kg.Module, name: str, words: str) -> None:
    with pytest.raises(kg.UnsupportedError, match=words):
        widen.run(module[name].module, name)
