// gradient of: y, x
__global__ void k(float *y, const float *x, int *flag) {
    int i = blockIdx.x;
    y[i] = x[i] * x[i];
    __threadfence();  // error: a fence passes values between blocks inside one launch
    atomicAdd(flag, 1);
}
