"""What the reverse has for values that the forward sweep computed otherwise: see `at_end` in `ir/functions`.

Inside the reverse of a loop's body, `at_end(v, arg)` is what the loop carries as `arg` when it ends, and
`in_reverse(v, r, arg)` is r. Where the loop as a whole runs again, both are v, as in the first run. What the body
computes from these is another value in the reverse than in the forward sweep: it is computed again or not had at all,
never kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...analysis.structure import Structure
from ...ir.functions import REPLACED
from ...ir.ops import Apply, Block, For, If, Op, Value, While
from ...ir.traverse import operands, walk
from .forward_sweep import carried_args


def is_replaced(op: Op | None) -> bool:
    return isinstance(op, Apply) and op.fn in REPLACED


def loop_argument(op: Op) -> Value:
    """Of the loop in whose reverse a value is replaced."""
    assert isinstance(op, Apply)
    return op.args[-1]


def replacement(op: Op, structure: Structure) -> Value:
    """What stands for the value in the reverse of the loop's body."""
    assert isinstance(op, Apply)
    if op.fn == "in_reverse":
        return op.args[1]
    loop = structure.home[loop_argument(op)].owner
    return loop.results[carried_args(loop).index(loop_argument(op))]  # type: ignore[arg-type, union-attr]


def sources(op: Op, structure: Structure) -> tuple[Value, ...]:
    """What an operation is computed from in the reverse of the block that it stands in."""
    return (replacement(op, structure),) if is_replaced(op) else tuple(operands(op))


def altered(body: Block) -> set[Value]:
    """What must not be kept, since it is something else in the reverse: all that loops compute from replaced values,
    but for what they end with."""
    replaced = [op for op in walk(body) if is_replaced(op)]
    return made_from(body, {op.results[0] for op in replaced}, {loop_argument(op) for op in replaced})


def made_from(body: Block, values: Collection[Value], within: Collection[Value] = ()) -> set[Value]:
    """These, and all that is computed from them; but not what comes out of loops whose bodies have arguments that are
    in `within`."""
    found, size = set(values), 0
    while size != len(found):
        size = len(found)
        for op in walk(body):
            ends = isinstance(op, For | While) and not set(op.body.args).isdisjoint(within)
            found.update(
                v for v, inputs in _flow(op) if not (ends and v in op.results) and not found.isdisjoint(inputs)
            )
    return found


def _flow(op: Op) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    match op:
        case If():
            for result, *sides in zip(op.results, op.then.results, op.orelse.results, strict=True):
                yield result, tuple(sides)
        case For() | While():
            for k, arg in enumerate(carried_args(op)):
                yield arg, (op.inits[k], op.body.results[k])
                yield op.results[k], (op.inits[k], op.body.results[k])
        case Apply("along", (value, *_)):
            yield op.result, (value,)
        case _:
            for result in op.results:
                yield result, tuple(operands(op))
