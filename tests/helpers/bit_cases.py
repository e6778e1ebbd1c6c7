"""Loops whose decisions are bits, and loops inside of loops: on the CPU and on a GPU."""

from __future__ import annotations

import kernelgrad as kg

SORT = """
__global__ void sort(double *y, const double *x)
{
    __shared__ double keys[2 * THREADS];
    int t = threadIdx.x;
    keys[t] = x[t];
    keys[t + THREADS] = x[t + THREADS];
    for (int size = 2; size <= 2 * THREADS; size GROW)
        for (int stride = size / 2; stride STOP; stride SHRINK) {
            __syncthreads();
            int low = 2 * t - (t & (stride - 1)), high = low + stride;
            double a = keys[low], b = keys[high];
            if ((a > b) == ((low & size) == 0)) {
                keys[low] = b;
                keys[high] = a;
            }
        }
    __syncthreads();
    y[t] = keys[t];
    y[t + THREADS] = keys[t + THREADS];
}
"""
SPELLINGS = [("*= 2", "> 0", "/= 2"), ("<<= 1", "", ">>= 1"), ("+= size", ">= 1", "= stride / 2")]


def sorting(threads: int, spelling: tuple[str, str, str]) -> kg.Kernel:
    grow, stop, shrink = spelling
    text = SORT.replace("THREADS", str(threads)).replace("GROW", grow).replace("STOP", stop).replace("SHRINK", shrink)
    return kg.compile(text)["sort"]


BODIES = {
    "halved inside of doubled": "for (int m = 1; m < n; m *= 2) for (int d = m; d > 0; d /= 2) { STEP }",
    "a triangle": "for (int m = 0; m < n; ++m) for (int d = 0; d < m; ++d) { STEP }",
    "a triangle of halves": "for (int m = n; m > 0; m -= 3) for (int d = m; d > 1; d >>= 1) { STEP }",
    "three deep": "for (int a = 1; a <= 4; a <<= 1) for (int m = a; m; m >>= 1) for (int d = 0; d < m; ++d) { STEP }",
    "never": "for (int m = 1; m < n; m *= 2) for (int d = -m; d > 0; d /= 2) { STEP }",
    "as data says": "for (int m = 1; m < n; m *= 2) for (int d = lengths[i % 3] + m; d > 0; d /= 2) { STEP }",
    "numbers in turn": """unsigned s = 7u * i + 1;
        for (int m = 0; m < 3; ++m) { unsigned r = s; while (r % 5) { r = r * 3 + 1; STEP } s += r; }""",
    "a branch between": "for (int m = 1; m < n; m *= 2) if (m & 5) for (int d = m; d > 0; d /= 2) { STEP }",
    "out in the middle": """for (int m = 1; m < n; m *= 2)
        for (int d = m; d > 0; d /= 2) { if (p[0] > 1.4) break; STEP }""",
}
STEP = "p[0] = sin(p[0]) * cos(p[1]); if (p[0] > 0.3) p[1] = 0.7 * p[1] + p[0] * x[i]; else p[1] *= 0.9 - 0.5 * p[0];"


def nested(name: str) -> kg.Kernel:
    """What the loops overwrite is memory: its values are saved."""
    loops = BODIES[name].replace("STEP", STEP)
    text = f"""__global__ void k(double *y, const double *x, const int *lengths, int n) {{
        __shared__ double all[64];
        int i = threadIdx.x;
        double *p = all + 2 * ((i * 7) % 32);
        p[0] = x[i];
        p[1] = x[i] * x[i];
        {loops}
        y[i] = p[0] * p[1];
    }}"""
    return kg.compile(text)["k"]
