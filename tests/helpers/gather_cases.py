"""Kernels that read neighbours: which adjoints a gather collects, and which it must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg


@dataclass(frozen=True)
class Case:
    """`sizes`: of the output and the inputs, all double; `rest`: further arguments; `gathered`: inputs that are."""

    source: str
    grid: Any
    block: Any
    sizes: tuple[int, ...]
    rest: tuple[Any, ...] = ()
    gathered: str = "x"

    @property
    def names(self) -> tuple[str, ...]:
        return ("y", "x", "w")[: len(self.sizes)]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(3)
        return [rng.standard_normal(n) for n in self.sizes]


AT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
AT_2 = f"{AT} int j = blockIdx.y * blockDim.y + threadIdx.y;"
GATHERED = {
    "one of two places, by what memory holds": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n) {{ {AT}
            if (i < n - 1) y[i] = x[i + (w[i] > 0 ? 1 : 0)];
        }}""",
        4,
        32,
        (100, 100, 100),
        (100,),
        "x",
    ),
    "around a ring": Case(
        f"__global__ void k(double *y, const double *x, int n) {{ {AT} if (i < n) y[i] = x[i] * x[(i + 1) % n]; }}",
        3,
        32,
        (90, 90),
        (90,),
    ),
    "a loop that begins far away": Case(
        f"""__global__ void k(double *y, const double *x, int n, long long far) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (long long j = far; j <= far + i; ++j) sum += x[j - far] * (1 + j - far - i);
            y[i] = sum;
        }}""",
        3,
        16,
        (40, 50),
        (40, 1 << 40),
    ),
    "how often depends on the thread": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int k = 0; k < i % 4; ++k) sum += x[i + k];
            y[i] = sum;
        }}""",
        3,
        32,
        (90, 97),
        (90,),
    ),
    "zero padding, channels": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int C, int H, int W) {{
            {AT_2} int o = blockIdx.z;
            if (i >= W || j >= H) return;
            double sum = 0;
            for (int c = 0; c < C; ++c)
                for (int r = 0; r < 3; ++r)
                    for (int s = 0; s < 3; ++s) {{
                        int v = j + r - 1, u = i + s - 1;
                        if (v >= 0 && v < H && u >= 0 && u < W)
                            sum += x[(c * H + v) * W + u] * w[((o * C + c) * 3 + r) * 3 + s];
                    }}
            y[(o * H + j) * W + i] = sum;
        }}""",
        (2, 3, 2),
        (8, 4),
        (2 * 99, 3 * 99, 54),
        (3, 9, 11),
    ),
    "zero padding by conditional expressions and unsigned numbers": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n, int taps) {{ {AT} int j = blockIdx.y;
            if (i >= n) return;
            double sum = 0;
            for (int t = 0; t < taps; ++t) {{
                int u = i - t + taps / 2;
                sum += w[t] * ((unsigned)u < (unsigned)n ? x[j * n + u] : 0.0);
            }}
            y[j * n + i] = sum;
        }}""",
        (4, 3),
        16,
        (150, 150, 5),
        (50, 5),
    ),
    # The condition is not that of the row: what is read before it is the end of the row before.
    "padding by one too many": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT} int j = blockIdx.y;
            if (i >= n) return;
            double sum = 0;
            for (int t = 0; t < 3; ++t) {{
                if (i + t < 1 || n < i + t) continue;
                sum += x[1 + j * n + i + t - 2] * (t + 2);
            }}
            y[j * n + i] = sum;
        }}""",
        (4, 3),
        8,
        (90, 91),
        (30,),
    ),
    # Fewer threads than elements: the gather runs over what was read (rule 9).
    "three points, two threads fewer": Case(
        f"__global__ void k(double *y, const double *x) {{ {AT} if (i < 98) y[i] = x[i] + 2 * x[i + 1] - x[i + 2]; }}",
        4,
        32,
        (98, 100),
    ),
    "no guard": Case(
        f"__global__ void k(double *y, const double *x) {{ {AT} y[i] = x[i] * x[i + 1]; }}", 3, 32, (96, 97)
    ),
    "products of neighbours": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i < 1 || i >= n - 1) return;
            y[i] = x[i] * x[i + 1] - sin(x[i - 1]) * x[i];
        }}""",
        4,
        32,
        (100, 100),
        (100,),
    ),
    "five points, a grid that is too large": Case(
        f"""__global__ void k(double *y, const double *x, int n, int m) {{ {AT_2}
            if (i > 0 && i < n - 1 && j > 0 && j < m - 1)
                y[j * n + i] = x[j * n + i - 1] + 3 * x[j * n + i + 1] + 5 * x[(j - 1) * n + i] * x[(j + 1) * n + i];
        }}""",
        (3, 5),
        (8, 4),
        (19 * 17, 19 * 17),
        (19, 17),
    ),
    "corners of a cube": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT_2} int k = blockIdx.z;
            int at = (k * n + j) * n + i;
            if (i < n - 1 && j < n - 1 && k < n - 1)
                y[at] = x[at] * x[at + n * n + n + 1] + x[at + n - 1 + 1] - 2 * x[at + n * n + 1];
        }}""",
        (2, 2, 7),
        (4, 5),
        (343, 343),
        (7,),
    ),
    "taps in a loop": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n, int taps) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int k = 0; k < taps; ++k) sum += w[k] * x[i + k];
            y[i] = sum;
        }}""",
        3,
        32,
        (90, 97, 7),
        (90, 7),
    ),
    "taps backwards and apart": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int k = 6; k > 0; k -= 2) sum += k * x[i + 3 * k];
            y[i] = sum;
        }}""",
        3,
        32,
        (80, 100),
        (80,),
    ),
    "two loops of taps": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n, int m) {{ {AT_2}
            if (i >= n - 2 || j >= m - 2) return;
            double sum = 0;
            for (int b = 0; b < 3; ++b)
                for (int a = 0; a < 3; ++a) sum += w[b * 3 + a] * x[(j + b) * n + i + a];
            y[j * n + i] = sum;
        }}""",
        (3, 4),
        (8, 4),
        (20 * 13, 20 * 13, 9),
        (20, 13),
    ),
    "an axis that the input does not have": Case(
        f"""__global__ void k(double *y, const double *x, int n, int m) {{ {AT_2}
            if (i < n && j < m) y[j * n + i] = (j + 1) * x[i];
        }}""",
        (2, 2),
        (16, 4),
        (30 * 7, 30),
        (30, 7),
    ),
    "a product of matrices": Case(
        f"""__global__ void k(double *y, const double *w, const double *x, int n) {{ {AT_2}
            if (i >= n || j >= n) return;
            double sum = 0;
            for (int k = 0; k < n; ++k) sum += w[j * n + k] * x[k * n + i];
            y[j * n + i] = sum;
        }}""",
        (3, 3),
        (8, 8),
        (400, 400, 400),
        (20,),
    ),
    "from the other end": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i < n - 1) y[i] = x[n - 1 - i] * x[n - 2 - i];
        }}""",
        3,
        32,
        (70, 70),
        (70,),
    ),
    "several floats a thread": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i < n) y[i] = x[2 * i] * x[2 * i + 1] + x[2 * i + 2];
        }}""",
        3,
        32,
        (70, 142),
        (70,),
    ),
    "a struct's members": Case(
        f"""struct P {{ double a, b, c; }};
        __global__ void k(double *y, const P *x, int n) {{ {AT}
            if (i >= n - 1) return;
            P p = x[i], q = x[i + 1];
            y[i] = p.a * q.b + p.c * q.c;
        }}""",
        2,
        32,
        (50, 150),
        (50,),
    ),
    "a guard from memory": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n) {{ {AT}
            if (i >= n - 1) return;
            if (w[i] > 0) y[i] = x[i] * x[i + 1];
        }}""",
        4,
        32,
        (100, 100, 100),
        (100,),
        "x",
    ),
    "a choice by value": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i < 1 || i >= n - 1) return;
            double left = x[i - 1], right = x[i + 1];
            y[i] = left > right ? left * x[i] : right * right;
        }}""",
        4,
        32,
        (100, 100),
        (100,),
    ),
    "thread and block apart": Case(
        """__global__ void k(double *y, const double *x, int n) {
            int i = blockIdx.x * 32 + threadIdx.x;
            if (i < n - 1) y[i] = (threadIdx.x + 1) * x[i] + blockIdx.x * x[i + 1];
        }""",
        4,
        32,
        (100, 100),
        (100,),
    ),
    "overlapping rows": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT_2}
            if (i < 5 && j < n) y[j * 5 + i] = x[i + 3 * j] * (i + 1);
        }}""",
        (1, 3),
        (8, 8),
        (100, 65),
        (20,),
    ),
    "a counter called like a parameter": Case(
        f"""__global__ void k(double *y, const double *x, int n, int taps) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int n = 0; n < taps; ++n) sum += x[i + n] * x[i];
            y[i] = sum;
        }}""",
        3,
        32,
        (90, 97),
        (90, 7),
    ),
    "a block axis of one thread": Case(
        """__global__ void k(double *y, const double *x, int n) {
            int i = blockIdx.x;
            if (i < n - 1) y[i] = x[i] * x[i + 1];
        }""",
        60,
        1,
        (60, 60),
        (60,),
    ),
}

