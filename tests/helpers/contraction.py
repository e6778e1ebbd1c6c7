"""A product of matrices, one element for each thread, whose sizes are in memory. The adjoints of both factors are sums
over other threads."""

CONTRACTION = """__global__ void k(double *c, const double *a, const double *b, const unsigned long long *sizes) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long inner = sizes[1], columns = sizes[2];
    if (at >= sizes[0] * columns) return;
    unsigned long long row = at / columns, column = at % columns;
    double sum = 0;
    for (int m = 0; m < inner; ++m) sum += a[row * inner + m] * b[m * columns + column];
    c[at] = sum;
}"""
