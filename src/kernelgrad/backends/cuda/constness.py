"""Which pointers come from a `const T *` parameter: C++ wants the same of every variable they pass through."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.ops import Apply, For, Function, If, Member, Offset, Op, PtrCast, Value, While
from ...ir.traverse import walk
from ...ir.types import Pointer


def const_pointers(function: Function) -> frozenset[Value]:
    const = {p.value for p in function.params if p.const}
    if not const:
        return frozenset()
    flows = [pair for op in walk(function.body) for pair in _flows(op) if isinstance(pair[0].type, Pointer)]
    size = 0
    while size != len(const):  # loops carry pointers backwards
        size = len(const)
        const.update(target for source, target in flows if source in const)
    return frozenset(const)


def _flows(op: Op) -> Iterator[tuple[Value, Value]]:
    """(source, target) pairs of pointers that C++ gives the same constness."""
    match op:
        case Offset(ptr) | Member(ptr) | PtrCast(ptr):
            yield ptr, op.result
        case Apply("select", (_, if_true, if_false)):
            yield if_true, op.result
            yield if_false, op.result
        case If(_, then, orelse):
            yield from zip(then.results, op.results, strict=True)
            yield from zip(orelse.results, op.results, strict=True)
        case For(inits=inits, body=body):
            for sources in (inits, body.results):
                yield from zip(sources, body.args[1:], strict=True)
            yield from zip(body.args[1:], op.results, strict=True)
        case While(inits=inits, before=before, body=body):
            for sources in (inits, body.results):
                yield from zip(sources, before.args, strict=True)
            yield from zip(before.results[1:], body.args, strict=True)
            yield from zip(body.args, op.results, strict=True)
        case _:
            pass
