"""C++ expressions as text with what is needed to combine them: precedence, type, and the form without a cast."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from ...ir.types import F32, F64, I32, I64, U32, U64, Scalar, Type

# What the difference of two pointers has in C++: as wide as i64, but another type to overload resolution.
LONG = Scalar("long", "int", 64)


class Prec(IntEnum):
    TERNARY = 3
    LOGICAL_OR = 4
    LOGICAL_AND = 5
    BIT_OR = 6
    BIT_XOR = 7
    BIT_AND = 8
    EQUALITY = 9
    RELATION = 10
    SHIFT = 11
    SUM = 12
    PRODUCT = 13
    UNARY = 14
    POSTFIX = 15


OPERATORS: dict[str, Prec] = {
    "*": Prec.PRODUCT,
    "/": Prec.PRODUCT,
    "%": Prec.PRODUCT,
    "+": Prec.SUM,
    "-": Prec.SUM,
    "<<": Prec.SHIFT,
    ">>": Prec.SHIFT,
    "<": Prec.RELATION,
    "<=": Prec.RELATION,
    ">": Prec.RELATION,
    ">=": Prec.RELATION,
    "==": Prec.EQUALITY,
    "!=": Prec.EQUALITY,
    "&": Prec.BIT_AND,
    "^": Prec.BIT_XOR,
    "|": Prec.BIT_OR,
    "&&": Prec.LOGICAL_AND,
    "||": Prec.LOGICAL_OR,
}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_COMPOUND = frozenset("+ - * / % & | ^ << >>".split())
_SIGNS = {"+": "-", "-": "+"}  # a - -b is a + b, rounded alike
_COMMUTATIVE = frozenset("+ * & | ^".split())
# Readers (and -Wparentheses) do not know these precedences by heart.
_UNFAMILIAR = frozenset("& | ^ << >> ||".split())


@dataclass(frozen=True)
class Expr:
    """`uncast`: the same value before a conversion that C++ would also make by itself in many places."""

    text: str
    type: Type
    prec: Prec = Prec.POSTFIX
    uncast: Expr | None = None
    binary: tuple[str, Expr, Expr] | None = None
    pointer: Expr | None = None  # of a dereferenced pointer: `*p` has p here
    opposite: Expr | None = None  # of `!x`: x
    negative: Expr | None = None  # of `-x`: x
    array: Expr | None = None  # of an array value: the C++ array that it is read from, where it is

    def at(self, least: Prec) -> str:
        """The text for a place that takes operators of precedence `least` and above without parentheses."""
        return self.text if self.prec >= least else f"({self.text})"


def call(function: str, arguments: tuple[Expr, ...] | list[Expr], type: Type) -> Expr:
    return Expr(f"{function}({', '.join(a.text for a in arguments)})", type)


def cast(spelling: str, operand: Expr, type: Type) -> Expr:
    return Expr(f"({spelling}){operand.at(Prec.UNARY)}", type, Prec.UNARY, uncast=operand)


def prefix(operator: str, operand: Expr, type: Type) -> Expr:
    text = operand.at(Prec.UNARY)
    # `- -x`, not `--x`; the same for `&&x`.
    negative = operand if operator == "-" else None
    return Expr(operator + (f"({text})" if text.startswith(operator) else text), type, Prec.UNARY, negative=negative)


def infix(operator: str, left: Expr, right: Expr, type: Type) -> Expr:
    if operator in _SIGNS and right.negative is not None:
        operator, right = _SIGNS[operator], right.negative
    prec = OPERATORS[operator]
    text = f"{_side(operator, left, prec)} {operator} {_side(operator, right, Prec(prec + 1))}"
    return Expr(text, type, prec, binary=(operator, left, right))


def _side(operator: str, side: Expr, least: Prec) -> str:
    mixes = side.binary is not None and side.binary[0] != operator and Prec.LOGICAL_OR <= side.prec <= Prec.SUM
    if mixes and operator in _UNFAMILIAR and not (operator == "||" and side.prec >= Prec.EQUALITY):
        return f"({side.text})"
    return side.at(least)


def conditional(condition: Expr, if_true: Expr, if_false: Expr, type: Type) -> Expr:
    text = f"{condition.at(Prec.LOGICAL_OR)} ? {if_true.at(Prec.LOGICAL_OR)} : {if_false.at(Prec.TERNARY)}"
    return Expr(text, type, Prec.TERNARY)


def either(condition: Expr, if_true: Expr, if_false: Expr, type: Type) -> Expr:
    """One of two values; of truth values, as one writes it."""
    if if_false.text == "false":
        return infix("&&", condition, if_true, type)
    if if_true.text == "true":
        return infix("||", condition, if_false, type)
    return conditional(condition, if_true, if_false, type)


def negated(condition: Expr) -> Expr:
    """`!condition`, as the opposite comparison where that is the same: not for floats, which may be NaN."""
    if condition.binary is not None:
        operator, left, right = condition.binary
        floating = isinstance(left.type, Scalar) and left.type.is_float
        if operator in OPPOSITE and (not floating or operator in ("==", "!=")):
            return infix(OPPOSITE[operator], left, right, condition.type)
    if condition.opposite is not None:
        return condition.opposite
    return replace(prefix("!", condition, condition.type), opposite=condition)


def assignment(target: str, value: Expr) -> str:
    """`target = value;`, shorter where the value updates the target."""
    if value.binary is not None:
        operator, left, right = value.binary
        if operator in _COMPOUND and left.text == target:
            return _update(target, operator, right)
        if operator in _COMMUTATIVE and right.text == target:
            return _update(target, operator, left)
    return f"{target} = {value.text};"


def _update(target: str, operator: str, by: Expr) -> str:
    if by.text == "1" and operator in "+-":
        return f"{operator * 2}{target};"
    return f"{target} {operator}= {by.text};"


# ---- C++'s implicit conversions ----------------------------------------------------------------------------------


def common_type(left: Type, right: Type) -> Scalar | None:
    """What the usual arithmetic conversions make of two operands; None where they do not apply (half, pointers)."""
    if not isinstance(left, Scalar) or not isinstance(right, Scalar):
        return None
    for floating in (F64, F32):
        if floating in (left, right):
            return None if 16 in (_float_bits(left), _float_bits(right)) else floating
    if left.is_float or right.is_float:
        return None
    a, b = _promoted(left), _promoted(right)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.kind != b.kind:
        return U32 if a.bits == 32 else U64
    return b if a == LONG else a


def _float_bits(type: Scalar) -> int:
    return type.bits if type.is_float else 0


def _promoted(type: Scalar) -> Scalar:
    return I32 if type.bits < 32 else type


def without_casts(type: Type, left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """The operands of an operation on `type`, without the casts that C++ would make by itself."""
    for a, b in ((left.uncast, right.uncast), (left.uncast, right), (left, right.uncast)):
        if a is not None and b is not None and common_type(a.type, b.type) == type:
            return a, b
    return left, right


def assigned(value: Expr) -> Expr:
    """The value as C++ takes it to initialise something of its type.

    Casts that lose a fraction or precision stay, as a careful author writes them.
    """
    bare = value.uncast
    if bare is None or not isinstance(bare.type, Scalar) or not isinstance(value.type, Scalar):
        return value
    if 16 in (_float_bits(bare.type), _float_bits(value.type)) or value.type.kind == "bool":
        return value
    loses = bare.type.is_float and (not value.type.is_float or value.type.bits < bare.type.bits)
    return value if loses else bare


def as_index(value: Expr) -> Expr:
    """The value as an array index, where C++ widens by itself."""
    bare = value.uncast
    if bare is None or not isinstance(bare.type, Scalar) or not isinstance(value.type, Scalar):
        return value
    from_type, to_type = bare.type, value.type
    signs_agree = from_type.kind != "int" or to_type == I64 or bare.text.isdigit()
    widens = to_type.bits > from_type.bits and not from_type.is_float and signs_agree
    return bare if widens or (bare.text.isdigit() and not to_type.is_float) else value
