"""What the prelude's functions without a body mean in IR: one row each, whatever the overload.

    INTRINSICS["sinf"].lower(builder, [x], F32)

The arguments come converted to the declared parameter types, pointers and references as IR pointers; `result` is the
declared result's type, None for void. A function of the prelude that has no row cannot be used in a kernel;
`REFUSED` says why, where there is more to say than that.
"""

from __future__ import annotations

from .intrinsics_math import MATH_ROWS
from .intrinsics_rows import Intrinsic
from .intrinsics_threads import THREAD_ROWS

INTRINSICS: dict[str, Intrinsic] = {name: row for rows in (MATH_ROWS, THREAD_ROWS) for name, row in rows.items()}

# Lowering treats these itself: they need the text of their arguments.
LOWERED_ELSEWHERE = frozenset({"printf", "__kg_assert"})

_WHERE = "it depends on where a pointer points at run time"
_HEAP = "memory cannot be allocated inside a kernel: pass a buffer instead"
_HOST = "it is a host function"

REFUSED: dict[str, str] = {
    **dict.fromkeys("__isGlobal __isShared __isConstant __isLocal".split(), _WHERE),
    **dict.fromkeys(
        "__cvta_generic_to_shared __cvta_generic_to_global __cvta_generic_to_constant __cvta_generic_to_local "
        "__cvta_shared_to_generic __cvta_global_to_generic".split(),
        _WHERE,
    ),
    **dict.fromkeys("malloc calloc realloc free".split(), _HEAP),
    **dict.fromkeys("exit abort".split(), _HOST),
    "__kg_unsupported_grid_sync": "a barrier of the whole grid is not supported: split the kernel at it",
}
