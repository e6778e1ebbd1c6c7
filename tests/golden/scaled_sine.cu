// gradient of: y, x, a
// launch: 2, 4; y[8], x[8], a = 0.5, n = 7
__global__ void scaled_sine(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = a * sinf(x[i]) * x[i];
}
