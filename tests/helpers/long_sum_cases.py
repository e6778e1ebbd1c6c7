"""Long sums of adjoints, by where they are kept and by what tells how long they are, and what they come to."""

from __future__ import annotations

import numpy as np

N = 1 << 22
M = 512
SEED = float(np.float32(1.1))
HEAD = "__global__ void k(float *y, const float *w, const int *c, float a, int n, int m)"

# The body, and what each of w[0], w[1] and the number a gets in units of n. Where several elements of one buffer are
# added to, where a test for NaN stands behind an inner loop, where pointers were chosen, threads meet, loops are short
# one by one.
PLACES: dict[str, tuple[str, tuple[float, float, float]]] = {
    "two_elements": ("for (int j = 0; j < n; j++) s += w[0] * w[1];", (0.5, 0.5, 0)),
    "two_branches": ("for (int j = 0; j < n; j++) if (j & 1) s += w[0] * a; else s += w[1] * a;", (0.25, 0.25, 0.5)),
    "same_or_not": ("int p = c[0], q = c[1]; for (int j = 0; j < n; j++) s += w[p] * w[q];", (0.5, 0.5, 0)),
    "cases": ("for (int j = 0; j < n; j++) switch (j & 1) { case 0: s += w[0] * a; default: s -= w[1] * a; }",
              (0.25, -0.5, -0.25)),
    "nested_number": ("for (int j = 0; j < n / 1024; j++) { float q = w[j & 1]; for (int k = 0; k < 1024; k++)"
                      " s += q * a; }", (0.25, 0.25, 0.5)),
    "nested_while": ("for (int j = 0; j < n / 512; j++) { int k = 0; while (k < 512) { s += w[0] * a; k++; } }",
                     (0.5, 0, 0.5)),
    "short_loops": ("for (int i = 0; i < 64; i++) for (int j = 0; j < 256; j++) for (int k = 0; k < 256; k++)"
                    " s += w[0] * a;", (0.5, 0, 0.5)),
    "many_terms": ("for (int j = 0; j < n / 16; j++) { " + "s += w[0] * a; " * 16 + "}", (0.5, 0, 0.5)),
    "read_once": ("float v = w[0]; for (int j = 0; j < n; j++) { s += v * a; if (j == n / 2) v = v + w[1]; }",
                  (0.5, 0.25, 0.75)),
    "read_always": ("float v = w[0]; for (int j = 0; j < n; j++) { s += v * a; v += w[1] * 0x1p-22f; }",
                    (0.5, 0.25, 0.75)),
    "read_at_times": ("float v = w[0]; for (int j = 0; j < n; j++) { if (j & 1) v += w[1] * 0x1p-21f; else s += v * a;"
                      " if (j % 4 == 2) s += v * a; }", (0.375, 0.1875, 0.5625)),
    "local_array": ("float q[3] = {w[0], w[1], a}; int p = c[1]; for (int j = 0; j < n; j++) s += q[p] * a;",
                    (0, 0.5, 0.5)),
    "local_arrays": ("float q[3] = {w[0], w[1], a}; int p = c[0], r = c[1]; for (int j = 0; j < n; j++)"
                     " s += q[p] * q[r];", (0.5, 0.5, 0)),
    "chosen_before": ("const float *q = c[1] ? w + 1 : w; for (int j = 0; j < n; j++) s += *q * a;", (0, 0.5, 0.5)),
    "chosen_array": ("float v[2] = {w[0], a}; const float *q = c[1] ? w + 1 : v; for (int j = 0; j < n; j++)"
                     " s += *q * a;", (0, 0.5, 0.5)),
    "record": ("struct { const float *p; float b; } r; r.p = w + c[1]; r.b = a; for (int j = 0; j < n; j++)"
               " s += r.p[0] * r.b;", (0, 0.5, 0.5)),
    "shared_after_return": ("if (m < 0) return; __shared__ float q[2]; q[0] = w[0]; q[1] = w[1]; int p = c[1];"
                            " __syncthreads(); for (int j = 0; j < n; j++) s += q[p] * a;", (0, 0.5, 0.5)),
    "barriers_after_return": ("if (threadIdx.x >= m) return; for (int j = 0; j < n / 4; j++) {"
                              " s += w[0] * a; __syncthreads(); s += w[1] * a; }", (0.125, 0.125, 0.25)),
}  # fmt: skip

# Loops, and how many times they add w[0] * w[1] * a in one thread of one. Nothing but these tells how long they are.
LENGTHS: dict[str, tuple[str, int]] = {
    "a_literal": ("for (int j = threadIdx.x; j < 4000000; j += blockDim.x)", 4_000_000),
    "a_literal_by_ones": ("for (int j = threadIdx.x; j < 4000000; j++)", 4_000_000),
    "a_literal_in_a_while": ("for (unsigned j = 1; j < 8000000u; j += 1 + (j & 1))", 4_000_000),
    "a_product": ("for (int j = threadIdx.x; j < m * m * 16; j++)", 1 << 22),
    "a_product_with_the_block": ("for (int j = threadIdx.x; j < n * (int)blockDim.x; j++)", 1 << 22),
    "a_power": ("for (int j = threadIdx.x; j < (1 << (m / 32 + 6)); j++)", 1 << 22),
    "beside_a_hash": ("unsigned h = 7; for (int j = 0; j < n; j += 1 + (h & 1), h *= 4u)", (1 << 22) - 1),
    "an_odometer": ("int i = 0, q = 0; for (; i < 2048; q == 2047 ? (q = 0, i++) : q++)", 1 << 22),
    "an_orbit": ("for (unsigned q = 1025; q != 1u; q *= 1025u)", (1 << 22) - 1),
    "another_product": ("for (int j = threadIdx.x; j < __mul24(m, 8192); j++)", 1 << 22),
    "doubled": ("for (int k = 1; k < n; k *= 2) for (int j = threadIdx.x; j < k; j++)", (1 << 22) - 1),
}

