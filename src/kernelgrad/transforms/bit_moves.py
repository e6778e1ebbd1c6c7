"""Numbers that are moved as the bits of others, moved as what they are: for derivatives, which bits do not have.

    uint4 v = *(const uint4 *)(x + 8 * i);             becomes
    const __half2 *h = (const __half2 *)&v;            eight halves, loaded and stored

Memory has one type of numbers: that of the parameter that points to it, else the narrowest float that it is accessed
as. An access as something wider, or as an integer, moves a pack of them. Memory and the values between which packs are
moved make up a class; if all its values are only moved (loaded, stored, chosen, shuffled, carried by loops, taken for
the number that they are), each becomes an array of numbers, and pointers to its memory count in numbers. A class in
which one is computed with stays as it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..analysis.roots import UNKNOWN, Memory, analyse
from ..ir.builder import Builder, pointee
from ..ir.ops import (
    Aggregate,
    Alloca,
    Apply,
    Atomic,
    Block,
    Constant,
    Extract,
    For,
    Function,
    If,
    Insert,
    Load,
    Member,
    Module,
    Offset,
    Op,
    PtrCast,
    Store,
    Undef,
    Value,
    Warp,
    While,
)
from ..ir.traverse import control_flows, operands, rebuild, walk, with_body
from ..ir.types import BF16, I64, Array, Pointer, Scalar, Struct, Type, element_types
from . import simplify
from .half_steps import odd_steps
from .packs import Retyped, unpacked

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_SHUFFLES = ("shfl_idx", "shfl_up", "shfl_down", "shfl_xor")


def run(function: Function, module: Module) -> Function:
    memory = analyse(function)
    mixed = any(_is_mixed(root, types) for root, types in _accessed(function, memory).items())
    if not mixed and not any(odd_steps(function, memory)):
        return function
    undefined = {op.result for op in walk(function.body) if isinstance(op, Undef)}
    split = simplify.run(with_body(function, _split(function.body, undefined, {})), module)
    classes = _Classes(split, analyse(split))
    if not classes.found:
        return function
    return simplify.run(Retyped(classes.found, classes.definitions).function(split), module)


def _leaves(type: Type) -> Iterator[Scalar]:
    if isinstance(type, Scalar):
        yield type
    elif isinstance(type, Struct | Array):
        for part in dict.fromkeys(element_types(type)):
            yield from _leaves(part)


def _accessed(function: Function, memory: Memory) -> dict[Value, set[Scalar]]:
    """As what numbers memory is loaded and stored."""
    found: dict[Value, set[Scalar]] = defaultdict(set)
    for op in walk(function.body):
        if isinstance(op, Load | Store):
            types = set(_leaves(op.result.type if isinstance(op, Load) else op.value.type))
            for root in memory.of(op.ptr):
                found[root] |= types
    return found


def _declared(root: Value) -> set[Scalar]:
    return set(_leaves(root.type.pointee)) if isinstance(root.type, Pointer) else set()


def _is_mixed(root: Value, accessed: set[Scalar]) -> bool:
    """Whether memory that holds floats is accessed as something else."""
    types = accessed | _declared(root)
    return root is not UNKNOWN and any(t.is_float for t in types) and bool(accessed - _declared(root))


# ---- one number at a time


def _split(block: Block, undefined: set[Value], mapping: dict[Value, Value]) -> Block:
    """With loads and stores of structs and arrays as those of their numbers, and none of what is undefined. `mapping`:
    what was loaded, as it is now."""
    ops: list[Op] = []
    for op in block.ops:
        op = rebuild(op, lambda v: mapping.get(v, v), lambda inner: _split(inner, undefined, mapping))
        b = Builder(op.span)
        if isinstance(op, Load) and _is_split(op.result.type) and not op.volatile:
            mapping[op.result] = _loaded(b, op.ptr, op.result.type)
            ops += b.ops
        elif isinstance(op, Store) and _is_split(op.value.type) and not op.volatile:
            _stored(b, op.ptr, op.value)
            ops += b.ops
        elif not (isinstance(op, Store) and op.value in undefined and not op.volatile):
            ops.append(op)
    return Block(block.args, tuple(ops), tuple(mapping.get(v, v) for v in block.results))


def _is_split(type: Type) -> bool:
    return isinstance(type, Array) or (isinstance(type, Struct) and not type.is_union)


def _part(b: Builder, ptr: Value, k: int) -> Value:
    assert isinstance(ptr.type, Pointer)
    return b.member(ptr, k) if isinstance(ptr.type.pointee, Struct) else b.offset(b.decay(ptr), b.constant(k, I64))


def _loaded(b: Builder, ptr: Value, type: Type) -> Value:
    if not _is_split(type):
        return b.load(ptr)
    assert isinstance(type, Struct | Array)
    return b.aggregate(type, tuple(_loaded(b, _part(b, ptr, k), t) for k, t in enumerate(element_types(type))))


def _stored(b: Builder, ptr: Value, value: Value) -> None:
    if not _is_split(value.type):
        b.store(ptr, value)
        return
    assert isinstance(value.type, Struct | Array)
    for k in range(len(element_types(value.type))):
        _stored(b, _part(b, ptr, k), b.extract(value, k))


# ---- classes


@dataclass
class _Class:
    roots: set[Value] = field(default_factory=set)
    packs: set[Value] = field(default_factory=set)
    number: Scalar | None = None
    is_fixed: bool = False


class _Classes:
    """`found`: the number of each pack, and of each pointer to memory that packs are moved through."""

    def __init__(self, function: Function, memory: Memory):
        self.memory = memory
        self.ops = list(walk(function.body))
        self.accesses = [op for op in self.ops if isinstance(op, Load | Store)]
        self.counters = {op.body.args[0] for op in self.ops if isinstance(op, For)}
        self.params = {p.value for p in function.params}
        self.groups = list(_flowing(self.ops))
        self.definitions = {result: op for op in self.ops for result in op.results}
        self.number = self._numbers(_accessed(function, memory))
        self.odd = {root for _, root in odd_steps(function, memory)}
        self.found: dict[Value, Scalar] = {}
        for _ in range(8):  # a class may give memory another number, which makes more values packs
            classes = self._united()
            if not self._renumbered(classes):
                break
        else:
            return
        for class_ in classes:
            if not class_.packs and self.odd.isdisjoint(class_.roots):
                continue
            pointers = {ptr for ptr, roots in memory.roots.items() if not roots.isdisjoint(class_.roots)}
            pointers |= self._nulls(pointers)
            if self._is_moved(class_) and self._is_counted(pointers, class_):
                assert class_.number is not None
                self.found.update(dict.fromkeys(class_.packs | pointers, class_.number))

    def _numbers(self, accessed: dict[Value, set[Scalar]]) -> dict[Value, Scalar | None]:
        """What memory holds, as far as it can be told by itself; None for integers, which may be packs."""
        found: dict[Value, Scalar | None] = {}
        for root, types in accessed.items():
            floats = [t for t in (_declared(root) if self._is_given(root) else types) if t.is_float]
            found[root] = min(floats, key=lambda t: t.size) if floats else None
        return found

    def _is_given(self, root: Value) -> bool:
        """Whether its type cannot be changed: all but a thread's own memory."""
        return not isinstance(self.definitions.get(root), Alloca)

    def _nulls(self, pointers: set[Value]) -> set[Value]:
        """What leads nowhere and takes the place of one of the pointers, or is compared with it."""
        found = set[Value]()
        groups = [group for group in (*self.groups, *_compared(self.ops)) if isinstance(group[0].type, Pointer)]
        changed = True
        while changed:
            met = (v for group in groups if not (pointers | found).isdisjoint(group) for v in group)
            new = {v for v in met if not self.memory.of(v)} - found
            new |= {op.ptr for op in map(self.definitions.get, new) if isinstance(op, PtrCast)} - found
            found |= new
            changed = bool(new)
        return found

    def _united(self) -> list[_Class]:
        union = _Union()
        for op in self.accesses:
            roots = sorted(self.memory.of(op.ptr), key=id)
            union.join(roots)
            value = op.result if isinstance(op, Load) else op.value
            if any(self.number.get(root) != value.type for root in roots):
                union.join([*roots, value])
        packs = {v for v in union.members() if v not in self.number}
        changed = True
        while changed:
            changed = False
            for group in self.groups:
                if not packs.isdisjoint(group):
                    changed |= not packs.issuperset(group)
                    packs.update(group)
                    union.join(group)
        for op in self.accesses:  # memory that is of the pack's own type, too
            value = op.result if isinstance(op, Load) else op.value
            if value in packs:
                union.join([*sorted(self.memory.of(op.ptr), key=id), value])
        return [self._class(members) for members in union.classes()]

    def _class(self, members: list[Value]) -> _Class:
        roots = {m for m in members if m in self.number}
        given = {self.number[r] for r in roots if self._is_given(r)}
        own = {n for r in roots if not self._is_given(r) and (n := self.number[r]) is not None}
        class_ = _Class(roots, set(members) - roots)
        candidates = given or own
        class_.is_fixed = None in given or len(given) > 1 or UNKNOWN in roots
        class_.is_fixed |= any(len(_declared(r)) > 1 for r in roots if self._is_given(r))
        class_.number = min((n for n in candidates if n is not None), key=lambda n: n.size, default=None)
        return class_

    def _renumbered(self, classes: list[_Class]) -> bool:
        changed = False
        for class_ in classes:
            if class_.is_fixed or class_.number is None:
                continue
            for root in class_.roots:
                changed |= self.number[root] != class_.number
                self.number[root] = class_.number
        return changed

    # ---- whether all of a class is only moved

    def _is_moved(self, class_: _Class) -> bool:
        if class_.number is None or class_.is_fixed:
            return False
        number, packs = class_.number, class_.packs
        if not all(_holds(v.type, number) for v in packs) or any(p in self.params for p in packs):
            return False
        atomics = (
            op for op in self.ops if isinstance(op, Atomic) and not self.memory.of(op.ptr).isdisjoint(class_.roots)
        )
        if any(op.result.type != number for op in atomics):
            return False
        if not packs.isdisjoint(self.counters):
            return False
        made = (self.definitions.get(v) for v in packs)
        if not all(op is None or self._makes(op, number, packs) for op in made):
            return False
        return all(self._uses(op, class_) for op in self.ops if not packs.isdisjoint(operands(op)))

    def _is_counted(self, pointers: set[Value], class_: _Class) -> bool:
        """Whether each of the pointers can count in numbers."""
        assert class_.number is not None
        size = class_.number.size
        if not all(isinstance(p.type, Pointer) and self.memory.of(p) <= class_.roots for p in pointers):
            return False
        if any(self.found.get(p, class_.number) != class_.number for p in pointers):  # a null of two classes
            return False
        return all(_counts(op, pointers, size) for op in self.ops if not pointers.isdisjoint(operands(op)))

    @staticmethod
    def _makes(op: Op, number: Scalar, packs: set[Value]) -> bool:
        match op:
            case Load() | Undef() | If() | For() | While() | Apply("select") | Aggregate() | Extract() | Insert():
                return True
            case Constant(value):
                return op.result.type != BF16 and not any(map(math.isnan, unpacked(value, op.result.type, number)))
            case Apply("bitcast" | "convert", (arg,)):
                return _is_kept(op, arg) and (arg in packs or arg.type == number)
            case Warp(fn):
                return fn in _SHUFFLES
        return False

    @staticmethod
    def _uses(op: Op, class_: _Class) -> bool:
        match op:
            case Load() | Store() | If() | While() | Aggregate() | Extract() | Insert():
                return True
            case For(lower, upper):
                return class_.packs.isdisjoint((lower, upper))
            case Apply("select", (cond, *_)):
                return cond not in class_.packs
            case Apply("bitcast" | "convert", (arg,)):
                return _is_kept(op, arg) and (op.result in class_.packs or op.result.type == class_.number)
            case Warp(fn, (mask, _, *others)):
                return fn in _SHUFFLES and class_.packs.isdisjoint((mask, *others))
        return False


