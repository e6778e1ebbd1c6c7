"""Rows of the intrinsics that are pure functions of scalars; `stop_gradient` is one of structs, too."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.functions import UNFUSED
from ..ir.ops import Value
from ..ir.types import Array, Pointer, Scalar, Struct, element_types
from .intrinsics_rows import Emit, Intrinsic, Pure

# Overloaded names that are also the IR's, with their C forms for float: sin(float), sin(double), sinf.
_SAME_NAME = (
    "sqrt rsqrt cbrt rcbrt exp exp2 exp10 expm1 log log2 log10 log1p logb sin cos tan sinpi cospi tanpi asin acos atan "
    "sinh cosh tanh asinh acosh atanh erf erfc erfinv erfcinv erfcx normcdf normcdfinv lgamma tgamma j0 j1 y0 y1 "
    "cyl_bessel_i0 cyl_bessel_i1 floor ceil trunc round rint pow atan2 hypot rhypot fmod remainder copysign nextafter "
    "fdim fma norm3d rnorm3d norm4d rnorm4d jn yn ldexp ilogb"
).split()
_OTHER_NAME = {"nearbyint": "rint", "fabs": "abs", "fmin": "min", "fmax": "max", "scalbn": "ldexp"}
_PLAIN = {name: name for name in "abs min max isnan isinf isfinite signbit".split()} | {
    "labs": "abs",
    "llabs": "abs",
    "__kg_powi": "powi",
    "__kg_frexp_mantissa": "frexp_mantissa",
    "__kg_frexp_exponent": "frexp_exponent",
}
_FAST = {f"__{name}f": f"fast_{name}" for name in "sin cos tan exp exp10 log log2 log10 tanh pow".split()} | {
    "__fdividef": "fast_div",
    "__saturatef": "saturate",
    "__frsqrt_rn": "rsqrt",
}
_INTEGER = {
    "__popc": "popc",
    "__popcll": "popc",
    "__clz": "clz",
    "__clzll": "clz",
    "__ffs": "ffs",
    "__ffsll": "ffs",
    "__brev": "brev",
    "__brevll": "brev",
    "__mul24": "mul24",
    "__umul24": "mul24",
    "__mulhi": "mulhi",
    "__umulhi": "mulhi",
    "__mul64hi": "mulhi",
    "__umul64hi": "mulhi",
    "__byte_perm": "byte_perm",
    "__funnelshift_l": "funnel_left",
    "__funnelshift_r": "funnel_right",
    "__funnelshift_lc": "funnel_left_clamp",
    "__funnelshift_rc": "funnel_right_clamp",
    "__sad": "sad",
    "__usad": "sad",
    "__hadd": "hadd",
    "__uhadd": "hadd",
    "__rhadd": "rhadd",
    "__urhadd": "rhadd",
    "__dp4a": "dp4a",
    "__dp2a_lo": "dp2a_lo",
    "__dp2a_hi": "dp2a_hi",
}
_REINTERPRET = "__float_as_int __float_as_uint __int_as_float __uint_as_float __double_as_longlong __longlong_as_double"

_HALF = {"__habs": "abs", "__hfma": "fma", "__hmax": "max", "__hmin": "min"}
_HALF |= {f"__h{fn}_rn": unfused for fn, unfused in UNFUSED.items()}
_HALVES = ("half", "bfloat16")

_MODES = ("rn", "rd", "ru", "rz")
_FLOATS = ("float", "double")
_INTEGERS = ("int", "uint", "ll", "ull")


def _rounded_arithmetic() -> dict[str, str]:
    """__fadd_rd and its like. To nearest is what the plain operation does, unless it is fused with another one."""
    rows: dict[str, str] = {}
    for mode in _MODES:
        suffix = "" if mode == "rn" else f"_{mode}"
        for operation in "add sub mul div sqrt rcp".split():
            fn = UNFUSED.get(operation, operation) if mode == "rn" else operation + suffix
            rows |= {f"__{letter}{operation}_{mode}": fn for letter in "fd"}
        rows |= {f"__{name}_{mode}": f"fma{suffix}" for name in ("fmaf", "fmaf_ieee", "fma")}
    return rows


def _reinterpretations() -> dict[str, str]:
    words = ("short", "ushort")
    names = [name for half in _HALVES for w in words for name in (f"__{w}_as_{half}", f"__{half}_as_{w}")]
    return dict.fromkeys([*_REINTERPRET.split(), *names], "bitcast")


def _conversions() -> dict[str, str]:
    """__float2int_rd and its like. C++'s own conversion rounds to zero towards integers, else to nearest."""
    rows: dict[str, str] = {}
    for mode in _MODES:
        to_integer = "convert" if mode == "rz" else f"convert_{mode}"
        to_float = "convert" if mode == "rn" else f"convert_{mode}"
        rows |= {f"__{source}2{target}_{mode}": to_integer for source in _FLOATS for target in _INTEGERS}
        rows |= {f"__{source}2float_{mode}": to_float for source in ("double", *_INTEGERS)}
        rows |= {f"__{source}2double_{mode}": to_float for source in ("ll", "ull")}
        if mode != "rn":  # that one is plain C++ in the prelude
            rows |= {f"__{source}2{half}_{mode}": to_float for source in ("float", *_INTEGERS) for half in _HALVES}
    return rows


_FUNCTIONS: dict[str, str] = (
    {spelling: name for name in _SAME_NAME for spelling in (name, f"{name}f")}
    | {spelling: fn for name, fn in _OTHER_NAME.items() for spelling in (name, f"{name}f")}
    | _PLAIN
    | _FAST
    | _INTEGER
    | _HALF
    | _reinterpretations()
    | _rounded_arithmetic()
    | _conversions()
)


def _stop(builder: Builder, value: Value) -> Value:
    """The value without derivatives: of a struct, each number in it."""
    type = value.type
    if isinstance(type, Struct | Array):
        parts = tuple([_stop(builder, builder.extract(value, k)) for k in range(len(element_types(type)))])
        return builder.aggregate(type, parts)
    if isinstance(type, Pointer):
        reason = "stop_gradient of a pointer: what it points to would have derivatives all the same"
        raise UnsupportedError(reason, builder.span, "call it with the numbers that are read")
    return builder.apply("stop", value) if isinstance(type, Scalar) and type.is_float else value


MATH_ROWS: dict[str, Intrinsic] = {name: Pure(fn) for name, fn in _FUNCTIONS.items()}
MATH_ROWS["__kg_stop"] = Emit(_stop)
