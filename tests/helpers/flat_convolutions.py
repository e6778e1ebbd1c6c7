"""A convolution of channels in a launch of one axis, as different people find row, column and channel of a thread."""

from __future__ import annotations

from typing import Any

import numpy as np

KERNEL = """__global__ void k(T *y, const T *x, const T *w, int N, int C, int K, int H, int W) {
    int OH = H - 2, OW = W - 2;
    INDEX
    T sum = 0;
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s)
                sum += x[((n * C + c) * H + oy + r) * W + ox + s] * w[((k * C + c) * 3 + r) * 3 + s];
    y[PLACE] = sum;
    END
}"""
AT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
EARLY = f"{AT} if (i >= N * K * OH * OW) return;"
SPELLINGS: dict[str, tuple[str, str, str]] = {
    "quotients and remainders": (
        f"{EARLY} int ox = i % OW, oy = i / OW % OH, k = i / (OW * OH) % K, n = i / (OW * OH * K);",
        "i",
        "",
    ),
    "one after the other": (
        f"{EARLY} int q = i; int ox = q % OW; q /= OW; int oy = q % OH; q /= OH; int k = q % K, n = q / K;",
        "((n * K + k) * OH + oy) * OW + ox",
        "",
    ),
    "from above": (
        f"""{EARLY} int n = i / (K * OH * OW), rest = i % (K * OH * OW);
        int k = rest / (OH * OW); rest %= OH * OW; int oy = rest / OW, ox = rest % OW;""",
        "i",
        "",
    ),
    "what is left": (
        f"""{EARLY} int row = i / OW, ox = i - row * OW, plane = row / OH, oy = row - OH * plane;
        int n = plane / K, k = plane - n * K;""",
        "(n * K + k) * OH * OW + oy * OW + ox",
        "",
    ),
    "unsigned": (
        """unsigned i = threadIdx.x + blockIdx.x * blockDim.x; if (i >= unsigned(N * K * OH * OW)) return;
        unsigned row = i / OW, ox = i - row * OW, oy = row % OH, k = row / OH % K, n = row / (unsigned)(OH * K);""",
        "i",
        "",
    ),
    "long": (
        """long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        if (i < (long long)N * K * OH * OW) {
            int ox = int(i % OW), oy = (int)(i / OW % OH), k = (i / OW / OH) % K, n = i / OW / OH / K;""",
        "i",
        "}",
    ),
    "planes by blocks of another axis": (
        f"{AT} int k = blockIdx.y % K, n = blockIdx.y / K; if (i < OH * OW) {{ int ox = i % OW, oy = i / OW;",
        "blockIdx.y * (OH * OW) + i",
        "}",
    ),
    "a row a block": (
        """int ox = threadIdx.x, oy = blockIdx.x % OH, k = blockIdx.x / OH % K, n = blockIdx.x / (OH * K);
        if (ox >= OW || n >= N) return;""",
        "blockIdx.x * OW + ox",
        "",
    ),
}


def text_of(spelling: str, real: str = "double") -> str:
    index, place, end = SPELLINGS[spelling]
    text = KERNEL.replace("INDEX", index).replace("PLACE", place).replace("END", end)
    return text.replace("T *", f"{real} *").replace("T sum", f"{real} sum")


def launch_of(spelling: str, shape: tuple[int, ...], block: int) -> tuple[Any, int]:
    N, _, K, H, W = shape
    rows, columns = H - 2, W - 2
    if spelling == "a row a block":
        return N * K * rows + 1, max(block, columns)
    if spelling == "planes by blocks of another axis":
        return (-(-rows * columns // block), N * K), block
    return -(-N * K * rows * columns // block), block


def sizes_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Of the output, the input and the weights."""
    N, C, K, H, W = shape
    return N * K * (H - 2) * (W - 2), N * C * H * W, K * C * 9


def expected(x: Any, w: Any, g: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The adjoints of input and weights."""
    N, C, K, H, W = shape
    x, w, g = x.reshape(N, C, H, W), w.reshape(K, C, 3, 3), g.reshape(N, K, H - 2, W - 2)
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    for r in range(3):
        for s in range(3):
            here = np.s_[:, :, r : r + H - 2, s : s + W - 2]
            d_w[:, :, r, s] = np.einsum("nkhw,nchw->kc", g, x[here])
            d_x[here] += np.einsum("nkhw,kc->nchw", g, w[:, :, r, s])
    return d_x.ravel(), d_w.ravel()
