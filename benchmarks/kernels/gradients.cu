// The kernels whose gradients benchmarks/gradients.py times.

__global__ void sine(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(x[i]) * x[i];
}

__global__ void polynomial(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i], p = 0.0f;
    for (int k = 16; k >= 0; --k) p = p * v + 1.0f / (k + 1);
    y[i] = p;
}

__global__ void scale(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * a;
}

__global__ void stencil(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z;
    if (i < 1 || j < 1 || k < 1 || i >= n - 1 || j >= n - 1 || k >= n - 1) return;
    int at = (k * n + j) * n + i;
    y[at] = 0.4f * x[at] + 0.1f * (x[at - 1] + x[at + 1] + x[at - n] + x[at + n] + x[at - n * n] + x[at + n * n]);
}

__global__ void matmul(float *c, const float *a, const float *b, int n)
{
    __shared__ float A[32][32], B[32][32];
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

__global__ void block_sum(float *y, const float *x, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0];
}

__device__ float all_sum(float *s, int t, float v)
{
    s[t] = v;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    float total = s[0];
    __syncthreads();
    return total;
}

__device__ float all_max(float *s, int t, float v)
{
    s[t] = v;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    float top = s[0];
    __syncthreads();
    return top;
}

// A block a row of 1024.
__global__ void softmax(float *y, const float *x)
{
    __shared__ float s[256];
    int t = threadIdx.x, row = blockIdx.x * 1024;
    float v[4], top = -1e30f, sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        v[k] = x[row + k * 256 + t];
        top = fmaxf(top, v[k]);
    }
    top = all_max(s, t, top);
    for (int k = 0; k < 4; ++k) {
        v[k] = expf(v[k] - top);
        sum += v[k];
    }
    sum = all_sum(s, t, sum);
    for (int k = 0; k < 4; ++k) y[row + k * 256 + t] = v[k] / sum;
}

__global__ void layer_norm(float *y, const float *x, const float *w, const float *b)
{
    __shared__ float s[256];
    int t = threadIdx.x, row = blockIdx.x * 1024;
    float v[4], sum = 0.0f, square = 0.0f;
    for (int k = 0; k < 4; ++k) {
        v[k] = x[row + k * 256 + t];
        sum += v[k];
    }
    float mean = all_sum(s, t, sum) / 1024;
    for (int k = 0; k < 4; ++k) square += (v[k] - mean) * (v[k] - mean);
    float inverse = rsqrtf(all_sum(s, t, square) / 1024 + 1e-5f);
    for (int k = 0; k < 4; ++k) {
        int c = k * 256 + t;
        y[row + c] = (v[k] - mean) * inverse * w[c] + b[c];
    }
}

__global__ void convolution(float *y, const float *x, const float *w, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 31; ++k) sum += w[k] * x[i + k];
    y[i] = sum;
}

__global__ void nbody(float *fx, float *fy, float *fz, const float *x, const float *y, const float *z, int n)
{
    __shared__ float sx[256], sy[256], sz[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float px = x[i], py = y[i], pz = z[i], ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int first = 0; first < n; first += 256) {
        sx[t] = x[first + t];
        sy[t] = y[first + t];
        sz[t] = z[first + t];
        __syncthreads();
        for (int j = 0; j < 256; ++j) {
            float dx = sx[j] - px, dy = sy[j] - py, dz = sz[j] - pz;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float f = r * r * r;
            ax += f * dx;
            ay += f * dy;
            az += f * dz;
        }
        __syncthreads();
    }
    fx[i] = ax;
    fy[i] = ay;
    fz[i] = az;
}

__global__ void logistic(float *y, const float *x, float r, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < 100; ++k) v = r * v * (1.0f - v);
    y[i] = v;
}

__global__ void logistic_runtime(float *y, const float *x, float r, int n, int steps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < steps; ++k) v = r * v * (1.0f - v);
    y[i] = v;
}

__global__ void gather(float *y, const float *x, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[index[i]] * 2.0f;
}

typedef unsigned long long extent;

// Where the line of each operand that makes one output element starts, and how far apart its elements are.
__device__ void lines(extent &a_first, extent &a_stride, extent &b_first, extent &b_stride, const int at,
                      const extent a_dims[3], const extent b_dims[3], const int along_a, const int along_b)
{
    extent right = b_dims[(along_b + 1) % 3] * b_dims[(along_b + 2) % 3], i, j, k;
    switch (along_a) {
    case 0:
        j = at / (right * a_dims[2]);
        k = at / right % a_dims[2];
        a_first = j * a_dims[2] + k;
        a_stride = a_dims[1] * a_dims[2];
        break;
    case 1:
        i = at / (right * a_dims[2]);
        k = at / right % a_dims[2];
        a_first = i * a_dims[1] * a_dims[2] + k;
        a_stride = a_dims[2];
        break;
    case 2:
        i = at / (right * a_dims[1]);
        j = at / right % a_dims[1];
        a_first = (i * a_dims[1] + j) * a_dims[2];
        a_stride = 1;
        break;
    }
    switch (along_b) {
    case 0:
        j = at / b_dims[2] % b_dims[1];
        k = at % b_dims[2];
        b_first = j * b_dims[2] + k;
        b_stride = b_dims[1] * b_dims[2];
        break;
    case 1:
        i = at / b_dims[2] % b_dims[0];
        k = at % b_dims[2];
        b_first = i * b_dims[1] * b_dims[2] + k;
        b_stride = b_dims[2];
        break;
    case 2:
        i = at / b_dims[1] % b_dims[0];
        j = at % b_dims[1];
        b_first = (i * b_dims[1] + j) * b_dims[2];
        b_stride = 1;
        break;
    }
}

// c = a and b contracted along one dimension of each: all sizes lie in memory, and are read where they are needed.
__global__ void contraction(float *c, const float *a, const float *b, const extent *a_dims, const extent *b_dims,
                            const int along_a, const int along_b)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    int count = a_dims[(along_a + 1) % 3] * a_dims[(along_a + 2) % 3] * b_dims[(along_b + 1) % 3] * b_dims[(along_b + 2) % 3];
    if (at < count) {
        extent a_first, a_stride, b_first, b_stride;
        lines(a_first, a_stride, b_first, b_stride, at, a_dims, b_dims, along_a, along_b);
        float sum = 0.0f;
        for (int m = 0; m < a_dims[along_a]; ++m) sum += a[a_first + m * a_stride] * b[b_first + m * b_stride];
        c[at] = sum;
    }
}
