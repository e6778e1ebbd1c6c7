"""Device functions: how values get in and out of them."""

from .case import Case

_TWO = lambda d: (d.array(8), d.array(8), 6)  # noqa: E731

CASES = [
    Case(
        "same_argument_twice",
        """__device__ real add(real p, real q) { return p * q + p; }
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] = add(x[i], x[i]) * add(x[i], x[0]);
        }""",
        "y, x",
        _TWO,
    ),
    Case(
        "pointer_changed_and_value_returned",
        """__device__ real g(real *memory, int at, real &extra) {
            extra = memory[at] * memory[at];
            memory[at] = extra * 2;
            return sin(extra);
        }
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real a[3] = {x[i], x[0], x[1]}, o;
            real r = g(a, i % 3, o);
            y[i] = r * r + o * a[i % 3] + g(a, 1, o) * o;
        }""",
        "y, x",
        _TWO,
    ),
    Case(
        "global_pointer_changed",
        """__device__ void scale(real *out, const real *in, real by) { out[0] = out[0] * in[0] * by; }
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            scale(y + i, x + i, real(2));
            scale(&y[i], &x[(i + 1) % n], y[i]);
        }""",
        "y, x",
        _TWO,
    ),
    Case(
        "nested_calls",
        """__device__ real inner(real v) { return v * v; }
        __device__ real outer(real v, real w) { return inner(v) * inner(inner(w)) + w; }
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] = outer(x[i], outer(x[0], x[i]));
        }""",
        "y, x",
        _TWO,
    ),
    Case(
        "returns_inside_loops",
        """__device__ real f(real v, const real *p, int n) {
            for (int j = 0; j < n; j++) {
                v = v * p[j] + real(0.5);
                if (v > real(0.9)) return v * v;
                for (int m = 0; m < j; m++) { v += real(0.1) * v * p[m]; if (v > real(0.8)) return sin(v); }
            }
            return v;
        }
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            if (i == 3) return;
            y[i] = f(x[i], x, n) * f(x[(i + 1) % n], x, n);
        }""",
        "y, x",
        _TWO,
    ),
    Case(
        "parameters_changed_inside",
        """__device__ real horner(real at, const real *c, int degree) {
            real sum = c[degree];
            while (degree-- > 0) sum = sum * at + c[degree];
            at = at * at;
            return sum * at;
        }
        __global__ void k(real *y, const real *x, int n) { int i = threadIdx.x; y[i] = horner(x[i], x, 4); }""",
        "y, x",
        _TWO,
    ),
    Case(
        "templates_and_lambdas",
        """template <int N, class F> __device__ real fold(const real *p, F combine) {
            real s = p[0];
            for (int j = 1; j < N; j++) s = combine(s, p[j]);
            return s;
        }
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real w = x[i];
            y[i] = fold<4>(x, [=](real a, real b) { return a * b + w; });
        }""",
        "y, x",
        _TWO,
    ),
    Case(
        "methods",
        """struct Spring {
            real stiffness, rest;
            __device__ Spring(real s, real r) : stiffness(s), rest(r) {}
            __device__ real energy(real length) const { real d = length - rest; return stiffness * d * d; }
            __device__ void soften(real by) { stiffness *= by; }
        };
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            Spring s(x[i], x[0]);
            real before = s.energy(x[1]);
            s.soften(x[2]);
            y[i] = before * s.energy(x[(i + 1) % n]);
        }""",
        "y, x",
        _TWO,
    ),
]
