"""Who put the final value there: atomic maximum, minimum and exchange (rule 18).

Such an atomic leaves the old number or puts its operand there, unchanged. So the cell's adjoint goes to one execution,
the winner, whose operand equals the cell's final contents; between equals the thread with the lowest id wins. If the
final contents are the initial ones, nobody wins and the adjoint stays (an exchange, though, always wins over them).

Note [Winners]. In global memory the final contents are known when the whole grid has run (rule 1). So there are three
launches: the forward, one in which every thread whose operand is in the cell bids for it with its id, and the reverse,
in which the lowest bidder takes the adjoint. Nothing else in the kernel may touch that memory.
"""

from __future__ import annotations

from collections.abc import Callable

from ...analysis.roots import UNKNOWN, Memory
from ...errors import UnsupportedError
from ...ir.builder import Builder, linear_block, linear_thread, pointee
from ...ir.effects import picks
from ...ir.functions import UNFUSED
from ...ir.ops import (
    Aggregate,
    Apply,
    Atomic,
    Builtin,
    Constant,
    Extract,
    Function,
    Insert,
    Load,
    Offset,
    Op,
    Param,
    PtrCast,
    Store,
    Value,
)
from ...ir.traverse import operands
from ...ir.types import I64, U64, Pointer, Scalar, Struct
from ..calculus.activity import Activity, holds_floats
from .winners import Winners, WonBuffer


def find_won_buffers(function: Function, memory: Memory, activity: Activity, may_alias: bool) -> dict[Value, WonBuffer]:
    """The buffers in global memory that have winners; refuses what else the kernel does with them."""
    params = {p.value: p for p in function.params}
    found: dict[Value, WonBuffer] = {}
    for op in memory.stores:
        roots = memory.of(op.ptr)  # type: ignore[attr-defined]
        if not picks(op) or not roots & activity.roots or _is_shared(op):
            continue
        assert isinstance(op, Atomic)
        (root, *others) = roots
        if others or root not in params or not isinstance(root.type, Pointer) or may_alias:
            _refuse(op, "on memory that is not one buffer", "pass the buffer as a parameter of its own")
        buffer = found.setdefault(root, _won_buffer(params[root], op))
        if pointee(buffer.before) != pointee(op.ptr):
            _refuse(op, "on numbers of several types in one buffer", "use a buffer for each")
    for root in found:
        _refuse_other_accesses(params[root], memory)
    return found


def _is_shared(op: Op) -> bool:
    assert isinstance(op, Atomic) and isinstance(op.ptr.type, Pointer)
    return op.ptr.type.space == "shared"


def _won_buffer(param: Param, op: Atomic) -> WonBuffer:
    type = pointee(op.ptr)
    assert isinstance(type, Scalar)
    before, after = (Value(Pointer(type, "global"), f"_{when}_{param.name}") for when in ("before", "after"))
    return WonBuffer(param, before, after, Value(Pointer(U64, "global"), f"_winner_{param.name}"))


def _refuse_other_accesses(param: Param, memory: Memory) -> None:
    """What is in the cells while the grid runs depends on the order of its blocks (rule 2)."""
    name, is_record = param.name, isinstance(pointee(param.value), Struct)
    for op in (*memory.loads, *memory.stores):
        assert isinstance(op, Load | Store | Atomic)
        beside = is_record and not holds_floats(pointee(op.ptr))  # an integer beside the numbers
        if picks(op) or beside or not memory.of(op.ptr) & {param.value, UNKNOWN}:
            continue
        what = "read" if isinstance(op, Load) else "written otherwise"
        raise UnsupportedError(
            f"'{name}' is {what} in the kernel that takes an atomic maximum, minimum or exchange in it: a value would"
            " pass between blocks inside one launch",
            op.span,
            "use two launches, or another buffer",
        )


def _refuse(op: Op, where: str, remedy: str) -> None:
    reason = f"an atomic maximum, minimum or exchange {where} has no gradient"
    raise UnsupportedError(reason, op.span, remedy)


def refuse_alone(winners: Winners, memory: Memory) -> None:
    """A reverse alone does not know what the cells will hold in the end (rule 6)."""
    for op in memory.stores:
        if winners.won_buffer(op, memory) is not None:
            raise UnsupportedError(
                "with primal=False the reverse cannot tell whose value an atomic maximum, minimum or exchange left",
                op.span,
                "leave out primal=False, or use kernelgrad.split",
            )


def is_repeatable(
    value: Value, definition: Callable[[Value], Op | None], is_kept: Callable[[Load], bool], rounds: int = 1
) -> bool:
    """Whether a value is the same to the last bit wherever it is computed again: it is rounded once at most. Loads give
    what they gave, if they are from memory that nothing writes or their result is kept (`is_kept`)."""
    op = definition(value)
    match op:
        case None | Constant() | Builtin():
            return True
        case Load():
            return is_kept(op)
        case Offset() | PtrCast() | Extract() | Insert() | Aggregate():
            pass
        case Apply(fn):
            rounded = isinstance(value.type, Scalar) and value.type.is_float and fn not in _EXACT
            if rounded and (fn not in _BASIC or rounds == 0):
                return False
            rounds -= rounded
        case _:
            return False
    return all(is_repeatable(v, definition, is_kept, rounds) for v in operands(op))


_EXACT = frozenset(("neg", "abs", "min", "max", "select", "bitcast", "convert", "copysign"))
_BASIC = frozenset(UNFUSED).union(UNFUSED.values())


# ---- the code of the bids -------------------------------------------------------------------------------------------


def bid(b: Builder, buffer: WonBuffer, op: Atomic, ptr: Value, operand: Value) -> None:
    """if (operand == after[i] && before[i] != after[i]) atomicMin(&winner[i], id)"""
    at = _index(b, buffer, ptr)
    final = b.load(b.offset(buffer.after, at))
    with b.region() as same:
        if op.kind == "exch":
            _offer(b, buffer, at)
        else:
            with b.region() as changed:
                _offer(b, buffer, at)
            b.if_(b.apply("ne", b.load(b.offset(buffer.before, at)), final), changed.block())
    b.if_(b.apply("eq", operand, final), same.block())


def _offer(b: Builder, buffer: WonBuffer, at: Value) -> None:
    b.atomic("min", b.offset(buffer.winner, at), grid_thread(b))


def has_won(b: Builder, buffer: WonBuffer, ptr: Value, operand: Value) -> Value:
    """Of several executions by the winning thread, each whose operand is in the cell: the first to come takes all."""
    at = _index(b, buffer, ptr)
    mine = b.apply("eq", b.load(b.offset(buffer.winner, at)), grid_thread(b))
    return b.apply("and", mine, b.apply("eq", operand, b.load(b.offset(buffer.after, at))))


def _index(b: Builder, buffer: WonBuffer, ptr: Value) -> Value:
    assert isinstance(ptr.type, Pointer)
    return b.pointer_difference(ptr, b.cast_pointer(buffer.root.value, ptr.type))


def grid_thread(b: Builder) -> Value:
    x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
    threads = b.apply("mul", b.apply("mul", x, y), z)
    return b.convert(b.apply("add", b.apply("mul", linear_block(b), threads), linear_thread(b)), U64)


Lookup = Callable[[Value], Value]


def won(b: Builder, winners: Winners, memory: Memory, op: Atomic, value: Lookup) -> Value:
    """Whether this execution takes the adjoint."""
    if op.result in winners.won:
        return value(winners.won[op.result])
    buffer = winners.won_buffer(op, memory)
    assert buffer is not None
    return has_won(b, buffer, value(op.ptr), value(op.args[0]))
