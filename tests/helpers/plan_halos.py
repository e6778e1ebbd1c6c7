"""Stencils and convolutions that read a tile with a halo in shared memory, as different people write them, for
`plan_table`. The first of each reads memory itself."""

from __future__ import annotations

from typing import Any, NamedTuple

SIDE = 256


class Tile(NamedTuple):
    """As `plan_table.Written`."""

    text: str
    grid: Any
    block: Any
    sizes: tuple[int, ...]
    numbers: tuple[int, ...]
    shared: int = 0


# ---- along one axis, three points -----------------------------------------------------------------------------------

LENGTH = SIDE * SIDE
_LINE = "int t = threadIdx.x, i = blockIdx.x * 256 + t;"
_ZERO = "int g = (int)blockIdx.x * 256 + j - 1; s[j] = g >= 0 && g < n ? x[g] : 0.0f;"
_THREE = "if (i < n) y[i] = 0.25f * s[t] + 0.5f * s[t + 1] + 0.25f * s[t + 2];"


def line(
    declared: str = "__shared__ float s[258];",
    loop: str = "for (int j = t; j < 258; j += 256)",
    store: str = _ZERO,
    computed: str = _THREE,
    own: str = _LINE,
    shared: int = 0,
) -> Tile:
    body = f"{declared} {own} {loop} {{ {store} }} __syncthreads(); {computed}"
    text = f"__global__ void k(float *y, const float *x, int n) {{ {body} }}"
    return Tile(text, LENGTH // 256, 256, (LENGTH, LENGTH), (LENGTH,), shared)


def plain_line(read: str) -> Tile:
    points = " + ".join(
        f"{w} * ({read.replace('@', f'(i + {k})')})" for w, k in (("0.25f", -1), ("0.5f", 0), ("0.25f", 1))
    )
    text = f"__global__ void k(float *y, const float *x, int n) {{ {_LINE} if (i < n) y[i] = {points}; }}"
    return Tile(text, LENGTH // 256, 256, (LENGTH, LENGTH), (LENGTH,))


LINES: dict[str, Tile] = {
    "stencil along a line": plain_line("@ >= 0 && @ < n ? x[@] : 0.0f"),
    "strided loop": line(),
    "steps of blockDim": line(loop="for (int j = t; j < blockDim.x + 2; j += blockDim.x)"),
    "unsigned counter": line(
        loop="for (unsigned j = threadIdx.x; j < 258; j += blockDim.x)", store=_ZERO.replace("+ j", "+ (int)j")
    ),
    "while": line(loop="int j = t; while (j < 258)", store=f"{_ZERO} j += 256;"),
    "dynamic memory": line("extern __shared__ float s[];", shared=258 * 4),
    "branches that store": line(
        store="int g = (int)blockIdx.x * 256 + j - 1; if (g < 0 || g >= n) s[j] = 0.0f; else s[j] = x[g];"
    ),
    "index of blockDim": line(
        own="int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;",
        store=_ZERO.replace("(int)blockIdx.x * 256", "(int)(blockIdx.x * blockDim.x)"),
    ),
    "early return": line(computed=f"if (i >= n) return; {_THREE.removeprefix('if (i < n) ')}"),
}
CLAMPED_LINES: dict[str, Tile] = {
    "clamped stencil along a line": plain_line("x[min(max(@, 0), n - 1)]"),
    "strided loop": line(store="s[j] = x[min(max((int)blockIdx.x * 256 + j - 1, 0), n - 1)];"),
    "by tests": line(store="int g = (int)blockIdx.x * 256 + j - 1; s[j] = x[g < 0 ? 0 : g >= n ? n - 1 : g];"),
}

# ---- along two axes, five points; and a convolution with weights ----------------------------------------------------

_PLANE = "int tx = threadIdx.x, ty = threadIdx.y, gx = blockIdx.x * 32 + tx, gy = blockIdx.y * 16 + ty;"
_POINTS = ((0.5, 1, 1), (0.125, 0, 1), (0.125, 2, 1), (0.125, 1, 0), (0.125, 1, 2))
_LOOPS = "for (int j = ty; j < {0}; j += 16) for (int i = tx; i < {1}; i += 32)"
_FLAT_LOOP = "for (int c = ty * 32 + tx; c < {0} * {1}; c += 512)"
_INSIDE = "sx >= 0 && sx < n && sy >= 0 && sy < n ? x[sy * n + sx] : 0.0f"
_FROM = "int sx = (int)blockIdx.x * 32 + i - {0}, sy = (int)blockIdx.y * 16 + j - {0};"


def five(read: str) -> str:
    points = " + ".join(f"{w}f * {read.format(j, i)}" for w, j, i in _POINTS)
    return f"if (gx < n && gy < n) y[gy * n + gx] = {points};"


def weighted(read: str) -> str:
    taps = f"for (int p = 0; p < 5; ++p) for (int q = 0; q < 5; ++q) a += w[p * 5 + q] * {read.format('p', 'q')};"
    return f"if (gx < n && gy < n) {{ float a = 0; {taps} y[gy * n + gx] = a; }}"


def plane(text: str, weights: bool, shared: int = 0) -> Tile:
    params = f"float *y, const float *x, {'const float *w, ' if weights else ''}int n"
    sizes = (SIDE * SIDE, SIDE * SIDE, *((25,) if weights else ()))
    text = f"__global__ void k({params}) {{ {_PLANE} {text} }}"
    return Tile(text, (SIDE // 32, SIDE // 16), (32, 16), sizes, (SIDE,), shared)


def planes(name: str, weights: bool) -> dict[str, Tile]:
    """Of a halo of one or two cells."""
    halo, computed = (2, weighted) if weights else (1, five)
    rows, columns = 16 + 2 * halo, 32 + 2 * halo
    loops, flat_loop, source = _LOOPS.format(rows, columns), _FLAT_LOOP.format(rows, columns), _FROM.format(halo)
    cell, flat_cell = "s[ty + {0}][tx + {1}]", f"s[(ty + {{0}}) * {columns} + tx + {{1}}]"
    nested, flat = f"__shared__ float s[{rows}][{columns}];", f"__shared__ float s[{rows} * {columns}];"
    direct = _INSIDE.replace("sx", f"(gx + {{1}} - {halo})").replace("sy", f"(gy + {{0}} - {halo})")
    by_block = loops.replace("+= 16", "+= blockDim.y").replace("+= 32", "+= blockDim.x")
    digits = f"int j = c / {columns}, i = c % {columns};"

    def tiled(declared: str, fill: str, read: str = cell, shared: int = 0) -> Tile:
        return plane(f"{declared} {fill} __syncthreads(); {computed(read)}", weights, shared)

    return {
        name: plane(computed(f"({direct})"), weights),
        "strided loops": tiled(nested, f"{loops} {{ {source} s[j][i] = {_INSIDE}; }}"),
        "padded rows": tiled(
            f"__shared__ float s[{rows}][{columns + 1}];", f"{loops} {{ {source} s[j][i] = {_INSIDE}; }}"
        ),
        "steps of blockDim": tiled(
            nested,
            f"{by_block} {{ {source} s[j][i] = {_INSIDE}; }}",
        ),
        "flat array": tiled(flat, f"{loops} {{ {source} s[j * {columns} + i] = {_INSIDE}; }}", flat_cell),
        "flat loop over rows": tiled(nested, f"{flat_loop} {{ {digits} {source} s[j][i] = {_INSIDE}; }}"),
        "flat loop": tiled(flat, f"{flat_loop} {{ {digits} {source} s[c] = {_INSIDE}; }}", flat_cell),
        "dynamic memory": tiled(
            "extern __shared__ float s[];",
            f"{flat_loop} {{ {digits} {source} s[c] = {_INSIDE}; }}",
            flat_cell,
            rows * columns * 4,
        ),
    }


HALOS: tuple[dict[str, Tile], ...] = (
    LINES,
    CLAMPED_LINES,
    planes("stencil in a plane", weights=False),
    planes("convolution in a plane", weights=True),
)
