"""Pointers that walk become their start and a distance: `p++` in a loop counts elements, as `a[i]` does.

    for (; p < end; ++p) s += *p;    becomes    for (d = 0; d < end - p; ++d) s += p[d];

A distance is an integer, so that all that is known of integers is known of such pointers: how often the loop runs, what
it holds in each iteration, which elements threads share. Also a pointer that only some iterations or one side of a
branch moves is its start and a distance; one that is set to something else stays what it is. Expects simplified IR.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import NamedTuple

from ..ir.builder import Builder
from ..ir.ops import Apply, Block, Constant, Function, If, Module, Offset, Op, PtrCast, PtrDiff, Value, While
from ..ir.traverse import descend, with_body
from ..ir.types import I64, U8, Pointer
from . import simplify

_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne", "eq": "eq"}


def run(function: Function, module: Module) -> Function:
    body = _Walks({param.value for param in function.params}).block(function.body)
    return function if body is function.body else simplify.run(with_body(function, body), module)


class _Step(NamedTuple):
    """A pointer as `base` and what is added to it."""

    base: Value
    indices: tuple[Value, ...]


class _Walks:
    def __init__(self, params: set[Value]) -> None:
        self.params = params
        self.definition: dict[Value, Op] = {}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            ops += self.noted(self.op(descend(op, self.block)))
        same = len(ops) == len(block.ops) and all(a is b for a, b in zip(ops, block.ops, strict=True))
        return block if same else Block(block.args, tuple(ops), block.results)

    def noted(self, ops: Iterable[Op]) -> list[Op]:
        found = list(ops)
        self.definition |= {v: op for op in found for v in op.results}
        return found

    def op(self, op: Op) -> list[Op]:
        match op:
            case While():
                return self.while_(op)
            case If():
                return self.if_(op)
            case Apply("select", (_, left, _)) if isinstance(left.type, Pointer):
                return self.select(op)
        return [op]

    # ---- pointers as steps

    def steps(self, pointer: Value) -> list[_Step]:
        """Every base that a pointer is some elements away from, itself first."""
        found = [_Step(pointer, ())]
        while isinstance(op := self.definition.get(found[-1].base), Offset) and op.ptr.type == pointer.type:
            found.append(_Step(op.ptr, (*found[-1].indices, op.index)))
        return found

    def common(self, left: Value, right: Value) -> tuple[_Step, _Step] | None:
        """The same base of two pointers."""
        others = {step.base: step for step in self.steps(right)}
        return next(((step, others[step.base]) for step in self.steps(left) if step.base in others), None)

    # ---- branches

    def select(self, op: Apply) -> list[Op]:
        cond, left, right = op.args
        found = self.common(left, right)
        if found is None:
            return [op]
        b = Builder(op.span)
        distance = b.apply("select", cond, *(_total(b, step.indices) for step in found))
        b.add(Offset(found[0].base, distance, results=op.results, span=op.span))
        return b.ops

    def if_(self, op: If) -> list[Op]:
        """Sides that move the same pointer yield how far."""
        both = zip(op.results, op.then.results, op.orelse.results, strict=True)
        moved = {
            k: found
            for k, (result, left, right) in enumerate(both)
            if isinstance(result.type, Pointer) and (found := self.common(left, right)) is not None
        }
        if not moved:
            return [op]
        sides = []
        for number, side in enumerate((op.then, op.orelse)):
            b = Builder(op.span)
            yielded = {k: _total(b, found[number].indices) for k, found in moved.items()}
            results = tuple(yielded.get(k, v) for k, v in enumerate(side.results))
            sides.append(Block(side.args, (*side.ops, *self.noted(b.ops)), results))
        distances = {k: Value(I64) for k in moved}
        outer = tuple(distances.get(k, v) for k, v in enumerate(op.results))
        b = Builder(op.span)
        b.add(replace(op, then=sides[0], orelse=sides[1], results=outer))
        for k, found in moved.items():
            b.add(Offset(found[0].base, distances[k], results=(op.results[k],), span=op.span))
        return b.ops

    # ---- loops

    def while_(self, loop: While) -> list[Op]:
        """`forwarded`: for what the condition passes to the body, which carried pointer that is, how far on."""
        walking = {k for k, v in enumerate(loop.inits) if isinstance(v.type, Pointer)}
        while walking:
            forwarded = self.forwarded(loop, walking)
            staying = {k for k in walking if self.next(loop, k, forwarded) is None}
            if not staying:
                return self.rewritten(loop, walking, forwarded)
            walking -= staying
        return [loop]

    def forwarded(self, loop: While, walking: set[int]) -> dict[int, tuple[int, _Step]]:
        carried = {loop.before.args[k]: k for k in walking}
        found = {}
        for f, value in enumerate(loop.before.results[1:]):
            for step in self.steps(value) if isinstance(value.type, Pointer) else ():
                if step.base in carried:
                    found[f] = carried[step.base], step
        return found

    def next(self, loop: While, k: int, forwarded: dict[int, tuple[int, _Step]]) -> tuple[int, _Step] | None:
        """What pointer k is in the next iteration: how far from what the body was passed of it."""
        passed = {loop.body.args[f]: f for f, (of, _) in forwarded.items() if of == k}
        found = (step for step in self.steps(loop.body.results[k]) if step.base in passed)
        return next(((passed[step.base], step) for step in found), None)

    def rewritten(self, loop: While, walking: set[int], forwarded: dict[int, tuple[int, _Step]]) -> list[Op]:
        b = Builder(loop.span)
        zero = b.constant(0, I64)
        inits = tuple(zero if k in walking else v for k, v in enumerate(loop.inits))
        before = self.before(loop, walking, forwarded)
        body = self.body(loop, walking, forwarded)
        ends = {f: Value(I64) for f in forwarded}
        results = tuple(ends.get(f, v) for f, v in enumerate(loop.results))
        b.add(replace(loop, inits=inits, before=before, body=body, results=results))
        for f, end in ends.items():
            b.add(Offset(loop.inits[forwarded[f][0]], end, results=(loop.results[f],), span=loop.span))
        return b.ops

    def before(self, loop: While, walking: set[int], forwarded: dict[int, tuple[int, _Step]]) -> Block:
        block, b = loop.before, Builder(loop.span)
        distances = {k: _distance(block.args[k]) for k in sorted(walking)}
        for k, distance in distances.items():
            b.add(Offset(loop.inits[k], distance, results=(block.args[k],), span=loop.span))
        self.noted(b.ops)
        for op in block.ops:
            self.compared(b, op, {block.args[k]: (distances[k], loop.inits[k]) for k in walking})
        results = list(block.results)
        for f, (k, step) in forwarded.items():
            results[1 + f] = _total(b, step.indices, distances[k])
        args = tuple(distances.get(k, v) for k, v in enumerate(block.args))
        return Block(args, tuple(self.noted(b.ops)), tuple(results))

    def body(self, loop: While, walking: set[int], forwarded: dict[int, tuple[int, _Step]]) -> Block:
        block, b = loop.body, Builder(loop.span)
        distances = {f: _distance(block.args[f]) for f in forwarded}
        following = {k: self.next(loop, k, forwarded) for k in walking}
        for f, distance in distances.items():
            b.add(Offset(loop.inits[forwarded[f][0]], distance, results=(block.args[f],), span=loop.span))
        for op in block.ops:
            self.compared(b, op, {block.args[f]: (distances[f], loop.inits[forwarded[f][0]]) for f in forwarded})
        results = list(block.results)
        for k, found in following.items():
            assert found is not None
            f, step = found
            results[k] = _total(b, step.indices, distances[f])
        args = tuple(distances.get(f, v) for f, v in enumerate(block.args))
        return Block(args, tuple(self.noted(b.ops)), tuple(results))

    # ---- conditions

    def compared(self, b: Builder, op: Op, walking: dict[Value, tuple[Value, Value]]) -> None:
        """`p < end` compares how far both are from where p began; so does `++p < end`, that much further on.
        `walking`: how far each pointer is, and from where."""
        if isinstance(op, Apply) and op.fn in _FLIPPED:
            left, right = op.args
            for value, bound, fn in ((left, right, op.fn), (right, left, _FLIPPED[op.fn])):
                step = self.walked(value, walking)
                if step is not None and self.walked(bound, walking) is None and bound.type == value.type:
                    far, start = walking[step.base]
                    end = self.distance(b, bound, start, fn)
                    if end is not None:
                        here = _total(b, step.indices, far)
                        b.add(Apply(fn, (here, end), results=op.results, span=op.span))
                        return
        b.add(op)

    def walked(self, value: Value, walking: Container[Value]) -> _Step | None:
        """Which of the pointers that walk it is, some elements on."""
        steps = self.steps(value) if isinstance(value.type, Pointer) else ()
        return next((step for step in steps if step.base in walking), None)

    def distance(self, b: Builder, pointer: Value, start: Value, fn: str) -> Value | None:
        """How far a pointer is from the start, as an integer that whole distances compare with alike."""
        found = self.common(pointer, start)
        if found is not None:
            return b.apply("sub", _total(b, found[0].indices), _total(b, found[1].indices))
        if isinstance(self.definition.get(pointer), Constant):
            return None
        if self.is_whole(pointer, start):
            return b.emit(PtrDiff, pointer, start, type=I64)
        return None if fn in ("eq", "ne") else _rounded(b, pointer, start, up=fn in ("lt", "ge"))

    def is_whole(self, left: Value, right: Value) -> bool:
        """Whether two pointers are some elements apart, and not parts of one: `(float3 *)(x + n)` may be."""
        roots = [self.root(pointer, _size(left)) for pointer in (left, right)]
        return None not in roots and (roots[0] is roots[1] or self.params.issuperset(roots))

    def root(self, pointer: Value, size: int) -> Value | None:
        """Where a pointer comes from, if it is a multiple of the size away from there."""
        while isinstance(op := self.definition.get(pointer), Offset | PtrCast):
            if isinstance(op, Offset) and _size(pointer) % size:
                return None
            pointer = op.ptr
        return pointer if _size(pointer) % size == 0 else None


def _size(pointer: Value) -> int:
    assert isinstance(pointer.type, Pointer)
    return max(1, pointer.type.pointee.size)


def _rounded(b: Builder, pointer: Value, start: Value, up: bool) -> Value:
    """The distance in whole elements, rounded up or down."""
    assert isinstance(start.type, Pointer)
    size, byte = b.constant(_size(start), I64), replace(start.type, pointee=U8)
    number = b.emit(PtrDiff, *(b.emit(PtrCast, p, type=byte) for p in (pointer, start)), type=I64)
    if up:
        number = b.apply("add", number, b.constant(_size(start) - 1, I64))
    below = b.apply("lt", b.apply("rem", number, size), b.constant(0, I64))
    return b.apply("sub", b.apply("div", number, size), b.convert(below, I64))


def _distance(pointer: Value) -> Value:
    return Value(I64, pointer.name and f"{pointer.name}_at")


def _total(b: Builder, indices: tuple[Value, ...], start: Value | None = None) -> Value:
    total = start
    for index in reversed(indices):
        wide = b.convert(index, I64)
        total = wide if total is None else b.apply("add", total, wide)
    return b.constant(0, I64) if total is None else total
