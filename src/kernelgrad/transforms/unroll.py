"""Full unrolling of chosen loops whose number of iterations is a small constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..analysis.fold import evaluate
from ..errors import Iteration, Span
from ..ir.ops import Apply, Block, Constant, For, Function, Op, Value, While
from ..ir.traverse import Copier, blocks, clone, rebuild, substitute, walk, with_body, with_span
from ..ir.types import Scalar

_LONGEST = 64  # iterations of a while loop that are counted
_MOST = 1 << 12  # operations that a loop may become, with those in it: each level of them multiplies


def iterations(loop: For, constants: dict[Value, int]) -> range | None:
    """The values of the loop's variable, where its bounds are constants."""
    if loop.lower not in constants or loop.upper not in constants:
        return None
    return range(constants[loop.lower], constants[loop.upper], loop.step)


def trips(loop: For | While, constants: dict[Value, int]) -> int | None:
    """How often the loop runs, where that follows from constants alone."""
    if isinstance(loop, For):
        values = iterations(loop, constants)
        return None if values is None else len(values)
    carried = [constants.get(v) for v in loop.inits]
    for count in range(_LONGEST):
        going, *forwarded = _passed(loop.before, carried, constants)
        if not going:
            return None if going is None else count
        carried = _passed(loop.body, forwarded, constants)
    return None


def _passed(block: Block, given: Iterable[int | None], constants: dict[Value, int]) -> list[int | None]:
    """The integers that a block results in, where they are known."""
    inside = {arg: number for arg, number in zip(block.args, given, strict=True) if number is not None}
    known = {**constants, **inside}
    for op in block.ops:
        _note(op, known)
    return [known.get(v) for v in block.results]


def constants_of(function: Function) -> dict[Value, int]:
    """The integers that are constants, and those computed from such."""
    found: dict[Value, int] = {}
    for op in walk(function.body):
        _note(op, found)
    return found


def _note(op: Op, constants: dict[Value, int]) -> None:
    if isinstance(op, Constant) and isinstance(op.value, int):
        constants[op.result] = op.value
    elif isinstance(op, Apply) and all(a in constants for a in op.args):
        types = tuple(a.type for a in (*op.args, op.result) if isinstance(a.type, Scalar))
        if len(types) == len(op.args) + 1 and not any(t.is_float for t in types):
            number = evaluate(op.fn, tuple(constants[a] for a in op.args), types[:-1], types[-1])
            if isinstance(number, int):
                constants[op.result] = number


def unroll(function: Function, chosen: Callable[[For | While], bool], most: int = _MOST) -> Function:
    """The function with the chosen loops, all of a constant number of iterations, replaced by these; inner ones first,
    as long as that is not more than so many operations."""
    constants = constants_of(function)

    def block(b: Block) -> Block:
        mapping: dict[Value, Value] = {}
        ops: list[Op] = []
        for op in b.ops:
            # Choose by the original: rebuilding gives a new object.
            count = trips(op, constants) if isinstance(op, For | While) and chosen(op) else None
            op = rebuild(op, lambda v: mapping.get(v, v), lambda inner: substitute(block(inner), mapping))
            if count is None or not isinstance(op, For | While) or copies_of(op, count) > most:
                ops.append(op)
            else:
                copies = _Copies(constants)
                results = copies.counted(op) if isinstance(op, For) else copies.while_(op, count)
                mapping.update(zip(op.results, results, strict=True))
                ops += copies.ops
        return Block(b.args, tuple(ops), tuple(mapping.get(v, v) for v in b.results))

    return with_body(function, block(function.body))


class _Copies:
    """The iterations of a loop, one behind the other."""

    def __init__(self, constants: dict[Value, int]):
        self.constants = constants
        self.ops: list[Op] = []

    def counted(self, loop: For) -> tuple[Value, ...]:
        carried = loop.inits
        for number in iterations(loop, self.constants) or ():
            iv = Value(loop.body.args[0].type, loop.body.args[0].name)
            self.constants[iv] = number
            self.ops.append(Constant(number, results=(iv,), span=loop.span))
            carried = self.block(loop.body, (iv, *carried), Iteration(loop.span.line, iv.source_name, number))
        return carried

    def while_(self, loop: While, count: int) -> tuple[Value, ...]:
        _, *forwarded = self.block(loop.before, loop.inits)
        for number in range(count):
            carried = self.block(loop.body, tuple(forwarded), Iteration(loop.span.line, None, number))
            _, *forwarded = self.block(loop.before, carried)
        return tuple(forwarded)

    def block(self, block: Block, given: tuple[Value, ...], at: Iteration | None = None) -> tuple[Value, ...]:
        copy = clone(block, {}, None if at is None else _spans_within(at))
        inner = substitute(Block((), copy.ops, copy.results), dict(zip(copy.args, given, strict=True)))
        for op in walk(inner):
            _note(op, self.constants)
        self.ops += inner.ops
        return inner.results


def _spans_within(iteration: Iteration) -> Callable[[Op, Copier], Iterable[Op]]:
    """Copies of operations that know which iteration they are of."""
    spans: dict[int, Span] = {}  # by identity: those of inner iterations are equal

    def within(op: Op, copy: Copier) -> Iterable[Op]:
        found = spans.get(id(op.span))
        if found is None:
            found = spans[id(op.span)] = op.span.within(iteration)
        return (with_span(copy(op), found),)

    return within


def copies_of(loop: For | While, count: int) -> int:
    """How many operations unrolling would make."""
    return count * sum(1 for block in blocks(loop) for _ in walk(block))
