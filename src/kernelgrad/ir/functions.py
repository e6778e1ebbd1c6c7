"""The pure scalar functions that `Apply` can name: one row each.

Names carry no width: `sin` is sinf on f32 and sin on f64. A row says how many arguments a function takes and how
the type of its result follows from theirs. Meanings are C++'s; where C++ leaves one open, CUDA's:

- `shl`/`shr` by the width or more give 0 (or the sign);
- `convert` from float to integer truncates, saturates, and takes NaN to 0;
- `min`/`max` on floats return the other argument when one is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["same", "bool", "given"]
Operands = Literal["number", "int", "float", "any", "bits"]


@dataclass(frozen=True)
class PureFunction:
    """`operands`: what every argument must be; `result`: `same` as the first argument, `bool`, or `given` by the op."""

    name: str
    arity: int
    operands: Operands
    result: Result = "same"


def _rows(names: str, arity: int, operands: Operands, result: Result = "same") -> list[PureFunction]:
    return [PureFunction(name, arity, operands, result) for name in names.split()]


_TABLE = [
    # Arithmetic; integers and floats alike. `rem` is integer only: float remainders are fmod and remainder.
    *_rows("add sub mul div", 2, "number"),
    *_rows("rem", 2, "int"),
    *_rows("neg", 1, "number"),
    *_rows("abs", 1, "number"),
    *_rows("min max", 2, "number"),
    # Bits; on bool these are the logical operators. shl/shr: the amount may have any integer type.
    *_rows("and or xor", 2, "bits"),
    *_rows("not", 1, "bits"),
    *_rows("shl shr", 2, "int"),
    # Comparison of numbers, bools or pointers.
    *_rows("lt le gt ge eq ne", 2, "any", "bool"),
    # select(condition, if_true, if_false): any type; its result is that of the second argument (see result_type).
    *_rows("select", 3, "any"),
    # masked(v, g): v, but zero where g is zero; in derivatives alone.
    *_rows("masked", 2, "any"),
    # Conversion to the type of the result: by value, by bit pattern (same size), a pointer's address as u64.
    *_rows("convert bitcast address", 1, "any", "given"),
    # Floating point classification.
    *_rows("isnan isinf isfinite signbit", 1, "float", "bool"),
    # Math, one argument.
    *_rows("sqrt rsqrt cbrt rcbrt rcp", 1, "float"),
    *_rows("exp exp2 exp10 expm1 log log2 log10 log1p logb", 1, "float"),
    *_rows("sin cos tan sinpi cospi tanpi asin acos atan", 1, "float"),
    *_rows("sinh cosh tanh asinh acosh atanh", 1, "float"),
    *_rows("erf erfc erfinv erfcinv erfcx normcdf normcdfinv lgamma tgamma", 1, "float"),
    *_rows("j0 j1 y0 y1 cyl_bessel_i0 cyl_bessel_i1", 1, "float"),
    *_rows("floor ceil trunc round rint", 1, "float"),
    *_rows("saturate", 1, "float"),  # clamp to [0, 1], NaN to 0
    # Math, more arguments. ldexp/scalbn take an int second; jn/yn an int first and give the float's type.
    *_rows("pow atan2 hypot rhypot fmod remainder copysign nextafter fdim", 2, "float"),
    *_rows("fma", 3, "float"),
    *_rows("norm3d rnorm3d", 3, "float"),
    *_rows("norm4d rnorm4d", 4, "float"),
    *_rows("ldexp", 2, "any"),
    *_rows("powi", 2, "any"),  # pow(float, int)
    *_rows("jn yn", 2, "any", "given"),
    *_rows("ilogb", 1, "float", "given"),
    *_rows("frexp_mantissa", 1, "float"),
    *_rows("frexp_exponent", 1, "float", "given"),
    # Fast, approximate forms of the above (__sinf, ...); CPU backends may use the exact ones.
    *_rows("fast_sin fast_cos fast_tan fast_exp fast_exp10 fast_log fast_log2 fast_log10 fast_tanh", 1, "float"),
    *_rows("fast_div fast_pow", 2, "float"),
    # Rounding-mode arithmetic (__fadd_rd, ...): d down, u up, z to zero. To nearest (n) the plain operation rounds too,
    # but these three are never fused with others.
    *_rows("add_rn sub_rn mul_rn", 2, "float"),
    *_rows("add_rd add_ru add_rz sub_rd sub_ru sub_rz mul_rd mul_ru mul_rz div_rd div_ru div_rz", 2, "float"),
    *_rows("sqrt_rd sqrt_ru sqrt_rz rcp_rd rcp_ru rcp_rz", 1, "float"),
    *_rows("fma_rd fma_ru fma_rz", 3, "float"),
    # Conversion with a rounding mode: n nearest even, d, u, z. To an integer or to a narrower float.
    *_rows("convert_rn convert_rd convert_ru convert_rz", 1, "any", "given"),
    # For reverse mode, and gone after it: detach(v) is v without its derivatives; along(v, x, slope) is v, and its
    # derivative by x grows by slope. at_end(v, arg) is v; what the reverse computes again has for it, in all iterations
    # of the loop whose body has the argument, what that loop ends with. in_reverse(v, r, arg) is v, and r there.
    *_rows("detach", 1, "float"),
    *_rows("along", 3, "float"),
    *_rows("at_end", 2, "any"),
    *_rows("in_reverse", 3, "any"),
    # Derivatives that the source gives, gone in what backends get (`transforms/erase_custom`): stop(v) is v without its
    # derivatives; custom(v, x, slope) is v, and its derivative by x grows by slope, or does so in one mode alone.
    *_rows("stop", 1, "float"),
    *_rows("custom custom_forward custom_reverse", 3, "float"),
    # Integer bits.
    *_rows("popc clz ffs", 1, "int", "given"),
    *_rows("brev", 1, "int"),
    *_rows("mulhi", 2, "int"),
    *_rows("mul24", 2, "int"),
    *_rows("byte_perm", 3, "int"),
    *_rows("funnel_left funnel_right funnel_left_clamp funnel_right_clamp", 3, "int"),  # (lo, hi, shift)
    *_rows("sad", 3, "any", "given"),
    *_rows("hadd rhadd", 2, "int"),
    *_rows("dp4a dp2a_lo dp2a_hi", 3, "any", "given"),
]

PURE: dict[str, PureFunction] = {row.name: row for row in _TABLE}

# Never in a function that is emitted.
ONLY_IN_REVERSE = frozenset(("along", "detach", "at_end", "in_reverse"))

# What the reverse of a loop has something else for.
REPLACED = frozenset(("at_end", "in_reverse"))

# What the source says of derivatives; not in what backends get either.
GIVEN = frozenset(("stop", "custom", "custom_forward", "custom_reverse"))

COMMUTATIVE = frozenset("add mul add_rn mul_rn and or xor eq ne min max".split())

# Products and sums of floats that compilers may fuse, and as they are where they must not.
UNFUSED = {fn: f"{fn}_rn" for fn in ("add", "sub", "mul")}
