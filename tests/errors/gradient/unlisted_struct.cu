// gradient of: y, x
struct Views { float *y; int n; };
__global__ void k(float *y, const float *x, Views v) {  // error: a derivative flows through the pointers in 'v'
    int i = threadIdx.x;
    for (int j = 0; j < v.n; j++) v.y[i] = v.y[i] * x[j];
    y[i] = v.y[i];
}
