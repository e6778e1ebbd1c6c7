"""Kernels and edits of them that change nothing: the same, as others write it. What a plan costs must stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from plan_halos import HALOS
from plan_tiles import DYNAMIC, PRODUCTS, REGISTERS, SCANS, SIDE
from record_cell_cases import LAYOUTS, source

N = 1 << 16


class Written(NamedTuple):
    """A kernel `k`, its launch, and the sizes of its arrays, of floats and then of indices, and its numbers, in the
    order of its parameters. `promised`: what `kg.assume` is given of them."""

    text: str
    grid: Any
    block: Any
    sizes: tuple[int, ...]
    numbers: tuple[int, ...]
    shared: int = 0
    indices: tuple[int, ...] = ()
    promised: tuple[tuple[str, Any], ...] = ()


# ---- one element an execution ---------------------------------------------------------------------------------------

HELPERS = """
__device__ float gelu(float v) { return 0.5f * v * (1.0f + tanhf(0.8f * (v + 0.045f * v * v * v))); }
template <typename T> __device__ T cube(T v) { return v * v * v; }
"""
# Parameters and a body; `@` is the element's index. The arrays are as long as there are elements.
MAPS: dict[str, tuple[str, str]] = {
    "gelu": ("float *y, const float *x", "y[@] = gelu(x[@]);"),
    "product": ("float *y, const float *x, const float *z", "y[@] = x[@] * z[@] + sinf(x[@]);"),
    "branch": ("float *y, const float *x", "float v = x[@]; y[@] = v > 0.5f ? v * v : 0.1f * v;"),
    "cube": ("float *y, const float *x", "y[@] = cube<float>(x[@]);"),
    "transpose": ("float *y, const float *x", "y[@ % 256 * 256 + @ / 256] = x[@] * x[@];"),
    "permute": ("float *y, const float *x", "y[(@ / 1024 * 16 + @ % 16) * 64 + @ / 16 % 64] = x[@] * x[@];"),
    "read transposed": ("float *y, const float *x", "float v = x[@ % 256 * 256 + @ / 256]; y[@] = v * v;"),
    "loop inside": (
        "float *y, const float *x",
        "float v = x[@], s = 0; for (int k = 0; k < 3; ++k) s += v * v; y[@] = s;",
    ),
}
FLAT, SOME = N // 256, 32
INDEX = "blockIdx.x * blockDim.x + threadIdx.x"
# How a thread comes to its elements, before the body and after it, and the launch.
FRAMES: dict[str, tuple[str, str, Any, Any]] = {
    "early return": (f"int i = {INDEX}; if (i >= n) return;", "", FLAT, 256),
    "if": (f"int i = {INDEX}; if (i < n) {{", "}", FLAT, 256),
    "turned around": ("const int i = threadIdx.x + blockDim.x * blockIdx.x; if (!(n > i)) return;", "", FLAT, 256),
    "unsigned": (f"unsigned i = {INDEX}; if (i >= n) return;", "", FLAT, 256),
    "size_t": (f"size_t i = {INDEX}; if (i >= (size_t)n) return;", "", FLAT, 256),
    "long long": (
        "long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;",
        "",
        FLAT,
        256,
    ),
    "other blocks": (f"int i = {INDEX}; if (i >= n) return;", "", N // 128, 128),
    "constant block": ("int i = blockIdx.x * 256 + threadIdx.x; if (i >= n) return;", "", FLAT, 256),
    "helper": ("int i = place(); if (i >= n) return;", "", FLAT, 256),
    "between": (f"int i = {INDEX}; if (i >= 0 && i < n) {{", "}", FLAT, 256),
    "or": (f"int i = {INDEX}; if (i < 0 || i >= n) return;", "", FLAT, 256),
    "grid-stride": (f"for (int i = {INDEX}; i < n; i += blockDim.x * gridDim.x) {{", "}", SOME, 256),
    "grid-stride, unsigned": (f"for (unsigned i = {INDEX}; i < n; i += blockDim.x * gridDim.x) {{", "}", SOME, 256),
    "grid-stride, size_t": (
        f"size_t step = gridDim.x * blockDim.x; for (size_t i = {INDEX}; i < (size_t)n; i += step) {{",
        "}",
        SOME,
        256,
    ),
    "grid-stride, while": (f"int i = {INDEX}; while (i < n) {{", "i += gridDim.x * blockDim.x; }", SOME, 256),
    "grid-stride, do": (
        f"int i = {INDEX}; if (i < n) do {{",
        "i += gridDim.x * blockDim.x; } while (i < n);",
        SOME,
        256,
    ),
    "grid-stride, break": (
        f"int i = {INDEX}; for (;;) {{ if (i >= n) break;",
        "i += gridDim.x * blockDim.x; }",
        SOME,
        256,
    ),
    "grid-stride, constant": ("for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 32 * 256) {", "}", SOME, 256),
    "four a thread": (
        "for (int j = 0; j < 4; ++j) { int i = blockIdx.x * 1024 + j * 256 + threadIdx.x; if (i < n) {",
        "} }",
        FLAT // 4,
        256,
    ),
    "four a thread, unrolled": (
        "\n#pragma unroll\nfor (int j = 0; j < 4; ++j) {"
        " int i = (blockIdx.x * 4 + j) * blockDim.x + threadIdx.x; if (i < n) {",
        "} }",
        FLAT // 4,
        256,
    ),
    "four neighbours a thread": (
        f"for (int j = 0; j < 4; ++j) {{ int i = ({INDEX}) * 4 + j; if (i < n) {{",
        "} }",
        FLAT // 4,
        256,
    ),
    "2-D block": (
        "int i = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; if (i >= n) return;",
        "",
        FLAT,
        (32, 8),
    ),
    "2-D grid": (
        "int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x; if (i >= n) return;",
        "",
        (16, FLAT // 16),
        256,
    ),
}
PLACE = f"__device__ int place() {{ return {INDEX}; }}"


def mapped(name: str, frame: str) -> Written:
    params, body = MAPS[name]
    before, after, grid, block = FRAMES[frame]
    text = f"{HELPERS}{PLACE}\n__global__ void k({params}, int n) {{ {before} {body.replace('@', 'i')} {after} }}"
    return Written(text, grid, block, (N,) * params.count("*"), (N,))


# ---- small inputs that all threads read: many elements, so that few blocks are worth starting -----------------------

MANY, CELLS = 1 << 24, 256
SMALL: dict[str, str] = {
    "bias": "y[@] = gelu(x[@] + w[@ % 256]);",
    "weights": "float v = x[@], s = 0; for (int k = 0; k < 24; ++k) s += w[k * 7] * sinf(v * k); y[@] = s;",
    "table": "int k = (int)(x[@] * 255.0f); y[@] = x[@] * w[k < 0 ? 0 : k > 255 ? 255 : k];",
}
SMALL_EDITS: dict[str, Callable[[str], str]] = {
    "a bias by bits": lambda body: body.replace("@ % 256", "@ & 255"),
    "a loop of pointers": lambda body: body.replace(
        "for (int k = 0; k < 24; ++k) s += w[k * 7] * sinf(v * k);",
        "const float *p = w; for (int k = 0; k < 24; ++k, p += 7) s += *p * sinf(v * k);",
    ),
    "min and max": lambda body: body.replace("k < 0 ? 0 : k > 255 ? 255 : k", "min(max(k, 0), 255)"),
    "a helper": lambda body: re.sub(r"\bw\[([^\]]*)\]", r"look(w, \1)", body),
}
LOOK = "__device__ float look(const float *w, int k) { return w[k]; }"
OTHER_BLOCKS = ("other blocks", "four a thread", "four a thread, unrolled", "four neighbours a thread")


def small(name: str, frame: str, edit: Callable[[str], str] = lambda body: body) -> Written:
    before, after, grid, block = FRAMES[frame]
    few = grid == SOME
    grid = SOME * 16 if few else (grid[0] * 16, grid[1] * 16) if isinstance(grid, tuple) else grid * (MANY // N)
    before = before.replace("32 * 256", "512 * 256")
    body = edit(SMALL[name]).replace("@", "i")
    params = "float *y, const float *x, const float *w, int n"
    text = f"{HELPERS}{PLACE}{LOOK}\n__global__ void k({params}) {{ {before} {body} {after} }}"
    return Written(text, grid, block, (MANY, MANY, CELLS), (MANY,))


# ---- the same, where the small input holds vectors or records -------------------------------------------------------

RECORDS = ("columns", "lookup", "return", "loop", "branches", "shuffles", "one")
FLOATS = [name for name, made in LAYOUTS.items() if made.cells and "integer" not in name and name != "a copy"]


def recorded(body: str, layout: str) -> Written:
    grid = 1056 if body in ("columns", "one") else MANY // 256
    return Written(source(body, LAYOUTS[layout], "float"), grid, 256, (MANY, MANY, CELLS), (MANY, CELLS // 4))


# ---- rows -----------------------------------------------------------------------------------------------------------

ROWS, COLUMNS = 256, 512
ROW_HELPERS = """
__device__ float over_warp(float v) {
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}
__device__ float over_block(float v) {
    __shared__ float part[32];
    v = over_warp(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32) v = over_warp(v);
    if (threadIdx.x == 0) part[0] = v;
    __syncthreads();
    float total = part[0];
    __syncthreads();
    return total;
}
__device__ float tree(float *s, float v) {
    int t = threadIdx.x;
    s[t] = v;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    float total = s[0];
    __syncthreads();
    return total;
}
"""
# Bodies: `LOOP` goes through a row, `c` its column; `SUM(v)` adds up over it; `@` is the place of an element.
ROW_BODIES: dict[str, str] = {
    "mean": "float a = 0; LOOP a += x[@]; a = SUM(a) / n; LOOP y[@] = x[@] - a;",
    "rms": "float a = 0; LOOP { float v = x[@]; a += v * v; } a = rsqrtf(SUM(a) / n + 1e-6f); LOOP y[@] = x[@] * a;",
    "softmax": "float a = 0; LOOP a += expf(x[@]); a = SUM(a); LOOP y[@] = expf(x[@]) / a;",
    "variance": (
        "float a = 0; LOOP a += x[@]; a = SUM(a) / n; float b = 0; LOOP b += (x[@] - a) * (x[@] - a);"
        " b = rsqrtf(SUM(b) / n + 1e-5f); LOOP y[@] = (x[@] - a) * b;"
    ),
}
STRIDED = "for (int c = threadIdx.x; c < n; c += blockDim.x)"
WARP = "for (int c = lane; c < n; c += 32)"


class RowFrame(NamedTuple):
    before: str
    loop: str = STRIDED
    place: str = "row * n + c"
    sum: str = "over_block"
    after: str = ""
    grid: Any = ROWS
    block: Any = 256
    shared: int = 0


BLOCK = "int row = blockIdx.x;"
FLAT_WARP = "int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;"
ROW_FRAMES: dict[str, RowFrame] = {
    "block": RowFrame(BLOCK),
    "early return": RowFrame(f"{BLOCK} if (row >= rows) return;"),
    "if": RowFrame(f"{BLOCK} if (row < rows) {{", after="}"),
    "constant step": RowFrame(BLOCK, "for (int c = threadIdx.x; c < n; c += 256)"),
    "unsigned columns": RowFrame(BLOCK, "for (unsigned c = threadIdx.x; c < n; c += blockDim.x)"),
    "while": RowFrame(BLOCK, "for (int c = threadIdx.x, d = blockDim.x; c < n; c += d)"),
    "size_t place": RowFrame("size_t row = blockIdx.x;"),
    "base": RowFrame("int base = blockIdx.x * n;", place="base + c"),
    "base in 64 bits": RowFrame("long long base = (long long)blockIdx.x * n;", place="base + c"),
    "place of c": RowFrame(BLOCK, place="c + n * row"),
    "smaller blocks": RowFrame(BLOCK, block=128),
    "row a flat warp": RowFrame(FLAT_WARP, WARP, sum="over_warp", grid=ROWS // 8),
    "row a flat warp, guarded": RowFrame(
        f"{FLAT_WARP} if (row >= rows) return;", WARP, sum="over_warp", grid=ROWS // 8
    ),
    "row a warp, by bits": RowFrame(
        "int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;", WARP, sum="over_warp", grid=ROWS // 8
    ),
    "row a warp, warpSize": RowFrame(
        "int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;",
        "for (int c = lane; c < n; c += warpSize)",
        sum="over_warp",
        grid=ROWS // 8,
    ),
    "row a warp of a 2-D block": RowFrame(
        "int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;",
        WARP,
        sum="over_warp",
        grid=ROWS // 8,
        block=(32, 8),
    ),
}
TREES: dict[str, RowFrame] = {
    "static": RowFrame(f"__shared__ float s[256]; {BLOCK}", sum="STATIC"),
    "static, guarded": RowFrame(f"__shared__ float s[256]; {BLOCK} if (row >= rows) return;", sum="STATIC"),
    "static, base": RowFrame("__shared__ float s[256]; int base = blockIdx.x * n;", place="base + c", sum="STATIC"),
    "static, constant step": RowFrame(
        f"__shared__ float s[256]; {BLOCK}", "for (int c = threadIdx.x; c < n; c += 256)", sum="STATIC"
    ),
    "static, unsigned": RowFrame(
        "__shared__ float s[256]; unsigned row = blockIdx.x;",
        "for (unsigned c = threadIdx.x; c < n; c += blockDim.x)",
        sum="STATIC",
    ),
    "dynamic": RowFrame(f"extern __shared__ float s[]; {BLOCK}", sum="STATIC", shared=1024),
    "dynamic, guarded": RowFrame(
        f"extern __shared__ float s[]; {BLOCK} if (row >= rows) return;", sum="STATIC", shared=1024
    ),
    "padded": RowFrame(f"__shared__ float s[256 + 32]; {BLOCK}", sum="STATIC"),
}


def rowed(name: str, frame: RowFrame) -> Written:
    body = ROW_BODIES[name].replace("LOOP", frame.loop).replace("@", frame.place)
    body = re.sub(r"SUM\((\w)\)", r"tree(s, \1)" if frame.sum == "STATIC" else rf"{frame.sum}(\1)", body)
    params = "float *y, const float *x, int rows, int n"
    text = f"{ROW_HELPERS}\n__global__ void k({params}) {{ {frame.before} {body} {frame.after} }}"
    return Written(text, frame.grid, frame.block, (ROWS * COLUMNS,) * 2, (ROWS, COLUMNS), frame.shared)


# ---- tiles ----------------------------------------------------------------------------------------------------------


def tiled(name: str) -> Written:
    made = PRODUCTS.get(name, DYNAMIC)
    return Written(made.text, (SIDE // 16,) * 2, made.block, (SIDE * SIDE,) * 3, (SIDE,), made.shared)


def in_registers(name: str) -> Written:
    made = REGISTERS[name]
    return Written(made.text, (SIDE // 64,) * 2, made.block, (SIDE * SIDE,) * 3, (SIDE,))


def scanned(name: str) -> Written:
    return Written(SCANS[name], N // 256, 256, (N,) * 2, (N,))


# ---- ragged segments, which do not overlap as promised --------------------------------------------------------------

SEGMENT = f"int s = {INDEX}; if (s >= n) return; float a = 0;"
FROM_ROW = "int b = row[s], e = row[s + 1];"
SEGMENTS: dict[str, str] = {
    "rows": f"{SEGMENT} for (int k = row[s]; k < row[s + 1]; ++k) a += x[k] * x[k]; y[s] = a;",
    "named ends": f"{SEGMENT} {FROM_ROW} for (int k = b; k < e; k++) {{ float v = x[k]; a += v * v; }} y[s] = a;",
    "a length": f"{SEGMENT} {FROM_ROW} for (int j = 0; j < e - b; ++j) a += x[b + j] * x[b + j]; y[s] = a;",
    "a pointer": f"{SEGMENT} {FROM_ROW} for (const float *p = x + b; p < x + e; ++p) a += *p * *p; y[s] = a;",
    "while": f"{SEGMENT} {FROM_ROW} while (b < e) {{ a += x[b] * x[b]; b++; }} y[s] = a;",
    "backwards": f"{SEGMENT} {FROM_ROW} for (int k = e - 1; k >= b; --k) a += x[k] * x[k]; y[s] = a;",
    "offset and count": f"{SEGMENT} {FROM_ROW} for (int j = 0; j < count[s]; ++j) a += x[b + j] * x[b + j]; y[s] = a;",
    "to offset and count": f"{SEGMENT} {FROM_ROW} for (int k = b; k < b + count[s]; ++k) a += x[k] * x[k]; y[s] = a;",
}


def segmented(name: str) -> Written:
    text = (
        f"__global__ void k(float *y, const float *x, const int *row, const int *count, int n) {{ {SEGMENTS[name]} }}"
    )
    promised = (("disjoint", ("row", "count") if "count" in name else "row"),)
    return Written(text, FLAT // 16, 256, (N // 16, N), (N // 16,), 0, (N // 16 + 1, N // 16), promised)


# ---- edits of any text ----------------------------------------------------------------------------------------------


def _named(text: str) -> str:
    for old, new in (("x", "input"), ("y", "result"), ("i", "index_"), ("n", "count_")):
        text = re.sub(rf"(?<![.\w]){old}\b", new, text)
    return text


def _template(text: str) -> str:
    return text.replace("__global__ void k(", "template <int Unused = 3> __device__ void body(") + _call(text)


def _call(text: str) -> str:
    head = re.search(r"__global__ void k\(([^)]*)\)", text)
    assert head is not None
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", head[1]))
    return f"\n__global__ void k({head[1]}) {{ body<3>({names}); }}"


LEXICAL: dict[str, Callable[[str], str]] = {
    "names": _named,
    "a template that the kernel calls": _template,
    "restrict": lambda text: re.sub(r"float \*(\w)(?=[,)])", r"float *__restrict__ \1", text),
    "launch bounds": lambda text: text.replace("__global__ void k", "__global__ void __launch_bounds__(256) k"),
}


def pairs() -> Iterator[tuple[str, str, Callable[[], tuple[Written, Written]]]]:
    """Kernel, edit, and the kernel before and after it."""
    for name in MAPS:
        for frame in list(FRAMES)[1:]:
            yield name, frame, lambda n=name, f=frame: (mapped(n, "early return"), mapped(n, f))  # type: ignore[misc]
        for edit in LEXICAL:
            yield name, edit, lambda n=name, e=edit: _edited(mapped(n, "early return"), e)  # type: ignore[misc]
    for name in SMALL:
        for frame in (f for f in list(FRAMES)[1:] if f not in OTHER_BLOCKS):
            yield name, frame, lambda n=name, f=frame: (small(n, "early return"), small(n, f))  # type: ignore[misc]
        for edit, change in SMALL_EDITS.items():
            if change(SMALL[name]) != SMALL[name] and "@" in change(SMALL[name]):
                base = small(name, "early return")
                yield name, edit, lambda n=name, e=change, b=base: (b, small(n, "early return", e))  # type: ignore[misc]
    for name in RECORDS:
        for layout in FLOATS[1:]:
            yield f"{name} of records", layout, lambda n=name, o=layout: (recorded(n, "numbers"), recorded(n, o))  # type: ignore[misc]
    for name in ROW_BODIES:
        for frames in (ROW_FRAMES, TREES):
            base, *others = frames
            for frame in others:
                yield name, frame, lambda n=name, f=frames, b=base, o=frame: (rowed(n, f[b]), rowed(n, f[o]))  # type: ignore[misc]
        for edit in LEXICAL:
            yield name, edit, lambda n=name, e=edit: _edited(rowed(n, ROW_FRAMES["block"]), e)  # type: ignore[misc]
    for tiles in HALOS:
        base, *others = tiles
        for other in others:
            yield base, other, lambda t=tiles, b=base, o=other: (Written(*t[b]), Written(*t[o]))  # type: ignore[misc]
    for names, made in ((PRODUCTS, tiled), (REGISTERS, in_registers), (SCANS, scanned), (SEGMENTS, segmented)):
        base, *others = names
        for other in others:
            yield base, other, lambda m=made, b=base, o=other: (m(b), m(o))  # type: ignore[misc]


def _edited(base: Written, edit: str) -> tuple[Written, Written]:
    return base, base._replace(text=LEXICAL[edit](base.text))
