// The plainest adjoints of the kernels in gradients.cu: a thread for each thread of the kernel, and an atomicAdd for every
// value that it read from memory, shared or global. The inputs' adjoints start at zero; the outputs' are read and stay.

__device__ int index() { return blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void sine_atomics(float *dx, const float *dy, const float *x, int n)
{
    int i = index();
    if (i < n) atomicAdd(&dx[i], dy[i] * (sinf(x[i]) + x[i] * cosf(x[i])));
}

extern "C" __global__ void polynomial_atomics(float *dx, const float *dy, const float *x, int n)
{
    int i = index();
    if (i >= n) return;
    float v = x[i], p = 0.0f, slope = 0.0f;
    for (int k = 16; k >= 0; --k) {
        slope = slope * v + p;
        p = p * v + 1.0f / (k + 1);
    }
    atomicAdd(&dx[i], dy[i] * slope);
}

extern "C" __global__ void scale_atomics(float *da, const float *dy, const float *x, int n)
{
    int i = index();
    if (i < n) atomicAdd(da, dy[i] * x[i]);
}

extern "C" __global__ void contraction_atomics(
    float *da, float *db, const float *dc, const float *a, const float *b, int inner, int columns)
{
    int at = index(), row = at / columns, column = at % columns;
    float g = dc[at];
    for (int m = 0; m < inner; ++m) {
        atomicAdd(&da[row * inner + m], g * b[m * columns + column]);
        atomicAdd(&db[m * columns + column], g * a[row * inner + m]);
    }
}

extern "C" __global__ void stencil_atomics(float *dx, const float *dy, int n)
{
    int i = index(), j = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z;
    if (i < 1 || j < 1 || k < 1 || i >= n - 1 || j >= n - 1 || k >= n - 1) return;
    int at = (k * n + j) * n + i;
    float g = dy[at], side = 0.1f * g;
    atomicAdd(&dx[at], 0.4f * g);
    atomicAdd(&dx[at - 1], side);
    atomicAdd(&dx[at + 1], side);
    atomicAdd(&dx[at - n], side);
    atomicAdd(&dx[at + n], side);
    atomicAdd(&dx[at - n * n], side);
    atomicAdd(&dx[at + n * n], side);
}

extern "C" __global__ void matmul_atomics(
    float *da, float *db, const float *dc, const float *a, const float *b, int n)
{
    __shared__ float A[32][32], B[32][32], A_adj[32][32], B_adj[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
    float g = dc[row * n + col];
    for (int t = 0; t < n / 32; ++t) {
        A[ty][tx] = a[row * n + t * 32 + tx];
        B[ty][tx] = b[(t * 32 + ty) * n + col];
        A_adj[ty][tx] = B_adj[ty][tx] = 0.0f;
        __syncthreads();
        for (int k = 0; k < 32; ++k) {
            atomicAdd(&A_adj[ty][k], g * B[k][tx]);
            atomicAdd(&B_adj[k][tx], g * A[ty][k]);
        }
        __syncthreads();
        atomicAdd(&da[row * n + t * 32 + tx], A_adj[ty][tx]);
        atomicAdd(&db[(t * 32 + ty) * n + col], B_adj[ty][tx]);
    }
}

// The tree of a sum downwards: s[0] holds the adjoint of the sum, and s[t] that of the thread's part when it is done.
__device__ void tree_adjoint(float *s, int t)
{
    for (int d = 1; d < blockDim.x; d *= 2) {
        __syncthreads();
        if (t < d) atomicAdd(&s[t + d], s[t]);
    }
    __syncthreads();
}

extern "C" __global__ void block_sum_atomics(float *dx, const float *dy, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = index();
    s[t] = t == 0 ? dy[blockIdx.x] : 0.0f;
    tree_adjoint(s, t);
    if (i < n) atomicAdd(&dx[i], s[t]);
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

// The adjoint of the thread's part of a sum that all threads read, each with this adjoint.
__device__ float all_sum_adjoint(float *s, int t, float total_adj)
{
    s[t] = 0.0f;
    __syncthreads();
    atomicAdd(&s[0], total_adj);
    tree_adjoint(s, t);
    float part_adj = s[t];
    __syncthreads();
    return part_adj;
}

// The largest element only keeps the exponentials in range: what its adjoint gets adds up to zero.
extern "C" __global__ void softmax_atomics(float *dx, const float *dy, const float *x)
{
    __shared__ float s[256];
    int t = threadIdx.x, row = blockIdx.x * 1024;
    float e[4], top = -1e30f, sum = 0.0f, sum_adj = 0.0f;
    for (int k = 0; k < 4; ++k) {
        e[k] = x[row + k * 256 + t];
        top = fmaxf(top, e[k]);
    }
    s[t] = top;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    top = s[0];
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        e[k] = expf(e[k] - top);
        sum += e[k];
    }
    sum = all_sum(s, t, sum);
    for (int k = 0; k < 4; ++k) sum_adj -= dy[row + k * 256 + t] * e[k] / (sum * sum);
    sum_adj = all_sum_adjoint(s, t, sum_adj);
    for (int k = 0; k < 4; ++k) {
        int at = row + k * 256 + t;
        atomicAdd(&dx[at], e[k] * (dy[at] / sum + sum_adj));
    }
}

extern "C" __global__ void layer_norm_atomics(
    float *dx, float *dw, float *db, const float *dy, const float *x, const float *w)
{
    __shared__ float s[256];
    int t = threadIdx.x, row = blockIdx.x * 1024;
    float v[4], v_adj[4], sum = 0.0f, square = 0.0f, inverse_adj = 0.0f, mean_adj = 0.0f;
    for (int k = 0; k < 4; ++k) {
        v[k] = x[row + k * 256 + t];
        sum += v[k];
    }
    float mean = all_sum(s, t, sum) / 1024;
    for (int k = 0; k < 4; ++k) {
        v[k] -= mean;
        square += v[k] * v[k];
    }
    float inverse = rsqrtf(all_sum(s, t, square) / 1024 + 1e-5f);
    for (int k = 0; k < 4; ++k) {
        int c = k * 256 + t;
        float g = dy[row + c];
        atomicAdd(&db[c], g);
        atomicAdd(&dw[c], g * v[k] * inverse);
        inverse_adj += g * w[c] * v[k];
        v_adj[k] = g * w[c] * inverse;
    }
    float square_adj = all_sum_adjoint(s, t, -0.5f * inverse * inverse * inverse / 1024 * inverse_adj);
    for (int k = 0; k < 4; ++k) {
        v_adj[k] += 2.0f * v[k] * square_adj;
        mean_adj -= v_adj[k];
    }
    float sum_adj = all_sum_adjoint(s, t, mean_adj / 1024);
    for (int k = 0; k < 4; ++k) atomicAdd(&dx[row + k * 256 + t], v_adj[k] + sum_adj);
}

extern "C" __global__ void convolution_atomics(
    float *dx, float *dw, const float *dy, const float *x, const float *w, int n)
{
    int i = index();
    if (i >= n) return;
    float g = dy[i];
    for (int k = 0; k < 31; ++k) {
        atomicAdd(&dw[k], g * x[i + k]);
        atomicAdd(&dx[i + k], g * w[k]);
    }
}

extern "C" __global__ void nbody_atomics(
    float *dx, float *dy, float *dz, const float *gx, const float *gy, const float *gz, const float *x, const float *y,
    const float *z, int n)
{
    __shared__ float sx[256], sy[256], sz[256], sx_adj[256], sy_adj[256], sz_adj[256];
    int t = threadIdx.x, i = index();
    float px = x[i], py = y[i], pz = z[i], qx = gx[i], qy = gy[i], qz = gz[i], ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int first = 0; first < n; first += 256) {
        sx[t] = x[first + t];
        sy[t] = y[first + t];
        sz[t] = z[first + t];
        sx_adj[t] = sy_adj[t] = sz_adj[t] = 0.0f;
        __syncthreads();
        for (int j = 0; j < 256; ++j) {
            float rx = sx[j] - px, ry = sy[j] - py, rz = sz[j] - pz;
            float r = rsqrtf(rx * rx + ry * ry + rz * rz + 1e-3f), f = r * r * r;
            float along = 3.0f * f * r * r * (rx * qx + ry * qy + rz * qz);
            float ux = f * qx - along * rx, uy = f * qy - along * ry, uz = f * qz - along * rz;
            atomicAdd(&sx_adj[j], ux);
            atomicAdd(&sy_adj[j], uy);
            atomicAdd(&sz_adj[j], uz);
            ax -= ux;
            ay -= uy;
            az -= uz;
        }
        __syncthreads();
        atomicAdd(&dx[first + t], sx_adj[t]);
        atomicAdd(&dy[first + t], sy_adj[t]);
        atomicAdd(&dz[first + t], sz_adj[t]);
    }
    atomicAdd(&dx[i], ax);
    atomicAdd(&dy[i], ay);
    atomicAdd(&dz[i], az);
}

// Value and gradient in one go, as the joint gradient does.
extern "C" __global__ void logistic_atomics(float *y, float *dx, float *dy, const float *x, float r, int n, int steps)
{
    int i = index();
    if (i >= n) return;
    float v = x[i], slope = 1.0f;
    for (int k = 0; k < steps; ++k) {
        slope *= r * (1.0f - 2.0f * v);
        v = r * v * (1.0f - v);
    }
    y[i] = v;
    atomicAdd(&dx[i], dy[i] * slope);
    dy[i] = 0.0f;
}

extern "C" __global__ void gather_atomics(float *dx, const float *dy, const int *index_of, int n)
{
    int i = index();
    if (i < n) atomicAdd(&dx[index_of[i]], 2.0f * dy[i]);
}
