"""Every row of the table, on every overload that the prelude declares, gives well-formed IR."""

from __future__ import annotations

from functools import cache

import clang.cindex as ci
import pytest

from kernelgrad.frontend.intrinsics import INTRINSICS
from kernelgrad.frontend.intrinsics_rows import Pure
from kernelgrad.frontend.prelude import parse_arguments
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.functions import PURE
from kernelgrad.ir.ops import Apply, Atomic, Barrier, Block, Function, Module, Op, Param, Value, Warp
from kernelgrad.ir.types import BF16, BOOL, F16, F32, F64, I16, I32, I64, U8, U16, U32, U64, Pointer, Type
from kernelgrad.ir.verifier import verify

if not hasattr(ci.TypeKind, "FLOAT16"):  # unknown to cindex, which then refuses every type that has it
    ci.TypeKind.FLOAT16 = ci.TypeKind(32)

SPELLINGS = {
    "bool": BOOL,
    "short": I16,
    "unsigned short": U16,
    "int": I32,
    "unsigned int": U32,
    "long": I64,
    "unsigned long": U64,
    "long long": I64,
    "unsigned long long": U64,
    "float": F32,
    "double": F64,
    "_Float16": F16,
    "__bf16": BF16,
    "void": U8,
}


def ir_type(spelling: str) -> Type:
    spelling = spelling.removeprefix("const ")
    if spelling.endswith("*"):
        return Pointer(ir_type(spelling[:-1].strip()))
    return SPELLINGS[spelling]


@cache
def signatures() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """The overloads of each row's name: parameter types and result, as clang spells them."""
    arguments = [*parse_arguments(), "-include", "kernelgrad.h"]
    unit = ci.Index.create().parse("t.cu", args=arguments, unsaved_files=[("t.cu", "")], options=0x200)
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for cursor in unit.cursor.get_children():
        is_function = cursor.kind == ci.CursorKind.FUNCTION_DECL
        if is_function and cursor.spelling in INTRINSICS and cursor.get_definition() is None:
            type = cursor.type.get_canonical()
            params = tuple(t.get_canonical().spelling for t in type.argument_types())
            found.setdefault(cursor.spelling, []).append((params, type.get_result().spelling))
    return found


def lower(name: str, params: list[Type], result: Type | None) -> tuple[list[Op], Value | None]:
    """The row's operations, verified as the body of a function."""
    builder = Builder()
    values = [Value(type, f"p{k}") for k, type in enumerate(params)]
    value = INTRINSICS[name].lower(builder, values, result)
    body = Block((), tuple(builder.ops), (value,) if value is not None else ())
    function = Function("f", "device", tuple(Param(v, "") for v in values), body)
    verify(Module({"f": function}), name)
    return builder.ops, value


# Not those that clang knows, and those of any type: `__kg_stop`, and shuffles, which test_cub.py has of structs.
ELSEWHERE = {n for n in INTRINSICS if n.startswith(("__builtin_", "__kg_shfl_"))} | {"__syncthreads", "__kg_stop"}
OWN_DECLARATION = sorted(set(INTRINSICS) - ELSEWHERE)


@pytest.mark.parametrize("name", OWN_DECLARATION)
def test_every_overload_lowers(name: str) -> None:
    assert signatures()[name]
    for params, result in signatures()[name]:
        result_type = None if result == "void" else ir_type(result)
        _, value = lower(name, [ir_type(p) for p in params], result_type)
        assert (value.type if value is not None else None) == result_type


def test_pure_rows_name_functions_of_the_ir_with_their_arity() -> None:
    for name, row in INTRINSICS.items():
        if isinstance(row, Pure):
            assert all(len(params) == PURE[row.fn].arity for params, _ in signatures()[name]), name


@pytest.mark.parametrize(
    ("name", "params", "result", "functions"),
    [
        ("sinf", [F32], F32, ["sin"]),
        ("sin", [F64], F64, ["sin"]),
        ("__expf", [F32], F32, ["fast_exp"]),
        ("fmaxf", [F32, F32], F32, ["max"]),
        ("__fadd_rn", [F32, F32], F32, ["add_rn"]),
        ("__ddiv_rn", [F64, F64], F64, ["div"]),
        ("__dmul_ru", [F64, F64], F64, ["mul_ru"]),
        ("__fmaf_rz", [F32, F32, F32], F32, ["fma_rz"]),
        ("__float2int_rz", [F32], I32, ["convert"]),
        ("__float2int_rd", [F32], I32, ["convert_rd"]),
        ("__int2float_rn", [I32], F32, ["convert"]),
        ("__double2float_ru", [F64], F32, ["convert_ru"]),
        ("__float_as_int", [F32], I32, ["bitcast"]),
        ("__popcll", [U64], I32, ["popc"]),
        ("__umul64hi", [U64, U64], U64, ["mulhi"]),
        ("__hmul_rn", [F16, F16], F16, ["mul_rn"]),
        ("__hfma", [F16, F16, F16], F16, ["fma"]),
    ],
)
def test_meaning_of_pure_rows(name: str, params: list[Type], result: Type, functions: list[str]) -> None:
    ops, _ = lower(name, params, result)
    assert [op.fn for op in ops if isinstance(op, Apply)] == functions


def test_atomics_keep_kind_and_scope() -> None:
    pointer = Pointer(U32)
    for name, kind, scope, count in [
        ("atomicAdd", "add", "device", 1),
        ("atomicInc_block", "inc", "block", 1),
        ("atomicCAS_system", "cas", "system", 2),
    ]:
        (op,), _ = lower(name, [pointer] + [U32] * count, U32)
        assert isinstance(op, Atomic) and (op.kind, op.scope, len(op.args)) == (kind, scope, count)


def test_votes_take_a_bool_and_give_an_int() -> None:
    ops, value = lower("__any_sync", [U32, I32], I32)
    (vote,) = (op for op in ops if isinstance(op, Warp))
    assert vote.args[1].type == BOOL and vote.result.type == BOOL and value is not None and value.type == I32


def test_match_all_stores_its_predicate() -> None:
    ops, value = lower("__match_all_sync", [U32, I32, Pointer(I32)], U32)
    assert [type(op).__name__ for op in ops] == ["Warp", "Apply", "Store"]
    assert value is not None and value.type == U32


def test_barriers() -> None:
    (block,), _ = lower("__syncthreads", [], None)
    (warp,), _ = lower("__syncwarp", [U32], None)
    assert isinstance(block, Barrier) and block.scope == "block"
    assert isinstance(warp, Barrier) and warp.scope == "warp" and len(warp.args) == 1


def test_hints_leave_nothing_behind() -> None:
    for name in ("__nanosleep", "__builtin_assume", "__brkpt"):
        ops, value = lower(name, [U32] if name == "__nanosleep" else [], None)
        assert ops == [] and value is None
