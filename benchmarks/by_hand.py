"""How the adjoints of kernels/by_hand*.cu and kernels/atomics.cu are launched: a list of steps for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCKS = 1056  # of 256 threads: eight for each of an H200's multiprocessors
STENCIL_DEPTH = 16  # planes that a thread walks through
ROW_PARTS = 128  # into which the rows of a contraction are cut
FILES = ("by_hand.cu", "by_hand_loops.cu", "atomics.cu")


@dataclass(frozen=True)
class Step:
    """A launch, or, without a kernel, the first argument set to zero."""

    kernel: str
    grid: Any = 1
    block: Any = 1
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Arguments:
    """A launch's arguments by the kernel's names: `values`, their adjoints `adj`; `empty` makes scratch of floats."""

    values: Mapping[str, Any]
    adj: Mapping[str, Any]
    empty: Callable[[int], Any]

    def __call__(self, names: str, **more: Any) -> tuple[Any, ...]:
        """Those named, `d_x` being the adjoint of x."""
        known = {**self.values, **{f"d_{name}": array for name, array in self.adj.items()}, **more}
        return tuple(_typed(known[name]) for name in names.split())


def _typed(value: Any) -> Any:
    types = {int: np.int32, float: np.float32}
    return types[type(value)](value) if type(value) in types else value


def _zero(array: Any) -> Step:
    return Step("", args=(array,))


def _column_sums(out: Any, partial: Any, rows: int, columns: int) -> Step:
    return Step("column_sums", -(-columns // 32), 256, (out, partial, np.int32(rows), np.int32(columns)))


# ---- by hand

Plan = Callable[[Arguments], list[Step]]


def _one(kernel: str, names: str, per_block: int, sized: str = "x") -> Plan:
    """A launch of blocks of 256 threads that take so many elements each."""

    def plan(at: Arguments) -> list[Step]:
        return [Step(kernel, -(-at.values[sized].size // per_block), 256, at(names))]

    return plan


def _scale(at: Arguments) -> list[Step]:
    blocks = min(BLOCKS, -(-at.values["x"].size // 1024))
    partial = at.empty(blocks)
    args = at("partial d_y x n", partial=partial)
    return [Step("scale_adjoint", blocks, 256, args), _column_sums(at.adj["a"], partial, blocks, 1)]


def _contraction_sizes(at: Arguments) -> dict[str, int]:
    """Of the product of matrices that the contraction is."""
    a, b, c = (at.values[name].size for name in ("a", "b", "c"))
    inner = round((a * b / c) ** 0.5)
    return {"rows": a // inner, "inner": inner, "columns": b // inner}


def _contraction(at: Arguments) -> list[Step]:
    sizes = _contraction_sizes(at)
    rows, inner, columns = sizes.values()
    share = 16 * -(-rows // (16 * ROW_PARTS))
    parts = -(-rows // share)
    partial = at.empty(parts * inner * columns)
    a_args = at("d_a d_c b inner columns", **sizes)
    b_args = at("partial d_c a rows inner columns share", **sizes, partial=partial, share=share)
    return [
        Step("contraction_adjoint_a", (inner // 64, rows // 64), 256, a_args),
        Step("contraction_adjoint_b", (columns // 64, inner // 64, parts), 256, b_args),
        _column_sums(at.adj["b"], partial, parts, inner * columns),
    ]


def _stencil(at: Arguments) -> list[Step]:
    n = at.values["n"]
    grid = (n // 32, n // 8, n // STENCIL_DEPTH)
    return [Step("stencil_adjoint", grid, (32, 8), at("d_x d_y n depth", depth=STENCIL_DEPTH))]


def _matmul(at: Arguments) -> list[Step]:
    launch = ((at.values["n"] // 32,) * 2, (32, 32))
    return [
        Step("matmul_adjoint_a", *launch, at("d_a d_c b n")),
        Step("matmul_adjoint_b", *launch, at("d_b d_c a n")),
    ]


def _layer_norm(at: Arguments) -> list[Step]:
    rows = at.values["x"].size // 1024
    blocks = min(BLOCKS * 3 // 4, rows)  # six for each multiprocessor: what its registers hold
    partial_w, partial_b = at.empty(blocks * 1024), at.empty(blocks * 1024)
    args = at("d_x partial_w partial_b d_y x w rows", partial_w=partial_w, partial_b=partial_b, rows=rows)
    return [
        Step("layer_norm_adjoint", blocks, 256, args),
        _column_sums(at.adj["w"], partial_w, blocks, 1024),
        _column_sums(at.adj["b"], partial_b, blocks, 1024),
    ]


def _convolution(at: Arguments) -> list[Step]:
    taps = at.values["w"].size
    blocks = min(BLOCKS, -(-at.values["x"].size // 1024))
    partial = at.empty(blocks * taps)
    args = at("d_x partial d_y x w n", partial=partial)
    return [Step("convolution_adjoint", blocks, 256, args), _column_sums(at.adj["w"], partial, blocks, taps)]


def _cleared(plan: Plan) -> Plan:
    return lambda at: [_zero(at.adj["x"]), *plan(at)]


BY_HAND: Mapping[str, Plan] = {
    "sine": _one("sine_adjoint", "d_x d_y x n", 1024),
    "polynomial": _one("polynomial_adjoint", "d_x d_y x n", 1024),
    "scale": _scale,
    "contraction": _contraction,
    "stencil": _stencil,
    "matmul": _matmul,
    "block_sum": _one("block_sum_adjoint", "d_x d_y n", 1024),
    "softmax": _one("softmax_adjoint", "d_x d_y x", 1024),
    "layer_norm": _layer_norm,
    "convolution": _convolution,
    "nbody": _one("nbody_adjoint", "d_x d_y d_z d_fx d_fy d_fz x y z n", 256),
    "logistic": _one("logistic_adjoint", "y d_x d_y x r n", 256),
    "logistic_runtime": _one("logistic_runtime_adjoint", "y d_x d_y x r n steps", 256),
    "gather": _cleared(_one("gather_adjoint", "d_x d_y index n", 256, "index")),
    "gather_sorted": _cleared(_one("gather_sorted_adjoint", "d_x d_y index n", 1024, "index")),
}

# ---- an atomic for every read, in the kernel's own launch

ATOMICS: Mapping[str, str] = {
    "sine": "d_x d_y x n",
    "polynomial": "d_x d_y x n",
    "scale": "d_a d_y x n",
    "contraction": "d_a d_b d_c a b inner columns",
    "stencil": "d_x d_y n",
    "matmul": "d_a d_b d_c a b n",
    "block_sum": "d_x d_y n",
    "softmax": "d_x d_y x",
    "layer_norm": "d_x d_w d_b d_y x w",
    "convolution": "d_x d_w d_y x w n",
    "nbody": "d_x d_y d_z d_fx d_fy d_fz x y z n",
    "logistic": "y d_x d_y x r n steps",
    "logistic_runtime": "y d_x d_y x r n steps",
    "gather": "d_x d_y index n",
}


def with_atomics(kernel: str, grid: Any, block: Any, at: Arguments, assigned: list[str]) -> list[Step]:
    """Adjoints that are assigned start at zero."""
    more: dict[str, int] = {} if "steps" in at.values else {"steps": 100}
    if kernel == "contraction":
        more |= _contraction_sizes(at)
    name = kernel.removesuffix("_runtime")
    launch = Step(f"{name}_atomics", grid, block, at(ATOMICS[kernel], **more))
    return [*(_zero(at.adj[n]) for n in assigned), launch]
