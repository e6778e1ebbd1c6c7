"""What other differentiators show in their own introductions, in kernels of our own."""

import numpy as np

from .case import Case, Draw

_CONTRACTION = """
typedef unsigned long long size;
// Where a thread's row of `extents` starts and how far apart its elements lie, when dimension `dim` is summed over.
__device__ void walk(size &start, size &step, int at, const size *extents, int dim) {
    size first, second;
    switch (dim) {
        case 0:
            step = extents[1] * extents[2];
            start = at;
            break;
        case 1:
            first = at / extents[2];
            second = at % extents[2];
            step = extents[2];
            start = first * extents[1] * extents[2] + second;
            break;
        default:
            step = 1;
            start = at * extents[2];
    }
}
__device__ int others(const size *extents, int dim) { return extents[(dim + 1) % 3] * extents[(dim + 2) % 3]; }

__global__ void k(real *out, const real *a, const real *b, const size *a_size, const size *b_size, int a_dim, int b_dim)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int rows = others(a_size, a_dim), columns = others(b_size, b_dim);
    if (i < rows * columns) {
        size a_start, a_step, b_start, b_step;
        walk(a_start, a_step, i / columns, a_size, a_dim);
        walk(b_start, b_step, i % columns, b_size, b_dim);
        real total = 0;
        for (size j = 0; j < a_size[a_dim]; ++j) total += a[a_start + j * a_step] * b[b_start + j * b_step];
        out[i] = total;
    }
}
"""


def _tensors(a_dim: int, b_dim: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    a, b = [2, 3, 4], [3, 2, 5]
    a[a_dim] = b[b_dim] = 4
    count = int(np.prod(a) // 4 * (np.prod(b) // 4))
    return tuple(a), tuple(b), count


def _contraction(a_dim: int, b_dim: int) -> Case:
    a, b, count = _tensors(a_dim, b_dim)

    def arguments(d: Draw) -> tuple[object, ...]:
        sizes = np.array(a, np.uint64), np.array(b, np.uint64)
        return d.array(count), d.array(*a), d.array(*b), *sizes, a_dim, b_dim

    return Case(f"contraction_{a_dim}{b_dim}", _CONTRACTION, "out, a, b", arguments, grid=-(-count // 32), block=32)


CASES = [
    Case(
        "add_a_number",
        """__global__ void k(real *out, const real *in, real val) {
            int at = threadIdx.x;
            out[at] = in[at] + val;
        }""",
        "out, in, val",
        lambda d: (d.array(6), d.array(6), d.number(0.5)),
    ),
    Case(
        "device_call_reads_its_element",
        """__device__ real pick(const real *in, real val) { return in[threadIdx.x] + val; }
        __global__ void k(real *out, const real *in, real val) { out[threadIdx.x] = pick(in, val); }""",
        "out, in, val",
        lambda d: (d.array(6), d.array(6), d.number(0.5)),
    ),
    Case(
        "device_call_in_a_device_call",
        """__device__ real pick(const real *in, real v) { return in[threadIdx.x] * v; }
        __device__ real twice(const real *source, real number) { return pick(source, number) + pick(source, number); }
        __global__ void k(real *out, const real *in, real val) { out[threadIdx.x] = twice(in, val) * val; }""",
        "out, in, val",
        lambda d: (d.array(6), d.array(6), d.number(0.5)),
    ),
    Case(
        "square_in_one_thread",
        "__device__ void square(real *in, real *out) { out[0] = in[0] * in[0]; }\n"
        "__global__ void k(real *in, real *out) { square(in, out); }",
        "in, out",
        lambda d: (d.array(1), d.array(1)),
        block=1,
    ),
    Case(
        "collide",
        """__device__ void body(const real *from, real *to) {
            size_t i = threadIdx.x;
            if (i < 30) to[i] += from[i] * from[i] - 3 * from[i];
        }
        __global__ void k(const real *src, real *dst) { body(src, dst); }""",
        "src, dst",
        lambda d: (d.array(30), d.array(30)),
        block=32,
    ),
    _contraction(2, 0),
    _contraction(0, 1),
    _contraction(1, 2),
]
