"""Dynamic shared memory as an array for each of its parts, in launches with that `analysis/access/shared_parts`."""

from __future__ import annotations

from dataclasses import replace

from ..analysis.access.shared_parts import SharedLayout, SharedPlace, accesses_of, array_of, way_to
from ..ir.builder import Builder, pointee
from ..ir.ops import Atomic, Block, Function, Global, Load, Member, Module, Offset, Op, PtrCast, Store, Value
from ..ir.traverse import descend, walk, with_body
from ..ir.types import I64, Pointer
from . import simplify
from .fixed_numbers import with_numbers


def parted(function: Function, module: Module, layout: SharedLayout) -> Module:
    """The module in which the function has the parts."""
    variable = module.globals[layout.variable]
    names = _names(layout, module)
    arrays = {
        name: replace(variable, name=name, type=array_of(part)) for name, part in zip(names, layout.parts, strict=True)
    }
    written = with_numbers(_Parting(function, layout, tuple(arrays.values())).run(), dict(layout.numbers))
    changed = replace(module, globals={**module.globals, **arrays})
    functions = {**module.functions, function.name: simplify.run(written, changed)}
    return replace(changed, functions=functions)


def _names(layout: SharedLayout, module: Module) -> list[str]:
    found: list[str] = []
    for number in range(len(layout.parts)):
        name = f"{layout.variable}_{number}"
        while name in module.globals or name in module.functions:
            name += "_"
        found.append(name)
    return found


class _Parting:
    def __init__(self, function: Function, layout: SharedLayout, arrays: tuple[Global, ...]):
        self.function, self.arrays = function, arrays
        self.definition = {v: op for op in walk(function.body) for v in op.results}
        accesses = accesses_of(function, layout.variable)
        self.places = {id(op): place for op, place in zip(accesses, layout.places, strict=True)}

    def run(self) -> Function:
        return with_body(self.function, self.block(self.function.body))

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, Load | Store | Atomic) and id(op) in self.places:
                b = Builder(op.span)
                op = replace(op, ptr=self.pointer(b, op.ptr, self.places[id(op)]))
                ops += b.ops
            ops.append(descend(op, self.block))
        return Block(block.args, tuple(ops), block.results)

    def pointer(self, b: Builder, ptr: Value, place: SharedPlace) -> Value:
        """The same way from the part's array, with all that is constant in it added at its end."""
        array = self.arrays[place.part]
        at = b.decay(b.global_ref(array.name, array.type, "shared"))
        for number, op in enumerate(way_to(ptr, self.definition)):
            match op:
                case PtrCast():
                    assert isinstance(op.result.type, Pointer)
                    at = b.cast_pointer(at, op.result.type)
                case Member(_, index):
                    at = b.member(at, index)
                case Offset(_, index) if number not in place.constants:
                    at = b.offset(at, index)
        moved = place.moved // pointee(at).size
        return b.offset(at, b.constant(moved, I64)) if moved else at