def _counts(op: Op, pointers: set[Value], size: int) -> bool:
    match op:
        case Offset(ptr, _):
            return pointee(ptr).size % size == 0
        case Member(ptr, index):
            struct_ = pointee(ptr)
            return isinstance(struct_, Struct) and struct_.fields[index].offset % size == 0
        case Load(_, volatile):
            return not volatile and isinstance(op.result.type, Scalar)
        case Store(_, value, volatile):
            return not volatile and value not in pointers and isinstance(value.type, Scalar)
        case Apply("select"):
            return True
        case Apply(fn, args) if fn in _COMPARISONS:
            return pointers.issuperset(args)
        case PtrCast() | Atomic() | If() | For() | While():
            return True
    return False


def _holds(type: Type, number: Scalar) -> bool:
    if isinstance(type, Struct):
        whole = sum(f.type.size for f in type.fields) == type.size  # nothing between the fields
        return whole and not type.is_union and all(_holds(f.type, number) for f in type.fields)
    if isinstance(type, Array):
        return _holds(type.element, number)
    return isinstance(type, Scalar) and type.kind != "bool" and type.size % number.size == 0


def _flowing(ops: Iterable[Op]) -> Iterator[tuple[Value, ...]]:
    """Values that are one pack or none."""
    for op in ops:
        match op:
            case Apply("select", (_, a, b)):
                yield op.result, a, b
            case Apply("bitcast" | "convert", (a,)) if _is_recast(op.result.type, a.type):
                yield op.result, a
            case Warp(fn, (_, value, *_)) if fn in _SHUFFLES:
                yield op.result, value
            case Aggregate(args):
                yield op.result, *args
            case Extract(aggregate, _):
                yield op.result, aggregate
            case Insert(aggregate, value, _):
                yield op.result, aggregate, value
            case _:
                yield from ((target, *sources) for target, sources in control_flows(op))


