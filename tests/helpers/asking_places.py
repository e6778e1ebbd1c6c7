"""Programs that ask for derivatives in all places where code stands. Each prints lines of what it found, and of what
finite differences give."""

from __future__ import annotations

HEAD = r"""#include <cstdio>
#include <cmath>
template <typename R = void, typename... A> __device__ R __enzyme_autodiff(A...);
__device__ int enzyme_dup, enzyme_const, enzyme_out;
inline void show(double found, double wanted) { printf("%.9g %.9g\n", found, wanted); }
__host__ __device__ double f(double x) { return x * x * sin(x); }
inline double slope(double x) { return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6; }
__host__ __device__ double many(double x, int n) {
    double r = x;
    for (int i = 0; i < n; i++) r = sin(r) * x + 0.1;
    return r;
}
inline double slopes(double x, int n) { return (many(x + 1e-6, n) - many(x - 1e-6, n)) / 2e-6; }
"""
_MAIN = r"""
int main() {
    double h[4], *o;
    cudaMalloc(&o, sizeof h);
    LAUNCH;
    cudaMemcpy(h, o, sizeof h, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 4; i++) show(h[i], WANTED);
}
"""
_ASK = "__enzyme_autodiff<double>((void *)f, enzyme_out, "
_ASK_MANY = "__enzyme_autodiff<double>((void *)many, enzyme_out, "


def _launched(text: str, launch: str = "k<<<1, 4>>>(o)", wanted: str = "slopes(0.5 + i, 3 + i)") -> str:
    text = text.replace("ASK_MANY(", _ASK_MANY).replace("ASK(", _ASK)
    return HEAD + text + _MAIN.replace("LAUNCH", launch).replace("WANTED", wanted)


