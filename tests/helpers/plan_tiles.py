"""Products of matrices in tiles and scans in shared memory, as different people write them, for `plan_table`."""

from __future__ import annotations

from typing import NamedTuple

SIDE = 256
FILL = "A[ty][tx] = a[row * n + t + tx]; B[ty][tx] = b[(t + ty) * n + col];"
INNER = "for (int k = 0; k < 16; ++k) sum += A[ty][k] * B[k][tx];"


class Tiled(NamedTuple):
    """A product in tiles of 16 x 16. `head`: where a thread is; `loop`: over the tiles, `t` their first column."""

    tiles: str = "__shared__ float A[16][16], B[16][16];"
    head: str = "int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;"
    fill: str = FILL
    inner: str = INNER
    loop: str = "for (int t = 0; t < n; t += 16)"
    store: str = "c[row * n + col] = sum;"
    block: int | tuple[int, int] = (16, 16)
    shared: int = 0

    @property
    def text(self) -> str:
        return f"""
        __device__ int left(int t) {{ return t % 16; }}
        template <typename T> __device__ T product(T a, T b) {{ return a * b; }}
        __device__ void filled(float (*A)[16], const float *a, int at) {{ A[threadIdx.y][threadIdx.x] = a[at]; }}
        __global__ void k(float *c, const float *a, const float *b, int n) {{
            {self.tiles}
            {self.head}
            float sum = 0.0f;
            {self.loop} {{
                {self.fill}
                __syncthreads();
                {self.inner}
                __syncthreads();
            }}
            {self.store}
        }}"""


_ROW = "row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;"
_FLAT_FILL = "A[ty * 16 + tx] = a[row * n + t + tx]; B[ty * 16 + tx] = b[(t + ty) * n + col];"
_FLAT_INNER = "for (int k = 0; k < 16; ++k) sum += A[ty * 16 + k] * B[k * 16 + tx];"
PRODUCTS: dict[str, Tiled] = {
    "tiled": Tiled(),
    "padded": Tiled("__shared__ float A[16][17], B[16][17];"),
    "one padded": Tiled("__shared__ float A[16][17], B[16][16];"),
    "flat tiles": Tiled("__shared__ float A[256], B[256];", fill=_FLAT_FILL, inner=_FLAT_INNER),
    "flat block": Tiled(head=f"int tx = threadIdx.x % 16, ty = threadIdx.x / 16, {_ROW}", block=256),
    "flat block, bits": Tiled(head=f"int tx = threadIdx.x & 15, ty = threadIdx.x >> 4, {_ROW}", block=256),
    "flat block, a function": Tiled(head=f"int tx = left(threadIdx.x), ty = threadIdx.x / 16, {_ROW}", block=256),
    "flat block, padded": Tiled(
        "__shared__ float A[16][17], B[16][17];",
        f"int tx = threadIdx.x % 16, ty = threadIdx.x / 16, {_ROW}",
        block=256,
    ),
    "flat block and tiles": Tiled(
        "__shared__ float A[256], B[256];",
        f"const unsigned tid = threadIdx.x, tx = tid % 16, ty = tid / 16, {_ROW}",
        "A[tid] = a[row * n + t + tx]; B[tid] = b[(t + ty) * n + col];",
        _FLAT_INNER,
        block=256,
    ),
    "unrolled": Tiled(inner=f"\n#pragma unroll\n{INNER}"),
    "counted tiles": Tiled(
        fill="A[ty][tx] = a[row * n + u * 16 + tx]; B[ty][tx] = b[(u * 16 + ty) * n + col];",
        loop="for (int u = 0; u < n / 16; ++u)",
    ),
    "unsigned": Tiled(head=f"unsigned tx = threadIdx.x, ty = threadIdx.y, {_ROW}"),
    "size_t": Tiled(
        head="int tx = threadIdx.x, ty = threadIdx.y; size_t row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;"
    ),
    "extents": Tiled(
        head="int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * blockDim.y + ty,"
        " col = blockIdx.x * blockDim.x + tx;"
    ),
    "a function": Tiled(inner="for (int k = 0; k < 16; ++k) sum += product(A[ty][k], B[k][tx]);"),
    "fma": Tiled(inner="for (int k = 0; k < 16; ++k) sum = fmaf(A[ty][k], B[k][tx], sum);"),
    "filled by a function": Tiled(fill="filled(A, a, row * n + t + tx); filled(B, b, (t + ty) * n + col);"),
    "guards": Tiled(
        fill="A[ty][tx] = row < n && t + tx < n ? a[row * n + t + tx] : 0.0f;"
        " B[ty][tx] = t + ty < n && col < n ? b[(t + ty) * n + col] : 0.0f;",
        store="if (row < n && col < n) c[row * n + col] = sum;",
    ),
    "walking": Tiled(
        head=f"int tx = threadIdx.x, ty = threadIdx.y, {_ROW}"
        " const float *p = a + row * n + tx, *q = b + ty * n + col;",
        fill="A[ty][tx] = *p; B[ty][tx] = *q; p += 16; q += 16 * n;",
    ),
}


