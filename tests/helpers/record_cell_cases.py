"""Kernels whose threads all read a small input of records, four numbers each, as they are written with an array of
numbers, with vectors, and with records of all kinds: `W(k, a)` is number a of element k. `T` is the type of numbers."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

import kernelgrad as kg
from cell_cases import INDEX, Launch, threads_of

ELEMENTS, BEFORE, BEHIND = 6, 2, 3
NUMBERS = "abcd"


class Layout(NamedTuple):
    """`declared`: before the kernel; `type`: of what `w` leads to; `read`: number a of element k; `fields`: of an
    element, for numpy. `four`: how many elements of `w` are four numbers. `cells`: whether blocks have
    some."""

    declared: str
    type: str
    read: dict[str, str]
    fields: list[Any] | None = None
    four: int = 1
    cells: bool = True


def _members(*names: str) -> dict[str, str]:
    return {a: f"w[@].{name}" for a, name in zip(NUMBERS, names, strict=True)}


def _lanes(of: str) -> dict[str, str]:
    return {a: f"{of}.{lane}" for a, lane in zip(NUMBERS, "xyzw", strict=True)}


_ABCD = [(a, "T") for a in NUMBERS]
LAYOUTS: dict[str, Layout] = {
    "numbers": Layout("", "T", {a: f"w[4 * (@) + {k}]" for k, a in enumerate(NUMBERS)}, four=4),
    "vectors": Layout("", "T4", _lanes("w[@]"), four=4),
    "cast to vectors": Layout("", "T", _lanes("reinterpret_cast<const T4 *>(w)[@]"), four=4),
    "pairs": Layout("", "T2", {a: f"w[2 * (@) + {k // 2}].{'xy'[k % 2]}" for k, a in enumerate(NUMBERS)}, four=4),
    "cast to pairs": Layout(
        "",
        "T4",
        {a: f"((const T2 *)w)[2 * (@) + {k // 2}].{'xy'[k % 2]}" for k, a in enumerate(NUMBERS)},
        four=4,
    ),
    "rows": Layout("typedef T Row[4];", "Row", {a: f"w[@][{k}]" for k, a in enumerate(NUMBERS)}, four=4),
    "members": Layout("struct R { T a, b, c, d; };", "R", _members(*NUMBERS), _ABCD),
    "pointer to a member": Layout(
        "struct R { T a, v[3]; };",
        "R",
        {"a": "w[@].a", **{a: f"(&w[@].v[0])[{k}]" for k, a in enumerate("bcd")}},
        [("a", "T"), ("v", "T", 3)],
    ),
    "a copy": Layout(
        "struct R { T a, b, c, d; }; __device__ T part(R r, int k) { return k ? k == 1 ? r.b : r.c : r.a; }",
        "R",
        {**{a: f"part(w[@], {k})" for k, a in enumerate("abc")}, "d": "w[@].d"},
        _ABCD,
    ),
    "records in records": Layout(
        "struct V { T x, y; }; struct R { V p[1]; V q; };",
        "R",
        _members("p[0].x", "p[0].y", "q.x", "q.y"),
        [("p", [("x", "T"), ("y", "T")], 1), ("q", [("x", "T"), ("y", "T")])],
    ),
    "an integer": Layout(
        "struct R { T a, b; int id; T c, d; };",
        "R",
        _members(*NUMBERS),
        [("a", "T"), ("b", "T"), ("id", "i4"), ("c", "T"), ("d", "T")],
    ),
    "small integers": Layout(
        "struct R { T a; char k; T b; short l; bool m; T c, d; unsigned char n; };",
        "R",
        _members(*NUMBERS),
        [("a", "T"), ("k", "i1"), ("b", "T"), ("l", "i2"), ("m", "?"), ("c", "T"), ("d", "T"), ("n", "u1")],
    ),
    "padding": Layout(
        "struct alignas(16) R { T a, b, c; int id; T d; };",
        "R",
        _members(*NUMBERS),
        [("a", "T"), ("b", "T"), ("c", "T"), ("id", "i4"), ("d", "T")],
        cells=False,
    ),
    "two integers": Layout(
        "struct R { T a; int i, j; T b, c, d; };",
        "R",
        _members(*NUMBERS),
        [("a", "T"), ("i", "i4"), ("j", "i4"), ("b", "T"), ("c", "T"), ("d", "T")],
        cells=False,
    ),
    "integers behind": Layout(
        "struct R { T a, b, c, d; int i, j; };",
        "R",
        _members(*NUMBERS),
        [*_ABCD, ("i", "i4"), ("j", "i4")],
    ),
    "a long integer": Layout(
        "struct R { T a, b; long long id; T c, d; };",
        "R",
        _members(*NUMBERS),
        [("a", "T"), ("b", "T"), ("id", "i8"), ("c", "T"), ("d", "T")],
        cells=False,
    ),
}
# Of more than one width: no cells, in either precision.
MIXED: dict[str, Layout] = {
    "two precisions": Layout(
        "struct R { float a; double b; float c; double d; };",
        "R",
        _members(*NUMBERS),
        [("a", "f4"), ("b", "f8"), ("c", "f4"), ("d", "f8")],
        cells=False,
    ),
    "halves": Layout(
        "#include <cuda_fp16.h>\nstruct R { __half a, b; T c, d; };",
        "R",
        {"a": "__half2float(w[@].a)", "b": "(float)w[@].b", "c": "w[@].c", "d": "w[@].d"},
        [("a", "f2"), ("b", "f2"), ("c", "T"), ("d", "T")],
    ),
    "a union": Layout(
        "struct R { T a, b; union { int i; unsigned u; }; T c, d; };",
        "R",
        _members(*NUMBERS),
        [("a", "T"), ("b", "T"), ("i", "i4"), ("c", "T"), ("d", "T")],
        cells=False,
    ),
}
HEAD = "__global__ void k(T *y, const T *x, const S *w, int n, int c)"
BODIES: dict[str, str] = {
    "columns": "for (; i < n; i += all) y[i] = x[i] * sin(x[i] + W(i % c, a)) + W(i % c, c) * x[i] * x[i];",
    "lookup": "if (i < n) { int k = (int)(x[i] * (c - 1)); y[i] = W(k, a) * W(k + 1, b) * x[i] + W(k, c) * W(k, d); }",
    "return": "if (i >= n) return; if (x[i] < T(0.5)) { y[i] = W(2, d); return; } y[i] = x[i] * W((7 * i) % c, b);",
    "loop": "if (i >= n) return; T s = 0; for (int k = 0; k < c; ++k) { T v = x[i] - W(k, a), u = x[i] + W(k, b);"
    " s += W(k, c) * exp(-v * v * W(k, d)) * u; } y[i] = s * s;",
    "some": "if (i >= n) return; T s = 0; for (int k = 0; k < 3; ++k) s += x[i] * W(k, b) * T(k + 1); y[i] = s * s;",
    "branches": "if (i >= n) return; if (i % 3 == 0) y[i] = W(0, a) * x[i];"
    " else if (i % 3 == 1) y[i] = W(c, d) * W(c, d);"
    " else { T s = 0; for (int k = i % c; k < c; ++k) s += W(k, a) * W(k, c); y[i] = s; }",
    "one": "for (; i < n; i += all) y[i] = sin(x[i] * W(3, c)) * W(3, b);",
    "tile": "__shared__ T s[1024]; s[t] = i < n ? x[i] * W(i % c, d) : T(0); __syncthreads();"
    " if (i >= n) return; y[i] = s[t] * s[t / 2] * W(0, a);",
    "shuffles": "T v = i < n ? x[i] * W(i % c, b) : T(0); v += __shfl_xor_sync(__activemask(), v, 0);"
    " if (i < n) y[i] = v * v;",
    "anywhere": "if (i < n) y[i] = x[i] * W((int)(x[i] * 9) - 2, a) + W((int)(x[i] * 9) - 2, c);",
}
FEW = ("vectors", "cast to vectors", "cast to pairs", "a copy", "an integer", "small integers")


def source(body: str, layout: Layout, real: str = "double") -> str:
    def read(found: re.Match[str]) -> str:
        return layout.read[found[2]].replace("@", found[1])

    text = re.sub(r"W\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*), ([abcd])\)", read, BODIES[body])
    text = f"{layout.declared}\n{HEAD.replace('S', layout.type)} {{ {INDEX} {text} }}"
    text = re.sub(r"\bT([24])\b", rf"{real}\1", text)
    return re.sub(r"\bT\b", real, text)


def elements(body: str, launch: Launch) -> int:
    threads = threads_of(launch)
    return 3 * threads + 5 if body in ("columns", "one") else max(1, threads - 3)


def _dtype(fields: list[Any], real: Any) -> np.dtype[Any]:
    def told(field: Any) -> Any:
        name, type, *more = field
        return (name, _dtype(type, real) if isinstance(type, list) else real if type == "T" else type, *more)

    return np.dtype([told(field) for field in fields], align=True)


def records(values: Any, layout: Layout, real: Any) -> Any:
    """Rows of four numbers as the layout has them."""
    if layout.fields is None:
        return values.astype(real).reshape(-1)
    dtype = _dtype(layout.fields, real)
    if "alignas(16)" in layout.declared:
        parts = dtype.fields or {}
        told = {
            "names": list(parts),
            "formats": [f[0] for f in parts.values()],
            "offsets": [f[1] for f in parts.values()],
        }
        dtype = np.dtype({**told, "itemsize": -(-dtype.itemsize // 16) * 16})
    found = np.zeros(len(values) * layout.four, dtype)
    leaves, rows = _numbers(found), values.reshape(len(found), -1)
    for k, leaf in enumerate(leaves):
        leaf[...] = rows[:, k]
    return found


def _numbers(found: Any) -> list[Any]:
    """Views of the floats of each record, one after the other."""
    if found.dtype.names is None:
        if found.dtype.kind != "f":
            return []
        return [found] if found.ndim == 1 else [found[:, k] for k in range(found.shape[1])]
    parts = [found[name] for name in found.dtype.names]
    return [leaf for p in parts for leaf in _numbers(p[:, 0] if p.ndim == 2 and p.dtype.names else p)]


def rows(found: Any) -> Any:
    """The other way around."""
    found = found.get() if hasattr(found, "get") else found
    leaves = _numbers(found) if found.dtype.names else [found]
    return np.stack([leaf.astype(np.float64) for leaf in leaves], 1).reshape(-1, 4)


def arguments(n: int, layout: Layout, real: Any, c: int = 5) -> list[Any]:
    """With the adjoints. `w` and its adjoint are to be viewed as a part."""
    random = np.random.default_rng(1)
    x, y = random.random(max(n, 1)).astype(real), np.zeros(max(n, 1), real)
    w = random.random((BEFORE + ELEMENTS + BEHIND, 4))
    seed, d_x = random.standard_normal(x.size).astype(real), np.ones(x.size, real)
    of_adjoint = layout
    if layout.fields is not None:  # those of halves are floats
        of_adjoint = layout._replace(fields=[(f[0], "T" if f[1] == "f2" else f[1], *f[2:]) for f in layout.fields])
    return [y, x, records(w, layout, real), n, c, seed, d_x, records(np.ones_like(w), of_adjoint, real)]


def viewed(given: list[Any], layout: Layout) -> list[Any]:
    part = slice(BEFORE * layout.four, (BEFORE + ELEMENTS) * layout.four)
    return [a[part] if k in (2, 7) else a for k, a in enumerate(given)]


def run(
    body: str, layout: Layout, launch: Launch, n: int, real: Any = np.float64, **options: Any
) -> tuple[Any, Any, Any]:
    """The adjoints of x and of all that w is within, in rows, and the gradient."""
    spelled = {np.float32: "float", np.float64: "double"}[real]
    gradient: Any = kg.gradient(kg.compile(source(body, layout, spelled))["k"], "y, x, w", **options)
    given = arguments(n, layout, real)
    gradient[launch](*viewed(given, layout))
    return given[6], rows(given[7]), gradient
