"""Removes what nobody needs: unused values, results of branches, carried values of loops, stores into dead locals.

Needed are effects that others can see, and from there what each needed thing depends on. A store into an alloca is
needed once the alloca's address is needed by anything else; so is, where asked for, one into a shared variable. A loop
counted by `For` ends by itself and may go when nothing in it is needed; a `While` may be meant to wait, so it stays.
A barrier that gives a value is a plain one where nobody wants it. (Kernels with such a `__syncthreads_and` in a loop
come out wrong from NVRTC 13.0.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..ir.effects import ADDRESSES, EFFECTIVE, PURE
from ..ir.ops import (
    Alloca,
    Atomic,
    Barrier,
    BarrierReduce,
    Block,
    Constant,
    For,
    Function,
    GlobalRef,
    If,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Value,
    Warp,
    While,
)
from ..ir.traverse import blocks, operands, rebuild, with_body, with_ops
from ..ir.types import Array, Pointer

_PLAIN = frozenset(PURE) - frozenset(ADDRESSES)  # needed where their results are, and no more to it
_REGIONS = frozenset((If, For, While))
_TAKEN_APART = _REGIONS | {BarrierReduce}  # parts of which may be needed


def run(function: Function, module: Module) -> Function:
    return with_body(function, eliminate(function.body))


def eliminate(body: Block, names: Mapping[Value, str] | None = None, shared: bool = False) -> Block:
    """The body without dead code; results of operations that are in `names` get that name. `shared`: without what is
    stored in shared variables and never read, and what lanes exchange for nobody, too."""
    if body.is_lean and not names and not shared:
        return body
    lean = _Rebuild(_Needs(body, shared), names or {}).block(body)
    object.__setattr__(lean, "is_lean", True)  # all that is left is needed by what is left
    return lean


class _Needs:
    """Marks what is needed. Block arguments are values like any other: needing one needs what flows into it."""

    def __init__(self, body: Block, shared: bool):
        self.shared = shared
        self.ops: set[Op] = set()
        self.values: set[Value] = set()
        self._parent: dict[Op, Op | None] = {}
        self._sources: dict[Value, tuple[Value, ...]] = {}  # what flows into a result or argument of a region
        self._definition: dict[Value, Op] = {}
        self._local: dict[Value, Value | str] = {}  # addresses derived from an alloca, or from a shared variable
        self._stores: dict[Value | str, list[Op]] = {}  # into each of them
        self._queue: list[Value] = []
        self._effects: list[Op] = []
        self._index(body, None)
        for op in self._effects:
            self._need_op(op)
        self._need(body.results)
        while self._queue:
            self._follow(self._queue.pop())

    def _index(self, block: Block, parent: Op | None) -> None:
        parents, definitions = self._parent, self._definition
        for arg in block.args:
            if parent is not None:
                self._definition[arg] = parent
        for op in block.ops:
            parents[op] = parent
            for result in op.results:
                definitions[result] = op
            kind = type(op)
            if kind in _PLAIN:
                continue
            self._classify(op)
            if kind in _REGIONS:
                self._flows(op)
                for inner in blocks(op):
                    self._index(inner, op)

    def _flows(self, op: Op) -> None:
        match op:
            case If(_, then, orelse):
                self._flow(op.results, then.results, orelse.results)
            case For(_, _, inits, _, body):
                self._flow(op.results, inits, body.results)
                self._flow(body.args[1:], inits, body.results)
                self._sources[body.args[0]] = ()
            case While(inits, before, body):
                self._flow(op.results, before.results[1:])
                self._flow(body.args, before.results[1:])
                self._flow(before.args, inits, body.results)
            case _:
                pass

    def _flow(self, targets: tuple[Value, ...], *sources: tuple[Value, ...]) -> None:
        for target, *values in zip(targets, *sources, strict=True):
            self._sources[target] = tuple(values)

    def _classify(self, op: Op) -> None:
        match op:
            case Alloca():
                self._local[op.result] = op.result
            case GlobalRef(name) if self.shared and _is_static_shared(op.result):
                self._local[op.result] = name
            case Member(ptr) | Offset(ptr) | PtrCast(ptr) if ptr in self._local:
                self._local[op.result] = self._local[ptr]
            case Store(ptr, _, volatile):
                if ptr in self._local and not volatile:
                    self._stores.setdefault(self._local[ptr], []).append(op)
                else:
                    self._effects.append(op)
            case Atomic("add", _, (value,)) if self._changes_nothing(value):
                pass
            case Atomic(_, ptr, _) if isinstance(self._local.get(ptr), str):
                self._stores.setdefault(self._local[ptr], []).append(op)
            case Load(_, volatile) if volatile:
                self._effects.append(op)
            case Warp() if self.shared:
                pass
            case _ if isinstance(op, EFFECTIVE):
                self._effects.append(op)
            case _:
                pass

    def _changes_nothing(self, value: Value) -> bool:
        """Whether it is -0.0, the adjoint of what nobody used."""
        op = self._definition.get(value)
        return isinstance(op, Constant) and op.value == 0 and math.copysign(1, op.value) < 0

    def _need_op(self, op: Op | None) -> None:
        """An operation, and those around it, with what decides whether they run."""
        ops = self.ops
        while op is not None and op not in ops:
            ops.add(op)
            self._need(_deciding(op) if type(op) in _TAKEN_APART else operands(op))
            op = self._parent[op]

    def _need(self, values: tuple[Value, ...]) -> None:
        known = self.values
        for value in values:
            if value not in known:
                known.add(value)
                self._queue.append(value)

    def _follow(self, value: Value) -> None:
        definition = self._definition.get(value)
        if definition is None:
            return  # a parameter
        if definition not in self.ops:
            self._need_op(definition)
        kind = type(definition)
        if kind in _PLAIN:
            return
        if kind is BarrierReduce:
            self._need((definition.value,))  # type: ignore[attr-defined]
        if value in self._sources:
            self._need(self._sources[value])
        if self._stores:
            name = definition.name if isinstance(definition, GlobalRef) else None
            for store in (*self._stores.pop(value, ()), *(self._stores.pop(name, ()) if name else ())):
                self._need_op(store)


def _deciding(op: Op) -> tuple[Value, ...]:
    """What decides whether, and how often, what is in an operation runs."""
    match op:
        case If(cond):
            return (cond,)
        case For():
            return op.lower, op.upper
        case While():
            return op.before.results[:1]
    return ()  # threads meet, whether they want the result or not


class _Rebuild:
    def __init__(self, needs: _Needs, names: Mapping[Value, str]):
        self.needs, self.names = needs, names
        self.replaced: dict[Value, Value] = {}

    def use(self, value: Value) -> Value:
        return self.replaced.get(value, value)

    def define(self, value: Value) -> Value:
        name = self.names.get(value)
        if name is None or value.name is not None:
            return value
        self.replaced[value] = fresh = Value(value.type, name)
        return fresh

    def block(self, block: Block, args: list[bool] | None = None, results: list[bool] | None = None) -> Block:
        """`args` and `results` say which to keep; None for all."""
        needed, as_it_is = self.needs.ops, not self.names and not self.replaced
        kept = [op if as_it_is and type(op) not in _TAKEN_APART else self.op(op) for op in block.ops if op in needed]
        left = tuple(map(self.use, _keep(block.results, results)))
        return with_ops(block, kept, left, _keep(block.args, args))

    def op(self, op: Op) -> Op:
        match op:
            case If():
                rebuilt = self.if_(op)
            case For():
                rebuilt = self.for_(op)
            case While():
                rebuilt = self.while_(op)
            case BarrierReduce() if op.result not in self.needs.values:
                rebuilt = Barrier("block", span=op.span)
            case _:
                rebuilt = rebuild(op, self.use, _same) if self.replaced else op
        if self.names and any(v in self.names for v in rebuilt.results):
            rebuilt = replace(rebuilt, results=tuple(map(self.define, rebuilt.results)))
        return rebuilt

    def needed(self, *alternatives: tuple[Value, ...]) -> list[bool]:
        """Per position, whether any of the alternatives is needed."""
        return [any(v in self.needs.values for v in values) for values in zip(*alternatives, strict=True)]

    def if_(self, op: If) -> Op:
        keep = self.needed(op.results)
        sides = {"then": self.block(op.then, None, keep), "orelse": self.block(op.orelse, None, keep)}
        return rebuild(op, self.use, _same, **sides, results=_keep(op.results, keep))

    def for_(self, op: For) -> Op:
        keep = self.needed(op.results, op.body.args[1:])
        body = self.block(op.body, [True, *keep], keep)
        inits = tuple(map(self.use, _keep(op.inits, keep)))
        return rebuild(op, self.use, _same, inits=inits, body=body, results=_keep(op.results, keep))

    def while_(self, op: While) -> Op:
        carried, forwarded = self.needed(op.before.args), self.needed(op.results, op.body.args)
        inits = tuple(map(self.use, _keep(op.inits, carried)))
        before = self.block(op.before, carried, [True, *forwarded])
        body = self.block(op.body, forwarded, carried)
        results = _keep(op.results, forwarded)
        return rebuild(op, self.use, _same, inits=inits, before=before, body=body, results=results)


def _is_static_shared(pointer: Value) -> bool:
    """Dynamic shared memory is one, whatever its names."""
    assert isinstance(pointer.type, Pointer)
    type = pointer.type.pointee
    return pointer.type.space == "shared" and not (isinstance(type, Array) and type.count == 0)


def _same(block: Block) -> Block:
    return block


def _keep(values: tuple[Value, ...], which: list[bool] | None) -> tuple[Value, ...]:
    if which is None:
        return values
    return tuple(v for v, wanted in zip(values, which, strict=True) if wanted)


def without_unread(function: Function, module: Module) -> Function:
    """Shared variables that nobody reads, but to compute what goes into them again, are not written. The reverse of a
    sum needs none of the numbers that were summed: a tree over shared memory, or over the lanes of a warp, run forward
    once more, would only tell what nobody asks."""
    return with_body(function, eliminate(function.body, shared=True))
