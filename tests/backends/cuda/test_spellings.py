"""Every pure function has a CUDA spelling that NVRTC takes, on every type it makes sense for."""

import pytest

from kernelgrad.backends.cuda import emit
from kernelgrad.backends.cuda.spellings import SPELLINGS
from kernelgrad.errors import DeviceError
from kernelgrad.ir.builder import Builder, result_type
from kernelgrad.ir.functions import GIVEN, ONLY_IN_REVERSE, PURE
from kernelgrad.ir.ops import Block, Function, Module, Param, Value
from kernelgrad.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    SCALARS,
    U8,
    U16,
    U32,
    U64,
    Pointer,
    Scalar,
)
from kernelgrad.runtime.nvrtc import compile_only

FLOATS = (F16, BF16, F32, F64)
INTS = (I32, U32, I64, U64)
NARROW = (I8, U8, I16, U16)
WRITTEN_BY_CODE = {"select", "masked", "convert", "bitcast", "address"} | {f"convert_r{mode}" for mode in "nduz"}
ONLY_32_BIT = "mul24 byte_perm funnel_left funnel_right funnel_left_clamp funnel_right_clamp sad hadd rhadd".split()
ONLY_32_BIT += "dp4a dp2a_lo dp2a_hi".split()
WITHOUT_HALF = {"nextafter"}


def operand_types(fn: str) -> tuple[Scalar, ...]:
    operands = PURE[fn].operands
    if fn in ONLY_32_BIT:
        return (I32, U32)
    if operands == "number":
        return (*NARROW, *INTS, *FLOATS)
    if operands == "int":
        return INTS if PURE[fn].result == "given" or fn in ("brev", "mulhi") else (*NARROW, *INTS)
    if operands == "bits":
        return (BOOL, *NARROW, *INTS)
    if operands == "float" or fn in ("ldexp", "powi"):
        return FLOATS
    if fn in ("jn", "yn"):
        return (F32, F64)
    return tuple(SCALARS.values())


def arguments(fn: str, type: Scalar) -> tuple[Value, ...]:
    types = [type] * PURE[fn].arity
    if fn in ("ldexp", "powi", "shl", "shr"):
        types[1] = I32
    if fn in ("jn", "yn"):
        types[0] = I32
    if fn == "sad":
        types[2] = U32
    if fn.startswith("funnel"):
        types[2] = U32
    return tuple(Value(t, f"x{k}") for k, t in enumerate(types))


def given_type(fn: str, type: Scalar) -> Scalar | None:
    if PURE[fn].result != "given":
        return None
    return U32 if fn == "sad" else type if fn[:2] in ("jn", "yn", "dp") else I32


def kernel(fn: str, type: Scalar, given: Scalar | None) -> Module:
    args = arguments(fn, type)
    result = result_type(fn, args, given)
    out = Value(Pointer(result, "global"), "out")
    b = Builder()
    b.store(out, b.apply(fn, *args, type=given))
    params = tuple(Param(v, "") for v in (out, *args))
    name = f"{fn}_{type}_{given}"
    return Module({name: Function(name, "kernel", params, Block((), tuple(b.ops), ()))})


def compiles(modules: list[Module]) -> None:
    """All in one text, for speed: their helpers come once."""
    lines: dict[str, None] = {}
    texts = []
    for module in modules:
        (name,) = module.functions
        head, _, body = emit(module, name).partition('extern "C"')
        lines.setdefault(head)
        texts.append(f'extern "C"{body}')
    compile_only("\n\n".join([*lines, *texts]), "sm_90")


def test_every_function_has_a_row() -> None:
    assert set(SPELLINGS) == set(PURE) - WRITTEN_BY_CODE - ONLY_IN_REVERSE - GIVEN


@pytest.mark.parametrize("type", SCALARS.values(), ids=str)
def test_functions_compile(type: Scalar) -> None:
    fns = [fn for fn in SPELLINGS if type in operand_types(fn)]
    try:
        compiles(
            [kernel(fn, type, given_type(fn, type)) for fn in fns if PURE[fn].operands != "any" or fn in SPELLINGS]
        )
    except DeviceError as error:
        pytest.skip(str(error))


def test_conversions_compile() -> None:
    modules = [kernel("convert", source, to) for source in SCALARS.values() for to in SCALARS.values()]
    same_size = [(a, b) for a in SCALARS.values() for b in SCALARS.values() if a.bits == b.bits and a != b]
    modules += [kernel("bitcast", a, b) for a, b in same_size]
    for mode in "nduz":
        pairs = [(a, b) for a in (F32, F64) for b in INTS] + [(b, a) for a in (F32, F64) for b in INTS]
        modules += [kernel(f"convert_r{mode}", a, b) for a, b in [*pairs, (F64, F32), (F32, F16), (F32, F64)]]
    compiles(modules)
