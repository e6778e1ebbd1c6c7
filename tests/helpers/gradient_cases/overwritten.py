"""Values that are gone when the reverse sweep needs them."""

from .case import Case

CASES = [
    Case(
        "square_in_place",
        "__global__ void k(real *a, int n) { int i = threadIdx.x; if (i < n) a[i] = a[i] * a[i]; }",
        "a",
        lambda d: (d.array(8), 5),
    ),
    Case(
        "in_place_many_times",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] = y[i] * y[i];
            y[i] = y[i] * sin(y[i]) * x[(i + 1) % n];
            for (int j = 0; j < 3; j++) y[i] = y[i] * x[j] + y[i] * y[i];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "compound_assignments",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] += x[i] * x[i];
            y[i] *= x[i] + real(1);
            y[i] -= y[i] * x[0];
            y[i] /= x[i];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "ping_pong",
        """__global__ void k(real *y, const real *x, real *b, int n) {
            int i = threadIdx.x;
            real *p = y, *q = b;
            q[i] = x[i];
            for (int j = 0; j < n; j++) {
                p[i] = q[i] * q[i] * real(0.7) + x[j];
                real *t = p; p = q; q = t;
            }
            y[i] = q[i] * p[i];
        }""",
        "y, x, b",
        lambda d: (d.array(8), d.array(8, high=0.6), d.array(8), 4),
    ),
    Case(
        "chosen_pointer",
        """__global__ void k(real *y, real *a, real *b, int n) {
            int i = threadIdx.x;
            real *p = i % 2 ? a : b;
            p[i] = p[i] * p[i] + a[0] * real(0);
            y[i] = p[i] * a[i] * b[i];
        }""",
        "y, a, b",
        lambda d: (d.array(8), d.array(8), d.array(8), 6),
        # thread 0 writes b[0] only, so nobody writes the a[0] that all read
    ),
    Case(
        "local_array_dynamic_index",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real a[4] = {x[i], real(1), real(2), x[0]};
            for (int j = 0; j < n; j++) { int m = (j * 7 + i) % 4; a[m] = a[m] * a[(m + 1) % 4] * real(0.3) + x[j]; }
            real s = 0;
            for (int j = 0; j < 4; j++) s += a[j] * a[j];
            y[i] = s;
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "local_matrix",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real a[3][3];
            for (int r = 0; r < 3; r++) for (int c = 0; c < 3; c++) a[r][c] = x[(i + r * 3 + c) % n] * x[r];
            for (int p = 0; p < 2; p++)
                for (int r = p + 1; r < 3; r++) {
                    real f = a[r][p] / (a[p][p] + real(1));
                    for (int c = p; c < 3; c++) a[r][c] -= f * a[p][c];
                }
            y[i] = a[0][0] * a[1][1] * a[2][2] + a[1][2];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 7),
    ),
    Case(
        "read_after_write",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            y[i] = x[i] * x[i];
            real v = y[i];
            y[i] = sin(v);
            y[i + 8] = v * y[i];
        }""",
        "y, x",
        lambda d: (d.array(16), d.array(8), 6),
    ),
    Case(
        "unlisted_scratch",
        """__global__ void k(real *y, const real *x, real *tmp, int n) {
            int i = threadIdx.x;
            tmp[i] = x[i] * x[i];
            y[i] = sin(tmp[i]) * x[0];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), d.array(8), 6),
    ),
    Case(
        "unlisted_scratch_in_a_loop",
        """__global__ void k(real *y, const real *x, real *tmp, int n) {
            int i = threadIdx.x;
            for (int j = 0; j < 3; j++) tmp[3 * i + j] = x[(i + j) % n] * x[i];
            for (int j = 0; j < 3; j++) tmp[3 * i + j] *= tmp[3 * i + (j + 1) % 3];
            y[i] = tmp[3 * i] + tmp[3 * i + 1] * tmp[3 * i + 2];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), d.array(24), 6),
    ),
    Case(
        "integers_overwritten",
        """__global__ void k(real *y, const real *x, int *idx, int n) {
            int i = threadIdx.x;
            real s = 1;
            for (int j = 0; j < n; j++) {
                int m = idx[8 * i + j];
                idx[8 * i + (j + 1) % 8] = (m + 1) % n;
                s *= x[m % n] * y[i] + real(0.5);
                y[i] = s * real(0.5) + y[i];
            }
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), d.ints(64, below=5), 4),
    ),
    Case(
        "store_only_on_one_side",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            if (x[i] > real(0.6)) y[i] = x[i] * y[i];
            y[i] = y[i] * y[i];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
    Case(
        "constant_overwrites",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = y[i];
            y[i] = 0;
            if (i % 2) y[i] = v * x[i];
        }""",
        "y, x",
        lambda d: (d.array(8), d.array(8), 6),
    ),
]
