"""Host functions whose augmented forward and reverse passes the source gives, as Enzyme has it:

void *__enzyme_register_gradient_f[3] = {(void *)f, (void *)augmented_f, (void *)reverse_f};
"""

from __future__ import annotations

from .clang import Cursor, Kind, identity
from .unit import Unit
from .visiting import children_of, walk

_NAME = "__enzyme_register_gradient"
_ON_DEVICE = (Kind.CUDADEVICE_ATTR, Kind.CUDAGLOBAL_ATTR)


def passes_of(declaration: Cursor) -> tuple[Cursor, ...]:
    """The function and its passes, if the declaration gives them and the function is the host's; else nothing."""
    if declaration.kind != Kind.VAR_DECL or not declaration.spelling.startswith(_NAME):
        return ()
    named = [c.referenced for c in walk(declaration) if c.kind == Kind.DECL_REF_EXPR]
    functions = tuple(f.get_definition() or f for f in named if f is not None and f.kind == Kind.FUNCTION_DECL)
    if len(functions) != 3 or any(child.kind in _ON_DEVICE for child in children_of(functions[0])):
        return ()
    return functions


def passes_by_function(unit: Unit) -> dict[int, tuple[Cursor, ...]]:
    """By function."""
    if _NAME not in unit.text:
        return {}
    found = map(passes_of, children_of(unit.tree.cursor))
    return {identity(passes[0]): passes for passes in found if passes}
