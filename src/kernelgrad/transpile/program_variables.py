"""Variables of the program that host functions use: C++ has started those outside of functions before these run, and
what they lead to is memory that nobody has passed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..errors import UnsupportedError
from ..frontend.derivatives import holds_pointers
from ..ir.ops import Block, Constant, Function, Global, GlobalRef, Load, Module, Op, PtrCast, Value
from ..ir.traverse import descend, walk, with_body
from ..ir.types import Pointer, Scalar, Struct, Type, element_types
from ..transforms import simplify

_STARTED = " started"  # of the variable that says whether another has its first value (`frontend/variables`)
_VECTOR = "std::vector<"
_LIKE_OURS = ("std::array<", "std::complex<", "std::pair<")  # laid out as in the library
_OF_LIBRARY = ("std::", "thrust::")


def started(function: Function, module: Module) -> Function:
    """The function, in which all variables outside of functions have their first values."""
    flags = {v for op in walk(function.body) if isinstance(op, GlobalRef) for v in op.results if _is_flag(op, module)}
    if not flags:
        return function
    flags |= {op.result for op in walk(function.body) if isinstance(op, PtrCast) and op.ptr in flags}
    return simplify.run(with_body(function, _without(function.body, flags)), module)


def _is_flag(op: GlobalRef, module: Module) -> bool:
    variable = op.name.removesuffix(_STARTED)
    is_flag = op.name.endswith(_STARTED) and variable in module.globals
    return is_flag and variable.rpartition("::")[0] not in module.functions


def _without(block: Block, flags: set[Value]) -> Block:
    def new(op: Op) -> Op:
        if isinstance(op, Load) and op.ptr in flags:
            return Constant(True, results=op.results, span=op.span)
        return descend(op, lambda b: _without(b, flags))

    return replace(block, ops=tuple(map(new, block.ops)))


def paths_of_pointers(function: Function, module: Module) -> list[str]:
    """Where variables of the host have pointers, in C++."""
    names = dict.fromkeys(op.name for op in walk(function.body) if isinstance(op, GlobalRef))
    plain = [module.globals[n] for n in names if re.fullmatch(r"[A-Za-z_][\w:]*", n) and n in module.globals]
    own = [
        v for v in plain if v.space == "host" and not v.managed and v.name.rpartition("::")[0] not in module.functions
    ]
    return [path for v in own for path in _paths(v.type, f"::{v.name}")]


def _paths(type: Type, path: str) -> Iterator[str]:
    if isinstance(type, Pointer):
        yield path
    elif isinstance(type, Struct) and not type.name.startswith(_OF_LIBRARY):
        for field in type.fields:
            yield from _paths(field.type, f"{path}.{field.name}")


def method_for(variable: Global, op: GlobalRef) -> str:
    """How a recording finds it. Classes of the library are others than those that stand for them here."""
    type, is_library = variable.type, variable.name.startswith(_OF_LIBRARY)
    if variable.managed:
        return "managed_variable"
    if variable.space != "host":
        return "symbol"
    if is_library or not isinstance(type, Struct) or not type.name.startswith(_OF_LIBRARY):
        return "variable"
    if type.name.startswith(_LIKE_OURS):
        return "variable"
    element = next((t.pointee for t in element_types(type) if isinstance(t, Pointer)), None)
    is_plain = element is not None and (isinstance(element, Scalar) or not holds_pointers(element))
    if type.name.startswith(_VECTOR) and is_plain and type.name != "std::vector<bool>":
        return "vector_variable"
    problem = f"'{variable.name}', a variable of type {type.name}, in a host function that is differentiated,"
    raise UnsupportedError(f"{problem} cannot be transpiled", op.span, "pass what it holds as an argument")
