__global__ void square(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = in[i] * in[i] + 0.5 * in[i]; }
__global__ void mix(const double *in, double *out, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * in[i] * in[(i + 1) % n] + sin(in[i]); }
__global__ void total(const double *in, double *sum, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, in[i]); }
