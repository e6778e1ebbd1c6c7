"""Records, vector types, pointers, casts."""

from .case import Case

_S = """
struct S { real a; int k; real b[2]; };
__device__ S make(real u, int k) { S s; s.a = u * u; s.k = k; s.b[0] = u; s.b[1] = sin(u); return s; }
__device__ void update(S &s, const real *x) { s.a += s.b[s.k % 2] * x[s.k]; s.b[1 - s.k % 2] *= s.a; }
"""

_PAIR = "struct Pair { real a; int tag; real b; };"

CASES = [
    Case(
        "struct_updated_in_a_loop",
        _S
        + """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            S s = make(x[i], i);
            for (int j = 0; j < n; j++) { update(s, x); s.k = (s.k + 1) % n; }
            y[i] = s.a * s.b[0] + s.b[1];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8, high=0.7), 5),
        tolerance=1e-4,
        block=5,
    ),
    Case(
        "arrays_of_structs",
        _PAIR
        + """__global__ void k(Pair *out, const Pair *in, int n) {
            int i = threadIdx.x;
            Pair p = in[i];
            p.a *= p.b * p.tag;
            p.b += p.a * p.a;
            out[i] = p;
            out[i].a += in[(i + 1) % n].b;
        }""",
        "out, in",
        lambda d: (
            d.records(6, ("a", "real"), ("tag", "i4"), ("b", "real")),
            d.records(6, ("a", "real"), ("tag", "i4"), ("b", "real")),
            6,
        ),
    ),
    Case(
        "array_of_structs_in_registers",
        _PAIR
        + """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            Pair pairs[3];
            for (int j = 0; j < 3; j++) { pairs[j].a = x[i] * x[j]; pairs[j].tag = j; pairs[j].b = x[(i + j) % n]; }
            Pair chosen = pairs[(i * 2) % 3];
            pairs[i % 3] = chosen;
            y[i] = pairs[0].a * pairs[1].b + pairs[2].a * chosen.b * chosen.tag;
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "vector_types",
        """template <class T> struct V;
        template <> struct V<float> { typedef float4 four; typedef float2 two; };
        template <> struct V<double> { typedef double4 four; typedef double2 two; };
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            typedef V<real>::four four;
            typedef V<real>::two two;
            four v = reinterpret_cast<const four *>(x)[i];
            v.x *= v.y;
            v.w = v.x * v.z + v.w;
            two *o = reinterpret_cast<two *>(y);
            two r;
            r.x = v.x * v.x;
            r.y = v.w + v.x;
            o[i] = r;
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(16), 4),
        block=4,
    ),
    Case(
        "pointer_arithmetic",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            const real *p = x + i, *end = x + n;
            real s = 1;
            for (; p < end; ++p) s = s * *p + p[-i];
            real *q = &y[i];
            *q++ = s;
            *(q + 7) = s * *(x + n - 1 - i);
        }""",
        "y, x",
        lambda d: (d.array(20), d.array(8), 6),
    ),
    Case(
        "references",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real &out = y[i];
            const real &in = x[i];
            real local = in * in;
            real &alias = local;
            alias *= in;
            out = local * local;
            out += alias * in;
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "casts_between_floats",
        """__global__ void k(real *y, const float *x, const double *z, int n) {
            int i = threadIdx.x;
            double a = x[i];
            float b = (float)z[i];
            y[i] = real(a * b) * real(float(a) * z[i]);
        }""",
        "y, x, z",
        lambda d: (d.array(8), d.array(8).astype("f4"), d.array(8).astype("f8"), 6),
        tolerance=1e-4,
    ),
    Case(
        "integers_in_between",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = x[i] * real(10);
            int whole = (int)v;
            real part = v - whole;
            y[i] = part * part * whole;
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
        tolerance=1e-3,
    ),
    Case(
        "constant_and_device_variables",
        """__constant__ real weights[3] = {real(0.5), real(1.5), real(2.5)};
        __device__ real shift = real(0.25);
        __global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] = weights[i % 3] * x[i] * x[i] + shift * x[i] + __ldg(&x[(i + 1) % n]);
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "two_dimensions",
        """__global__ void k(real *y, const real *x, int w, int h) {
            int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
            if (c >= w || r >= h) return;
            real left = c > 0 ? x[r * w + c - 1] : real(0), up = r > 0 ? x[(r - 1) * w + c] : real(0);
            y[r * w + c] = x[r * w + c] * (left + up) + left * up;
        }""",
        "y, x",
        lambda d: (d.array(5, 7), d.array(5, 7), 7, 5),
        grid=(2, 2),
        block=(4, 4),
    ),
]
