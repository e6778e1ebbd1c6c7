"""The parameters of a gradient besides its kernel's: adjoints, and what the launcher supplies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...analysis.roots import holds_pointers
from ...errors import UnsupportedError
from ...ir.ops import Function, Param, Value
from ...ir.types import Pointer
from ..calculus.activity import Activity
from ..calculus.shadows import adjoint_c_type, adjoint_type, shadow_name, wide_type

if TYPE_CHECKING:
    from .block_cells import Cells, InBlock
    from .replicas import Copies


@dataclass(frozen=True)
class AdjointParams:
    """`adjoints`: of the listed parameters. `internal`: of unlisted buffers through which derivatives flow. `copies`:
    of adjoints that many threads update. `wide`: doubles that are added to in place of an adjoint (see
    `prepare/double_cells`). `cells`: of each block. All by the parameter's name. `pointers`: where a pointer's shadow
    begins."""

    adjoints: dict[str, Param]
    internal: dict[str, Param]
    copies: dict[str, Copies]
    pointers: dict[Value, Value]
    wide: dict[str, Param] = field(default_factory=dict)
    cells: dict[str, Cells] = field(default_factory=dict)


def adjoint_params(
    function: Function,
    activity: Activity,
    listed: Sequence[str],
    copied: frozenset[str],
    wide: frozenset[Value],
    in_block: Collection[InBlock] = (),
    count: int = 0,
) -> AdjointParams:
    """`in_block`: those of which each block has cells. `count`: of the copies of the copied ones."""
    params = {p.name: p for p in function.params}
    widened = {p.name for p in function.params if p.value in wide}
    adjoints = {name: _adjoint_param(params[name], params) for name in listed}
    unlisted = [p for p in function.params if p.value in activity.roots and p.name not in adjoints]
    _refuse_unlisted_structs(unlisted, function)
    internal = {p.name: _adjoint_param(p, params, p.name in widened) for p in unlisted}
    copies = _copies(adjoints, params, copied, widened, count) if copied else {}
    doubles = {name: _wide_param(params[name], p) for name, p in adjoints.items() if name in widened - set(copies)}
    both = {**adjoints, **internal}
    pointers = {params[name].value: p.value for name, p in both.items() if not is_number(params[name])}
    pointers |= {params[name].value: own.pointer for name, own in copies.items()}
    pointers |= {params[name].value: own.value for name, own in doubles.items()}
    cells: dict[str, Cells] = {}
    if in_block:
        from .block_cells import cells_of

        cells = cells_of(in_block, params, adjoints, {own.name: pointers[params[own.name].value] for own in in_block})
        pointers |= {params[name].value: own.pointer for name, own in cells.items()}
    return AdjointParams(adjoints, internal, copies, pointers, doubles, cells)


def _copies(
    adjoints: Mapping[str, Param], params: Mapping[str, Param], copied: frozenset[str], widened: set[str], count: int
) -> dict[str, Copies]:
    from .replicas import spread

    types = {name: wide_type(params[name].type) if name in widened else p.type for name, p in adjoints.items()}
    return {name: spread(p, types[name], count) for name, p in adjoints.items() if name in copied}


def partial_sums(numbers: Mapping[str, Param], params: Mapping[str, Param], activity: Activity) -> dict[str, Param]:
    """Where each warp or block leaves its part of a number's adjoint."""
    return {
        name: Param(Value(param.type, f"_sums_{name}"), param.c_type)
        for name, param in numbers.items()
        if params[name].value in activity
    }


def is_number(param: Param) -> bool:
    """Passed by value: every thread has a part in its adjoint. A struct that holds pointers has a shadow of its own
    type instead."""
    return not holds_pointers(param.type)


def _refuse_unlisted_structs(params: list[Param], function: Function) -> None:
    for param in params:
        if not isinstance(param.type, Pointer):
            reason = f"a derivative flows through the pointers in '{param.name}', which is not listed"
            raise UnsupportedError(reason, function.span, f"list '{param.name}' too")


def _wide_param(param: Param, adjoint: Param) -> Param:
    return Param(Value(wide_type(param.type), f"_wide{adjoint.name}"), adjoint.c_type, restrict=param.restrict)


def _adjoint_param(param: Param, taken: Mapping[str, Param], wide: bool = False) -> Param:
    type = Pointer(param.type, "global") if is_number(param) else param.type
    type = wide_type(type) if wide else adjoint_type(type)
    name = shadow_name(param.name) or "_d"
    while name in taken:
        name = f"_{name}"
    value = Value(type, name)
    return Param(value, adjoint_declared(param), False, param.restrict, shown=adjoint_name(param, taken.values()))


def adjoint_declared(param: Param) -> str:
    """The C type of a parameter's adjoint."""
    c_type = adjoint_c_type(param.c_type)
    return f"{c_type} *" if is_number(param) else c_type


def adjoint_name(param: Param, params: Iterable[Param]) -> str:
    """What the user calls an adjoint: `d_x`, or a fresh name where the kernel has a d_x of its own; `d_s.scale` of a
    member of a struct."""
    struct, dot, rest = (param.variable or "").partition(".")
    name = f"d_{struct if dot else param.name}"
    taken = {p.name for p in params if p.variable is None}
    while name in taken:
        name = f"_{name}"
    return f"{name}{dot}{rest}"
