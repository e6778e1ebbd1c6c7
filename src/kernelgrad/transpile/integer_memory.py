"""Derivatives by integers, in text: they compute in doubles (`autodiff/integers`), while the program's memory holds
integers, values and adjoints alike, of which nobody knows how many there are.

Before: a finished derivative, and names of its parameters that lead to doubles which stand for integers.
After: these lead to integers. What is loaded from there becomes a double; what is stored there or added is checked: a
number that the type does not hold ends the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..autodiff.integers import HINT, joined_values
from ..backends.cuda.names import in_namespace, once
from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import (
    Apply,
    Atomic,
    Block,
    Constant,
    Function,
    HostCall,
    Load,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Undef,
    Value,
)
from ..ir.traverse import blocks, operands, rebuild, walk, with_body
from ..ir.types import F64, Pointer, Scalar

EMPTY: Mapping[str, Scalar] = MappingProxyType({})
SPELLED = {"i32": "int", "u32": "unsigned int", "i64": "long long", "u64": "unsigned long long"}
_TEXT = """\
// Integers that are differentiated by, as the numbers that they stand for. What an integer's type does not hold, or no
// double, is an error.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
inline __host__ __device__ void no_integer()
{
#ifdef __CUDA_ARCH__
    printf("an integer that is differentiated by has grown past what its type holds\\n");
    __trap();
#else
    fprintf(stderr, "an integer that is differentiated by has grown past what its type holds\\n");
    abort();
#endif
}

template <typename T>
__host__ __device__ T as_integer(double number)
{
    const double exact = 9007199254740992.0;
    const bool is_signed = T(-1) < T(0);
    double most = sizeof(T) == 8 ? exact : (double)((1ull << (8 * sizeof(T) - is_signed)) - 1);
    double least = !is_signed ? 0 : sizeof(T) == 8 ? -exact : -most - 1;
    if (!(number >= least && number <= most)) no_integer();
    return (T)number;
}

template <typename T>
__host__ __device__ double as_number(T integer)
{
    if (sizeof(T) == 8) as_integer<T>((double)integer);
    return (double)integer;
}

template <typename T>
__device__ void add_integer(T *address, double number)
{
    T value = as_integer<T>(number), before;
    if (sizeof(T) == 8) before = (T)atomicAdd((unsigned long long *)address, (unsigned long long)value);
    else before = (T)atomicAdd((unsigned int *)address, (unsigned int)value);
    as_integer<T>((double)before + (double)value);
}

template <typename T>
__device__ double take_integer(T *address)
{
    if (sizeof(T) == 8) return as_number((T)atomicExch((unsigned long long *)address, 0ull));
    return as_number((T)atomicExch((unsigned int *)address, 0u));
}
"""
INTEGERS = once("integers", _TEXT)
INCLUDES = "#include <cstdio>\n#include <cstdlib>\n"


def integers_text() -> str:
    return INCLUDES + "".join(in_namespace([INTEGERS]))


def check_kinds(integers: Mapping[str, Scalar], function: Function) -> None:
    """Those of which there are no atomics."""
    for name, kind in integers.items():
        if kind.name not in SPELLED:
            problem = (
                f"'{name}', which holds integers of {kind.bits} bits and is differentiated by, cannot be transpiled"
            )
            raise UnsupportedError(problem, function.span, HINT)


def in_module(module: Module, name: str, integers: Mapping[str, Scalar], prefix: str = "kg::") -> Module:
    """The function of that name, as `run` has it."""
    function = run(module.functions[name], integers, prefix)
    return replace(module, functions={**module.functions, name: function})


def run(function: Function, integers: Mapping[str, Scalar], prefix: str = "kg::") -> Function:
    """`integers`: the kinds by the parameters' names. `prefix`: how the text that uses it calls its helpers."""
    given = {p.value: integers[p.name] for p in function.params if p.name in integers}
    return _Memory(function, given, prefix).run() if given else function


class _Memory:
    """`kinds`: of the integers that pointers lead to."""

    def __init__(self, function: Function, given: dict[Value, Scalar], prefix: str):
        self.function, self.kinds, self.prefix = function, given, prefix
        size = -1
        while size != len(self.kinds):
            size = len(self.kinds)
            for op in walk(function.body):
                self.flow(op)
        self.new: dict[Value, Value] = {}

    def flow(self, op: Op) -> None:
        match op:
            case Offset(ptr, _) | PtrCast(ptr) if _is_of_doubles(op.result):
                self.join((ptr, op.result), op)
            case Apply("select", (_, one, other)) if isinstance(op.result.type, Pointer):
                self.join((one, other, op.result), op)
        for own, incoming in joined_values(op):
            if isinstance(own[0].type, Pointer):
                self.join((*own, *incoming), op)

    def join(self, pointers: tuple[Value, ...], op: Op) -> None:
        found = {self.kinds[p] for p in pointers if p in self.kinds}
        if len(found) > 1:
            raise UnsupportedError("a pointer leads to integers of several types, which are differentiated by", op.span)
        if found:
            (kind,) = found
            self.kinds |= dict.fromkeys(pointers, kind)

    # ---- the code

    def run(self) -> Function:
        params = tuple(
            replace(p, value=self.value(p.value), c_type=f"{SPELLED[self.kinds[p.value].name]} *")
            if p.value in self.kinds
            else p
            for p in self.function.params
        )
        return replace(with_body(self.function, self.block(self.function.body)), params=params)

    def value(self, v: Value) -> Value:
        if v in self.kinds and v not in self.new:
            assert isinstance(v.type, Pointer)
            self.new[v] = Value(Pointer(self.kinds[v], v.type.space), v.name)
        return self.new.get(v, v)

    def block(self, block: Block) -> Block:
        b = Builder()
        for op in block.ops:
            b.span = op.span
            self.op(b, op)
        return Block(tuple(map(self.value, block.args)), tuple(b.ops), tuple(map(self.value, block.results)))

    def op(self, b: Builder, op: Op) -> None:
        match op:
            case Load(ptr) if ptr in self.kinds:
                found = b.load(self.value(ptr), op.volatile)
                wide = self.kinds[ptr].bits == 64
                self.new[op.result] = self.call(b, "as_number", (found,)) if wide else b.convert(found, F64)
            case Store(ptr, value) if ptr in self.kinds:
                kind = self.kinds[ptr]
                made = b.emit(
                    HostCall, f"{self.prefix}as_integer<{SPELLED[kind.name]}>", (self.value(value),), type=kind
                )
                b.store(self.value(ptr), made, op.volatile)
            case Atomic("add", ptr, (value,)) if ptr in self.kinds:
                b.effect(HostCall, f"{self.prefix}add_integer", (self.value(ptr), self.value(value)))
            case Atomic("take", ptr, _) if ptr in self.kinds:
                self.new[op.result] = self.call(b, "take_integer", (self.value(ptr),))
            case _:
                self.other(b, op)

    def call(self, b: Builder, name: str, args: tuple[Value, ...]) -> Value:
        made: Value = b.emit(HostCall, f"{self.prefix}{name}", args, type=F64)
        return made

    def other(self, b: Builder, op: Op) -> None:
        touched = any(v in self.kinds for v in (*operands(op), *op.results))
        if touched and not blocks(op) and not isinstance(op, Offset | PtrCast | Apply | Constant | Undef):
            raise UnsupportedError("a derivative by integers that does this cannot be transpiled", op.span, HINT)
        new = rebuild(op, self.value, self.block)
        b.add(replace(new, results=tuple(map(self.value, op.results))))


def _is_of_doubles(v: Value) -> bool:
    return isinstance(v.type, Pointer) and v.type.pointee == F64
