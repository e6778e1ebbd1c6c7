"""Rows of the intrinsics that touch memory or other threads."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import UnsupportedError
from ..ir.builder import Builder
from ..ir.ops import AtomicKind, Barrier, BarrierReduce, Fence, Scope, Trap, Value, Warp
from ..ir.types import BOOL, I32, I64, U32, U64, Array, Pointer, Struct, Type, element_types
from .intrinsics_rows import Effect, Emit, Intrinsic, truth

# ---- atomics

_ATOMICS: dict[str, AtomicKind] = {
    "atomicAdd": "add",
    "atomicSub": "sub",
    "atomicExch": "exch",
    "atomicMin": "min",
    "atomicMax": "max",
    "atomicInc": "inc",
    "atomicDec": "dec",
    "atomicAnd": "and",
    "atomicOr": "or",
    "atomicXor": "xor",
    "atomicCAS": "cas",
}
_SCOPES: dict[str, Scope] = {"": "device", "_block": "block", "_system": "system"}


def _atomic(kind: AtomicKind, scope: Scope) -> Emit:
    return Emit(lambda b, ptr, *args: b.atomic(kind, ptr, *args, scope=scope))


# ---- warps


def _shuffle(fn: str) -> Emit:
    def emit(b: Builder, mask: Value, value: Value, lane: Value, width: Value) -> Value:
        return b.emit(Warp, fn, (mask, value, lane, width), type=value.type)

    return Emit(emit)


def _shuffle_parts(fn: str) -> Emit:
    """Of any type, as groups and CUB shuffle: a struct field by field, and what is narrow as an int."""
    shuffle = _shuffle(fn).emit

    def emit(b: Builder, mask: Value, value: Value, lane: Value, width: Value) -> Value:
        type = value.type
        if isinstance(type, Pointer) or (isinstance(type, Struct) and type.is_union):
            what = "a union" if isinstance(type, Struct) else "a pointer"
            raise UnsupportedError(f"{what} is shuffled", b.span, "shuffle the index it stands for, or its parts")
        if isinstance(type, Struct | Array):
            parts = (b.extract(value, k) for k in range(len(element_types(type))))
            return b.aggregate(type, tuple(emit(b, mask, part, lane, width) for part in parts))
        if type.size >= 4 or type.kind == "float":
            return shuffle(b, mask, value, lane, width)
        return b.convert(shuffle(b, mask, b.convert(value, I32), lane, width), type)

    return Emit(emit)


def _vote(fn: str, type: Type) -> Emit:
    return Emit(lambda b, mask, value: b.emit(Warp, fn, (mask, truth(b, value)), type=type))


def _reduce(fn: str) -> Emit:
    return Emit(lambda b, mask, value: b.emit(Warp, fn, (mask, value), type=value.type))


def _match_all(b: Builder, mask: Value, value: Value, predicate: Value) -> Value:
    op = b.add(Warp("match_all", (mask, value), results=(Value(U32), Value(BOOL)), span=b.span))
    lanes, alike = op.results
    b.store(predicate, b.convert(alike, I32))
    return lanes


# ---- the block


def _barrier_reduce(kind: str) -> Emit:
    return Emit(lambda b, value: b.emit(BarrierReduce, kind, value, type=I32))


def _fence(scope: Scope) -> Effect:
    return Effect(lambda b: b.effect(Fence, scope))


def _clock(name: str, type: Type) -> Emit:
    return Emit(lambda b: b.builtin(name, type=type))


def _nothing(_: Builder, *__: Value) -> None:
    """A hint, or a pause: no effect that a program may rely on."""


_EFFECTS: dict[str, Callable[..., None]] = {
    "__syncthreads": lambda b: b.effect(Barrier, "block"),
    "__syncwarp": lambda b, mask: b.effect(Barrier, "warp", (mask,)),
    "__trap": lambda b: b.effect(Trap),
    "__brkpt": _nothing,
    "__nanosleep": _nothing,
    "__builtin_assume": _nothing,
    "__builtin_unreachable": _nothing,
    "__builtin_trap": lambda b: b.effect(Trap),
    "__builtin_prefetch": _nothing,
}

THREAD_ROWS: dict[str, Intrinsic] = {
    **{name + suffix: _atomic(kind, scope) for name, kind in _ATOMICS.items() for suffix, scope in _SCOPES.items()},
    "__shfl_sync": _shuffle("shfl_idx"),
    **{f"__shfl_{kind}_sync": _shuffle(f"shfl_{kind}") for kind in ("up", "down", "xor")},
    **{f"__kg_shfl_{kind}": _shuffle_parts(f"shfl_{kind}") for kind in ("idx", "up", "down", "xor")},
    **{f"__{kind}_sync": _vote(f"vote_{kind}", BOOL) for kind in ("any", "all", "uni")},
    "__ballot_sync": _vote("vote_ballot", U32),
    "__activemask": Emit(lambda b: b.emit(Warp, "activemask", (), type=U32)),
    "__match_any_sync": Emit(lambda b, mask, value: b.emit(Warp, "match_any", (mask, value), type=U32)),
    "__match_all_sync": Emit(_match_all),
    **{f"__reduce_{kind}_sync": _reduce(f"reduce_{kind}") for kind in "add min max and or xor".split()},
    "__kg_lane_id": Emit(lambda b: b.builtin("lane_id")),
    **{f"__syncthreads_{kind}": _barrier_reduce(kind) for kind in ("count", "and", "or")},
    "__threadfence_block": _fence("block"),
    "__threadfence": _fence("device"),
    "__threadfence_system": _fence("system"),
    "clock": _clock("clock", I32),
    "clock64": _clock("clock64", I64),
    "__globaltimer": _clock("globaltimer", U64),
    **{name: Effect(emit) for name, emit in _EFFECTS.items()},
    # __builtin_expect(value, likely): the value.
    "__builtin_expect": Emit(lambda b, value, likely: value),
}
