"""Functions with pullbacks that are right, so that their kernels have the gradient that they have without them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import kernelgrad as kg

N, BLOCK = 7, 4
GRID = 2


@dataclass(frozen=True)
class Case:
    """`functions`, their `pullbacks`, and what a kernel does with y, x, n and i < n."""

    functions: str
    pullbacks: str
    body: str

    def source(self, custom: bool = True, real: str = "double") -> str:
        kernel = self.body if "__global__" in self.body else _KERNEL % self.body
        given = f"namespace kernelgrad {{ namespace custom_derivatives {{\n{self.pullbacks}\n}} }}\n" if custom else ""
        text = f"{self.functions}\n{given}{kernel}"
        return text if real == "double" else text.replace("double", "float")


_KERNEL = """__global__ void k(double *y, const double *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    %s
}"""

_SINE = "__device__ double f(double a, double b) { return a * sin(b); }"
_SINE_PULLBACK = """__device__ void f_pullback(double a, double b, double d, double *da, double *db) {
    *da += d * sin(b);
    *db += d * a * cos(b);
}"""
_DOT = """__device__ double dot(const double *a, const double *b, int m) {
    double r = 0;
    for (int k = 0; k < m; ++k) r += a[k] * b[k];
    return r;
}"""
_DOT_PULLBACK = """
__device__ void dot_pullback(const double *a, const double *b, int m, double d, double *da, double *db) {
    for (int k = 0; k < m; ++k) { da[k] += d * b[k]; db[k] += d * a[k]; }
}"""
_SQUARE = "__device__ double at(const double *a, int k) { return a[k] * a[k]; }"
_SQUARE_PULLBACK = (
    "__device__ void at_pullback(const double *a, int k, double d, double *da) { da[k] += 2 * a[k] * d; }"
)
_CROSS = """__device__ double3 cross(double3 a, double3 b) {
    return make_double3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}"""
_CUBE = "__device__ double f(double a) { return a * a * a; }"

CASES = {
    "numbers": Case(_SINE, _SINE_PULLBACK, "y[i] = f(x[i], x[(i + 1) % n]);"),
    "in a loop": Case(
        _SINE, _SINE_PULLBACK, "double s = x[i]; for (int k = 0; k < i % 4; ++k) s = f(s, x[k]); y[i] = s;"
    ),
    "in a while loop and its branches": Case(
        _SINE,
        _SINE_PULLBACK,
        """double s = x[i]; int k = 0;
        while (s > 0.1 && k < 5) { if (k % 2) s = f(s, x[k]); else s *= 0.9; ++k; }
        y[i] = s;""",
    ),
    "adjoints that are assigned and read": Case(
        _SINE,
        """__device__ void f_pullback(double a, double b, double d, double *da, double *db) {
            *da = d * sin(b);
            *db += *da * a / tan(b);
        }""",
        "y[i] = f(x[i], x[(i + 1) % n]);",
    ),
    "branches": Case(
        "__device__ double f(double a) { return a > 0.7 ? a * a : 3 * a; }",
        """__device__ void f_pullback(double a, double d, double &da) {
            if (a > 0.7) da += 2 * a * d; else da += 3 * d;
        }""",
        "y[i] = f(x[i]);",
    ),
    "an early return": Case(
        _CUBE,
        """__device__ void f_pullback(double a, double d, double *da) {
            if (d == 0 || a < 0) return;
            *da += 3 * a * a * d;
        }""",
        "if (i % 2) y[i] = f(x[i]); else y[i] = f(f(x[i])) * x[i];",
    ),
    "a loop that carries the adjoint, and one of an integer": Case(
        "__device__ double f(double a, int m) { double r = 1; for (int k = 0; k < m; ++k) r *= a; return r; }",
        """__device__ void f_pullback(double a, int m, double d, double *da, int *dm) {
            double r = d;
            for (int k = 1; k < m; ++k) r *= a;
            *da += m * r;
        }""",
        "y[i] = f(x[i], i + 1);",
    ),
    "pointers": Case(_DOT, _DOT_PULLBACK, "y[i] = dot(x, x + i, n - i);"),
    "atomics and null": Case(
        _DOT,
        """__device__ void dot_pullback(const double *a, const double *b, int m, double d, double *da, double *db) {
            if (da && db != nullptr)
                for (int k = 0; k < m; ++k) { atomicAdd(&da[k], d * b[k]); db[k] = db[k] - -d * a[k]; }
        }""",
        "y[i] = dot(x, x + i, n - i);",
    ),
    "local arrays": Case(
        _DOT,
        _DOT_PULLBACK,
        """double u[3] = {x[i], x[i] * x[0], 2}, v[3] = {1, x[1], x[i]};
        y[i] = dot(u, v, 3); u[0] = y[i]; y[i] = dot(u, v, 2);""",
    ),
    "memory that is overwritten": Case(
        _SQUARE,
        _SQUARE_PULLBACK,
        "double t = 0; for (int k = 0; k < 3; ++k) { y[i] = y[i] + at(x, (i + k) % n); t += at(y, i); } y[i] = t;",
    ),
    "shared memory": Case(
        _SQUARE,
        _SQUARE_PULLBACK,
        """__global__ void k(double *y, const double *x, int n) {
            __shared__ double s[4];
            int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
            s[t] = i < n ? x[i] * x[i] : 0;
            __syncthreads();
            double v = at(s, (t + 1) % 4) + at(s, t);
            __syncthreads();
            s[t] = v;
            __syncthreads();
            if (i < n) y[i] = at(s, 3 - t);
        }""",
    ),
    "structs": Case(
        _CROSS,
        """__device__ void cross_pullback(double3 a, double3 b, double3 d, double3 *da, double3 *db) {
            double3 u = cross(b, d), v = cross(d, a);
            da->x += u.x; da->y += u.y; da->z += u.z;
            *db = make_double3(v.x, v.y, v.z);
        }""",
        "double3 r = cross(make_double3(x[i], x[0], x[1]), make_double3(x[2], x[i], x[3])); y[i] = r.x * r.y + r.z;",
    ),
    "references": Case(
        "struct V { double a, b; };\n__device__ double q(const V &v, double s) { return v.a * v.b * s; }",
        """__device__ void q_pullback(const V &v, double s, double d, V *dv, double *ds) {
            dv->a += d * v.b * s; dv->b += d * v.a * s; *ds += d * v.a * v.b;
        }""",
        "V v{x[i], x[0] * x[1]}; y[i] = q(v, x[2]);",
    ),
    "structs in memory": Case(
        "__device__ double f(const double3 *a, int k) { double3 v = a[k]; return v.x * v.y + v.z; }",
        """__device__ void f_pullback(const double3 *a, int k, double d, double3 *da) {
            double3 v = a[k], o = da[k];
            da[k] = make_double3(o.x + d * v.y, o.y + d * v.x, o.z + d);
        }""",
        "if (i < 2) y[i] = f((const double3 *)x, i);",
    ),
    "a table": Case(
        """__device__ double lerp(const double *t, double u, int m) {
            int k = (int)(u * m);
            if (k > m - 2) k = m - 2;
            double w = u * m - k;
            return t[k] * (1 - w) + t[k + 1] * w;
        }""",
        """__device__ void lerp_pullback(const double *t, double u, int m, double d, double *dt, double *du) {
            int k = (int)(u * m);
            if (k > m - 2) k = m - 2;
            double w = u * m - k;
            dt[k] += d * (1 - w);
            dt[k + 1] += d * w;
            *du += d * m * (t[k + 1] - t[k]);
        }""",
        "y[i] = lerp(x, 0.1 + 0.1 * x[i], n);",
    ),
    "an instance of a template": Case(
        "template <class T> __device__ T f(T a) { return a * a * a; }",
        "__device__ void f_pullback(double a, double d, double *da) { *da += 3 * a * a * d; }",
        "y[i] = f(x[i]) + f<double>(y[i]);",
    ),
    "one custom derivative in another": Case(
        _CUBE + "\n__device__ double g(double a) { return f(a) * f(2 * a); }",
        """__device__ void f_pullback(double a, double d, double *da) { *da += 3 * a * a * d; }
        __device__ void g_pullback(double a, double d, double *da) { *da += 6 * f(a) * f(2 * a) / a * d; }""",
        "y[i] = g(f(x[i]));",
    ),
}


def arguments(dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray, int]:
    random = np.random.default_rng(3)
    return random.uniform(0.3, 1.2, N).astype(dtype), random.uniform(0.3, 1.2, N).astype(dtype), N


def kernel(name: str, custom: bool = True, real: str = "double") -> kg.kernel.Kernel:
    return kg.compile(CASES[name].source(custom, real))["k"]
