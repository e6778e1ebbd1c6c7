"""Kernels that move elements: neighbouring threads write neighbours, and read what is far apart."""

from __future__ import annotations

INDEX = "int o = blockIdx.x * blockDim.x + threadIdx.x;"
BODIES = {
    "by quotients": """if (o >= A * B * C) return;
        int b = o % B, c = o / B % C, a = o / (B * C); y[o] = x[(a * B + b) * C + c];""",
    "scaled": """if (o >= A * B * C) return;
        int b = o % B, c = (o / B) % C, a = o / B / C; y[o] = 3 * x[a * B * C + b * C + c] + 1;""",
    "by what was read": """if (o >= A * B * C) return;
        int b = o % B, c = o / B % C, a = o / (B * C); float v = x[(a * B + b) * C + c]; y[o] = v * v * v;""",
    "two axes": """int c = blockIdx.y * blockDim.y + threadIdx.y;
        if (o < A * B && c < C) y[c * (A * B) + o] = x[o * C + c] * 2;""",
    "a part": """if (o >= A * B * C / 2) return;
        int b = o % B, c = o / B % C, a = o / (B * C); y[o] = x[(a * B + b) * C + c];""",
    "read twice": """if (o >= A * B * C) return;
        int b = o % B, c = o / B % C, a = o / (B * C); int i = (a * B + b) * C + c; y[o] = x[i] * x[i];""",
    "others are neighbours": """if (o >= A * B * C) return;
        int c = o % C, b = o / C % B, a = o / (B * C); y[(a * C + c) * B + b] = sinf(x[o]);""",
    "turned round": """if (o >= A * B * C) return;
        int b = o % B, c = o / B % C, a = o / (B * C); y[o] = x[((A - 1 - a) * B + (B - 1 - b)) * C + c];""",
}
STORED = ("others are neighbours",)


def source(name: str, real: str = "float") -> str:
    text = f"""__global__ void k(float *y, const float *x, int A, int B, int C) {{
        {INDEX}
        {BODIES[name]}
    }}"""
    return text.replace("float", real).replace("sinf", "sin")


def launch(name: str, extents: tuple[int, int, int], threads: int = 64) -> tuple[object, object]:
    a, b, c = extents
    if name == "two axes":
        return (-(-a * b // 32), -(-c // 4)), (32, 4)
    return -(-a * b * c // threads), threads
