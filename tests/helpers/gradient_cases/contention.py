"""Many threads that read, or add to, one address."""

from .case import Case

CASES = [
    Case(
        "scalar_read_by_all",
        "__global__ void k(real *y, const real *x, real a, int n) {"
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = sin(x[i]) * x[i] * a * a; }",
        "y, x, a",
        lambda d: (d.array(40), d.array(40), d.number(0.7), 37),
        grid=5,
        block=8,
    ),
    Case(
        "one_element_read_by_all",
        """__global__ void k(real *y, const real *x, const real *w, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = x[i] * w[0] + w[1] * w[1];
        }""",
        "y, x, w",
        lambda d: (d.array(40), d.array(40), d.array(2), 37),
        grid=5,
        block=8,
    ),
    Case(
        "neighbours",
        """__global__ void k(real *y, const real *x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n - 2) y[i] = x[i] * x[i + 1] + x[i + 2] * x[i];
        }""",
        "y, x",
        lambda d: (d.array(40), d.array(40), 37),
        grid=5,
        block=8,
    ),
    Case(
        "indirect",
        """__global__ void k(real *y, const real *x, const int *at, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = x[at[i]] * x[at[(i + 1) % n]];
        }""",
        "y, x",
        lambda d: (d.array(40), d.array(10), d.ints(40, below=10), 37),
        grid=5,
        block=8,
    ),
    Case(
        "atomic_sum",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            atomicAdd(&y[i % 2], x[i] * x[i] * x[0]);
        }""",
        "y, x",
        lambda d: (d.array(2), d.array(8), 6),
        block=8,
    ),
    Case(
        "rows_that_collide",
        """__global__ void k(real *y, const real *x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            y[threadIdx.y * n + i] = x[i] * x[i] * real(1 + threadIdx.y);
        }""",
        "y, x",
        lambda d: (d.array(12), d.array(4), 4),
        block=(4, 3),
    ),
    Case(
        "struct_members_read_by_all",
        """struct Pair { real a; int tag; real b; };
        __global__ void k(real *y, const Pair *p, int n) {
            int i = threadIdx.x;
            const Pair *q = p + i % 2;
            y[i] = q->a * (*(p + 1)).b * i;
        }""",
        "y, p",
        lambda d: (d.array(8), d.records(2, ("a", "real"), ("tag", "i4"), ("b", "real")), 6),
    ),
]
