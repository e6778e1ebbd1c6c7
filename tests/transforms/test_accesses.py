"""Accesses and contents found by address: as pairs of pointers, asked one by one, would have it."""

from __future__ import annotations

import random

from kernelgrad.analysis.aliases import Aliases
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.effects import MEETINGS
from kernelgrad.ir.ops import Atomic, Barrier, Block, Function, Load, Op, Param, Store, Value
from kernelgrad.ir.types import F32, I64, Pointer
from kernelgrad.schedule.order.loads_first import Order
from kernelgrad.transforms.access_index import Accesses, Contents, looks, writes


def _program(seed: int) -> tuple[Function, list[Value], list[Op]]:
    """Pointers of all sorts, and accesses through them."""
    rng, b = random.Random(seed), Builder()
    names = [Value(Pointer(F32, "global"), n) for n in "pqr"]
    index, other = Value(I64, "i"), Value(I64, "j")
    bases = [*names, b.alloca(F32), b.alloca(F32), b.load(b.cast_pointer(names[2], Pointer(names[0].type, "global")))]
    pointers = list(bases)
    for _ in range(14):
        step = b.apply("add", rng.choice((index, other)), b.constant(rng.randrange(3), I64))
        pointers.append(b.offset(rng.choice(bases), step))
    value = b.constant(1.0, F32)
    ops: list[Op] = []
    for _ in range(40):
        pointer = rng.choice(pointers)
        ops.append(
            rng.choice(
                (
                    Store(pointer, value),
                    Store(pointer, value, rng.random() < 0.1),
                    Load(pointer, results=(Value(F32),)),
                    Atomic("add", pointer, (value,), results=(Value(F32),)),
                    Barrier("block"),
                )
            )
        )
    params = tuple(Param(v, "float *", restrict=v.name == "q") for v in names)
    params += tuple(Param(v, "long long") for v in (index, other))
    return Function("f", "kernel", params, Block((), (*b.ops, *ops), ())), pointers, ops


def _touches(aliases: Aliases, op: Op, pointer: Value, kind: object) -> bool:
    if kind is writes:
        return aliases.may_change(op, pointer)
    if isinstance(op, MEETINGS):
        return aliases.root(pointer) not in aliases.local
    if isinstance(op, Store):
        return op.volatile
    return isinstance(op, Load | Atomic) and aliases.may_alias(op.ptr, pointer)


def test_accesses() -> None:
    for seed in range(40):
        function, pointers, ops = _program(seed)
        aliases = Aliases(function)
        for kind in (writes, looks):
            accesses = Accesses(aliases, kind)
            for op in ops:
                accesses.add(op)
            for pointer in pointers:
                found = [k for k, op in enumerate(accesses.ops) if _touches(aliases, op, pointer, kind)]
                assert accesses.last(pointer) == max(found, default=-1)
                for start, stop in ((0, 5), (3, 9), (10, len(accesses))):
                    assert accesses.any(pointer, start, stop) == any(start <= k < stop for k in found)


def test_contents() -> None:
    for seed in range(40):
        function, pointers, ops = _program(seed)
        aliases, rng = Aliases(function), random.Random(seed)
        for kind in (writes, looks):
            known: dict[Value, Value] = {}
            contents = Contents(aliases, kind)
            for op in ops:
                contents.forget(op)
                known = {p: v for p, v in known.items() if not _touches(aliases, op, p, kind)}
                pointer = rng.choice(pointers)
                known[pointer] = Value(F32)
                contents.put(pointer, known[pointer])
                assert {p: contents.get(p) for p in pointers} == {p: known.get(p) for p in pointers}
            with contents.scope():
                for op in ops[:9]:
                    contents.forget(op)
                    contents.put(rng.choice(pointers), Value(F32))
            assert {p: contents.get(p) for p in pointers} == {p: known.get(p) for p in pointers}


def test_order() -> None:
    rng, order = random.Random(1), Order()
    plain: list[Op] = []
    for _ in range(600):
        op: Op = Barrier("block")
        order.append(op)
        plain.append(op)
        moved = sorted(rng.sample(range(len(plain)), min(2, len(plain))))
        moving = [plain[k] for k in moved]
        rest = [one for one in plain if one not in moving]
        behind = rng.choice((None, *rest[:2]))
        at = 0 if behind is None else rest.index(behind) + 1
        plain = rest[:at] + moving + rest[at:]
        order.move(moving, behind)
        assert list(order) == plain
        places = [order.place(one) for one in plain]
        assert places == sorted(set(places))
