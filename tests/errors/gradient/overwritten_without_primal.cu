// gradient of: a; primal=False
__global__ void k(float *a, int n) {
    int i = threadIdx.x;
    for (int j = 0; j < n; j++) {
        float v = a[i];
        a[i] = v * v;  // error: with primal=False the reverse cannot get 'v' again
        __syncthreads();
    }
}
