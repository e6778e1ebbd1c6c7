"""Inlines every call, transitively.

Before: any function. After: no `Call` is left. A callee's body is cloned in place of the call, with its own spans, so
that errors still point at the line that matters: that of the call, where the callee is the prelude's. Its allocas stay
where the call stood, one instance per execution.
Recursion cannot be inlined and is refused at the call.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import InternalError, Span, UnsupportedError
from ..ir.ops import Block, Call, Function, Module, Op, Value
from ..ir.traverse import Copier, clone, rebuild, walk, with_body


def run(function: Function, module: Module) -> Function:
    if not any(isinstance(op, Call) for op in walk(function.body)):
        return function
    return with_body(function, _Inliner(module, function.name).flatten(function.body))


class _Inliner:
    """From the caller down, so that each operation is copied once, however deeply calls are nested."""

    def __init__(self, module: Module, name: str):
        self.module = module
        self.active = {name}

    def flatten(self, body: Block) -> Block:
        replaced: dict[Value, Value] = {}  # results of calls, and what the inlined body gives for them

        def value(v: Value) -> Value:
            return replaced.get(v, v)

        def block(b: Block) -> Block:
            ops: list[Op] = []
            for op in b.ops:
                if isinstance(op, Call):
                    ops.extend(self.expand(op, replaced, None))
                else:
                    ops.append(rebuild(op, value, block))
            return Block(b.args, tuple(ops), tuple(map(value, b.results)))

        return block(body)

    def expand(self, call: Call, known: dict[Value, Value], at: Span | None) -> tuple[Op, ...]:
        """What stands for the call, given what stands for the values before it. `at`: the call of the prelude's
        function that this one is in. What the prelude does has that place; a functor of the user's its own."""
        callee = self.callee(call)
        place = at if at is not None and call.span.source.is_prelude else call.span
        mapping = {p.value: known.get(v, v) for p, v in zip(callee.params, call.args, strict=True)}
        self.active.add(call.callee)
        inside = place if callee.span.source.is_prelude else None

        def each(op: Op, copy: Copier) -> tuple[Op, ...]:
            if isinstance(op, Call):
                return self.expand(op, mapping, inside)
            return (copy(op) if inside is None or not op.span.source.is_prelude else replace(copy(op), span=inside),)

        copy = clone(callee.body, mapping, each)
        self.active.remove(call.callee)
        known.update(zip(call.results, copy.results, strict=True))
        return copy.ops

    def callee(self, call: Call) -> Function:
        if call.callee in self.active:
            raise UnsupportedError(
                f"recursion: the call of '{call.callee}' reaches itself and cannot be inlined",
                call.span,
                "write it as a loop, with an explicit stack where it needs one",
            )
        callee = self.module.functions.get(call.callee)
        if callee is None:
            raise InternalError(f"no function '{call.callee}' to inline")
        return callee
