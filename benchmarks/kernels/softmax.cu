constexpr int THREADS = 256;

// One block per row: two reductions through shared memory.
__global__ void softmax(float *y, const float *x, int columns) {
    __shared__ float partial[THREADS];
    const float *in = x + (size_t)blockIdx.x * columns;
    float *out = y + (size_t)blockIdx.x * columns;

    float largest = -3.402823466e38f;
    for (int i = threadIdx.x; i < columns; i += THREADS) largest = fmaxf(largest, in[i]);
    partial[threadIdx.x] = largest;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + half]);
        __syncthreads();
    }
    largest = partial[0];
    __syncthreads();

    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float e = expf(in[i] - largest);
        out[i] = e;
        sum += e;
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    float scale = 1.0f / partial[0];
    for (int i = threadIdx.x; i < columns; i += THREADS) out[i] *= scale;
}
