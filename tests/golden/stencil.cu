// gradient of: y, x
// launch: 2, 4; y[8], x[8], n = 8
__global__ void stencil(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) y[i] = x[i - 1] * x[i + 1] - 2 * x[i];
}
