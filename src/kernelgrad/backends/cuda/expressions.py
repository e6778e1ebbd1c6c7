"""IR values as C++ expressions. A folded value is written out here, any other is its variable's name."""

from __future__ import annotations

from ...errors import InternalError
from ...ir.effects import ADDRESSES
from ...ir.ops import (
    Aggregate,
    Apply,
    BarrierReduce,
    Builtin,
    Constant,
    Extract,
    HostCall,
    Load,
    Op,
    PtrDiff,
    Undef,
    Value,
    Warp,
)
from ...ir.types import BF16, BOOL, F16, F32, I32, I64, U32, Array, Scalar, Struct, Type
from .conversions import bitcast, convert, convert_rounded, literal, zero
from .names import qualified
from .places import Places
from .spellings import HELPERS, SPELLINGS, has_normal_root
from .syntax import LONG, OPPOSITE, Expr, Prec, assigned, call, cast, conditional, infix, negated, prefix, without_casts
from .types import field_name, vector_maker

_AXES = "xyz"
_INDICES = {"thread_idx": "threadIdx", "block_idx": "blockIdx", "block_dim": "blockDim", "grid_dim": "gridDim"}
_SPECIAL: dict[str, tuple[str, Type]] = {
    "warp_size": ("warpSize", I32),
    "lane_id": (qualified("lane_id()"), U32),
    "clock": ("clock()", LONG),
    "clock64": ("clock64()", I64),
    "globaltimer": (qualified("global_timer()"), Scalar("u64", "uint", 64)),
}
_LOGICAL = {"&": "&&", "|": "||", "^": "!="}
_SHUFFLES = {"shfl_idx": "__shfl_sync", "shfl_up": "__shfl_up_sync", "shfl_down": "__shfl_down_sync"}
_SHUFFLES |= {"shfl_xor": "__shfl_xor_sync"}
# name, and the type of its C++ result (None: that of the value it is given)
_WARP_FUNCTIONS: dict[str, tuple[str, Type | None]] = {
    "vote_any": ("__any_sync", I32),
    "vote_all": ("__all_sync", I32),
    "vote_uni": ("__uni_sync", I32),
    "vote_ballot": ("__ballot_sync", U32),
    "match_any": ("__match_any_sync", U32),
    "activemask": ("__activemask", U32),
    **{f"reduce_{n}": (f"__reduce_{n}_sync", None) for n in ("add", "min", "max", "and", "or", "xor")},
}
LANE_FUNCTIONS = frozenset(  # helpers of the same name
    ("lanes_alike", "lane_sums", "warp_sums", "lanes_total", "lanes_totals", "lane_columns", "lane_products")
)


def host_call(fn: str, args: list[str]) -> str:
    """Of a function that text is written for; `f(x` has a first argument already."""
    head, first = fn.split("(") if "(" in fn else (fn, "")
    return f"{head}({', '.join(filter(None, (first, *args)))})"


