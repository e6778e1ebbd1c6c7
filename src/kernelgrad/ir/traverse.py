"""Walking and rebuilding IR, for every operation alike (see `ops`: a field is an operand, a region or an attribute)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import fields, replace
from operator import attrgetter, is_
from typing import Any

from ..errors import Span
from .ops import (
    TOGETHER,
    Apply,
    Atomic,
    Block,
    For,
    Function,
    Global,
    GlobalRef,
    If,
    Kind,
    Module,
    Op,
    Undef,
    Value,
    While,
)
from .types import Array, Pointer, Struct, Type

_BASE = frozenset(("results", "span", "result"))
_VALUES = ("Value", "tuple[Value, ...]")
_GROUP = _VALUES[1]

Values = tuple[Value, ...]
Blocks = tuple[Block, ...]


class _Shape:
    """Which fields of a kind of operation are what, and functions that read them: made once per kind, since passes ask
    for operands and regions more often than for anything else."""

    __slots__ = ("operands", "groups", "blocks", "attributes", "values_of", "blocks_of", "kinds", "slots", "copy")

    def __init__(self, kind: type[Op]):
        own = {f.name: str(f.type) for f in fields(kind) if f.name not in _BASE}
        self.operands = tuple(name for name, type in own.items() if type in _VALUES)
        self.groups = frozenset(name for name, type in own.items() if type == _GROUP)
        self.blocks = tuple(name for name, type in own.items() if type == "Block")
        self.attributes = tuple(name for name in own if name not in self.operands + self.blocks)
        self.values_of: Callable[[Op], Values] = _reader(self.operands, self.groups)
        self.blocks_of: Callable[[Op], Blocks] = _reader(self.blocks, frozenset())
        self.kinds = frozenset(base for base in kind.__mro__ if issubclass(base, Op))
        slots = ((f.name, getattr(kind, f.name)) for f in fields(kind) if f.init)
        self.slots = tuple((name, slot.__get__, slot.__set__) for name, slot in slots)
        self.copy: Callable[[Op, Values, Values], Op] = _copier(kind, self)


def _reader(names: tuple[str, ...], groups: frozenset[str]) -> Callable[[Op], tuple[Any, ...]]:
    """All that the fields hold, in one tuple; what a field of `groups` holds is a tuple itself."""
    if len(names) > 1 if not groups else len(names) == 1:
        return attrgetter(*names)
    parts = (f"*op.{name}" if name in groups else f"op.{name}" for name in names)
    return eval(f"lambda op: ({''.join(f'{part}, ' for part in parts)})")  # type: ignore[no-any-return]


def _copier(kind: type[Op], shape: _Shape) -> Callable[[Op, Values, Values], Op]:
    """Gives the operation with other operands, all in one tuple, and other results."""
    lines, at, given = ["copy = new(kind)"], "0", {"results": "results"}
    for name in shape.operands:
        if name in shape.groups:
            lines.append(f"end_{name} = {at} + len(op.{name})")
            given[name], at = f"values[{at}:end_{name}]", f"end_{name}"
        else:
            given[name], at = f"values[{at}]", f"{at} + 1"
    lines += [f"put_{name}(copy, {given.get(name, f'op.{name}')})" for name, _, _ in shape.slots]
    lines += ["if len(results) == 1: put_result(copy, results[0])", "return copy"]  # as `Op.__post_init__` has it
    names: dict[str, Any] = {f"put_{name}": put for name, _, put in shape.slots}
    names |= {"new": object.__new__, "kind": kind, "put_result": _PUT_RESULT}
    exec("def copy(op, values, results):\n" + "\n".join(f"    {line}" for line in lines), names)
    return names["copy"]  # type: ignore[no-any-return]


_PUT_RESULT: Callable[[Op, Value], None] = vars(Op)["result"].__set__


class _Shapes(dict[type[Op], _Shape]):
    def __missing__(self, kind: type[Op]) -> _Shape:
        found = self[kind] = _Shape(kind)
        return found


_SHAPES = _Shapes()


class _OperandReaders(dict[type[Op], Callable[[Op], Values]]):
    def __missing__(self, kind: type[Op]) -> Callable[[Op], Values]:
        found = self[kind] = _SHAPES[kind].values_of
        return found


class _RegionReaders(dict[type[Op], Callable[[Op], Blocks] | None]):
    """None of kinds that have no regions: of most operations, nothing is asked but that."""

    def __missing__(self, kind: type[Op]) -> Callable[[Op], Blocks] | None:
        shape = _SHAPES[kind]
        found = self[kind] = shape.blocks_of if shape.blocks else None
        return found


_OPERANDS = _OperandReaders()
_REGIONS = _RegionReaders()


def operand_fields(kind: type[Op]) -> tuple[str, ...]:
    return _SHAPES[kind].operands


def block_fields(kind: type[Op]) -> tuple[str, ...]:
    return _SHAPES[kind].blocks


def attribute_fields(kind: type[Op]) -> tuple[str, ...]:
    return _SHAPES[kind].attributes


def operands(op: Op) -> Values:
    """The values an operation uses itself, in order; not those its regions use."""
    return _OPERANDS[type(op)](op)


def blocks(op: Op) -> Blocks:
    regions = _REGIONS[type(op)]
    return () if regions is None else regions(op)


def walk(block: Block) -> Iterator[Op]:
    """Every operation in the block and in its nested blocks, outer before inner, in program order."""
    todo, regions_of = [iter(block.ops)], _REGIONS
    while todo:
        for op in todo[-1]:
            yield op
            regions = regions_of[type(op)]
            if regions is not None:
                todo += [iter(b.ops) for b in reversed(regions(op))]
                break
        else:
            todo.pop()


def kinds(block: Block) -> frozenset[Kind]:
    """Of the operations in the block and in its nested blocks: their classes, of pure functions the names, and whether
    lanes make some together. Found once for each block, which never changes: whoever asks at every level of a nest does
    not walk it at every level."""
    todo = [block]
    while todo:
        inner = _inner_blocks(todo[-1])
        missing = [b for b in inner if b.found_kinds is None]
        if missing:
            todo += missing
            continue
        done = todo.pop()
        nested = (b.found_kinds for b in inner if b.found_kinds is not None)
        object.__setattr__(done, "found_kinds", _own_kinds(done).union(*nested))
    assert block.found_kinds is not None
    return block.found_kinds


def _inner_blocks(block: Block) -> list[Block]:
    """Those of its operations."""
    regions_of = _REGIONS
    return [b for op in block.ops if (regions := regions_of[type(op)]) is not None for b in regions(op)]


def _own_kinds(block: Block) -> frozenset[Kind]:
    found = set[Kind](op.fn for op in block.ops if type(op) is Apply)
    if any(type(op) is Atomic and op.together for op in block.ops):
        found.add(TOGETHER)
    return frozenset(found.union(*(_SHAPES[kind].kinds for kind in set(map(type, block.ops)))))


def holds(op: Op, *wanted: type[Op]) -> bool:
    """Whether one of these kinds is in the operation's regions."""
    return any(not kinds(b).isdisjoint(wanted) for b in blocks(op))


