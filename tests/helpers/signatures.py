"""Kernel signatures made by hand, for tests that need no frontend."""

from __future__ import annotations

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Function, Param, Value
from kernelgrad.ir.types import F32, F64, I32, Array, Field, Pointer, Struct, Type

EMPTY = Block((), (), ())


def param(name: str, type: Type, c_type: str, const: bool = False, variable: str | None = None) -> Param:
    return Param(Value(type, name), c_type, const=const, variable=variable)


def pointer(name: str, pointee: Type, c_type: str, const: bool = False) -> Param:
    return param(name, Pointer(pointee), c_type, const)


def kernel(*params: Param, body: Block = EMPTY, name: str = "k") -> Function:
    return Function(name, "kernel", params, body)


def saxpy() -> Function:
    """`y[n] = a * x[n]`, which is all that the analysis of writes needs of saxpy."""
    y, x = pointer("y", F32, "float *"), pointer("x", F32, "const float *", const=True)
    a, n = param("a", F32, "float"), param("n", I32, "int")
    b = Builder()
    value = b.apply("mul", a.value, b.load(b.offset(x.value, n.value)))
    b.store(b.offset(y.value, n.value), value)
    return kernel(y, x, a, n, body=Block((), tuple(b.ops), ()), name="saxpy")


FLOAT4 = Struct("float4", tuple(Field(c, F32, 4 * k) for k, c in enumerate("xyzw")), 16, 16)
FLOAT2 = Struct("float2", tuple(Field(c, F32, 4 * k) for k, c in enumerate("xy")), 8, 8)
PARTICLE = Struct("Particle", (Field("mass", F64, 0), Field("id", I32, 8), Field("at", Array(F32, 3), 12)), 24, 8)
VIEW = Struct("View", (Field("data", Pointer(F32), 0), Field("n", I32, 8), Field("pos", FLOAT4, 16)), 32, 16)