PLACES = {
    "members": _launched(
        """
struct S {
    double v;
    __device__ S(double x) { v = ASK(x); }
    __device__ double operator()(double x) const { return v + ASK(x); }
    __device__ double later(double x) const;
    __device__ operator double() const { return ASK(v); }
    template <int N> __device__ double many(double x) const {
        double sum = 0;
        for (int i = 0; i < N; i++) sum += ASK(x + i);
        return sum;
    }
};
__device__ double S::later(double x) const { return ASK(x); }
__global__ void k(double *o) {
    S s(0.4);
    o[0] = s.v + s(0.8);
    o[1] = s.later(1.2);
    o[2] = s;
    o[3] = s.many<2>(0.1);
}
""",
        wanted="i == 0 ? 2 * slope(0.4) + slope(0.8) : i == 1 ? slope(1.2) : i == 2 ? slope(slope(0.4))"
        " : slope(0.1) + slope(1.1)",
    ),
    "a class template": _launched(
        """
template <typename T, int N> struct Model {
    T w[N];
    static __host__ __device__ T loss(const T *w, T x) {
        T s = 0;
        for (int i = 0; i < N; i++) s = s * x + w[i] * w[i];
        return s;
    }
    __device__ void step(T x, T rate) {
        T g[N] = {};
        __enzyme_autodiff<void>((void *)loss, enzyme_dup, w, g, enzyme_const, x);
        for (int i = 0; i < N; i++) w[i] -= rate * g[i];
    }
};
__global__ void k(double *o) {
    Model<double, 4> m{{1, 2, 3, 4}};
    Model<float, 2> other{{1, 2}};
    m.step(0.5, 0.1);
    other.step(0.5f, 0.25f);
    for (int i = 0; i < 4; i++) o[i] = m.w[i];
    o[3] += other.w[0];
}
""",
        wanted="(i + 1) * (1 - 0.2 * pow(0.5, 3 - i)) + (i == 3 ? 0.75 : 0)",
    ),
    "functions for both sides": _launched(
        """
template <typename R> __host__ __device__ R asked(double x) { return ASK(x); }
struct Two { __host__ __device__ static double of(double x) { return asked<double>(x); } };
__global__ void k(double *o) { o[threadIdx.x] = Two::of(0.5 * threadIdx.x); }
double of_the_file = Two::of(0.5);
""".replace("ASK(", "__enzyme_autodiff<R>((void *)f, enzyme_out, "),
        wanted="i == 1 ? (Two::of(0.5) + of_the_file) / 2 : slope(0.5 * i)",
    ).replace("A> __device__ R", "A> __host__ __device__ R"),
    "arguments of macros": _launched(
        """
#define TWICE(a) a + a
#define ADD(a, b) a + b
#define OUT(x) enzyme_out, x
#define CHECKED(e) do { double r_ = (e); if (r_ != r_) printf("%s\\n", #e); o[i] += r_; } while (0)
__global__ void k(double *o) {
    int i = threadIdx.x;
    o[i] = 0;
    CHECKED(ASK_MANY(ADD(TWICE(0.25), i), enzyme_const, ADD(1, TWICE(1)) + i));
    CHECKED(__enzyme_autodiff<double>((void *)many, OUT(0.5 + i), enzyme_const, 3 + i));
}
""",
        launch="k<<<1, TWICE(2)>>>(o)",
        wanted="2 * slopes(0.5 + i, 3 + i)",
    ),
    "loops in methods": _launched(
        """
struct S {
    double x;
    __device__ double asked(int n) const { return ASK_MANY(x, enzyme_const, n); }
    __device__ double operator()(int n) const { return asked(n); }
};
template <typename F> __device__ double apply(const F &asked, int n) { return asked(n); }
__global__ void k(double *o) { int i = threadIdx.x; S s{0.5 + i}; o[i] = apply(s, 3 + i); }
struct Runner {
    Runner(double *o, int n) { auto run = [&](int block) { k<<<1, block>>>(o); }; run(n); }
};
""",
        launch="Runner runner(o, 4)",
    ),
}
_POINTERS = """
struct S { double *p; int n; };
QUALIFIER double sum(TYPE s) { double r = 0; for (int i = 0; i < LENGTH; i++) r += s->p[i] * s->p[i]; return r; }
"""
_ASKS_OF_HOST = """
int main() {
    double x[3] = {1, 2, 3}, dx[3] = {};
    S s{x, 3}, ds{dx, 3};
    __enzyme_autodiff<double>((void *)sum, enzyme_dup, &s, &ds);
}
"""
_HOST_POINTERS = _POINTERS.replace("TYPE", "S *").replace("LENGTH", "s->n") + _ASKS_OF_HOST
REFUSED = {
    "'s' leads to pointers: derivatives behind those cannot be transpiled": HEAD.replace("A> __device__ R", "A> R")
    + _HOST_POINTERS.replace("QUALIFIER", ""),
    "'s' leads to pointers: derivatives behind those": HEAD.replace("A> __device__ R", "A> R")
    + _HOST_POINTERS.replace("QUALIFIER", "").replace("double r = 0;", "double r = 0, *m; cudaMalloc(&m, 8);"),
    "'s' leads to pointers": HEAD
    + _POINTERS.replace("TYPE", "const S *").replace("LENGTH", "s->n").replace("QUALIFIER", "__device__")
    + "__global__ void k(double *x, double *dx, int n) { S s{x, n}, ds{dx, n};\n"
    "  __enzyme_autodiff<double>((void *)sum, enzyme_dup, &s, &ds); }",
    "'rows' leads to pointers": HEAD + "__device__ double sum(double **rows) { return rows[0][0] * rows[1][0]; }\n"
    "__global__ void k(double **x, double **dx) { __enzyme_autodiff<double>((void *)sum, x, dx); }",
    "a launch that a macro makes": _launched(
        "#define RUN(kernel) kernel<<<1, 4>>>(o)\n"
        "__global__ void k(double *o) { o[threadIdx.x] = ASK_MANY(0.5, enzyme_const, threadIdx.x); }",
        launch="RUN(k)",
    ),
    "need not be named where it is called": _launched(
        "struct S { double v; __device__ S(int n) { v = ASK_MANY(0.5, enzyme_const, n); } };\n"
        "__global__ void k(double *o) { S s(threadIdx.x); o[threadIdx.x] = s.v; }"
    ),
    "a method that is a template, each of whose instances has another derivative": _launched(
        "template <int N> __device__ double power(double x) { return N * x * x; }\n"
        "struct S { template <int N> __device__ double m(double x) {\n"
        "  return __enzyme_autodiff<double>((void *)power<N>, enzyme_out, x); } };\n"
        "__global__ void k(double *o) { S s; o[0] = s.m<2>(1.0) + s.m<3>(2.0); }"
    ),
    "a tape behind a pointer that a template or a method passes on": """
        template <typename... A> __device__ void *__enzyme_augmentfwd(A...);
        __device__ void f(double *x) { double v = *x * *x; *x = sin(v) * x[1]; }
        __device__ void *made(double *x, double *d) { return __enzyme_augmentfwd(f, x, d); }
        struct S { double *x; __device__ void *make(double *d) { return made(x, d); } };
        __global__ void k(double *x, double *d, void **t) { S s{x}; *t = s.make(d); }
        int main() { k<<<1, 1>>>(nullptr, nullptr, nullptr); }
    """,
}
