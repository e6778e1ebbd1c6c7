"""Math functions in kernels: untaken sides, kinks, points where a formula has no derivative but the code does."""

from .case import Case

CASES = [
    Case(
        "elementary",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = x[i];
            y[i] = exp(v) * log(v) + tanh(v) * atan2(v, x[0]) + hypot(v, x[1]) + cbrt(v) + erf(v) * rsqrt(v);
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "powers",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = x[i] - real(0.7);
            y[i] = pow(v, real(2)) + pow(v, real(3)) * pow(x[i], x[0]) + pow(v, 2);
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "minima_and_absolute_values",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] = fmax(x[i], x[0]) * fmin(x[i], real(0.7)) + fabs(x[i] - real(0.65)) * copysign(x[i], x[1] - x[2]);
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
        smooth=False,  # thread 0 compares x[0] with itself
    ),
    Case(
        "steps_have_no_derivative",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = x[i] * real(10);
            y[i] = floor(v) * x[0] + (v - rint(v)) * (v - rint(v)) + fmod(v, real(3));
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
        tolerance=1e-4,
    ),
    Case(
        "fast_forms",
        """__global__ void k(float *y, const float *x, int n) {
            int i = threadIdx.x;
            y[i] = __expf(x[i]) * __sinf(x[i]) + __fdividef(x[0], x[i]) + __powf(x[i], 1.5f) + rsqrtf(x[i]);
        }""",
        "y, x",
        lambda d: (d.array(8).astype("f4"), d.array(8).astype("f4"), 6),
    ),
]