ATOMIC = {
    "an end that is none": Case(
        f"""__global__ void k(double *y, const double *x, int n, int most) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int j = i; j < min(i + 3, most) + 2; ++j) sum += x[j] * (1 + j - i);
            y[i] = sum;
        }}""",
        3,
        16,
        (40, 60),
        (40, 2**31 - 1),
        "",
    ),
    "by way of an array of the thread's own": Case(
        f"""__global__ void k(double *y, const double *x, int n, int m) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int k = 0; k < 5; ++k) sum += x[i + k];
            double own[4] = {{sum, sum * sum, 1, sin(sum)}};
            y[i] = own[(i + m) % 4] * own[m];
        }}""",
        3,
        16,
        (40, 50),
        (40, 3),
        "",
    ),
    "how often is loaded": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i >= n) return;
            double sum = 0;
            for (int k = 0; k < (int)(4 * fabs(x[0])) % 4; ++k) sum += x[i + k];
            y[i] = sum;
        }}""",
        3,
        32,
        (90, 94),
        (90,),
        "",
    ),
    # Neither condition bounds the column that is read: neighbouring rows share elements.
    "padding of another sum": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT} int j = blockIdx.y;
            if (i >= n) return;
            double sum = 0;
            for (int t = 0; t < 3; ++t)
                if (i - t >= 0 && i - t < n) sum += x[1 + j * n + i + t - 1] * (t + 2);
            y[j * n + i] = sum;
        }}""",
        (4, 3),
        8,
        (90, 92),
        (30,),
        "",
    ),
    "padding on one side or the other": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT} int j = blockIdx.y;
            if (i >= n) return;
            double sum = 0;
            for (int t = 0; t < 3; ++t)
                if (i + t >= 1 || i + t < n + 1) sum += x[1 + j * n + i + t - 1] * (t + 2);
            y[j * n + i] = sum;
        }}""",
        (4, 3),
        8,
        (90, 92),
        (30,),
        "",
    ),
    "a loop without iterations": Case(
        f"""__global__ void k(double *y, const double *x, int n, int rows) {{ {AT_2}
            if (i >= n) return;
            double sum = 1;
            for (int k = 0; k < rows; ++k) sum += x[k * n + i] * (j + 1);
            y[j * n + i] = sum;
        }}""",
        (3, 2),
        (8, 4),
        (160, 60),
        (20, 0),
        "",
    ),
    "the loop carries what is needed": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i >= n) return;
            double v = 1;
            for (int k = 0; k < 3000; ++k) v = v * x[i + (k & 1)] + 1e-3 * v * v;
            y[i] = v;
        }}""",
        1,
        8,
        (6, 9),
        (6,),
        "",
    ),
    "in place": Case(
        f"""__global__ void k(double *y, double *x, int n) {{ {AT}
            if (i < n) y[i] = x[i] * x[i + 200];
            if (i < n) x[i] = y[i] * 2;
        }}""",
        3,
        32,
        (90, 300),
        (90,),
        "",
    ),
    "stored twice": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i >= n - 1) return;
            y[i / 2 * 2 + 1 - i % 2] = x[i] * x[i + 1];
            __syncthreads();
            y[i] = x[i] - 2 * x[i + 1];
        }}""",
        1,
        64,
        (60, 60),
        (59,),
        "",
    ),
    "an index from memory": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n) {{ {AT}
            if (i < n - 1) y[i] = x[abs((int)(100 * w[i])) % n];
        }}""",
        4,
        32,
        (100, 100, 100),
        (100,),
        "",
    ),
    # The gather's threads would read columns: each warp 32 rows at a time.
    "the left factor": Case(
        f"""__global__ void k(double *y, const double *x, const double *w, int n) {{ {AT_2}
            if (i >= n || j >= n) return;
            double sum = 0;
            for (int k = 0; k < n; ++k) sum += x[j * n + k] * w[k * n + i];
            y[j * n + i] = sum;
        }}""",
        (3, 3),
        (8, 8),
        (400, 400, 400),
        (20,),
        "w",
    ),
    "too much to compute again": Case(
        f"""__global__ void k(double *y, const double *x, int n) {{ {AT}
            if (i >= n - 1) return;
            double v = sin(x[i]) * cos(x[i + 1]);
            y[i] = exp(sin(v) + cos(v) * tanh(v)) * log(1 + v * v) + atan(v) * erf(v) + cbrt(2 + v) * sinh(v);
        }}""",
        4,
        32,
        (100, 100),
        (100,),
        "",
    ),
}


def arguments_of(case: Case) -> list[Any]:
    """In the order of the kernel's parameters, of which w may come before x."""
    kernel = kg.compile(case.source)["k"]
    given = dict(zip(case.names, case.arrays(), strict=True))
    order = [p.name for p in kernel.function.params if p.name in given]
    return [*(given[name] for name in order), *case.rest]
