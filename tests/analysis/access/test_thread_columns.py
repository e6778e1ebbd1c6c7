"""Remainders that a thread has all the time: which they are, in launches of every kind, and that they are right."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from cell_cases import run
from derived import kernel_of
from every_plan import forced
from kernelgrad.analysis.access.affine import Affine, Basis, Part, Shape, Sums
from kernelgrad.analysis.access.executions import executions
from kernelgrad.analysis.access.thread_columns import remainders_in, thread_columns
from kernelgrad.analysis.structure import analyse
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.ops import Load
from kernelgrad.ir.traverse import walk
from kernelgrad.launches import vector_width
from kernelgrad.runtime.integers import Ways

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
STRIDE = f"{I} for (; i < n; i += gridDim.x * blockDim.x)"
COLUMN = "__device__ int column(int i, int c) { return i % c; }"
# A kernel's body, a launch, n and c, and what remainders are by thread and block.
CASES: dict[str, tuple[str, Any, int, int, list[str]]] = {
    "strides": (f"{STRIDE} y[i] = w[i % c];", (8, 64), 4000, 64, ["tx % 64"]),
    "a part of a block": (f"{STRIDE} y[i] = w[i % c];", (8, 64), 4000, 16, ["tx % 16"]),
    "several blocks": (f"{STRIDE} y[i] = w[i % c];", (8, 64), 4000, 128, []),
    "no divisor of strides": (f"{STRIDE} y[i] = w[i % c];", (8, 64), 4000, 48, []),
    "no divisor of blocks": (f"{I} if (i < n) y[i] = w[i % c];", (8, 96), 700, 64, []),
    "blocks": (f"{I} if (i < n) y[i] = w[i % c];", (8, 96), 700, 48, ["tx % 48"]),
    "bits": (f"{STRIDE} y[i] = w[i & 15];", (8, 64), 4000, 0, ["tx % 16"]),
    "other bits": (f"{STRIDE} y[i] = w[i & 20];", (8, 64), 4000, 0, []),
    "shifted": (f"{STRIDE} y[i] = w[(i + 3) % c];", (8, 64), 4000, 64, ["(tx + 3) % 64"]),
    "before the first": (f"{STRIDE} y[i] = w[(i - 3) % c + 2];", (8, 64), 4000, 64, []),
    "backwards": (f"{STRIDE} y[i] = w[(5000 - i) % c];", (8, 64), 4000, 64, []),
    "multiples": (f"{STRIDE} y[i] = w[(3 * i) % c];", (8, 64), 4000, 64, ["(3 * tx) % 64"]),
    "unsigned that may wrap": (
        "for (unsigned i = threadIdx.x; i != n; i += 4096u * 48) y[i] = w[i % c];",
        (1, 64),
        4000,
        48,
        [],
    ),
    "data": (f"{STRIDE} y[i] = w[k[i] % c];", (8, 64), 4000, 64, []),
    "a function twice": (f"{STRIDE} y[i] = w[column(i, c)] * w[column(i / 2, c)];", (8, 64), 4000, 64, []),
    "rows and columns": (
        "for (int r = blockIdx.x * blockDim.y + threadIdx.y; r < n; r += gridDim.x * blockDim.y)"
        " y[r * 8 + threadIdx.x] = w[(r * 8 + threadIdx.x) % c];",
        (4, (8, 4)),
        500,
        32,
        ["(tx + 8 * ty) % 32"],
    ),
    "channels": (f"{STRIDE} y[i] = w[i / 16 % c];", (8, 64), 4000, 32, []),
    "channels of some": (f"{STRIDE} y[i] = w[i / 24 % c];", (9, 64), 4000, 8, []),
    "channels that move": (f"{STRIDE} y[i] = w[i / 24 % c];", (8, 64), 4000, 8, []),
    "of the thread alone": (f"{I} if (i < n) y[i] = w[threadIdx.x % c];", (8, 64), 512, 16, []),
}


def columns(name: str, of_block: bool = False) -> list[Affine]:
    body, (grid, block), n, c, _ = CASES[name]
    head = "__global__ void k(float *y, const float *w, const int *k, int n, int c)"
    function = kernel_of(f"{COLUMN} {head} {{ {body} }}").function
    values = {p.value: {"n": n, "c": c}.get(p.name) for p in function.params}
    sides = block if isinstance(block, tuple) else (block, 1)
    sums = Sums(analyse(function, True), Shape((grid, 1, 1), (*sides, 1)), values.get)
    pointers = [op.ptr for op in walk(function.body) if isinstance(op, Load)]
    wanted_at = remainders_in(pointers, executions(sums), of_block)
    return [column for _, column in thread_columns(function, wanted_at, executions(sums), of_block)]


def value(column: Affine, at: dict[Any, int]) -> int:
    def of(basis: Basis) -> int:
        if not isinstance(basis, Part):
            return at[basis]
        inner = value(basis.of, at)
        return inner // basis.by if basis.is_quotient else inner % basis.by

    return column.const + sum(multiple * of(basis) for basis, multiple in column.terms)


def agrees(name: str, found: list[Affine], wanted: list[str]) -> None:
    """In all threads of the launch."""
    assert len(found) == len(wanted)
    grid, block = CASES[name][1]
    x, y = block if isinstance(block, tuple) else (block, 1)
    for column, text in zip(found, wanted, strict=True):
        for bx, tx, ty in product(range(grid), range(x), range(y)):
            at = {("block_idx", 0): bx, ("thread_idx", 0): tx, ("thread_idx", 1): ty}
            assert value(column, at) == eval(text, {"bx": bx, "tx": tx, "ty": ty})


@pytest.mark.parametrize("name", CASES)
def test_forms(name: str) -> None:
    agrees(name, columns(name), CASES[name][-1])


# With what blocks differ in: the same.
OF_BLOCKS: dict[str, list[str]] = {
    "strides": ["tx % 64"],
    "several blocks": ["(tx + 64 * bx) % 128"],
    "no divisor of strides": [],
    "no divisor of blocks": [],  # no loop: nothing stays the same
    "shifted": ["(tx + 3) % 64"],
    "backwards": [],
    "unsigned that may wrap": [],
    "data": [],
    "a function twice": [],
    "channels": ["(64 * bx + tx) // 16 % 32"],
    "channels of some": ["(64 * bx + tx) // 24 % 8"],
    "channels that move": [],
}


@pytest.mark.parametrize("name", OF_BLOCKS)
def test_forms_of_blocks(name: str) -> None:
    agrees(name, columns(name, of_block=True), OF_BLOCKS[name])


STRUCT = """struct P { T a, b; };
__global__ void k(const P *x, const P *w, P *y, unsigned n, unsigned c) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        P v = x[i], u = w[i % c], r; r.a = sin(v.a * u.a); r.b = v.b * u.b * u.a; y[i] = r; } }"""


@pytest.mark.parametrize("enough", [1, vector_width._ENOUGH])
@pytest.mark.parametrize("c", [1, 48, 128, 256, 100])
def test_sums_in_a_thread(c: int, enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cells: of structs there are none. `enough`: threads, for several elements each."""
    monkeypatch.setattr(vector_width, "_ENOUGH", enough)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    kernel, n, rng = kernel_of(f"typedef double T; {STRUCT}"), 3001, np.random.default_rng(c)
    pair = np.dtype([("a", "f8"), ("b", "f8")])

    def numbers(count: int) -> Any:
        return rng.uniform(-1, 1, 2 * count).view(pair)

    x, w, y, d_y = numbers(n), numbers(c), numbers(n), numbers(n)
    d_x, d_w = numbers(n), numbers(c)
    gradient = kg.gradient(kernel, "y, x, w", primal=False, keep="y")
    before = d_x.copy(), d_w.copy()
    gradient[4, 64](x, w, y, n, c, d_y, d_x, d_w)
    columns = [facts.columns for _, facts in gradient.forms.made if facts.columns]
    assert bool(columns) == (256 % c == 0 and c < 256)  # 256: each thread has a column for itself
    of = np.arange(n) % c
    u, want = w[of], [b.copy() for b in before]
    shared = np.cos(x["a"] * u["a"]) * d_y["a"]
    want[0]["a"] += shared * u["a"]
    want[0]["b"] += u["a"] * u["b"] * d_y["b"]
    np.add.at(want[1]["a"], of, shared * x["a"] + x["b"] * u["b"] * d_y["b"])
    np.add.at(want[1]["b"], of, x["b"] * u["a"] * d_y["b"])
    for got, expected in zip((d_x, d_w), want, strict=True):
        for name in "ab":
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("c", [1, 2, 4, 5])
@pytest.mark.parametrize("launch", [(8, 64), (3, 128), (11, (8, 4)), ((2, 3), (4, 4, 2)), (1, 1), (5, 33)], ids=str)
def test_values(launch: Any, c: int) -> None:
    for n in (3001, 17):
        expected = run("columns", launch, n, np.float64, c=c)
        with forced("in cells of blocks"):
            got = run("columns", launch, n, np.float64, c=c)
        threads = int(np.prod(launch[0])) * int(np.prod(launch[1]))
        some = any(facts.columns for _, facts in got[2].forms.made)
        assert some == (threads % c == 0 and launch != (1, 1) and n == 3001) or n == 17
        for one, other in zip(got[:2], expected[:2], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11)
