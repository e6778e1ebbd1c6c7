"""Kernels as people write them, at two sizes: pooling, windows, boundaries, triangles, functions behind sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
XY = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"


@dataclass(frozen=True)
class Idiom:
    """`k(T *out, const T *a[, const T *b], int ...)`. `sizes` and `launch`: of arrays and of the launch, from the
    numbers; `small`, `large`: the numbers, of a launch that runs and of one that is planned. `atomics`: for each
    element of the largest array, at most."""

    body: str
    numbers: str
    small: tuple[int, ...]
    large: tuple[int, ...]
    sizes: Any
    launch: Any
    arrays: str = "out a"
    atomics: float = 0

    def text(self, real: str) -> str:
        out, *inputs = self.arrays.split()
        arrays = ", ".join((f"{real} *{out}", *(f"const {real} *{name}" for name in inputs)))
        numbers = ", ".join(f"int {name}" for name in self.numbers.split())
        return f"__global__ void k({arrays}, {numbers}) {{ {self.body.replace('REAL', real)} }}"


def flat(n: int) -> tuple[int, int]:
    return -(-n // 256), 256


def flat_small(n: int) -> tuple[int, int]:
    return -(-n // 32), 32


def pool(before: str, each: str, result: str) -> str:
    return f"""{I} if (i >= N * OH * OW) return;
    int ow = i % OW, oh = i / OW % OH, n = i / (OW * OH);
    REAL s = 0;
    {before}
    for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) {{
      int y = oh * 2 + dy, x = ow * 2 + dx;
      if (y >= 0 && y < H && x >= 0 && x < W) {{ s += a[(n * H + y) * W + x]; {each} }}
    }}
    out[i] = {result};"""


POOL_SIZES = (lambda N, H, W, OH, OW: (N * OH * OW, N * H * W), lambda N, H, W, OH, OW: N * OH * OW)
STRIDED = """
  if (x >= OW || y >= OH) return;
  REAL s = 0;
  for (int c = 0; c < C; c++) for (int r = 0; r < R; r++) for (int q = 0; q < R; q++) {
    int iy = y * S + r - P, ix = x * S + q - P;
    if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue;
    s += a[(c * H + iy) * W + ix] * w[((k_ * C + c) * R + r) * R + q];
  }
  out[(k_ * OH + y) * OW + x] = s;"""


def _strided_sizes(C: int, H: int, W: int, OH: int, OW: int, S: int, P: int, R: int, K: int) -> tuple[int, ...]:
    return K * OH * OW, C * H * W, K * C * R * R


BLURS = {
    "with clamped ends": "s += w * a[min(max(y + r, 0), H - 1) * W + min(max(x + c, 0), W - 1)];",
    "that ifs clamp": """int v = y + r, u = x + c; if (v < 0) v = 0; if (v >= H) v = H - 1; if (u < 0) u = 0;
        if (u > W - 1) u = W - 1; s += w * a[v * W + u] * a[v * W + u];""",
    "that conditions clamp": """int v = y + r < 0 ? 0 : y + r >= H ? H - 1 : y + r;
        s += w * a[v * W + (x + c < 0 ? 0 : x + c > W - 1 ? W - 1 : x + c)];""",
    "around a torus": "s += w * a[(y + r + H) % H * W + (x + c + W) % W];",
    "in a mirror": """int v = abs(y + r), u = abs(x + c); if (v >= H) v = 2 * H - 2 - v; if (u >= W) u = 2 * W - 2 - u;
        s += w * a[v * W + u];""",
}
BLURRED = {
    f"a blur {name}": Idiom(
        f"""{XY} if (x >= W || y >= H) return;
        REAL s = 0;
        for (int r = -1; r <= 1; r++) for (int c = -1; c <= 1; c++) {{ REAL w = 3 + r - 2 * c; {each} }}
        out[y * W + x] = s;""",
        "H W",
        (19, 33),
        (2048, 2048),
        lambda H, W: (H * W, H * W),
        lambda H, W: ((-(-W // 16), -(-H // 8)), (16, 8)),
    )
    for name, each in BLURS.items()
}
EDGES = {
    "by equality": "if (x == 0 || y == 0 || x == W - 1 || y == H - 1) {{ out[k] = a[k]; return; }} {inside}",
    "by inequality": "if (x != 0 && y != 0 && x != W - 1 && y != H - 1) {{ {inside} }} else out[k] = a[k];",
    "the other way round": "if (0 == x || y < 1 || W - 1 == x || y > H - 2) out[k] = 2 * a[k]; else {{ {inside} }}",
    "one by one": "if (x == 0) {{ out[k] = a[k]; return; }} if (x == W - 1 || y == 0 || y + 1 == H) return; {inside}",
}
EDGED = {
    f"a grid with an edge {name}": Idiom(
        f"{XY} if (x >= W || y >= H) return; int k = y * W + x; "
        + edge.format(inside="out[k] = (a[k - 1] + 2 * a[k + 1] + 3 * a[k - W] + 4 * a[k + W]) / 4;"),
        "H W",
        (19, 33),
        (2048, 2048),
        lambda H, W: (H * W, H * W),
        lambda H, W: ((-(-W // 16), -(-H // 8)), (16, 8)),
    )
    for name, edge in EDGES.items()
}
# The distributions of a lattice, read from neighbours or written to them.
LATTICE = """{xy} if (x >= W || y >= H) return;
    const int cx[5] = {{0, 1, -1, 0, 0}}, cy[5] = {{0, 0, 0, 1, -1}};
    REAL f[5], rho = 0, flow = 0;
    for (int q = 0; q < 5; q++) {{
        int u = (x - cx[q] + W) % W, v = (y - cy[q] + H) % H;
        f[q] = a[{read}];
        rho += f[q]; flow += (cx[q] + 2 * cy[q]) * f[q];
    }}
    for (int q = 0; q < 5; q++) {{
        int u = (x + cx[q] + W) % W, v = (y + cy[q] + H) % H;
        out[{written}] = f[q] - (f[q] - rho * (1 + cx[q] * flow / (4 + rho * rho))) / 2;
    }}"""
PLANE = "(q * H + y) * W + x", "(q * H + v) * W + u"
LATTICES = {
    f"a lattice whose cells {name}": Idiom(
        LATTICE.format(xy=XY, read=read, written=written),
        "H W",
        (13, 33),
        (1024, 1024),
        lambda H, W: (5 * H * W, 5 * H * W),
        lambda H, W: ((-(-W // 16), -(-H // 8)), (16, 8)),
    )
    for name, read, written in (("pull", PLANE[1], PLANE[0]), ("push", PLANE[0], PLANE[1]))
}
IDIOMS = {
    **BLURRED,
    **EDGED,
    **LATTICES,
    "average pooling": Idiom(
        pool("int cnt = 0;", "cnt++;", "s / cnt"),
        "N H W OH OW",
        (2, 6, 8, 3, 4),
        (64, 256, 256, 128, 128),
        *POOL_SIZES,
    ),
    "average pooling, odd": Idiom(
        pool("", "", "s / 9"), "N H W OH OW", (2, 7, 5, 4, 3), (64, 255, 255, 128, 128), *POOL_SIZES
    ),
    "a convolution in strides": Idiom(
        f"{XY} int k_ = blockIdx.z; {STRIDED}",
        "C H W OH OW S P R K",
        (2, 7, 9, 4, 5, 2, 1, 3, 2),
        (64, 256, 256, 128, 128, 2, 1, 3, 64),
        _strided_sizes,
        lambda C, H, W, OH, OW, S, P, R, K: ((-(-OW // 16), -(-OH // 8), K), (16, 8)),
        "out a w",
    ),
    "a convolution in strides of three": Idiom(
        f"{XY} int k_ = blockIdx.z; {STRIDED}",
        "C H W OH OW S P R K",
        (1, 9, 10, 3, 4, 3, 2, 4, 2),
        (64, 256, 256, 86, 86, 3, 2, 4, 64),
        _strided_sizes,
        lambda C, H, W, OH, OW, S, P, R, K: ((-(-OW // 16), -(-OH // 8), K), (16, 8)),
        "out a w",
    ),
    "image to columns": Idiom(
        f"""{I} if (i >= C * H * W) return;
        int w = i % W, h = (i / W) % H, c = i / (W * H);
        for (int ky = 0; ky < 3; ky++) for (int kx = 0; kx < 3; kx++) {{
          int y = h + ky - 1, x = w + kx - 1;
          out[((c * 9 + ky * 3 + kx) * H + h) * W + w]
            = (y >= 0 && x >= 0 && y < H && x < W) ? a[(c * H + y) * W + x] : 0;
        }}""",
        "C H W",
        (2, 4, 5),
        (16, 256, 256),
        lambda C, H, W: (9 * C * H * W, C * H * W),
        lambda C, H, W: C * H * W,
    ),
    "a pixel shuffle": Idiom(
        f"""{I} int OW = W * r, OH = H * r;
        if (i >= N * C * OH * OW) return;
        int ow = i % OW, oh = i / OW % OH, c = i / (OW * OH) % C, n = i / (OW * OH * C);
        REAL v = a[((n * C * r * r + c * r * r + (oh % r) * r + ow % r) * H + oh / r) * W + ow / r];
        out[i] = v * v;""",
        "N C H W r",
        (2, 2, 3, 4, 2),
        (4, 8, 128, 128, 2),
        lambda N, C, H, W, r: (N * C * H * W * r * r,) * 2,
        lambda N, C, H, W, r: N * C * H * W * r * r,
    ),
    "an activation behind a convolution": Idiom(
        """int l = blockIdx.x * blockDim.x + threadIdx.x, d = blockIdx.y, n = blockIdx.z;
        if (l >= L) return;
        const REAL *row = a + (n * D + d) * L;
        REAL s = b[d];
        for (int k = 0; k < 4; k++) { int j = l + k - 3; if (j >= 0) s += w[d * 4 + k] * row[j]; }
        out[(n * D + d) * L + l] = s / (1 + exp(-s));""",
        "N D L",
        (2, 3, 13),
        (8, 512, 2048),
        lambda N, D, L: (N * D * L, N * D * L, 4 * D, D),
        lambda N, D, L: ((-(-L // 128), D, N), 128),
        "out a w b",
    ),
    "a leak behind a convolution": Idiom(
        f"""{I} if (i >= n) return;
        REAL s = 0;
        for (int k = 0; k < 9; k++) s += (k + 1) * a[i + k] / 9;
        if (s > 2) {{ s = 2 + log(s - 1); if (s > 3) s = sqrt(s); }}
        out[i] = s * s;""",
        "n",
        (75,),
        (1 << 22,),
        lambda n: (n, n + 8),
        lambda n: n,
    ),
    "distances": Idiom(
        """int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
        if (i >= n || j >= m) return;
        REAL s = 0;
        for (int d = 0; d < D; d++) { REAL e = a[i * D + d] - b[j * D + d]; s += e * e; }
        out[i * m + j] = sqrt(s + REAL(0.01));""",
        "n m D",
        (5, 9, 3),
        (1024, 1024, 64),
        lambda n, m, D: (n * m, n * D, m * D),
        lambda n, m, D: ((-(-m // 16), -(-n // 16)), (16, 16)),
        "out a b",
    ),
    "a window with clamped ends": Idiom(
        f"""{I} if (i >= n) return;
        REAL s = 0;
        for (int j = max(0, i - r); j <= min(n - 1, i + r); j++) s += (1 + j - i) * a[j];
        out[i] = s / (2 * r + 1);""",
        "n r",
        (43, 3),
        (1 << 20, 5),
        lambda n, r: (n, n),
        lambda n, r: n,
    ),
    "a square behind a window": Idiom(
        f"""{I} if (i >= n) return;
        REAL s = 0;
        for (int j = max(i - r, 0); j < min(i + r, n); j++) s += a[j] * a[j];
        out[i] = sqrt(s + 1);""",
        "n r",
        (43, 4),
        (1 << 20, 6),
        lambda n, r: (n, n),
        lambda n, r: n,
    ),
    "what came before": Idiom(
        f"""{I} if (i >= rows * n) return;
        int t = i % n, row = i / n;
        REAL s = 0;
        for (int j = 0; j <= t; j++) s += a[row * n + j] / (1 + t - j);
        out[i] = s;""",
        "rows n",
        (5, 9),
        (512, 1024),
        lambda rows, n: (rows * n, rows * n),
        lambda rows, n: rows * n,
    ),
    "what comes after": Idiom(
        f"""{I} if (i >= n) return;
        REAL s = 0;
        for (int j = i + 1; j < n; j++) s += a[j] * (j - i);
        out[i] = s * s;""",
        "n",
        (41,),
        (1 << 15,),
        lambda n: (n, n),
        lambda n: n,
    ),
    "neighbours around a torus": Idiom(
        f"""{XY} if (x >= W || y >= H) return;
        int l = (x + W - 1) % W, r = (x + 1) % W, u = y == 0 ? H - 1 : y - 1, d = y == H - 1 ? 0 : y + 1;
        out[y * W + x] = a[y * W + l] + a[y * W + r] + a[u * W + x] + a[d * W + x] - 4 * a[y * W + x];""",
        "H W",
        (29, 33),
        (2048, 2048),
        lambda H, W: (H * W, H * W),
        lambda H, W: ((-(-W // 16), -(-H // 8)), (16, 8)),
    ),
    "neighbours, the last ones twice": Idiom(
        f"""{I} if (i >= H * W) return;
        int x = i % W, y = i / W;
        REAL s = 0;
        for (int d = -2; d <= 2; d++) s += a[y * W + min(max(x + d, 0), W - 1)];
        out[i] = s + a[max(y - 1, 0) * W + x] - a[(y < H - 1 ? y + 1 : H - 1) * W + x];""",
        "H W",
        (9, 41),
        (1024, 4096),
        lambda H, W: (H * W, H * W),
        lambda H, W: H * W,
    ),
    "neighbours in a mirror": Idiom(
        f"""{I} if (i >= n) return;
        int l = i - 1 < 0 ? 1 - i : i - 1, r = i + 1 >= n ? 2 * n - 3 - i : i + 1;
        out[i] = a[l] * a[i] + a[r];""",
        "n",
        (70,),
        (1 << 22,),
        lambda n: (n, n),
        lambda n: n,
    ),
    "causal scores": Idiom(
        f"""{I} if (i >= B * NH * T * T) return;
        int t2 = i % T, t = (i / T) % T;
        if (t2 > t) {{ out[i] = -1e3; return; }}
        int h = (i / (T * T)) % NH, b = i / (NH * T * T), C3 = C * 3, hs = C / NH;
        const REAL *q = a + b * T * C3 + t * C3 + h * hs, *k = a + b * T * C3 + t2 * C3 + h * hs + C;
        REAL v = 0;
        for (int d = 0; d < hs; d++) v += q[d] * k[d];
        out[i] = v / hs;""",
        "B T C NH",
        (2, 5, 6, 2),
        (2, 512, 384, 6),
        lambda B, T, C, NH: (B * NH * T * T, B * T * 3 * C),
        lambda B, T, C, NH: B * NH * T * T,
    ),
}


def made(idiom: Idiom, numbers: tuple[int, ...], real: Any) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(3)
    arrays = [np.zeros(n, real) if k == 0 else rng.random(n).astype(real) for k, n in enumerate(idiom.sizes(*numbers))]
    return arrays, idiom.launch(*numbers)


def small(idiom: Idiom) -> tuple[list[Any], Any, Any]:
    """The arrays of the small launch, in double precision, its grid and its block."""
    arrays, shape = made(idiom, idiom.small, np.float64)
    return (arrays, *(flat_small(shape) if isinstance(shape, int) else shape))
