// gradient of: y, x, c
// launch: 1, 4; y[4], x[4], c[6], degree = 5
__global__ void horner(double *y, const double *x, const double *c, int degree) {
    int i = threadIdx.x;
    double value = c[degree];
    for (int k = degree - 1; k >= 0; k--) value = value * x[i] + c[k];
    y[i] = value;
}
