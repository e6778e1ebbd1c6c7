// gradient of: sum, a, b
// launch: 2, 4; sum[1], a[8], b[8], n = 8
__global__ void dot_product(float *sum, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, a[i] * b[i]);
}
