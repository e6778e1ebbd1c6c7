"""Widening: the same kernel in double precision throughout, so that finite differences mean something.

Every f16, bf16 and f32 becomes an f64: in parameters, pointers, local arrays, variables and records, which are laid out
anew. Conversions between floating-point types vanish and fast functions become exact ones. What depends on the bits of
a narrow float, or reads memory as something else than it is, cannot be widened and is refused. Memory of a block or a
thread that is cut into parts of different types is stretched as a whole (`stretch`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..deep import deeply
from ..errors import Span, UnsupportedError
from ..ir.ops import Apply, Atomic, Block, Function, Global, GlobalRef, Load, Module, Op, Param, PtrCast, Store, Value
from ..ir.traverse import rebuild, used_structs, walk
from ..ir.types import BF16, F16, F32, F64, Array, Field, Pointer, Scalar, Struct, Type

if TYPE_CHECKING:
    from .stretch import Stretched


_NARROW = (F16, BF16, F32)
_FAST = {f"fast_{name}": name for name in "sin cos tan exp exp10 log log2 log10 tanh div pow".split()}
_FLOAT_CONVERSIONS = ("convert", "convert_rn", "convert_rd", "convert_ru", "convert_rz")
_C_FLOATS = re.compile(r"\b(?:float|__half|half|__nv_bfloat16|nv_bfloat16)\b")


@deeply
def run(module: Module, name: str, cut: frozenset[Value] = frozenset()) -> Module:
    """The module of one function, in double precision. Variables keep their (widened) initial contents. `cut`: the
    pointers into memory that is to be stretched."""
    from .stretch import Stretched

    types, old = Widened(), module.functions[name]
    stretched = Stretched(types, growth(old))
    function = _Pass(types, stretched, cut).function(old)
    parts = {op.name for op in walk(old.body) if isinstance(op, GlobalRef) and op.result in cut}
    variables = {
        key: replace(variable, type=stretched(variable.type)) if key in parts else types.variable(variable)
        for key, variable in module.globals.items()
    }
    return Module({name: function}, variables, used_structs(function, variables.values()))


def growth(function: Function) -> int:
    """How many times as large memory must be."""
    types = {p.type for p in function.params} | {v.type for op in walk(function.body) for v in op.results}
    seen: set[Struct] = set()
    sizes = [leaf.size for type in types for leaf in _reached(type, seen) if leaf in _NARROW]
    return 8 // min(sizes, default=8)


def _reached(type: Type, seen: set[Struct]) -> Iterator[Scalar]:
    """The numbers in a type, and behind its pointers; each record once."""
    match type:
        case Scalar():
            yield type
        case Pointer(inner, _) | Array(inner, _):
            yield from _reached(inner, seen)
        case Struct() if type not in seen:
            seen.add(type)
            for field in type.fields:
                yield from _reached(field.type, seen)


class Widened:
    """Old types to new ones. A record that changes gets a new name, since records are equal by name. `stretched`: whose
    records are laid out anew as they are, but twice as large, if their floats are half as wide."""

    def __init__(
        self,
        narrow: tuple[Scalar, ...] = _NARROW,
        wide: Scalar = F64,
        suffix: str = "_in_double",
        stretched: Callable[[Type], Type] | None = None,
    ) -> None:
        self.narrow, self.wide, self.suffix, self.stretched = narrow, wide, suffix, stretched
        self._structs: dict[Struct, Struct] = {}

    def __call__(self, type: Type) -> Type:
        match type:
            case Scalar():
                return self.wide if type in self.narrow else type
            case Pointer(pointee, space):
                return Pointer(self(pointee), space)
            case Array(element, count):
                return Array(self(element), count)
            case Struct():
                return self._struct(type)

    def _struct(self, old: Struct) -> Struct:
        if old not in self._structs:
            if not self._mentions_narrow(old, set()):
                self._structs[old] = old
            else:
                self._structs[old] = new = Struct(f"{old.name}{self.suffix}")
                self._define(new, old)
        return self._structs[old]

    def _define(self, new: Struct, old: Struct) -> None:
        """Natural alignment, or more where the source asked for it."""
        if old.is_union and any(holds_any(self.narrow, f.type) for f in old.fields):
            raise UnsupportedError(f"the union {old.name} holds a float and cannot be widened")
        if not any(holds_any(self.narrow, f.type) for f in old.fields):
            new.define(tuple(replace(f, type=self(f.type)) for f in old.fields), old.size, old.align)
            return
        like = None if self.stretched is None else self.stretched(old)
        if isinstance(like, Struct) and _floats(like) == {F32} and self.wide == F64:
            twice = tuple(
                Field(f.name, self(f.type), 2 * own.offset) for f, own in zip(old.fields, like.fields, strict=True)
            )
            new.define(twice, 2 * like.size, max(old.align, *(f.type.align for f in twice)))
            return
        fields: list[Field] = []
        end, align = 0, old.align
        for field in old.fields:
            type = self(field.type)
            align = max(align, type.align)
            start = _round_up(end, type.align)
            fields.append(Field(field.name, type, start))
            end = start + type.size
        new.define(tuple(fields), _round_up(end, align), align)

    def _mentions_narrow(self, type: Type, seen: set[Struct]) -> bool:
        """Some narrow float in it, or behind a pointer in it; a record may point to itself."""
        match type:
            case Scalar():
                return type in self.narrow
            case Array(element, _):
                return self._mentions_narrow(element, seen)
            case Pointer(pointee, _):
                return self._mentions_narrow(pointee, seen)
            case Struct():
                if type in seen:
                    return False
                seen.add(type)
                return any(self._mentions_narrow(f.type, seen) for f in type.fields)

    def variable(self, variable: Global) -> Global:
        type = self(variable.type)
        init = None if variable.init is None else widen_bytes(variable.init, variable.type, type)
        return replace(variable, type=type, init=init)


def _round_up(size: int, align: int) -> int:
    return -(-size // align) * align


def holds_any(scalars: tuple[Scalar, ...], type: Type) -> bool:
    """Some such number in it, not behind a pointer."""
    match type:
        case Scalar():
            return type in scalars
        case Array(element, _):
            return holds_any(scalars, element)
        case Struct():
            return any(holds_any(scalars, f.type) for f in type.fields)
    return False


def _floats(type: Type) -> set[Scalar]:
    match type:
        case Scalar():
            return {type} if type.is_float else set()
        case Array(element, _):
            return _floats(element)
        case Struct():
            return {leaf for field in type.fields for leaf in _floats(field.type)}
    return set()


# ---- code ---------------------------------------------------------------------------------------------------------


class _Pass:
    def __init__(self, types: Widened, stretched: Stretched, cut: frozenset[Value]):
        self.types, self.stretched, self.cut = types, stretched, cut
        self.values: dict[Value, Value] = {}

    def function(self, old: Function) -> Function:
        params = tuple(self.param(p) for p in old.params)
        return replace(old, params=params, body=self.block(old.body))

    def param(self, old: Param) -> Param:
        return replace(old, value=self.define(old.value), c_type=_C_FLOATS.sub("double", old.c_type))

    def define(self, old: Value) -> Value:
        self.values[old] = new = Value(self.type_of(old), old.name)
        return new

    def type_of(self, old: Value) -> Type:
        if old in self.cut and isinstance(old.type, Pointer):
            return Pointer(self.stretched(old.type.pointee), old.type.space)
        return self.types(old.type)

    def value(self, old: Value) -> Value:
        return self.values[old]

    def block(self, old: Block) -> Block:
        args = tuple(map(self.define, old.args))
        ops = tuple(new for op in old.ops for new in self.op(op))
        return Block(args, ops, tuple(map(self.value, old.results)))

    def op(self, op: Op) -> list[Op]:
        match op:
            case Apply(fn, (arg,)) if fn in _FLOAT_CONVERSIONS and _is_float(arg.type) and _is_float(op.result.type):
                self.values[op.result] = self.value(arg)
                return []
            case Apply("bitcast", (arg,)) if arg.type in _NARROW or op.result.type in _NARROW:
                raise UnsupportedError("the bits of a float cannot be widened to double precision", op.span)
            case PtrCast(ptr) if op.result not in self.cut:
                _check_cast(ptr.type, op.result.type, op.span)
            case Load(ptr) | Store(ptr) | Atomic(_, ptr) if ptr in self.cut:
                ops, result = self.stretched.access(op, self.value)
                self.values |= {op.result: result} if result is not None else {}
                return ops
        new = rebuild(op, self.value, self.block)
        if isinstance(new, Apply) and new.fn in _FAST:
            new = replace(new, fn=_FAST[new.fn])
        return [replace(new, results=tuple(map(self.define, op.results)))]


def _is_float(type: Type) -> bool:
    return isinstance(type, Scalar) and type.is_float


def _check_cast(old: Type, new: Type, span: Span) -> None:
    assert isinstance(old, Pointer) and isinstance(new, Pointer)
    if not is_row(old.pointee, new.pointee):
        reason = "memory of floats read as another type cannot be widened to double precision"
        raise UnsupportedError(reason, span, "give each type an array of its own")


def is_row(first: Type, second: Type) -> bool:
    """A pointer may change between a type and a row of it: float, float4, an array of floats."""
    if not (holds_any(_NARROW, first) or holds_any(_NARROW, second)):
        return True
    elements = _element(first), _element(second)
    if elements[0] == elements[1]:
        return True
    one, other = sorted((_leaves(first), _leaves(second)), key=len)
    return all(map(_is_whole, elements)) and one * (len(other) // max(1, len(one))) == other


def _element(type: Type) -> Type:
    while isinstance(type, Array):
        type = type.element
    return type


def _is_whole(type: Type) -> bool:
    """Whether there is nothing between its numbers: in double precision a gap may be gone."""
    return type.size == sum(leaf.size for leaf in _leaves(type))


def _leaves(type: Type) -> list[Type]:
    match type:
        case Array(element, count):
            return _leaves(element) * max(1, count)
        case Struct():
            return [leaf for field in type.fields for leaf in _leaves(field.type)]
        case _:
            return [type]


# ---- contents -----------------------------------------------------------------------------------------------------


def widen_bytes(data: bytes, old: Type, new: Type) -> bytes:
    """The contents of memory that holds a row of `old`, as a row of `new`."""
    count = len(data) // max(1, old.size)
    source = np.frombuffer(data, np.uint8, count * old.size).reshape(count, old.size)
    target = np.zeros((count, new.size), np.uint8)
    _widen(source, old, target, new)
    return target.tobytes()


def _widen(source: np.ndarray, old: Type, target: np.ndarray, new: Type) -> None:
    """Both arrays: one row of bytes per item."""
    match old, new:
        case Scalar(), Scalar() if old != new:
            target[:] = _as_double(source, old).reshape(-1, 1).view(np.uint8)
        case Array(), Array():
            for k in range(old.count):
                _widen(_part(source, old.element, k), old.element, _part(target, new.element, k), new.element)
        case Struct(), Struct():
            for f, g in zip(old.fields, new.fields, strict=True):
                to = target[:, g.offset : g.offset + g.type.size]
                _widen(source[:, f.offset : f.offset + f.type.size], f.type, to, g.type)
        case _:
            target[:] = source


def _part(rows: np.ndarray, element: Type, k: int) -> np.ndarray:
    return rows[:, k * element.size : (k + 1) * element.size]


def _as_double(rows: np.ndarray, scalar: Scalar) -> np.ndarray:
    flat = np.ascontiguousarray(rows)
    if scalar == BF16:
        return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return flat.view(np.float16 if scalar == F16 else np.float32).astype(np.float64)
