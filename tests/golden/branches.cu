// gradient of: y, x
// launch: 1, 6; y[6], x[6]
__global__ void branches(float *y, const float *x) {
    int i = threadIdx.x;
    float v = x[i];
    switch (i % 3) {
        case 0: v = v * v; break;
        case 1: v = expf(v);
        default: v = v > 1.0f ? sqrtf(v) : v * x[0];
    }
    y[i] = v;
}