def uses(block: Block) -> dict[Value, int]:
    """How often each value is used in the block, nested blocks and block results included."""
    count: dict[Value, int] = {}
    _count_uses(block, count)
    return count


def _count_uses(block: Block, count: dict[Value, int]) -> None:
    known, operands_of, regions_of = count.get, _OPERANDS, _REGIONS
    for op in block.ops:
        kind = type(op)
        for value in operands_of[kind](op):
            count[value] = known(value, 0) + 1
        regions = regions_of[kind]
        if regions is not None:
            for inner in regions(op):
                _count_uses(inner, count)
    for value in block.results:
        count[value] = known(value, 0) + 1


def free_values(block: Block) -> tuple[Value, ...]:
    """Values used in the block (or nested) but defined outside it, in order of first use."""
    free: dict[Value, None] = {}
    _find_free(block, set(), free)
    return tuple(free)


def _find_free(block: Block, defined: set[Value], free: dict[Value, None]) -> None:
    operands_of, regions_of = _OPERANDS, _REGIONS
    defined.update(block.args)
    for op in block.ops:
        kind = type(op)
        for value in operands_of[kind](op):
            if value not in defined:
                free[value] = None
        regions = regions_of[kind]
        if regions is not None:
            for inner in regions(op):
                _find_free(inner, defined, free)
        defined.update(op.results)
    for value in block.results:
        if value not in defined:
            free[value] = None


