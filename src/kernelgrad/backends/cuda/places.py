"""Addresses and the objects at them, as C++ writes them: `x[i]`, `p->x`, `tile[j][i]`, `&x[i]`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ...ir.effects import ADDRESSES
from ...ir.ops import Alloca, Atomic, BarrierReduce, GlobalRef, Load, Member, Offset, Op, PtrCast, Value
from ...ir.types import Array, Pointer, Struct, Type
from .folding import Folding
from .qualifiers import Volatility
from .syntax import Expr, Prec, as_index, cast, infix
from .types import Types, field_name
from .variables import Variables


class Places(ABC):
    def __init__(
        self, folding: Folding, variables: Variables, volatility: Volatility, types: Types, globals_: dict[str, str]
    ):
        self.folding, self.variables, self.types, self.globals = folding, variables, types, globals_
        self.volatility = volatility
        self.places: dict[Value, str] = {}  # names of local memory
        self.decayed: frozenset[str] = frozenset()  # global names that are already pointers to their first element
        self.reductions: dict[BarrierReduce, int] = {}  # over the block, met once
        self.anywhere: frozenset[Atomic] = frozenset()  # updates that may be of a thread's own array
        self.indexed = {op.ptr for op in folding.definition.values() if isinstance(op, Offset)}

    @abstractmethod
    def value(self, value: Value) -> Expr:
        """The text of a value."""

    def nonconst(self, value: Value) -> Expr:
        """A value that is stored: memory holds plain pointers."""
        found = self.value(value)
        return cast(self.types.spell(value.type), found, value.type) if value in self.variables.const else found

    def array_value(self, place: Expr, type: Array) -> Expr:
        return Expr(f"reinterpret_cast<const {self.types.spell(type)} &>({place.text})", type, array=place)

    def load(self, op: Load) -> Expr:
        type = op.result.type
        place = self.place(op.ptr)
        if op.volatile and not self.volatility.holds(op.ptr):
            place = self.reinterpreted(f"volatile {self.types.spell(Pointer(type))}", op.ptr)
        if isinstance(type, Array):
            return self.array_value(place, type)
        return Expr(place.text, type, place.prec)

    def target(self, ptr: Value, volatile: bool = False) -> Expr:
        """What a store assigns to."""
        type = ptr.type.pointee if isinstance(ptr.type, Pointer) else ptr.type
        casts = volatile and not self.volatility.holds(ptr)
        if casts or ptr in self.variables.const:
            qualifier = "volatile " if volatile else ""
            return self.reinterpreted(qualifier + self.types.spell(Pointer(type)), ptr)
        place = self.place(ptr)
        if isinstance(type, Array):
            return Expr(f"reinterpret_cast<{self.types.spell(type)} &>({place.text})", type)
        return place

    def reinterpreted(self, pointer_type: str, ptr: Value) -> Expr:
        pointer = Expr(f"({pointer_type}){self.address_of(ptr).at(Prec.UNARY)}", ptr.type, Prec.UNARY)
        return self.dereferenced(pointer)

    def dereferenced(self, pointer: Expr) -> Expr:
        pointee = pointer.type.pointee if isinstance(pointer.type, Pointer) else pointer.type
        return Expr(f"*{pointer.at(Prec.UNARY)}", pointee, Prec.UNARY, pointer=pointer)

    def folded(self, value: Value) -> Op | None:
        """The operation that is written in place of a value, if any."""
        return self.folding.definition[value] if value in self.folding.inline else None

    def place(self, ptr: Value) -> Expr:
        """The object that a pointer points to, as a C++ lvalue."""
        found = self.place_of(self.folded(ptr))
        plain = ptr in self.indexed and ptr not in self.folding.inline and not isinstance(_pointee(ptr), Struct)
        if found is None and plain:
            return Expr(f"{self.value(ptr).at(Prec.POSTFIX)}[0]", _pointee(ptr))  # as its other elements
        return self.dereferenced(self.value(ptr)) if found is None else found

    def place_of(self, op: Op | None) -> Expr | None:
        """The object that an address operation computes the address of, where C++ can name it."""
        if op is None or not isinstance(op, ADDRESSES):
            return None
        ptr = op.result
        pointee = ptr.type.pointee if isinstance(ptr.type, Pointer) else ptr.type
        match op:
            case GlobalRef(name) if self.globals[name] not in self.decayed:
                return Expr(self.globals[name], pointee)
            case Alloca():
                return Expr(self.places[ptr], pointee)
            case Offset(base, index):
                return Expr(f"{self.first(base).at(Prec.POSTFIX)}[{self.subscript(index).text}]", pointee)
            case Member(base, index):
                return Expr(self.member(base, index), pointee)
            case PtrCast(base) if _same_pointee(base, ptr):
                return self.place(base)
            case PtrCast(base) if _decays(base, ptr):
                return Expr(f"{self.array(base).at(Prec.POSTFIX)}[0]", pointee)
            case _:
                return None

    def subscript(self, index: Value) -> Expr:
        """Without a cast that changes nothing: `x[threadIdx.x]`."""
        shown = self.value(index)
        return shown.uncast if shown.uncast is not None and self.folding.is_same_uncast(index) else as_index(shown)

    def member(self, base: Value, index: int) -> str:
        assert isinstance(base.type, Pointer) and isinstance(base.type.pointee, Struct)
        name = field_name(base.type.pointee, index)
        place = self.place(base)
        if place.pointer is not None:
            return f"{place.pointer.at(Prec.POSTFIX)}->{name}"
        return f"{place.at(Prec.POSTFIX)}.{name}"

    def first(self, ptr: Value) -> Expr:
        """What C++ indexes to get at what follows `ptr`: a pointer, or the array that starts there."""
        op = self.folded(ptr)
        if isinstance(op, PtrCast) and _same_pointee(op.ptr, ptr):
            return self.first(op.ptr)
        if isinstance(op, PtrCast) and _decays(op.ptr, ptr):
            return self.array(op.ptr)
        return self.value(ptr)

    def array(self, ptr: Value) -> Expr:
        """The array at `ptr`; C++ takes its name as the address of its first element."""
        op = self.folded(ptr)
        if isinstance(op, GlobalRef) and self.globals[op.name] in self.decayed:
            return Expr(self.globals[op.name], ptr.type)
        return self.place(ptr)

    def address(self, op: Op) -> Expr:
        """A pointer that is computed from another one, as a value."""
        ptr = op.result
        match op:
            case Offset(base, index):
                return self.advanced(self.first(base), self.value(index), ptr.type)
            case PtrCast(base) if _same_pointee(base, ptr):
                return self.value(base)
            case PtrCast(base) if _decays(base, ptr):
                array = self.array(base)
                return Expr(array.text, ptr.type, array.prec)
            case PtrCast(base):
                spelled = self.types.spell(ptr.type, const=ptr in self.variables.const)
                return Expr(f"({spelled}){self.address_of(base).at(Prec.UNARY)}", ptr.type, Prec.UNARY)
            case GlobalRef(name) if self.globals[name] in self.decayed:
                return Expr(f"({self.types.spell(ptr.type)}){self.globals[name]}", ptr.type, Prec.UNARY)
        place = self.place_of(op)
        assert place is not None
        return Expr(f"&{place.at(Prec.UNARY)}", ptr.type, Prec.UNARY)

    def advanced(self, base: Expr, index: Expr, type: Type) -> Expr:
        by = as_index(index)
        if by.text == "0":
            return Expr(base.text, type, base.prec)
        if by.text[:1] == "-" and by.text[1:].isdigit():
            return infix("-", base, Expr(by.text[1:], by.type), type)
        return infix("+", base, by, type)

    def address_of(self, ptr: Value) -> Expr:
        """A pointer as an argument: `&x[i]`, as one writes it there."""
        place = self.place(ptr)
        return place.pointer or Expr(f"&{place.at(Prec.UNARY)}", ptr.type, Prec.UNARY)


def _pointee(ptr: Value) -> Type:
    return ptr.type.pointee if isinstance(ptr.type, Pointer) else ptr.type


def _same_pointee(base: Value, ptr: Value) -> bool:
    both = isinstance(base.type, Pointer) and isinstance(ptr.type, Pointer)
    return both and base.type.pointee == ptr.type.pointee  # type: ignore[union-attr]


def _decays(base: Value, ptr: Value) -> bool:
    """From an array's address to that of its first element."""
    if not isinstance(base.type, Pointer) or not isinstance(ptr.type, Pointer):
        return False
    array = base.type.pointee
    return isinstance(array, Array) and array.element == ptr.type.pointee
