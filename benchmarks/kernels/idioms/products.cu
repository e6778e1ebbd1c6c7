// Tiled matrix products, and attention that a thread does for its row.

__global__ void matmul_padded(float *c, const float *a, const float *b, int n)
{
    __shared__ float A[32][33], B[32][33];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int t = 0; t < n / 32; ++t) {
        A[ty][tx] = a[row * n + t * 32 + tx];
        B[ty][tx] = b[(t * 32 + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += A[ty][k] * B[k][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

__global__ void matmul_flat(float *c, const float *a, const float *b, int n)
{
    __shared__ float A[1024], B[1024];
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int t = 0; t < n; t += 32) {
        A[ty * 32 + tx] = a[row * n + t + tx];
        B[ty * 32 + tx] = b[(t + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += A[ty * 32 + k] * B[k * 32 + tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

__global__ void matmul_guarded(float *C, const float *A, const float *B, int M, int N, int K)
{
    __shared__ float As[16][16], Bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float acc = 0.0f;
    for (int t = 0; t < (K + 15) / 16; ++t) {
        int ak = t * 16 + tx, bk = t * 16 + ty;
        As[ty][tx] = row < M && ak < K ? A[row * K + ak] : 0.0f;
        Bs[ty][tx] = bk < K && col < N ? B[bk * N + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < 16; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}

// 64 x 64 a block of 256 threads, 4 x 4 a thread.
__global__ void matmul_registers(float *c, const float *a, const float *b, int n)
{
    __shared__ float As[16][64], Bs[16][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, row = blockIdx.y * 64, col = blockIdx.x * 64;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        for (int k = 0; k < 4; ++k) {
            int at = t + k * 256;
            As[at % 16][at / 16] = a[(row + at / 16) * n + k0 + at % 16];
            Bs[at / 64][at % 64] = b[(k0 + at / 64) * n + col + at % 64];
        }
        __syncthreads();
        for (int k = 0; k < 16; ++k) {
            float ra[4], rb[4];
            for (int i = 0; i < 4; ++i) ra[i] = As[k][ty * 4 + i];
            for (int j = 0; j < 4; ++j) rb[j] = Bs[k][tx * 4 + j];
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) acc[i][j] += ra[i] * rb[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) c[(row + ty * 4 + i) * n + col + tx * 4 + j] = acc[i][j];
}

__global__ void matmul_plain(float *c, const float *a, const float *b, int n)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}