def control_flows(op: Op) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """For branches and loops: each result and carried value, with all that it may take over."""
    match op:
        case If(_, then, orelse):
            for result, *sides in zip(op.results, then.results, orelse.results, strict=True):
                yield result, tuple(sides)
        case For(_, _, inits, _, body):
            for k, result in enumerate(op.results):
                yield body.args[k + 1], (inits[k], body.results[k])
                yield result, (inits[k], body.results[k])
        case While(inits, before, body):
            for k, arg in enumerate(before.args):
                yield arg, (inits[k], body.results[k])
            for k, forwarded in enumerate(before.results[1:]):
                yield body.args[k], (forwarded,)
                yield op.results[k], (forwarded,)


def settle(
    start: Value, known: Container[Value], needs: Callable[[Value], Iterable[Value]], make: Callable[[Value], object]
) -> None:
    """Calls `make`, which makes a value known, for `start` and all it comes from, each after what it `needs`: recursion
    over operands, which is as deep as a program is long, without nested calls."""
    if start in known:
        return
    stack = [(start, iter(needs(start)))]
    while stack:
        value, rest = stack[-1]
        for operand in rest:
            if operand not in known:
                stack.append((operand, iter(needs(operand))))
                break
        else:
            stack.pop()
            if value not in known:
                make(value)


def rebuild(op: Op, value: Callable[[Value], Value], block: Callable[[Block], Block], /, **changes: Any) -> Op:
    """The operation with its operands and regions mapped. Its results stay, unless given in `changes`."""
    shape = _SHAPES[type(op)]
    values = shape.values_of(op)
    mapped = tuple(map(value, values))
    if not (changes or shape.blocks):
        return op if mapped == values else shape.copy(op, mapped, op.results)
    if mapped != values:
        changes = _by_field(op, shape, mapped) | changes
    for name in shape.blocks:
        inner = getattr(op, name)
        mapped_block = block(inner)
        if mapped_block is not inner:
            changes.setdefault(name, mapped_block)
    if not changes or all(_is_same(getattr(op, name), new) for name, new in changes.items()):
        return op
    return _changed(op, changes)


def descend(op: Op, block: Callable[[Block], Block]) -> Op:
    """The operation with its regions mapped, and nothing else: the same one where it has none, or none changes."""
    names = _SHAPES[type(op)].blocks
    if not names:
        return op
    inner = {name: getattr(op, name) for name in names}
    changes: dict[str, Any] = {name: new for name, b in inner.items() if (new := block(b)) is not b}
    return _changed(op, changes) if changes else op


def _by_field(op: Op, shape: _Shape, values: Values) -> dict[str, Any]:
    """What the fields of an operation hold that has these operands."""
    found: dict[str, Any] = {}
    at = 0
    for name in shape.operands:
        if name in shape.groups:
            end = at + len(getattr(op, name))
            found[name] = values[at:end]
        else:
            end = at + 1
            found[name] = values[at]
        at = end
    return found


def _changed(op: Op, changes: dict[str, Any]) -> Op:
    """`dataclasses.replace`, in half its time."""
    copy: Op = object.__new__(type(op))
    for name, get, put in _SHAPES[type(op)].slots:
        put(copy, changes[name] if name in changes else get(op))
    results = copy.results
    if len(results) == 1:  # as `Op.__post_init__` has it
        _PUT_RESULT(copy, results[0])
    return copy


def with_span(op: Op, span: Span) -> Op:
    return _changed(op, {"span": span})


def _is_same(old: Any, new: Any) -> bool:
    """The same object, or a tuple of the same; 0.0 and -0.0 are not."""
    if not isinstance(old, tuple):
        return old is new
    return len(old) == len(new) and all(map(is_, old, new))


def substitute(block: Block, mapping: dict[Value, Value]) -> Block:
    """The block with every use of a mapped value replaced (definitions stay)."""
    return _substituted(block, mapping) if mapping else block


