"""Identifiers for emitted code: C++ spellings of source names, each unique where it is visible.

What several texts bring along alike is in a namespace of its own and defined once, so that texts can be put into one
file, with each other and with the source that they were made from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

NAMESPACE = "kg"
_PREFIX = "KERNELGRAD"

_CPP_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl concept
    const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
    union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_CUDA_NAMES = """
    threadIdx blockIdx blockDim gridDim warpSize dim3 half half2 assert printf clock clock64 main NULL INFINITY NAN
    min max abs uint uchar ushort ulong kg
"""
# The spellings of functions that emitted code calls, so that no parameter or variable hides one.
_CUDA_FUNCTIONS = """
    atomicAdd atomicSub atomicExch atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd atomicOr atomicXor
    make_float2 make_float4 make_double2 float2 float4 double2 double4 int2 int4 uint2 uint4 saturate fminf fmaxf
    fabsf lane_id sin cos tan exp exp2 log log2 sqrt rsqrt pow fma sinh cosh tanh
"""
# Functions of CUDA's headers with C linkage, most of them with an `f` behind for floats too.
_C_FUNCTIONS = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
    erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb isfinite
    isinf isnan j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
    nextafter norm norm3d norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round
    rsqrt scalbln scalbn signbit sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn free labs llabs
    llmax llmin malloc max memcpy memset min ullmax ullmin umax umin
"""
C_FUNCTIONS = frozenset(_C_FUNCTIONS.split())
RESERVED = frozenset((_CPP_KEYWORDS + _CUDA_NAMES + _CUDA_FUNCTIONS).split()) | {f"{name}f" for name in C_FUNCTIONS}


def identifier(text: str) -> str:
    """`text` as a C++ identifier: `scale<float, 4>` becomes `scale_float_4`. Not yet unique."""
    name = re.sub(r"\W+", "_", text).strip("_") if re.search(r"\W", text) else text
    if not name or name[0].isdigit():
        name = f"v{name}"
    # Double underscores and a leading underscore with a capital belong to the compiler.
    name = re.sub(r"^_+(?=[A-Z_])", "", re.sub(r"__+", "_", name)) or "v"
    return f"{name}_" if name in RESERVED else name


def is_own(name: str | None) -> bool:
    """Whether a value's name is none of the source's: what passes call something begins with `~`."""
    return name is None or name.startswith("~")


class Scope:
    """The names of one C++ block. A name is free here if no block around it and none inside it has it.

    So nothing is shadowed, yet two loops one after the other may both count with `i`. `reserved` are the source's
    names, which nothing but what has them there gets.
    """

    def __init__(self, outer: Scope | None = None, taken: Iterable[str] = (), reserved: Iterable[str] = ()):
        self.outer = outer
        self.reserved: frozenset[str] = frozenset(reserved) | (outer.reserved if outer is not None else frozenset())
        self._here = set(taken)
        self._inside: set[str] = set()

    def _is_free(self, name: str) -> bool:
        if name in self._inside:
            return False
        scope: Scope | None = self
        while scope is not None:
            if name in scope._here:
                return False
            scope = scope.outer
        return True

    def declare(self, hint: str, own: bool = False) -> str:
        """A free name like `hint`, taken from now on. `own`: for a variable that the source does not have."""
        base = name = identifier(hint)
        count = 0
        while not self._is_free(name) or ((own or count) and name in self.reserved):
            count += 1
            name = f"{base}_{count}"
        self._here.add(name)
        outer = self.outer
        while outer is not None:
            outer._inside.add(name)
            outer = outer.outer
        return name


# ---- what several texts bring along ---------------------------------------------------------------------------------


def qualified(name: str) -> str:
    return f"{NAMESPACE}::{name}"


def once(name: str, text: str, tell_apart: bool = False) -> str:
    """The text, for the first that brings it. `tell_apart`: others may have another text under the name, which the
    compiler is to refuse."""
    differs = f"_{hashlib.sha256(text.encode()).hexdigest()[:8]}" if tell_apart else ""
    macro = f"{_PREFIX}_{name.upper()}{differs}"
    return f"#ifndef {macro}\n#define {macro}\n{text}#endif\n"


def in_namespace(texts: Iterable[str]) -> list[str]:
    found = "\n".join(texts)
    return [f"namespace {NAMESPACE} {{\n\n{found}\n}}  // namespace {NAMESPACE}\n"] if found else []