class Expressions(Places):
    """`Places` writes addresses and what lies at them; values are written here."""

    # ---- values

    def value(self, value: Value) -> Expr:
        if value in self.folding.inline:
            return self.operation(self.folding.definition[value])
        return Expr(self.variables.of[value].name, value.type)

    def values(self, values: tuple[Value, ...]) -> list[Expr]:
        return [self.value(v) for v in values]

    def operation(self, op: Op) -> Expr:
        """The text of an operation that has a result, wherever it stands."""
        match op:
            case Constant(value):
                return literal(value, op.result.type, self.types)
            case Undef():
                return zero(op.result.type, self.types)
            case Apply():
                return self.apply(op)
            case Builtin():
                return self.builtin(op)
            case Aggregate(args):
                return self.aggregate(op.result.type, args)
            case Extract(aggregate, index):
                return self.part(self.value(aggregate), index, op.result.type)
            case Load():
                return self.load(op)
            case PtrDiff(left, right):
                difference = infix("-", self.value(left), self.value(right), LONG)
                return cast(self.types.spell(I64), difference, I64)
            case _ if isinstance(op, ADDRESSES):
                return self.address(op)
            case Warp():
                return self.warp(op)
            case BarrierReduce(_, value) if op in self.reductions:
                from .shared import reduction_name

                own = f"{reduction_name(op)}<{op.threads}, {self.reductions[op]}>"
                return call(qualified(own), [self.value(value)], op.result.type)
            case BarrierReduce("sum", value):
                return call(qualified("block_sum"), [self.value(value)], op.result.type)
            case BarrierReduce(kind, value):
                return call(f"__syncthreads_{kind}", [self.value(value)], I32)
            case HostCall(fn, args):
                made = Expr(host_call(fn, [v.text for v in self.values(args)]), op.result.type)
                return cast(self.types.spell(op.result.type), made, op.result.type)
            case _:
                raise InternalError(f"{type(op).__name__} is not an expression")

    def retyped(self, value: Expr, type: Type) -> Expr:
        """The value as `type`, where C++'s function gives another one than the IR's."""
        return convert(value, type, self.types)

    # ---- pure functions

    def apply(self, op: Apply) -> Expr:
        args, result = self.values(op.args), op.result.type
        match op.fn:
            case "select":
                return conditional(args[0], args[1], args[2], result)
            case "rsqrt" if has_normal_root(op, self.folding.definition):
                return call(qualified("rsqrt_normal"), args, result)
            case "convert":
                return convert(args[0], result, self.types)
            case "bitcast":
                return bitcast(args[0], result, self.types)
            case "address":
                return cast(self.types.spell(result), args[0], result)
            case "convert_rn" | "convert_rd" | "convert_ru" | "convert_rz":
                return convert_rounded(args[0], result, op.fn[-2:], self.types)
        operator = SPELLINGS[op.fn].operator
        if operator is None:
            return self.function(op.fn, args, result)
        if len(args) == 1:
            return self.unary(operator, args[0], result)
        if operator in ("<<", ">>"):
            return self.shift(operator, op, args)
        return self.binary(operator, args[0], args[1], result)

    def unary(self, operator: str, operand: Expr, type: Type) -> Expr:
        if type == BOOL:
            return negated(operand)
        return self.narrowed(prefix(operator, operand, type), type)

    def binary(self, operator: str, left: Expr, right: Expr, result: Type) -> Expr:
        operands = left.type
        if operands == BOOL:
            return infix(_LOGICAL.get(operator, operator), left, right, BOOL)
        left, right = without_casts(operands, left, right)
        if operator in OPPOSITE and _is_narrow(operands):
            right = _plain_literal(right)
        if operator == "*" and (right.uncast or right).text == "-1" and result == operands and not _is_narrow(result):
            return prefix("-", left, result)
        if operator == "*" and _is_narrow(result):
            # The product of two large unsigned shorts overflows the int they are promoted to.
            left = cast(self.types.spell(U32), left, U32)
        return self.narrowed(infix(operator, left, right, result), result)

    def narrowed(self, value: Expr, type: Type) -> Expr:
        """C++ computes on ints where the IR computes on 8 or 16 bits."""
        if not _is_narrow(type):
            return value
        wide = Expr(value.text, I32, value.prec, binary=value.binary)
        return cast(self.types.spell(type), wide, type)

    def shift(self, operator: str, op: Apply, args: list[Expr]) -> Expr:
        value, amount = args
        type = op.result.type
        assert isinstance(type, Scalar)
        shifted = self.narrowed(infix(operator, value, amount.uncast or amount, type), type)
        if not self.folding.is_guarded_shift(op):
            return shifted
        # Beyond the width, C++ says nothing; the IR, as the hardware, shifts everything out.
        inside = infix("<", amount, literal(type.bits, amount.type, self.types), BOOL)
        if operator == ">>" and type.is_signed:
            last = infix(">>", value, Expr(str(type.bits - 1), I32), type)
            return conditional(inside, shifted, self.narrowed(last, type), type)
        return conditional(inside, shifted, literal(0, type, self.types), type)

    def function(self, fn: str, args: list[Expr], result: Type) -> Expr:
        row = SPELLINGS[fn]
        selector = args[row.selects].type
        cell = row.cells.get(selector.name) if isinstance(selector, Scalar) else None
        if cell is None:
            return self.widened(fn, args, result)
        returns = row.returns or (U32 if fn == "sad" else args[row.selects].type)
        if "{" in cell:
            text = cell.format(*(a.text for a in args))
            found = Expr(text, returns, Prec.UNARY if text.startswith("(") else Prec.POSTFIX)
        else:
            found = call(qualified(cell) if cell in HELPERS else cell, args, returns)
        return self.retyped(found, result)

    def widened(self, fn: str, args: list[Expr], result: Type) -> Expr:
        """On a 16-bit float or integer: computed in 32 bits."""
        narrow = args[SPELLINGS[fn].selects].type
        if narrow in (F16, BF16):
            wide: Scalar = F32
        elif _is_narrow(narrow):
            wide = I32
        else:
            raise InternalError(f"'{fn}' of {narrow} has no spelling in CUDA")
        wider = [self.retyped(a, wide) if a.type == narrow else a for a in args]
        return self.retyped(self.function(fn, wider, wide if result == narrow else result), result)

    def builtin(self, op: Builtin) -> Expr:
        if op.name in _INDICES:
            found = Expr(f"{_INDICES[op.name]}.{_AXES[op.axis]}", U32)
        else:
            text, type = _SPECIAL[op.name]
            found = Expr(text, type)
        return self.retyped(found, op.result.type)

    # ---- aggregates

    def aggregate(self, type: Type, args: tuple[Value, ...]) -> Expr:
        parts = [self.nonconst(a) for a in args]
        if isinstance(type, Struct):
            if type.is_union:
                raise InternalError(f"a value of union {type.name} built from parts")
            maker = vector_maker(type)
            if maker is not None:
                return call(maker, parts, type)
            inner = ", ".join(self.braced(a) for a in args)
        else:
            inner = ", ".join(p.text for p in parts)
        return Expr(f"{self.types.spell(type)}{{{inner}}}", type)

    def braced(self, part: Value) -> str:
        """A member's initialiser. An array is given element by element, since C++ does not copy arrays."""
        if not isinstance(part.type, Array):
            return self.nonconst(part).text
        match self.folded(part):
            case Undef():
                return "{}"
            case Aggregate(args):
                return "{" + ", ".join(self.braced(a) for a in args) + "}"
        return "{" + self.elements(self.value(part), part.type) + "}"

    def elements(self, array: Expr, type: Array) -> str:
        parts = (f"{array.at(Prec.POSTFIX)}.at[{k}]" for k in range(type.count))
        inner = type.element
        if not isinstance(inner, Array):
            return ", ".join(parts)
        return ", ".join("{" + self.elements(Expr(p, inner), inner) + "}" for p in parts)

    def part(self, whole: Expr, index: int, type: Type) -> Expr:
        found = Expr(self.member_text(whole, index), type)
        in_c_array = isinstance(whole.type, Struct) or whole.array is not None
        return self.array_value(found, type) if isinstance(type, Array) and in_c_array else found

    def member_text(self, whole: Expr, index: int) -> str:
        if whole.array is not None:
            return f"{whole.array.at(Prec.POSTFIX)}[{index}]"
        base = whole.at(Prec.POSTFIX)
        if isinstance(whole.type, Struct):
            return f"{base}.{field_name(whole.type, index)}"
        return f"{base}.at[{index}]"

    # ---- warps

    def warp(self, op: Warp) -> Expr:
        args = self.values(op.args)
        result = op.result.type
        if op.fn in _SHUFFLES:
            return self.shuffle(_SHUFFLES[op.fn], args, result)
        if op.fn == "reduce_add" and isinstance(result, Scalar) and result.is_float:
            return call(qualified("warp_sum"), args[1:], result)
        if op.fn in LANE_FUNCTIONS:
            return call(qualified(op.fn), args[1:], result)
        function, returns = _WARP_FUNCTIONS[op.fn]
        return self.retyped(call(function, args, returns or args[1].type), result)

    def shuffle(self, function: str, args: list[Expr], result: Type) -> Expr:
        mask, value, *rest = args[0], args[1], *map(assigned, args[2:])
        if len(rest) == 2 and rest[1].text == "32":
            rest = rest[:1]
        if not _is_narrow(result) and result != BOOL:
            return call(function, [mask, value, *rest], result)
        return self.retyped(call(function, [mask, self.retyped(value, I32), *rest], I32), result)


def _plain_literal(value: Expr) -> Expr:
    """`0` for `(unsigned char)0`: a comparison is one of ints."""
    return value.uncast if value.uncast is not None and value.uncast.text.isdigit() else value


def _is_narrow(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("int", "uint") and type.bits < 32