def _substituted(block: Block, mapping: dict[Value, Value]) -> Block:
    mapped = mapping.get
    is_kept, operands_of, regions_of = mapping.keys().isdisjoint, _OPERANDS, _REGIONS
    ops = [
        op
        if is_kept(operands_of[type(op)](op)) and regions_of[type(op)] is None
        else rebuild(op, lambda v: mapped(v, v), lambda b: _substituted(b, mapping))
        for op in block.ops
    ]
    return with_ops(block, ops, tuple(map(mapped, block.results, block.results)))


Copier = Callable[[Op], Op]


def clone(block: Block, mapping: dict[Value, Value], each: Callable[[Op, Copier], Iterable[Op]] | None = None) -> Block:
    """A copy of the block that defines fresh values; `mapping` gives outside values and is extended with the copies.
    `each`: what stands for an operation instead of its copy, which it may make."""
    return _Cloner(mapping, each).block(block)


class _Cloner:
    def __init__(self, mapping: dict[Value, Value], each: Callable[[Op, Copier], Iterable[Op]] | None):
        self.mapping, self.each = mapping, each
        self.mapped = mapping.get

    def fresh(self, v: Value) -> Value:
        self.mapping[v] = copy = Value(v.type, v.name)
        return copy

    def block(self, b: Block) -> Block:
        args = tuple(map(self.fresh, b.args))
        if self.each is None:
            copies = list(map(self.op, b.ops))
        else:
            copies = [copy for op in b.ops for copy in self.each(op, self.op)]
        return Block(args, tuple(copies), tuple(map(self.mapped, b.results, b.results)))

    def op(self, op: Op) -> Op:
        """Always a new object, also where nothing in it is: analyses tell operations apart by identity."""
        shape = _SHAPES[type(op)]
        values = shape.values_of(op)
        mapped = tuple(map(self.mapped, values, values))
        if not shape.blocks:
            return shape.copy(op, mapped, tuple(map(self.fresh, op.results)))
        changes = _by_field(op, shape, mapped) if mapped != values else {}
        for name in shape.blocks:
            changes[name] = self.block(getattr(op, name))
        changes["results"] = tuple(map(self.fresh, op.results))
        return _changed(op, changes)


def with_ops(block: Block, ops: Iterable[Op], results: Values | None = None, args: Values | None = None) -> Block:
    """The block with other operations, results and arguments; itself where they are the same. So what no pass changes
    stays one object from pass to pass."""
    kept = tuple(ops)
    args, results = block.args if args is None else args, block.results if results is None else results
    same = kept == block.ops and results == block.results and args == block.args
    return block if same else Block(args, kept, results)


def closed(block: Block, known: Iterable[Value]) -> Block:
    """The block with what it uses and nobody defines made undefined: leftovers that simplification removes."""
    given = set(known)
    missing = tuple(Undef(results=(v,)) for v in free_values(block) if v not in given)
    return Block(block.args, (*missing, *block.ops), block.results) if missing else block


def with_body(function: Function, body: Block) -> Function:
    return function if body is function.body else replace(function, body=body)


def used_globals(module: Module, function: Function) -> list[Global]:
    names = {op.name for op in walk(function.body) if isinstance(op, GlobalRef)}
    return [g for g in module.globals.values() if g.name in names]


def used_structs(function: Function, variables: Iterable[Global]) -> dict[str, Struct]:
    """The records that a function and the given variables mention, each after those it holds by value."""
    found: dict[str, Struct] = {}
    seen: set[Struct] = set()

    def visit(type: Type) -> None:
        if isinstance(type, Pointer):
            visit(type.pointee)
        elif isinstance(type, Array):
            visit(type.element)
        elif isinstance(type, Struct) and type not in seen:
            seen.add(type)
            for field in type.fields:
                visit(field.type)
            found[type.name] = type

    for param in function.params:
        visit(param.type)
    for variable in variables:
        visit(variable.type)
    for op in walk(function.body):
        for value in op.results:
            visit(value.type)
        for inner in blocks(op):
            for value in inner.args:
                visit(value.type)
    return found