def _compared(ops: Iterable[Op]) -> Iterator[tuple[Value, ...]]:
    for op in ops:
        if isinstance(op, Apply) and op.fn in _COMPARISONS:
            yield op.args


def _is_recast(a: Type, b: Type) -> bool:
    """Integers of one size: the same bits."""
    return isinstance(a, Scalar) and isinstance(b, Scalar) and a.size == b.size and not (a.is_float or b.is_float)


def _is_kept(op: Apply, arg: Value) -> bool:
    """Whether the bits of what is converted stay: a number that becomes another is computed with."""
    return op.fn == "bitcast" or _is_recast(op.result.type, arg.type)


class _Union:
    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}

    def _find(self, value: Value) -> Value:
        while (above := self._parent.setdefault(value, value)) is not value:
            self._parent[value] = self._parent[above]
            value = above
        return value

    def join(self, values: Iterable[Value]) -> None:
        first: Value | None = None
        for value in values:
            root = self._find(value)
            first = root if first is None else first
            self._parent[root] = self._find(first)

    def members(self) -> Iterable[Value]:
        return self._parent

    def classes(self) -> list[list[Value]]:
        found: dict[Value, list[Value]] = defaultdict(list)
        for value in self._parent:
            found[self._find(value)].append(value)
        return list(found.values())