DYNAMIC = Tiled("extern __shared__ float A[]; float *B = A + 256;", fill=_FLAT_FILL, inner=_FLAT_INNER, shared=2048)


class Registers(NamedTuple):
    """Tiles of 64 x 64 for 256 threads, 4 x 4 for each."""

    head: str = "int t = threadIdx.x, tx = t % 16, ty = t / 16, row = blockIdx.y * 64, col = blockIdx.x * 64;"
    width: int = 64
    unroll: str = ""
    block: int | tuple[int, int] = 256

    @property
    def text(self) -> str:
        return f"""
        __global__ void k(float *c, const float *a, const float *b, int n) {{
            __shared__ float A[16][{self.width}], B[16][{self.width}];
            {self.head}
            float acc[4][4] = {{}};
            for (int k0 = 0; k0 < n; k0 += 16) {{
                {self.unroll}
                for (int k = 0; k < 4; ++k) {{
                    int at = t + k * 256;
                    A[at % 16][at / 16] = a[(row + at / 16) * n + k0 + at % 16];
                    B[at / 64][at % 64] = b[(k0 + at / 64) * n + col + at % 64];
                }}
                __syncthreads();
                for (int k = 0; k < 16; ++k) {{
                    float ra[4], rb[4];
                    {self.unroll}
                    for (int i = 0; i < 4; ++i) {{ ra[i] = A[k][ty * 4 + i]; rb[i] = B[k][tx * 4 + i]; }}
                    {self.unroll}
                    for (int i = 0; i < 4; ++i)
                        for (int j = 0; j < 4; ++j) acc[i][j] += ra[i] * rb[j];
                }}
                __syncthreads();
            }}
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) c[(row + ty * 4 + i) * n + col + tx * 4 + j] = acc[i][j];
        }}"""


_CORNER = "row = blockIdx.y * 64, col = blockIdx.x * 64;"
REGISTERS: dict[str, Registers] = {
    "register tiles": Registers(),
    "bits": Registers(f"int t = threadIdx.x, tx = t & 15, ty = t >> 4, {_CORNER}"),
    "unsigned": Registers(f"unsigned t = threadIdx.x, tx = t % 16, ty = t / 16; int {_CORNER}"),
    "2-D block": Registers(f"int tx = threadIdx.x, ty = threadIdx.y, t = ty * 16 + tx, {_CORNER}", block=(16, 16)),
    "unrolled": Registers(unroll="\n#pragma unroll\n"),
    "padded by 4": Registers(width=68),
}

_STEP = "s[out][t] = t >= d ? s[in][t] + s[in][t - d] : s[in][t];"


def scan(
    go_on: str = "in ^= 1; out ^= 1;",
    shared: str = "__shared__ float s[2][256];",
    step: str = _STEP,
    loop: str = "for (int d = 1; d < 256; d *= 2)",
    first: str = "s[0][t]",
    last: str = "s[in][t]",
    start: str = "int in = 0, out = 1;",
) -> str:
    return f"""
    __global__ void k(float *y, const float *x, int n) {{
        {shared}
        int t = threadIdx.x, i = blockIdx.x * 256 + t;
        {start}
        {first} = i < n ? x[i] : 0.0f;
        __syncthreads();
        {loop} {{
            {step}
            {go_on}
            __syncthreads();
        }}
        if (i < n) y[i] = {last};
    }}"""


_POINTED = {
    "start": "float *in = s0, *out = s1;",
    "step": "out[t] = t >= d ? in[t] + in[t - d] : in[t];",
    "first": "in[t]",
    "last": "in[t]",
    "go_on": "float *r = in; in = out; out = r;",
}
SCANS: dict[str, str] = {
    "scan": scan(),
    "minus": scan("in = 1 - in; out = 1 - out;"),
    "swap": scan("int r = in; in = out; out = r;"),
    "one from the other": scan("in = out; out = 1 - in;"),
    "a bool": scan("in = !in; out = !out;", start="bool in = false, out = true;"),
    "remainder": scan("in = (in + 1) % 2; out = (out + 1) % 2;"),
    "shift": scan(loop="for (int d = 1; d < 256; d <<= 1)"),
    "extent": scan(loop="for (int d = 1; d < blockDim.x; d <<= 1)"),
    "if": scan(step="if (t >= d) s[out][t] = s[in][t] + s[in][t - d]; else s[out][t] = s[in][t];"),
    "rows of one array": scan(
        shared="__shared__ float s[512];",
        step="s[out * 256 + t] = t >= d ? s[in * 256 + t] + s[in * 256 + t - d] : s[in * 256 + t];",
        first="s[t]",
        last="s[in * 256 + t]",
    ),
    "pointers": scan(shared="__shared__ float s0[256], s1[256];", **_POINTED),
}
