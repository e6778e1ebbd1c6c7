"""Integer functions: counting and permuting bits, and the small dot products."""

from __future__ import annotations

from llvmlite import ir

from ...ir.types import I32, U32, Scalar
from . import llvm_types as lt
from .convert import resize
from .llvm_types import i32, intrinsic
from .scalars import Application, Row

_FALSE = ir.Constant(lt.I1, 0)


def _counted(call: Application, count: ir.Value) -> ir.Value:
    """A count of bits in the type the operation wants."""
    assert isinstance(call.result, Scalar)
    return resize(call.b, count, Scalar("", "uint", call.scalar.bits), call.result)


def _popc(call: Application) -> ir.Value:
    return _counted(call, call.b.ctpop(call.args[0]))


def _clz(call: Application) -> ir.Value:
    return _counted(call, call.b.ctlz(call.args[0], _FALSE))


def _ffs(call: Application) -> ir.Value:
    b, (x,) = call.b, call.args
    zero, one = ir.Constant(x.type, 0), ir.Constant(x.type, 1)
    position = b.add(b.cttz(x, _FALSE), one)
    return _counted(call, b.select(b.icmp_unsigned("==", x, zero), zero, position))


def _extended(call: Application, bits: int) -> list[ir.Value]:
    """The arguments with room for carries, by the first one's signedness."""
    wide = Scalar("", call.scalar.kind, bits)
    return [resize(call.b, a, call.scalar, wide) for a in call.args]


def _mulhi(call: Application) -> ir.Value:
    bits = call.scalar.bits
    x, y = _extended(call, 2 * bits)
    high = call.b.lshr(call.b.mul(x, y), ir.Constant(x.type, bits))
    return call.b.trunc(high, call.args[0].type)


def _mul24(call: Application) -> ir.Value:
    b = call.b
    shift = b.ashr if call.scalar.kind == "int" else b.lshr
    x, y = (shift(b.shl(a, i32(8)), i32(8)) for a in call.args)
    return b.mul(x, y)


def _average(rounding: int) -> Row:
    def row(call: Application) -> ir.Value:
        b = call.b
        x, y = _extended(call, 2 * call.scalar.bits)
        total = b.add(b.add(x, y), ir.Constant(x.type, rounding))
        return b.trunc(b.ashr(total, ir.Constant(x.type, 1)), call.args[0].type)

    return row


def _byte_perm(call: Application) -> ir.Value:
    """Each result byte is one of the eight of (x, y); a selector's fourth bit spreads that byte's sign."""
    b = call.b
    x, y, selector = (b.zext(_word(call, k), lt.I64) for k in range(3))
    both = b.or_(b.shl(y, lt.i64(32)), x)
    result: ir.Value = i32(0)
    for k in range(4):
        nibble = b.lshr(selector, lt.i64(4 * k))
        shifted = b.lshr(both, b.shl(b.and_(nibble, lt.i64(7)), lt.i64(3)))
        byte = b.trunc(shifted, lt.I8)
        sign = b.ashr(byte, ir.Constant(lt.I8, 7))
        spread = b.icmp_unsigned("!=", b.and_(nibble, lt.i64(8)), lt.i64(0))
        chosen = b.zext(b.select(spread, sign, byte), lt.I32)
        result = b.or_(result, b.shl(chosen, i32(8 * k)))
    return result


def _word(call: Application, k: int) -> ir.Value:
    type = call.types[k]
    assert isinstance(type, Scalar)
    return resize(call.b, call.args[k], type, U32)


def _funnel(intrinsic_name: str, clamp: bool) -> Row:
    def row(call: Application) -> ir.Value:
        b, (low, high, _) = call.b, call.args
        shift = _word(call, 2)
        shifted = intrinsic(b, intrinsic_name, lt.I32, [high, low, shift], [lt.I32])
        if not clamp:
            return shifted
        all_gone = low if intrinsic_name == "llvm.fshl" else high
        return b.select(b.icmp_unsigned(">=", shift, i32(32)), all_gone, shifted)

    return row


def _sad(call: Application) -> ir.Value:
    b, (x, y, total) = call.b, call.args
    greater = (b.icmp_signed if call.scalar.kind == "int" else b.icmp_unsigned)(">", x, y)
    return b.add(b.select(greater, b.sub(x, y), b.sub(y, x)), total)


def _dot(lengths: tuple[int, int], start: int = 0) -> Row:
    """c plus products of parts of a and b; `lengths` are the parts' bits, `start` is b's first part."""

    def row(call: Application) -> ir.Value:
        b, total = call.b, call.args[2]
        for k in range(32 // lengths[0]):
            x = _part(call, 0, k, lengths[0])
            y = _part(call, 1, start + k, lengths[1])
            total = b.add(total, b.mul(x, y))
        return total

    return row


def _part(call: Application, arg: int, k: int, bits: int) -> ir.Value:
    """Part k of a word, extended by its argument's signedness."""
    type = call.types[arg]
    assert isinstance(type, Scalar)
    piece = call.b.trunc(call.b.lshr(_word(call, arg), i32(k * bits)), ir.IntType(bits))
    return resize(call.b, piece, Scalar("", type.kind, bits), I32)


ROWS: dict[str, Row] = {
    "popc": _popc,
    "clz": _clz,
    "ffs": _ffs,
    "brev": lambda call: call.b.bitreverse(call.args[0]),
    "mulhi": _mulhi,
    "mul24": _mul24,
    "hadd": _average(0),
    "rhadd": _average(1),
    "byte_perm": _byte_perm,
    "funnel_left": _funnel("llvm.fshl", clamp=False),
    "funnel_right": _funnel("llvm.fshr", clamp=False),
    "funnel_left_clamp": _funnel("llvm.fshl", clamp=True),
    "funnel_right_clamp": _funnel("llvm.fshr", clamp=True),
    "sad": _sad,
    "dp4a": _dot((8, 8)),
    "dp2a_lo": _dot((16, 8)),
    "dp2a_hi": _dot((16, 8), start=2),
}
