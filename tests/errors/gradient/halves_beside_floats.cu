// gradient of: y, x
#include <cuda_fp16.h>
__global__ void k(float *y, const float *x) {
    extern __shared__ char raw[];
    __half *halves = (__half *)raw;
    float *floats = (float *)(raw + 64);
    int t = threadIdx.x;
    floats[t] = x[t];
    halves[t] = __float2half(x[t]);
    __syncthreads();
    y[t] = floats[31 - t] * __half2float(halves[31 - t]);  // error: half-precision numbers beside others in the dynamic shared memory 'raw'
}