# Cells that many threads add to, one number each: what is before the kernel, its buffers, the expression of w, and
# what the cells get by these buffers, in units of all threads. Records with integers among their floats, rows,
# pointers that each thread chooses, memory that may be stored to, few cells of large buffers.
_RECORD = np.dtype([("a", "f4"), ("n", "i4"), ("b", "f4")])
_QUARTERS = dict.fromkeys(range(4), 0.25)
_PAIR = "const float *u, const float *v"
CELLS: dict[str, tuple[str, str, dict[str, np.ndarray], str, dict[str, dict[int, float]]]] = {
    "records": ("struct P { float a; int n; float b; };", "const P *w", {"w": np.zeros(2, _RECORD)}, "w[i & 1].b",
                {"w": {2: 0.5, 5: 0.5}}),
    "rows": ("", "const float4 *w", {"w": np.zeros(8, "f4")}, "w[i & 1].y", {"w": {1: 0.5, 5: 0.5}}),
    "either": ("", _PAIR, {"u": np.zeros(4, "f4"), "v": np.zeros(4, "f4")}, "((i & 1) ? u : v)[i & 2]",
               {"u": {0: 0.25, 2: 0.25}, "v": {0: 0.25, 2: 0.25}}),
    "either_by_branch": ("__device__ float at(const float *u, const float *v, int i) { const float *q = u; if (i & 2)"
                         " q = v + 1; return q[i & 1]; }", _PAIR, {"u": np.zeros(4, "f4"), "v": np.zeros(4, "f4")},
                         "at(u, v, i)", {"u": {0: 0.25, 1: 0.25}, "v": {1: 0.25, 2: 0.25}}),
    "element_of_one": ("", "const float *w", {"w": np.zeros(4, "f4")}, "*((i & 1) ? w + 1 : w)",
                       {"w": {0: 0.5, 1: 0.5}}),
    "stored_to": ("", "float *w", {"w": np.zeros(8, "f4")}, "w[i & 1]; if (i == n + 5) w[0] = 3.0f",
                  {"w": {0: 0.5, 1: 0.5}}),
    "low_bits": ("", "const float *w", {"w": np.zeros(1 << 18, "f4")}, "w[i & 3]", {"w": _QUARTERS}),
    "high_bits": ("", "const float *w", {"w": np.zeros(1 << 18, "f4")}, "w[i / (n / 4)]", {"w": _QUARTERS}),
    "by_thread": ("", "const float *w", {"w": np.zeros(1 << 18, "f4")}, "w[threadIdx.x / 64]", {"w": _QUARTERS}),
    "far_end": ("", "const float *w", {"w": np.zeros(1 << 18, "f4")}, "w[(1 << 18) - 4 + (i & 3)]",
                {"w": {(1 << 18) - 4 + k: 0.25 for k in range(4)}}),
    "before_a_pointer": ("__device__ float at(const float *p, int i) { return p[-1 - (i & 1)]; }", "const float *w",
                         {"w": np.zeros(1 << 18, "f4")}, "at(w + 200000, i)", {"w": {199_999: 0.5, 199_998: 0.5}}),
    "far_apart": ("", "const float *w", {"w": np.zeros(1 << 18, "f4")}, "w[(i & 3) << 16]",
                  {"w": {k << 16: 0.25 for k in range(4)}}),
    "beside_others": ("", "const float *w", {"w": np.zeros(1 << 22, "f4")}, "w[i & 1] + w[i & 0x3fffff] * 0.0f",
                      {"w": {0: 0.5, 1: 0.5}}),
    "records_of_many": ("struct P { float a; int n; float b; };", "const P *w", {"w": np.zeros(1 << 16, _RECORD)},
                        "w[i & 1].b", {"w": {2: 0.5, 5: 0.5}}),
}  # fmt: skip


def cells_source(name: str) -> str:
    before, buffers, _, value, _ = CELLS[name]
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return f"{before} __global__ void k(float *y, {buffers}, int n) {{ {index} y[i] = {value}; }}"


def source(name: str) -> str:
    body = PLACES[name][0] if name in PLACES else f"{LENGTHS[name][0]} s += w[0] * w[1] * a;"
    return f"{HEAD} {{ float s = 0; {body} y[threadIdx.x] = s; }}"


def arguments() -> list[object]:
    """Before the adjoints."""
    return [np.zeros(1, "f4"), np.full(2, 0.5, "f4"), np.array([0, 1], "i4"), 0.5, N, M]


def expected(name: str) -> np.ndarray:
    """Of w[0], w[1] and a, where y's adjoint is SEED."""
    return SEED * (N * np.array(PLACES[name][1]) if name in PLACES else np.full(3, LENGTHS[name][1] * 0.25))
