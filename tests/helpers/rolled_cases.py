"""Kernels whose loops carry along what they have loaded: registers that hold copies of memory, and such that do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

W, H, ROWS = 12, 5, 9  # of a box: x, y, z


class Case(NamedTuple):
    """The body of `k(T *y, const T *x, const T *z, int w, int h, int n, int first)`, and the copies that are found, by
    how many iterations before they were loaded."""

    body: str
    before: tuple[int, ...]
    launch: tuple[Any, Any] = ((2, 2), (8, 4))
    n: int = ROWS
    first: int = 0
    written: bool = False  # x, too

    @property
    def source(self) -> str:
        x = "double *x" if self.written else "const double *x"
        head = f"double *y, {x}, const double *z, int w, int h, int n, int first"
        return f"__global__ void k({head}) {{ {self.body} }}"

    def arguments(self) -> list[Any]:
        """y, x, z, numbers."""
        rng = np.random.default_rng(3)
        size = W * H * (self.n + 2)
        return [rng.uniform(0.5, 1.5, size), *rng.uniform(0.5, 1.5, (2, size)), W, H, self.n, self.first]


BOX = """int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= w - 1 || j >= h - 1) return; int st = w * h, p = j * w + i;"""
COLUMN = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= w) return;"
LINE = ((2,), (8,))
AROUND = "x[q - 1] * x[q + 1] + x[q - w] - x[q + w]"
STEP = f"int q = p + k * st; double c = x[q + st]; y[q] = a * b + b * c * z[q] + {AROUND}; a = b; b = c;"
USED = "y[k * w + i] = a * b * b + x[(k + 1) * w + (i + 1) % w]; a = b;"

ROLLED = {
    "plane by plane": Case(
        f"{BOX} double a = x[p], b = x[p + st]; for (int k = 1; k < n - 1; ++k) {{ {STEP} }}", (1, 2)
    ),
    "downwards": Case(
        f"{BOX} double c = x[p + (n - 1) * st], b = x[p + (n - 2) * st]; for (int k = n - 2; k > 0; --k) {{"
        f" int q = p + k * st; double a = x[q - st]; y[q] = a * b + b * c * z[q] + {AROUND}; c = b; b = a; }}",
        (1, 2),
    ),
    "in arrays": Case(
        f"""{BOX} double back[2], front[2], b = x[p + 2 * st]; const int R = 2;
        for (int r = R - 1; r >= 0; --r) back[r] = x[p + (R - 1 - r) * st];
        for (int r = 0; r < R; ++r) front[r] = x[p + (R + 1 + r) * st];
        for (int k = R; k < n - R; ++k) {{
            int q = p + k * st; double s = b * z[q];
            for (int r = 1; r <= R; ++r) s += front[r - 1] * back[r - 1] + x[q + r * (r == 1)] - x[q - w];
            y[q] = s;
            for (int r = R - 1; r > 0; --r) back[r] = back[r - 1];
            back[0] = b; b = front[0];
            for (int r = 0; r < R - 1; ++r) front[r] = front[r + 1];
            if (k + R + 1 < n) front[R - 1] = x[p + (k + R + 1) * st];
        }}""",
        (1, 2, 3, 4, 5),
    ),
    "neighbours along a row": Case(
        "int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= n) return; const double *p = x + r * w;"
        " double a = p[0], b = p[1]; for (int k = 1; k < w - 1; ++k) { double c = p[k + 1];"
        " y[r * w + k] = a * b * c + x[(r + 1) * w + k]; a = b; b = c; }",
        (1, 2),
        LINE,
    ),
    "two at a time": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k + 2 < n; k += 2) {{ double b = x[(k + 2) * w + i];"
        " y[k * w + i] = a * b * x[(k + 1) * w + (i + 1) % w]; a = b; }",
        (1,),
        LINE,
    ),
    "from where it is told": Case(
        f"{COLUMN} double a = x[first * w + i]; for (int k = first; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * b + x[k * w + (i + 1) % w]; a = b; }",
        (1,),
        LINE,
        first=2,
    ),
    "each thread from elsewhere": Case(
        f"{COLUMN} double a = x[(i % 3) * w + i]; for (int k = i % 3; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * b + x[k * w + (i + 1) % w]; a = b; }",
        (1,),
        LINE,
    ),
    "counted beside": Case(
        f"{BOX} double a = x[p], b = x[p + st]; int k = 1; int q = p + st; while (k + 1 < n) {{ double c = x[q + st];"
        f" y[q] = a * b + b * c * z[q] + {AROUND}; a = b; b = c; q += st; k += 1; }}",
        (1, 2),
    ),
    "no iteration": Case(
        f"{BOX} double a = x[p], b = x[p + st]; for (int k = 1; k < n - 1; ++k) {{ {STEP} }}", (1, 2), n=2
    ),
    "one alone is no copy": Case(
        f"{COLUMN} double a = z[i], b = x[i]; for (int k = 0; k < n; ++k) {{ double c = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * c * x[k * w + (i + 1) % w]; a = b; b = c; }",
        (1,),
        LINE,
    ),
}
NOT = {
    "begins elsewhere": Case(
        f"{COLUMN} double a = x[i + w]; for (int k = 0; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
    ),
    "begins elsewhere in this launch": Case(
        f"{COLUMN} double a = x[i]; for (int k = first; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * b + x[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
        first=1,
    ),
    "begins with something": Case(
        f"{COLUMN} double a = 1; for (int k = 0; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
    ),
    "of another array": Case(
        f"{COLUMN} double a = z[i]; for (int k = 0; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
    ),
    "left out earlier": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{"
        " y[k * w + i] = a * x[k * w + (i + 1) % w]; if (k + 3 < n) a = x[(k + 1) * w + i]; }",
        (),
        LINE,
    ),
    "left out by the data": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{"
        " y[k * w + i] = a * x[k * w + (i + 1) % w]; if (z[k * w + i] > 1) a = x[(k + 1) * w + i]; }",
        (),
        LINE,
    ),
    "used after the loop": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n - 1; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; } y[(n - 1) * w + i] = a * a;",
        (),
        LINE,
    ),
    "written": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " x[k * w + i] = a * b * z[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
        written=True,
    ),
    "counted in steps of two sizes": Case(
        f"{COLUMN} double a = x[i]; int q = i; for (int k = 0; k < n; ++k) {{ double b = x[q + w];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; q += k % 2 ? w : 2 * w; if (q + w >= n * w) q = i; }",
        (),
        LINE,
    ),
    "remainders, downwards": Case(
        f"{COLUMN} double a = x[n * w + i]; for (int k = n - 1; k >= 0; --k) {{ double b = x[k % n * w + i]; {USED} }}",
        (),
        LINE,
    ),
    "masked": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < 8; ++k) {{ double b = x[(k & 7) * w + w + i]; {USED} }}",
        (),
        LINE,
    ),
    "a quotient": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{ double b = x[(8 * k + (i & 7)) / 8 * w + w + i];"
        f" {USED} }}",
        (),
        LINE,
    ),
    "unsigned in a sum of pointers": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{ double b = (x + (unsigned)k * w)[w + i]; {USED} }}",
        (),
        LINE,
    ),
    "unsigned, then longer": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{"
        f" double b = x[(size_t)(unsigned)k * w + w + i]; {USED} }}",
        (),
        LINE,
    ),
    "a counter that would come round": Case(
        f"{COLUMN} double a = x[i]; for (int m = -2147483647 - 1; m < -2147483640; ++m) {{"
        f" long long k = m + 2147483648ll; double b = x[(m + 2147483649ll) * w + i]; {USED} }}",
        (),
        LINE,
    ),
    "beside a stencil": Case(
        f"{BOX} double a = x[p], b = x[p + st], e = z[p + (n - 2) * st]; for (int k = 1; k < n - 1; ++k) {{"
        f" int q = p + k * st; double c = x[q + st], f = z[(n - 2 - k) % (n - 2) * st + p];"
        f" y[q] = a * b + b * c + {AROUND} + e * f; a = b; b = c; e = f; }}",
        (1, 2),
    ),
    "unsigned": Case(
        f"{COLUMN} double a = x[i]; for (unsigned k = 0; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
    ),
    "changed on the way": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{ double b = x[(k + 1) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b * 2; }",
        (),
        LINE,
    ),
    "by an index from memory": Case(
        f"{COLUMN} double a = x[i]; for (int k = 0; k < n; ++k) {{ double b = x[(int)(z[k * w + i] * 8) * w + i];"
        " y[k * w + i] = a * b * x[k * w + (i + 1) % w]; a = b; }",
        (),
        LINE,
    ),
}
CASES = {**ROLLED, **NOT}
