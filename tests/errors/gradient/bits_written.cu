// gradient of: y, x
__global__ void k(float *y, const float *x) {
    int i = threadIdx.x;
    ((int *)y)[i] = i;  // error: the bits of an active value in 'y' are written
    y[i] += x[i] * x[i];
}
