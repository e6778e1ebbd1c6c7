// gradient of: y, table, x
// launch: 2, 4; y[7], table[5], x[7], n = 7, m = 5
__device__ float lookup(const float *table, float u, int m) {
    int k = min((int)u, m - 2);
    return table[k] + (u - k) * (table[k + 1] - table[k]);
}

namespace kernelgrad { namespace custom_derivatives {
__device__ void lookup_pullback(const float *table, float u, int m, float d_result, float *d_table, float *d_u) {
    int k = min((int)u, m - 2);
    float w = u - k;
    d_table[k] += (1 - w) * d_result;
    d_table[k + 1] += w * d_result;
    *d_u += (table[k + 1] - table[k]) * d_result;
}
} }

__global__ void custom(float *y, const float *table, const float *x, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * lookup(table, 2 * x[i], m);
}
