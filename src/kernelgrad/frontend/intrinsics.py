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

_REASONS = {
    "the address space of a pointer cannot be asked for": (
        "__isGlobal __isShared __isConstant __isLocal __cvta_generic_to_shared __cvta_generic_to_global "
        "__cvta_generic_to_constant __cvta_generic_to_local __cvta_shared_to_generic __cvta_global_to_generic"
    ),
    "allocation on the device is not supported": "malloc free",
    "grid-wide synchronisation is not supported": "__kg_unsupported_grid_sync",
    "clad::zero_init of an object with a destructor is not supported": "__kg_unsupported_zero",
    "textures are not supported": "tex1Dfetch tex1D tex2D tex3D tex1DLayered tex2DLayered",
    "surfaces are not supported": "surf2Dread surf2Dwrite surf3Dwrite",
    "cuRAND is not supported: generate the random numbers before the launch and pass them in": (
        "curand_init skipahead curand curand_uniform curand_uniform_double curand_normal curand_normal_double "
        "curand_normal2 curand_log_normal curand_poisson curand4 curand_uniform4 curand_normal4"
    ),
}
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
