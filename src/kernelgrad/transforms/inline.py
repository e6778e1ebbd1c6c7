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
from ..ir.traverse import clone, descend, rebuild, walk, with_body


def run(function: Function, module: Module) -> Function:
    return with_body(function, _Inliner(module).body_of(function))


class _Inliner:
    def __init__(self, module: Module):
        self.module = module
        self.done: dict[str, Block] = {}
        self.active: list[str] = []

    def body_of(self, function: Function) -> Block:
        """The function's body without calls."""
        if function.name not in self.done:
            self.active.append(function.name)
            self.done[function.name] = self.flatten(function.body)
            self.active.pop()
        return self.done[function.name]

    def flatten(self, body: Block) -> Block:
        if not any(isinstance(op, Call) for op in walk(body)):
            return body
        replaced: dict[Value, Value] = {}  # results of calls, and what the inlined body gives for them

        def value(v: Value) -> Value:
            return replaced.get(v, v)

        def block(b: Block) -> Block:
            ops: list[Op] = []
            for op in b.ops:
                if isinstance(op, Call):
                    ops.extend(self.expand(op, replaced))
                else:
                    ops.append(rebuild(op, value, block))
            return Block(b.args, tuple(ops), tuple(map(value, b.results)))

        return block(body)

    def expand(self, call: Call, replaced: dict[Value, Value]) -> tuple[Op, ...]:
        callee = self.callee(call)
        arguments = (replaced.get(arg, arg) for arg in call.args)
        mapping = dict(zip((p.value for p in callee.params), arguments, strict=True))
        copy = clone(self.body_of(callee), mapping)
        replaced.update(zip(call.results, copy.results, strict=True))
        return _called_at(copy, call.span).ops if callee.span.source.is_prelude else copy.ops

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


def _called_at(body: Block, span: Span) -> Block:
    """What stands in the prelude, at the place of the call; a functor of the user's stays where it is."""

    def block(b: Block) -> Block:
        return Block(b.args, tuple(map(moved, b.ops)), b.results)

    def moved(op: Op) -> Op:
        op = descend(op, block)
        return replace(op, span=span) if op.span.source.is_prelude else op

    return block(body)
