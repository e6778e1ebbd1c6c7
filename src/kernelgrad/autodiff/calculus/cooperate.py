"""Threads that cooperate: shadows of shared memory, mirrored barriers. `shuffles` has what lanes exchange.

The reverse of two phases with a barrier between them is their reverses with a barrier between them. A cell of shared
memory that many threads read gets its adjoint from all of them, atomically; the thread that stored the cell collects
it one barrier later. What was loaded from shared memory cannot be loaded again, so it is kept like any other value.
"""

from __future__ import annotations

from collections.abc import Callable

from ...analysis.roots import Memory
from ...errors import UnsupportedError
from ...ir.builder import Builder, linear_thread, pointee
from ...ir.ops import ADJOINT, Atomic, Barrier, Global, Load, Module, Store, Value
from ...ir.types import F64, I64, U32, Array, Pointer, Scalar, Struct, Type
from .shadows import adjoint_type, dynamic_shadow, is_dynamic, wide_type, zero_fill
from .views import leaves

# ---- shared memory ------------------------------------------------------------------------------------------------


def shared_shadows(
    module: Module, memory: Memory, active: frozenset[Value], wide: frozenset[Value] = frozenset()
) -> dict[str, Global]:
    """A second variable beside each shared one that carries derivatives; for dynamic shared memory, the same one: its
    shadow lies behind it, in the bytes the launcher asks for on top."""
    found: dict[str, Global] = {}
    for name, root in memory.global_names.items():
        variable = module.globals[name]
        if root not in active:
            continue
        if variable.space != "shared":
            raise UnsupportedError(
                f"a derivative flows through the variable '{name}', which is not listed",
                variable.span,
                "list it, or pass it as a parameter",
            )
        if is_dynamic(variable):
            _check_halves(memory, root)
            found[name] = variable
        else:
            type = wide_type(variable.type) if root in wide else adjoint_type(variable.type)
            found[name] = Global(f"{ADJOINT}{name}", type, "shared", None, variable.span)
    return found


def _check_halves(memory: Memory, root: Value) -> None:
    """The adjoints of half-precision numbers are wider: other views of the array would lie elsewhere in its shadow."""
    declared = leaves(pointee(root))
    for op in (*memory.loads, *memory.stores):
        assert isinstance(op, Load | Store | Atomic)
        types = leaves(pointee(op.ptr))
        half = any(t.size == 2 and t.is_float for t in types | declared)
        if half and types != declared and root in memory.of(op.ptr):
            raise UnsupportedError(
                f"half-precision numbers beside others in the dynamic shared memory '{root.name}' have no gradient",
                op.span,
                "give them an array of static size, or keep them as float",
            )


def widening(variable: Global, wide: bool = False) -> int:
    """How often the bytes of a dynamic shared variable go into those of its shadow."""
    shadow = wide_type(variable.type) if wide else adjoint_type(variable.type)
    return -(-_element(shadow).size // _element(variable.type).size)


def zero_shared(
    b: Builder, shadows: dict[str, Global], shared_bytes: Value, threads: int | None = None, wide: bool = False
) -> None:
    """At the start of the kernel, all threads together clear the shadows and wait for each other. `threads`: how many
    they are, if that is known. `wide`: the shadow of dynamic shared memory is in double precision."""
    seen: set[str] = set()
    for variable in shadows.values():
        if is_dynamic(variable) and "" not in seen:
            seen.add("")
            base = b.global_ref(variable.name, variable.type, "shared")
            cell = F64 if wide else _cell(variable.type)
            nbytes = b.apply("mul", shared_bytes, b.constant(widening(variable, wide), I64))
            count = b.apply("div", nbytes, b.constant(cell.size, I64))
            _zero_together(b, dynamic_shadow(b, base, shared_bytes), cell, count)
        elif not is_dynamic(variable):
            base = b.global_ref(variable.name, variable.type, "shared")
            element = _element(variable.type)
            if cells_of(variable) == threads:
                zero_fill(b, b.offset(b.cast_pointer(base, Pointer(element, "shared")), linear_thread(b)))
            else:
                _zero_together(b, base, element, b.constant(cells_of(variable), I64))
    b.effect(Barrier, "block")


def cells_of(variable: Global) -> int:
    return variable.type.size // _element(variable.type).size


def shadow_cells(b: Builder, variable: Global, shared_bytes: Value, type: Scalar) -> Value:
    """The shadow of a shared variable, as an array of floats."""
    base = b.global_ref(variable.name, variable.type, "shared")
    base = dynamic_shadow(b, base, shared_bytes) if is_dynamic(variable) else base
    return b.cast_pointer(base, Pointer(type, "shared"))


def _element(type: Type) -> Type:
    return _element(type.element) if isinstance(type, Array) else type


def _cell(type: Type) -> Type:
    """What of a dynamic array is cleared at a time: the size of dynamic shared memory is a multiple of 16 bytes."""
    element = adjoint_type(_element(type))
    if isinstance(element, Struct) and len(leaves(element)) == 1:
        (element,) = leaves(element)
    floats = any(t.is_float for t in leaves(element))
    return element if floats and 16 % element.size == 0 else U32


def _zero_together(b: Builder, base: Value, cell: Type, count: Value) -> None:
    """In cells of the memory's own type, so that forward mode sees no bits of floats."""
    cells = b.cast_pointer(base, Pointer(cell, "shared"))
    together(b, count, lambda k: zero_fill(b, b.offset(cells, k)))


def fill_together(b: Builder, base: Value, nbytes: Value, word: int = 0) -> None:
    """for (k = thread; k < words; k += threads) base[k] = word: 32-bit words, to which shared variables are padded."""
    words = b.cast_pointer(base, Pointer(U32, "shared"))
    count = b.apply("div", b.apply("add", nbytes, b.constant(3, I64)), b.constant(4, I64))
    together(b, count, lambda k: b.store(b.offset(words, k), b.constant(word, U32)))


def together(b: Builder, count: Value, work: Callable[[Value], object]) -> None:
    """for (k = thread; k < count; k += threads) work(k)"""
    x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
    threads = b.apply("mul", b.apply("mul", x, y), z, name="~threads")
    k, inside = Value(I64, "~k"), Value(I64, "~k")
    with b.region() as before:
        more = b.apply("lt", k, count)
    with b.region() as body:
        work(inside)
        following = b.apply("add", inside, threads)
    b.while_((linear_thread(b),), before.block((k,), (more, k)), body.block((inside,), (following,)))
