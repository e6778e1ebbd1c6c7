"""What decides is rounded the same way wherever it is computed (rule 27): the last pass of a kernel.

Compilers fuse a product with a sum as they please, and with other uses around it differently: in the kernel, in the
forward sweep, in the reverse. That does no harm to numbers, but what jumps must not come out another way when it is
computed again: a branch, an index, a trip count, a rounding to a whole number, the side that a maximum took. So in all
that such a decision is computed from (`decisions`), products are rounded (`mul_rn`), and nothing is left for a compiler
to choose. Every derivative is made from the marked kernel, and copies keep the mark.

Sums need no mark, unless there is a function in one that may end with a product: 1 + expf(x) is fused as well. A sum
that a loop carries is fused here, once and for all, since a dot product would take twice as long otherwise; what
cannot be is marked, so that nobody changes its order.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.decisions import PASSES, Decisions
from ..ir.functions import UNFUSED
from ..ir.ops import Apply, Atomic, Block, For, Function, If, Load, Module, Op, Store, Value, While
from ..ir.traverse import blocks, descend, uses, walk, with_body
from ..ir.types import F32, F64

_SUMS = frozenset(("add", "sub"))
# What is one instruction, or is made of none that could be fused with what is before or behind it.
_BASIC = ("add", "sub", "mul", "div", "sqrt", "rcp", "fma", "convert")
_SINGLE = PASSES.union(
    _BASIC,
    (f"{fn}_{mode}" for fn in _BASIC for mode in ("rn", "rd", "ru", "rz")),
    "lt le gt ge eq ne isnan isinf isfinite signbit min max abs saturate copysign floor ceil trunc rint".split(),
    "bitcast rsqrt".split(),
)
_FUSED = (F32, F64)


def run(function: Function, module: Module) -> Function:
    found = Decisions(function)
    if not found.values:
        return function
    return with_body(function, _Marking(function, found).block(function.body))


class _Marking:
    def __init__(self, function: Function, found: Decisions):
        self.found = found
        self.used = uses(function.body)
        self.carried = _carried_sums(function, found)
        self.products = _fusable_products(found)
        self.open = _open_results(found)
        self.fused: set[Value] = set()  # products that are part of a sum now

    def block(self, block: Block) -> Block:
        here = {op.result: op for op in block.ops if isinstance(op, Apply) and op.fn == "mul"}
        marked = [self.op(op, here) for op in block.ops]
        ops = (op for op in marked if self.fused.isdisjoint(op.results))
        return Block(block.args, tuple(ops), block.results)

    def op(self, op: Op, here: dict[Value, Apply]) -> Op:
        if not isinstance(op, Apply):
            return descend(op, self.block)
        if op.result not in self.found.values:
            return op
        fused = self.fuse(op, here) if op.result in self.carried else None
        return fused or (replace(op, fn=UNFUSED[op.fn]) if self.needs_mark(op) else op)

    def needs_mark(self, op: Apply) -> bool:
        """Whether a product may be fused with what decides; whether a sum may be with a function's last product, or may
        be taken for one that can be added up in any order."""
        if op.fn not in _SUMS:
            return op.result in self.products
        summed = (v for v in op.args if v not in self.found.definition and self.used[v] == 1)
        return not self.open.isdisjoint(op.args) or (op.result in self.carried and any(summed))

    def fuse(self, op: Apply, here: dict[Value, Apply]) -> Op | None:
        """A sum with a product that nothing else uses."""
        left, right = op.args
        for value, other in ((right, left), (left, right)) if op.fn == "add" else ():
            if value in here and self.used[value] == 1 and value.type in _FUSED:
                self.fused.add(value)
                return replace(op, fn="fma", args=(*here[value].args, other))
        return None


def _fusable_products(found: Decisions) -> set[Value]:
    """Products that decisions get by way of a sum, or of a function that may begin with one."""
    seen: set[Value] = set()
    todo: list[Value] = []
    for value in found.values:
        op = found.definition.get(value)
        if isinstance(op, Apply) and (op.fn in _SUMS or op.fn not in _SINGLE):
            todo += op.args
    for op in found.jumps:
        todo += op.args if op.fn not in _SINGLE else ()
    for update in found.memory.stores:
        todo += update.args if isinstance(update, Atomic) and update.kind in _SUMS else ()
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            todo += found.passed(value)
    return {v for v in seen if isinstance(op := found.definition.get(v), Apply) and op.fn == "mul"} & found.values


def _open_results(found: Decisions) -> set[Value]:
    """Floats that may come from a function which ends with a product."""
    targets: dict[Value, list[Value]] = {}
    todo: list[Value] = []
    for value in found.values:
        op = found.definition.get(value)
        if isinstance(op, Apply) and op.fn not in _SINGLE:
            todo.append(value)
        for source in found.passed(value):
            targets.setdefault(source, []).append(value)
    reached: set[Value] = set()
    while todo:
        value = todo.pop()
        if value not in reached:
            reached.add(value)
            todo += targets.get(value, ())
    return reached


def _carried_sums(function: Function, found: Decisions) -> set[Value]:
    """The sums, and sums in them, that give a loop the next value of what it carries, also in memory."""
    carried: set[Value] = set()
    for loop in walk(function.body):
        if isinstance(loop, For | While):
            inside = [op for block in blocks(loop) for op in walk(block)]
            updates = [op.value for op in inside if isinstance(op, Store) and _adds_to(op, found)]
            carried |= _sums_in([*loop.body.results, *updates], {v for op in inside for v in op.results}, found)
    return carried & found.values


def _sums_in(todo: list[Value], inside: set[Value], found: Decisions) -> set[Value]:
    """The sums that values end with, as far as they are computed inside."""
    seen: set[Value] = set()
    while todo:
        value = todo.pop()
        op = found.definition.get(value)
        if value in seen or not (op is None or value in inside):
            continue
        seen.add(value)
        if op is None or isinstance(op, If):
            todo += found.sources.get(value, ())
        elif isinstance(op, Apply) and op.fn in _SUMS:
            todo += op.args
    return {v for v in seen if isinstance(op := found.definition.get(v), Apply) and op.fn in _SUMS}


def _adds_to(store: Store, found: Decisions) -> bool:
    """Whether what is stored is a sum with something that was in the same memory."""
    todo = [store.value]
    while todo:
        op = found.definition.get(todo.pop())
        if isinstance(op, Load) and found.memory.of(op.ptr) & found.memory.of(store.ptr):
            return True
        if isinstance(op, Apply) and op.fn in _SUMS:
            todo += op.args
    return False
