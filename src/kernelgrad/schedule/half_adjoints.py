"""Adjoints of half-precision numbers that stay where the user has them: halves, not copies of them in float.

A gradient computes with adjoints in float, and a copy in float is rounded once, at its end. Where the code itself
stores each element once (`analysis/ownership/rounding`), rounding it there is the same, and the passes over memory that
copies take are saved:

    _d_x[i] = t;    with float *_d_x    becomes    _d_x[i] = (__half)t;    with __half *_d_x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..analysis.machine import halves
from ..autodiff.calculus.shadows import adjoint_type
from ..ir.builder import Builder, pointee
from ..ir.ops import Apply, Block, Constant, Function, Load, Member, Offset, Op, Param, PtrCast, Store, Value
from ..ir.traverse import blocks, descend, operands, walk, with_body
from ..ir.types import F32, Pointer, Scalar, Struct, Type, element_types
from ..transforms.half_steps import half_of, parts


def run(function: Function, params: Mapping[str, Param]) -> Function | None:
    """With halves in place of floats. `params`: by the names of adjoints, what these belong to. None where a pointer to
    one of them is used for more than loads and stores, or as one to something else."""
    try:
        return _Pass(function, params).run()
    except _Unknown:
        return None


class _Unknown(Exception):
    pass


class _Pass:
    """`pointers`: what stands for the pointers to floats. `types`: for the types that are made of these, by it."""

    def __init__(self, function: Function, params: Mapping[str, Param]):
        self.function, self.params = function, params
        zeros = (op for op in walk(function.body) if isinstance(op, Constant) and op.value == 0.0)
        self.zeros = {op.result for op in zeros}
        self.pointers: dict[Value, Value] = {}
        self.types: dict[Value, dict[Type, Type]] = {}

    def run(self) -> Function:
        params = tuple(self.param(p) for p in self.function.params)
        body = self.block(self.function.body)
        return replace(with_body(self.function, body), params=params)

    def param(self, adjoint: Param) -> Param:
        own = self.params.get(adjoint.name)
        if own is None:
            return adjoint
        half, pointer = half_of(own.type), adjoint.type
        if half is None or not isinstance(pointer, Pointer) or not isinstance(own.type, Pointer):
            raise _Unknown
        types: dict[Type, Type] = {F32: half}
        for part in parts(own.type.pointee):
            types[adjoint_type(part)] = part
        value = Value(Pointer(types[pointer.pointee], pointer.space), adjoint.value.name)
        self.stand_in(adjoint.value, value, types)
        return replace(adjoint, value=value, c_type=own.c_type.replace("const ", ""))

    def stand_in(self, old: Value, new: Value, types: dict[Type, Type]) -> None:
        self.pointers[old], self.types[new] = new, types

    def block(self, block: Block) -> Block:
        if any(result in self.pointers for result in block.results):
            raise _Unknown
        ops: list[Op] = []
        for op in block.ops:
            ops += self.op(op)
        if any(result in self.pointers for result in block.results):
            raise _Unknown
        return Block(block.args, tuple(ops), block.results)

    def op(self, op: Op) -> list[Op]:
        used = [v for v in operands(op) if v in self.pointers]
        if not used:
            return [descend(op, self.block) if blocks(op) else op]
        match op:
            case Apply("address", (ptr,)):  # whether vectors may begin there: half as long ones may, then
                return [replace(op, args=(self.pointers[ptr],))]
        if not isinstance(op, Offset | Member | PtrCast | Load | Store) or used != [op.ptr]:
            raise _Unknown
        ptr = self.pointers[op.ptr]
        match op:
            case Load():
                return self.load(op, ptr)
            case Store():
                return self.store(op, ptr)
        return [self.step(op, ptr)]

    def step(self, op: Offset | Member | PtrCast, ptr: Value) -> Op:
        assert isinstance(op.result.type, Pointer)
        types = self.types[ptr]
        result = Value(Pointer(self.narrow(op.result.type.pointee, types), op.result.type.space), op.result.name)
        self.stand_in(op.result, result, types)
        return replace(op, ptr=ptr, results=(result,))

    def narrow(self, type: Type, types: dict[Type, Type]) -> Type:
        """Vectors of floats are vectors of halves."""
        if type not in types:
            if not isinstance(type, Struct) or any(t != F32 for t in element_types(type)):
                raise _Unknown
            half = types[F32]
            assert isinstance(half, Scalar)
            types[type] = halves(half, len(type.fields))
        return types[type]

    def load(self, op: Load, ptr: Value) -> list[Op]:
        b, narrow = Builder(op.span), Value(pointee(ptr), op.result.name)
        b.add(replace(op, ptr=ptr, results=(narrow,)))
        return _giving(b, _converted(b, narrow, op.result.type), op.result)

    def store(self, op: Store, ptr: Value) -> list[Op]:
        b, type = Builder(op.span), pointee(ptr)
        is_zero = op.value in self.zeros and isinstance(type, Scalar)
        value = b.constant(0.0, type) if is_zero else _converted(b, op.value, type)
        b.add(replace(op, ptr=ptr, value=value))
        return b.ops


def _converted(b: Builder, value: Value, type: Type) -> Value:
    if isinstance(type, Scalar):
        return b.convert(value, type)
    if not isinstance(type, Struct):
        raise _Unknown
    parts = (_converted(b, b.extract(value, k), t) for k, t in enumerate(element_types(type)))
    return b.aggregate(type, tuple(parts))


def _giving(b: Builder, value: Value, result: Value) -> list[Op]:
    """What was built last gives the result."""
    last = b.ops[-1]
    assert last.results == (value,)
    return [*b.ops[:-1], replace(last, results=(result,))]
