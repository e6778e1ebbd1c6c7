"""Kernels as people write them, each right for any number of elements and any grid: a table for awkward launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]

# What a thread computes first. A block is a line where blockDim.x alone says which element is a thread's.
LINE = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
THREAD = (
    "int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z), "
    "threads = blockDim.x * blockDim.y * blockDim.z;"
)
FLAT = (
    f"{THREAD} int i = (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) * threads + t, "
    "all = gridDim.x * gridDim.y * gridDim.z * threads;"
)
ROW = f"{THREAD} int row = blockIdx.x; if (row >= rows) return;"
WARP = f"{THREAD} int row = (blockIdx.x * threads + t) / 32, lane = t % 32;"
PLANE = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"
VOLUME = f"{PLANE} int z = blockIdx.z * blockDim.z + threadIdx.z;"

LINES: tuple[Shape, ...] = ((1,), (33,), (96,), (256,), (1024,))
PLANES: tuple[Shape, ...] = ((5, 7), (16, 16), (33, 3), (1, 32))
EVERY: tuple[Shape, ...] = (*LINES, *PLANES, (4, 3, 2))
POWERS: tuple[Shape, ...] = ((1,), (256,), (1024,), (16, 16), (1, 32))
WARPS: tuple[Shape, ...] = ((32,), (96,), (256,), (1024,), (32, 4))


def around(unit: int) -> Shape:
    """None, one, about as many as a block does, and a prime number that is more than two blocks do."""
    prime = next(n for n in count(5 * unit // 2 + 1) if all(n % k for k in range(2, n)))
    return tuple(sorted({0, 1, unit - 1, unit, unit + 1, prime}))


@dataclass(frozen=True)
class Form:
    """Which blocks a kernel takes, how much of its work in each direction a block does, and how much may be inside each
    item: what its loops go through."""

    blocks: tuple[Shape, ...]
    covers: Callable[[Shape], Shape]
    begin: str
    inside: Callable[[Shape], Shape] = lambda block: (0, 1, 3, 7, 13)
    any_grid: bool = False  # the grid's directions do not matter, only its number of blocks


FORMS = {
    "line": Form(LINES, lambda block: block[:1], LINE),
    "four": Form(LINES, lambda block: (4 * block[0],), LINE),
    "flat": Form(EVERY, lambda block: (prod(block),), FLAT, any_grid=True),
    "lanes": Form(WARPS, lambda block: (prod(block),), FLAT, any_grid=True),
    "row": Form(EVERY, lambda block: (1,), ROW, lambda block: around(prod(block))),
    "power": Form(POWERS, lambda block: (1,), ROW, lambda block: around(prod(block))),
    "warp": Form(WARPS, lambda block: (prod(block) // 32,), WARP, lambda block: around(32)),
    "plane": Form((*LINES, *PLANES), lambda block: (*block, 1, 1)[:3], PLANE, lambda block: around((*block, 1)[1])),
    "volume": Form(EVERY, lambda block: (*block, 1, 1)[:3], VOLUME, lambda block: around((*block, 1)[1])),
    "tile": Form(EVERY, lambda block: (32, 32), "", lambda block: around(32)),
    "square": Form(((16, 16),), lambda block: (16, 16), PLANE, lambda block: around(16)),
    "registers": Form(((16, 16),), lambda block: (32, 32), THREAD, lambda block: around(32)),
}


@dataclass(frozen=True)
class Awkward:
    """`k(T *outputs, const T *inputs, const int *indices, T reals, int numbers)`.

    `numbers` has their values for so many items, with so much inside each; `work` how far the work goes in each
    direction of the grid; `sizes` the elements of outputs and inputs; `indices` what index buffers hold."""

    form: str
    arrays: str  # outputs | inputs
    names: str  # of the numbers
    body: str
    numbers: Callable[[int, int], Shape]
    sizes: Callable[..., Shape]
    work: Callable[..., Shape] = lambda n, *_: (n,)
    indices: dict[str, Callable[..., Any]] = field(default_factory=dict)
    reals: str = ""
    updated: bool = False  # the outputs are also read
    aligned: int = 1  # elements that the kernel itself reads at once

    @property
    def outputs(self) -> list[str]:
        return self.arrays.split("|")[0].split()

    @property
    def inputs(self) -> list[str]:
        return self.arrays.split("|")[1].split()

    def text(self, real: str) -> str:
        lists = (("REAL *", self.outputs), ("const REAL *", self.inputs), ("const int *", self.indices))
        scalars = (("REAL ", self.reals.split()), ("int ", self.names.split()))
        parameters = ", ".join(kind + name for kind, names in (*lists, *scalars) for name in names)
        text = f"__global__ void k({parameters}) {{ {FORMS[self.form].begin}\n{self.body}\n}}"
        return text.replace("REAL", real)


def _csr_starts(rows: int, width: int) -> Any:
    return np.concatenate(([0], np.cumsum((np.arange(rows) * 7 + 3) % (width + 1)))).astype(np.int32)


def _below(length: Callable[..., int], end: Callable[..., int]) -> Callable[..., Any]:
    """Indices, as many as `length` says, below `end`."""
    return lambda *numbers: np.random.default_rng(5).integers(0, max(end(*numbers), 1), length(*numbers), np.int32)


# A sum over any number of threads, whose number need not be a power of two; all get it.
TREE = """
    __syncthreads();
    for (int d = 512; d > 0; d /= 2) { if (t < d && t + d < threads) s[t] += s[t + d]; __syncthreads(); }"""

ONE_TO_ONE: dict[str, Awkward] = {
    "elementwise": Awkward(
        "line",
        "y | x w",
        "n",
        "if (i < n) y[i] = a * sin(x[i]) + exp(-w[i] * w[i]);",
        lambda items, _: (items,),
        lambda n: (n, n, n),
        reals="a",
    ),
    "in place": Awkward(
        "flat",
        "y | x",
        "n",
        "if (i >= n) return; y[i] = a * y[i] * y[i] + x[i] * y[i];",
        lambda items, _: (items,),
        lambda n: (n, n),
        reals="a",
        updated=True,
    ),
    "in a grid stride": Awkward(
        "flat",
        "y | x",
        "n",
        "for (; i < n; i += all) y[i] = a * x[i] * x[i] + cos(x[i]);",
        lambda items, _: (items,),
        lambda n: (n, n),
        reals="a",
    ),
    "four elements a thread": Awkward(
        "four",
        "y | x",
        "n",
        "for (int k = 0; k < 4; k++) { int j = 4 * i + k; if (j < n) y[j] = (k + 1) * x[j] * x[j]; }",
        lambda items, _: (items,),
        lambda n: (n, n),
    ),
    "four elements a thread, a block apart": Awkward(
        "four",
        "y | x w",
        "n",
        """int first = blockIdx.x * blockDim.x * 4 + threadIdx.x;
        #pragma unroll
        for (int k = 0; k < 4; k++) { int j = first + k * blockDim.x; if (j < n) y[j] = x[j] * w[k] + x[j] * x[j]; }""",
        lambda items, _: (items,),
        lambda n: (n, n, 4),
    ),
    "pairs": Awkward(
        "line",
        "y | x",
        "n",
        """if (i >= n) return;
        REAL2 v = reinterpret_cast<const REAL2 *>(x)[i];
        v.x = v.x * v.y; v.y = v.y * v.y + v.x;
        reinterpret_cast<REAL2 *>(y)[i] = v;""",
        lambda items, _: (items,),
        lambda n: (2 * n, 2 * n),
        aligned=2,
    ),
    "time steps": Awkward(
        "flat",
        "y | x w",
        "n steps",
        """if (i >= n) return;
        REAL u = x[i], p = w[i], h = REAL(0.125);
        for (int s = 0; s < steps; s++) {
            REAL k1 = p * u * (1 - u) - a * u, v = u + h / 2 * k1;
            REAL k2 = p * v * (1 - v) - a * v; v = u + h / 2 * k2;
            REAL k3 = p * v * (1 - v) - a * v; v = u + h * k3;
            u += h / 6 * (k1 + 2 * k2 + 2 * k3 + p * v * (1 - v) - a * v);
        }
        y[i] = u;""",
        lambda items, inner: (items, inner),
        lambda n, steps: (n, n, n),
        reals="a",
    ),
    "a sorting network": Awkward(
        "line",
        "y | x",
        "n",
        """if (i >= n) return;
        REAL v[4];
        for (int k = 0; k < 4; k++) v[k] = x[4 * i + k];
        const int at[5][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {1, 2}};
        for (int k = 0; k < 5; k++) {
            REAL low = fmin(v[at[k][0]], v[at[k][1]]), high = fmax(v[at[k][0]], v[at[k][1]]);
            v[at[k][0]] = low; v[at[k][1]] = high;
        }
        for (int k = 0; k < 4; k++) y[4 * i + k] = v[k] * v[k];""",
        lambda items, _: (items,),
        lambda n: (4 * n, 4 * n),
    ),
    "a volume": Awkward(
        "volume",
        "out | a",
        "W H D",
        """if (x >= W || y >= H || z >= D) return;
        int k = (z * H + y) * W + x;
        REAL s = -6 * a[k];
        if (x > 0) s += a[k - 1];
        if (x + 1 < W) s += a[k + 1];
        s += a[k + (y > 0 ? -W : 0)] + a[k + (y < H - 1 ? W : 0)];
        s += a[(max(z - 1, 0) * H + y) * W + x] * a[(min(z + 1, D - 1) * H + y) * W + x];
        out[k] = s;""",
        lambda items, inner: (items, inner, 1 + (items + inner) % 4),
        lambda W, H, D: (W * H * D, W * H * D),
        lambda W, H, D: (W, H, D),
    ),
}
ROWS: dict[str, Awkward] = {
    "softmax, a block a row": Awkward(
        "power",
        "y | x",
        "rows n",
        """__shared__ REAL s[1024];
        REAL top = -1e30, sum = 0;
        for (int c = t; c < n; c += threads) top = fmax(top, x[row * n + c]);
        s[t] = top; __syncthreads();
        for (int d = threads / 2; d > 0; d /= 2) { if (t < d) s[t] = fmax(s[t], s[t + d]); __syncthreads(); }
        top = s[0]; __syncthreads();
        for (int c = t; c < n; c += threads) sum += exp(x[row * n + c] - top);
        s[t] = sum; __syncthreads();
        for (int d = threads / 2; d > 0; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
        for (int c = t; c < n; c += threads) y[row * n + c] = exp(x[row * n + c] - top) / s[0];""",
        lambda items, inner: (items, inner),
        lambda rows, n: (rows * n, rows * n),
    ),
    "softmax, a warp a row": Awkward(
        "warp",
        "y | x",
        "rows n",
        """if (row >= rows) return;
        REAL top = -1e30, sum = 0;
        for (int c = lane; c < n; c += 32) top = fmax(top, x[row * n + c]);
        for (int d = 16; d > 0; d /= 2) top = fmax(top, __shfl_xor_sync(0xffffffff, top, d));
        for (int c = lane; c < n; c += 32) sum += exp(x[row * n + c] - top);
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        for (int c = lane; c < n; c += 32) y[row * n + c] = exp(x[row * n + c] - top) / sum;""",
        lambda items, inner: (items, inner),
        lambda rows, n: (rows * n, rows * n),
    ),
    "layer norm": Awkward(
        "row",
        "y | x w b",
        "rows n",
        f"""__shared__ REAL s[1024];
        REAL part = 0;
        for (int c = t; c < n; c += threads) part += x[row * n + c];
        s[t] = part; {TREE}
        REAL mean = s[0] / n; __syncthreads();
        part = 0;
        for (int c = t; c < n; c += threads) {{ REAL d = x[row * n + c] - mean; part += d * d; }}
        s[t] = part; {TREE}
        REAL scale = 1 / sqrt(s[0] / n + REAL(0.01));
        for (int c = t; c < n; c += threads) y[row * n + c] = (x[row * n + c] - mean) * scale * w[c] + b[c];""",
        lambda items, inner: (items, inner),
        lambda rows, n: (rows * n, rows * n, n, n),
    ),
    "RMS norm": Awkward(
        "row",
        "y | x w",
        "rows n",
        """__shared__ REAL total;
        if (t == 0) total = REAL(0.01);
        __syncthreads();
        REAL part = 0;
        for (int c = t; c < n; c += threads) part += x[row * n + c] * x[row * n + c];
        atomicAdd(&total, part);
        __syncthreads();
        for (int c = t; c < n; c += threads) y[row * n + c] = x[row * n + c] * w[c] / sqrt(total);""",
        lambda items, inner: (items, inner),
        lambda rows, n: (rows * n, rows * n, n),
    ),
    "cross entropy": Awkward(
        "line",
        "y | x",
        "rows n",
        """if (i >= rows) return;
        REAL top = -1e30, sum = 0;
        for (int c = 0; c < n; c++) top = fmax(top, x[i * n + c]);
        for (int c = 0; c < n; c++) sum += exp(x[i * n + c] - top);
        if (n > 0) y[i] = log(sum) + top - x[i * n + label[i]];""",
        lambda items, inner: (items, inner),
        lambda rows, n: (rows, rows * n),
        indices={"label": _below(lambda rows, n: rows, lambda rows, n: n)},
    ),
    "sums of columns": Awkward(
        "line",
        "y | x w",
        "n rows",
        """if (i >= n) return;
        REAL s = 0;
        for (int r = 0; r < rows; r++) s += x[r * n + i] * w[r];
        y[i] = s * s;""",
        lambda items, inner: (items, inner),
        lambda n, rows: (n, n * rows, rows),
    ),
    "attention": Awkward(
        "line",
        "y | q k v",
        "n m",
        """if (i >= n) return;
        REAL top = -1e30, sum = 0, o[4] = {};
        for (int j = 0; j < m; j++) {
            REAL p = 0;
            for (int d = 0; d < 4; d++) p += q[4 * i + d] * k[4 * j + d];
            top = fmax(top, p);
        }
        for (int j = 0; j < m; j++) {
            REAL p = 0;
            for (int d = 0; d < 4; d++) p += q[4 * i + d] * k[4 * j + d];
            p = exp(p - top);
            sum += p;
            for (int d = 0; d < 4; d++) o[d] += p * v[4 * j + d];
        }
        for (int d = 0; d < 4; d++) y[4 * i + d] = m > 0 ? o[d] / sum : 0;""",
        lambda items, inner: (items, inner),
        lambda n, m: (4 * n, 4 * n, 4 * m, 4 * m),
    ),
    "a search that stops": Awkward(
        "line",
        "y | x",
        "n m",
        """if (i >= n) return;
        REAL s = 1;
        for (int j = 0; j < m; j++) {
            REAL v = x[i * m + j];
            if (v > REAL(0.9)) break;
            s *= 1 + v * s / 4;
        }
        y[i] = s;""",
        lambda items, inner: (items, inner),
        lambda n, m: (n, n * m),
    ),
}
SUMS: dict[str, Awkward] = {
    "a loss": Awkward(
        "flat",
        "y | x w",
        "n",
        "if (i < n) { REAL d = x[i] - w[i]; atomicAdd(y, a * d * d / n); }",
        lambda items, _: (items,),
        lambda n: (1, n, n),
        reals="a",
    ),
    "a loss, by blocks": Awkward(
        "flat",
        "y | x",
        "n",
        f"""__shared__ REAL s[1024];
        REAL part = 0;
        for (; i < n; i += all) part += x[i] * x[i] * x[i];
        s[t] = part; {TREE}
        if (t == 0) atomicAdd(&y[0], s[0]);""",
        lambda items, _: (items,),
        lambda n: (1, n),
    ),
    "a loss, by warps": Awkward(
        "lanes",
        "y | x",
        "n",
        """REAL part = i < n ? x[i] * x[i] : 0;
        for (int d = 16; d > 0; d /= 2) part += __shfl_down_sync(0xffffffff, part, d);
        if (t % 32 == 0) atomicAdd(y, sqrt(1 + part));""",
        lambda items, _: (items,),
        lambda n: (1, n),
    ),
    "a histogram": Awkward(
        "flat",
        "y | w",
        "n",
        """__shared__ REAL h[16];
        for (int k = t; k < 16; k += threads) h[k] = 0;
        __syncthreads();
        for (; i < n; i += all) atomicAdd(&h[bin[i]], w[i] * w[i]);
        __syncthreads();
        for (int k = t; k < 16; k += threads) atomicAdd(&y[k], h[k]);""",
        lambda items, _: (items,),
        lambda n: (16, n),
        indices={"bin": _below(lambda n: n, lambda n: 16)},
    ),
    "a scan": Awkward(
        "line",
        "y | x",
        "n",
        """__shared__ REAL s[1024];
        int t = threadIdx.x;
        s[t] = i < n ? x[i] : 0; __syncthreads();
        for (int d = 1; d < blockDim.x; d *= 2) {
            REAL v = t >= d ? s[t - d] : 0; __syncthreads();
            s[t] += v; __syncthreads();
        }
        if (i < n) y[i] = s[t] * x[i];""",
        lambda items, _: (items,),
        lambda n: (n, n),
    ),
    "sparse rows": Awkward(
        "line",
        "y | values x",
        "rows width",
        """if (i >= rows) return;
        REAL s = 0;
        for (int k = start[i]; k < start[i + 1]; k++) s += values[k] * x[column[k]];
        y[i] = s;""",
        lambda items, inner: (items, inner),
        lambda rows, width: (rows, int(_csr_starts(rows, width)[-1]), width + 1),
        indices={
            "start": _csr_starts,
            "column": _below(lambda rows, width: int(_csr_starts(rows, width)[-1]), lambda _, width: width + 1),
        },
    ),
}
PERMUTED: dict[str, Awkward] = {
    "a transpose by division": Awkward(
        "flat",
        "y | x",
        "H W",
        "if (i < H * W) y[i % W * H + i / W] = x[i] * x[i];",
        lambda items, inner: (-(-items // max(inner, 1)), inner),
        lambda H, W: (H * W, H * W),
        lambda H, W: (H * W,),
    ),
    "a transpose by tiles": Awkward(
        "tile",
        "y | x",
        "W H",
        """__shared__ REAL tile[32][33];
        int x0 = blockIdx.x * 32, y0 = blockIdx.y * 32, t = threadIdx.z;
        for (int j = threadIdx.y * blockDim.z + t; j < 32; j += blockDim.y * blockDim.z)
            for (int k = threadIdx.x; k < 32; k += blockDim.x)
                if (y0 + j < H && x0 + k < W) tile[j][k] = x[(y0 + j) * W + x0 + k];
        __syncthreads();
        for (int j = threadIdx.y * blockDim.z + t; j < 32; j += blockDim.y * blockDim.z)
            for (int k = threadIdx.x; k < 32; k += blockDim.x)
                if (x0 + j < W && y0 + k < H) y[(x0 + j) * H + y0 + k] = sin(tile[k][j]);""",
        lambda items, inner: (items, inner),
        lambda W, H: (W * H, W * H),
        lambda W, H: (W, H),
    ),
    "rows of a table": Awkward(
        "line",
        "y | table scale",
        "n D",
        "if (i < n * D) y[i] = table[token[i / D] * D + i % D] * scale[i % D];",
        lambda items, inner: (-(-items // max(inner, 1)), inner),
        lambda n, D: (n * D, 9 * D, D),
        lambda n, D: (n * D,),
        indices={"token": _below(lambda n, D: n, lambda n, D: 9)},
    ),
    "a table looked up": Awkward(
        "flat",
        "y | x table",
        "n m",
        """if (i >= n) return;
        REAL u = x[i] * (m - 1);
        int k = min(max((int)u, 0), m - 2);
        y[i] = table[k] + (u - k) * (table[k + 1] - table[k]);""",
        lambda items, inner: (items, inner + 2),
        lambda n, m: (n, n, m),
    ),
    "an image sampled": Awkward(
        "line",
        "out | image px py",
        "n H W",
        """if (i >= n) return;
        REAL u = px[i] * W - REAL(0.5), v = py[i] * H - REAL(0.5), s = 0;
        int x = (int)floor(u), y = (int)floor(v);
        for (int dy = 0; dy < 2; dy++) for (int dx = 0; dx < 2; dx++) {
            if (y + dy < 0 || y + dy >= H || x + dx < 0 || x + dx >= W) continue;
            s += (dx ? u - x : 1 - u + x) * (dy ? v - y : 1 - v + y) * image[(y + dy) * W + x + dx];
        }
        out[i] = s;""",
        lambda items, inner: (items, inner, 1 + inner % 5),
        lambda n, H, W: (n, H * W, n, n),
    ),
}
WINDOWS: dict[str, Awkward] = {
    "max pooling": Awkward(
        "line",
        "y | x",
        "N H W",
        """int OH = H / 2, OW = W / 2;
        if (i >= N * OH * OW) return;
        int left = i % OW * 2, top = i / OW % OH * 2, n = i / (OW * OH);
        REAL m = x[(n * H + top) * W + left];
        for (int dy = 0; dy < 2; dy++) for (int dx = 0; dx < 2; dx++)
            m = fmax(m, x[(n * H + top + dy) * W + left + dx]);
        y[i] = m * m;""",
        lambda items, inner: (-(-items // max((inner + 1) // 2 * 2, 1)), 5, inner + 1),
        lambda N, H, W: (N * (H // 2) * (W // 2), N * H * W),
        lambda N, H, W: (N * (H // 2) * (W // 2),),
    ),
    "a convolution": Awkward(
        "plane",
        "out | a w",
        "W H C R",
        """int c = blockIdx.z;
        if (x >= W || y >= H || c >= C) return;
        REAL s = 0;
        for (int r = -R; r <= R; r++) for (int q = -R; q <= R; q++) {
            int v = y + r, u = x + q;
            if (v < 0 || v >= H || u < 0 || u >= W) continue;
            s += a[v * W + u] * w[(c * (2 * R + 1) + r + R) * (2 * R + 1) + q + R];
        }
        out[(c * H + y) * W + x] = s;""",
        lambda items, inner: (items, inner, 1 + (items + inner) % 3, (items + inner) % 2),
        lambda W, H, C, R: (C * W * H, W * H, C * (2 * R + 1) ** 2),
        lambda W, H, C, R: (W, H, C),
    ),
    "a stencil with a halo": Awkward(
        "line",
        "y | x",
        "n",
        """__shared__ REAL s[1026];
        int t = threadIdx.x + 1;
        s[t] = i < n ? x[i] : 0;
        if (threadIdx.x == 0) s[0] = i > 0 && i <= n ? x[i - 1] : 0;
        if (threadIdx.x == blockDim.x - 1) s[t + 1] = i + 1 < n ? x[i + 1] : 0;
        __syncthreads();
        if (i < n) y[i] = s[t - 1] - 2 * s[t] * s[t] + 3 * s[t + 1];""",
        lambda items, _: (items,),
        lambda n: (n, n),
    ),
    "a plane with a halo": Awkward(
        "square",
        "out | a",
        "W H",
        """__shared__ REAL s[18][18];
        for (int j = threadIdx.y; j < 18; j += 16) for (int k = threadIdx.x; k < 18; k += 16) {
            int v = (int)blockIdx.y * 16 + j - 1, u = (int)blockIdx.x * 16 + k - 1;
            s[j][k] = v >= 0 && v < H && u >= 0 && u < W ? a[v * W + u] : 0;
        }
        __syncthreads();
        int j = threadIdx.y + 1, k = threadIdx.x + 1;
        if (x < W && y < H)
            out[y * W + x] = s[j][k - 1] + 2 * s[j][k + 1] + 3 * s[j - 1][k] + s[j + 1][k] * s[j][k];""",
        lambda items, inner: (items, inner),
        lambda W, H: (W * H, W * H),
        lambda W, H: (W, H),
    ),
}
PRODUCTS: dict[str, Awkward] = {
    "a product by tiles": Awkward(
        "square",
        "c | a b",
        "N M K",
        """__shared__ REAL as[16][16], bs[16][16];
        REAL s = 0;
        for (int k0 = 0; k0 < K; k0 += 16) {
            int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
            as[threadIdx.y][threadIdx.x] = y < M && ka < K ? a[y * K + ka] : 0;
            bs[threadIdx.y][threadIdx.x] = x < N && kb < K ? b[kb * N + x] : 0;
            __syncthreads();
            for (int k = 0; k < 16; k++) s += as[threadIdx.y][k] * bs[k][threadIdx.x];
            __syncthreads();
        }
        if (y < M && x < N) c[y * N + x] = s;""",
        lambda items, inner: (items, inner, (3 * items + inner) % 21),
        lambda N, M, K: (M * N, M * K, K * N),
        lambda N, M, K: (N, M),
    ),
    "a product by tiles and registers": Awkward(
        "registers",
        "c | a b",
        "N M K",
        """__shared__ REAL as[32][8], bs[8][32];
        REAL s[2][2] = {};
        int y0 = blockIdx.y * 32, x0 = blockIdx.x * 32, ty = t / 16, tx = t % 16;
        for (int k0 = 0; k0 < K; k0 += 8) {
            int ya = y0 + t / 8, ka = k0 + t % 8, kb = k0 + t / 32, xb = x0 + t % 32;
            as[t / 8][t % 8] = ya < M && ka < K ? a[ya * K + ka] : 0;
            bs[t / 32][t % 32] = kb < K && xb < N ? b[kb * N + xb] : 0;
            __syncthreads();
            for (int k = 0; k < 8; k++)
                for (int r = 0; r < 2; r++) for (int q = 0; q < 2; q++)
                    s[r][q] += as[2 * ty + r][k] * bs[k][2 * tx + q];
            __syncthreads();
        }
        for (int r = 0; r < 2; r++) for (int q = 0; q < 2; q++) {
            int y = y0 + 2 * ty + r, x = x0 + 2 * tx + q;
            if (y < M && x < N) c[y * N + x] = s[r][q];
        }""",
        lambda items, inner: (items, inner, (3 * items + inner) % 21),
        lambda N, M, K: (M * N, M * K, K * N),
        lambda N, M, K: (N, M),
    ),
    "a layer": Awkward(
        "flat",
        "y | x w b",
        "n K M",
        """__shared__ REAL s[64];
        for (int k = t; k < K * M; k += threads) s[k] = w[k];
        __syncthreads();
        if (i >= n) return;
        for (int o = 0; o < M; o++) {
            REAL sum = b[o];
            for (int k = 0; k < K; k++) sum += x[i * K + k] * s[k * M + o];
            y[i * M + o] = tanh(sum);
        }""",
        lambda items, inner: (items, inner % 8, 1 + items % 5),
        lambda n, K, M: (n * M, n * K, K * M, M),
    ),
}
KERNELS: dict[str, Awkward] = {**ONE_TO_ONE, **ROWS, **SUMS, **PERMUTED, **WINDOWS, **PRODUCTS}
