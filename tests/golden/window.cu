// gradient of: y, x
// launch: 1, 4; y[4], x[8], n = 4
__global__ void window(double *y, const double *x, int n) {
    int i = threadIdx.x;
    double ring[3] = {x[i], x[i + 1], x[i + 2]};
    for (int k = 0; k < n; k++) ring[k % 3] = ring[(k + 1) % 3] * ring[(k + 2) % 3] + x[i];
    y[i] = ring[0] + ring[1] * ring[2];
}
