"""Branches and loops of every kind."""

from .case import Case, Draw


def _two(d: Draw) -> tuple[object, ...]:
    return d.array(8), d.array(8), 6


CASES = [
    Case(
        "early_return",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            if (i >= n) return;
            if (x[i] < real(0.4)) { y[i] = x[i] * x[i]; return; }
            y[i] = x[i] * exp(x[i]);
        }""",
        "y, x",
        _two,
        block=32,
    ),
    Case(
        "else_if_chain",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = x[i];
            if (i == 0) v = v * v;
            else if (i < 3) { v = sin(v); if (i == 1) v *= x[0]; }
            else v = real(1) / v;
            y[i] = v * v;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "runtime_bound_nonlinear_after",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real before = x[i] * real(2), s = 0;
            for (int j = 0; j < n; ++j) s += x[j] * x[i];
            y[i] = before * s * s;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "carried_nonlinearly",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real s = x[i], t = 0;
            for (int j = 0; j < n; ++j) {
                s = s * x[j] + real(1);
                if (s > real(2)) { s = s * real(0.5); continue; }
                t += s * s;
            }
            y[i] = s * t;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "nested_data_dependent",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real s = x[i];
            for (int j = 0; j < n; ++j) {
                real p = 1;
                for (int m = 0; m <= j; ++m) p = p * sin(s + x[m]);
                s += p * p;
                int c = 0;
                while (s > real(1) && c < 5) { s = s * real(0.7); c++; }
            }
            y[i] = s;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "while_break_do",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x, j = 0;
            real s = x[i];
            while (true) {
                s = s * x[j % n] + real(0.3);
                if (s < real(0.1) || j > 20) break;
                j++;
                do { s *= real(0.5) * x[0]; } while (s > real(1));
            }
            y[i] = s * s;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "break_out_of_two",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real best = 0;
            for (int a = 0; a < n; ++a) {
                real row = x[a];
                for (int b = 0; b < n; ++b) {
                    row = row * x[b] + x[i];
                    if (row > real(1.5)) break;
                }
                if (a > i) break;
                best += row * row;
            }
            y[i] = best * x[i];
        }""",
        "y, x",
        _two,
    ),
    Case(
        "continue_maximum",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real best = real(-1);
            int at = -1;
            for (int j = 0; j < n; ++j) {
                if (j == i) continue;
                if (x[j] <= best) continue;
                best = x[j];
                at = j;
            }
            y[i] = best * best + x[at] * x[i];
        }""",
        "y, x",
        _two,
    ),
    Case(
        "switch_fall_through",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real s = x[i];
            for (int j = 0; j < n; j++)
                switch ((i + j) % 5) {
                    case 0: s += x[j] * x[i];
                    case 1: s = s * s; break;
                    case 2: s = s / (x[j] + real(1)); break;
                    case 3: break;
                    default: s = sqrt(fabs(s) + real(1));
                }
            y[i] = s;
        }""",
        "y, x",
        _two,
        tolerance=1e-4,
    ),
    Case(
        "short_circuit_and_ternary",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real v = x[i] - real(0.5);
            y[i] = (v > 0 ? sqrt(v) : v * v)
                 + (v > 0 && x[0] > real(0.2) || i == 4 ? x[1] * v : pow(x[2], real(3)))
                 + (i > 2 ? (i > 4 ? v : v * v) : x[i] * x[0]);
        }""",
        "y, x",
        _two,
    ),
    Case(
        "zero_trips",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real s = x[i];
            for (int j = i; j < 3; ++j) s = s * s;
            for (int j = n; j < 0; ++j) s = s * real(100);
            int c = i;
            while (c < 2) { s = s * x[c]; c++; }
            y[i] = s * s;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "two_loops_in_a_row",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real p = 1, q = x[i];
            for (int j = 0; j < n; ++j) p *= x[j] + real(0.5);
            for (int j = n - 1; j >= 0; j -= 2) q = q * p * x[j] + real(0.1);
            y[i] = p * q;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "strides_and_unsigned",
        """__global__ void k(real *y, const real *x, int n) {
            int i = threadIdx.x;
            real s = 1;
            for (unsigned j = 1; j < (unsigned)n; j += 2) s = s * x[j] + x[i];
            for (long long j = 5; j > -3; j -= 3) s = s * (x[0] + real(j) * real(0.1));
            for (int j = 0; j < n; j += 4) s = s * s * real(0.5);
            y[i] = s;
        }""",
        "y, x",
        _two,
    ),
    Case(
        "grid_stride",
        """__global__ void k(real *y, const real *x, int n) {
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
                y[i] = x[i] * x[i] * x[(i * 3) % n];
        }""",
        "y, x",
        lambda d: (d.array(40), d.array(40), 37),
        grid=2,
        block=4,
    ),
    Case(
        "data_dependent_trip_count",
        """__global__ void k(real *y, const real *x, const int *rows, int n) {
            int i = threadIdx.x;
            real s = 0, p = x[i];
            for (int e = rows[i]; e < rows[i + 1]; ++e) { s += x[e % n] * p; p = p * x[e % n]; }
            y[i] = s + p;
        }""",
        "y, x",
        lambda d: (d.array(6), d.array(6), __import__("numpy").array([0, 3, 3, 4, 9, 10, 16], "i4"), 6),
    ),
]
