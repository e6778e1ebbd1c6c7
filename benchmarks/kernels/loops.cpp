// The kernels as the loops that a C programmer would write for the CPU; with -fopenmp, over all cores.
#include <cmath>

#define API extern "C"

API void elementwise(float *__restrict y, const float *__restrict x, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; ++i) y[i] = sinf(x[i]) * x[i];
}

API void stencil(float *__restrict out, const float *__restrict in, int n) {
#pragma omp parallel for
    for (int z = 1; z < n - 1; ++z)
        for (int y = 1; y < n - 1; ++y)
            for (int x = 1; x < n - 1; ++x) {
                int i = (z * n + y) * n + x;
                out[i] = 0.4f * in[i] +
                         0.1f * (in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n]);
            }
}

API void matmul(float *__restrict c, const float *__restrict a, const float *__restrict b, int n) {
#pragma omp parallel for
    for (int row = 0; row < n; ++row)
        for (int column = 0; column < n; ++column) {
            float sum = 0.0f;
            for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
            c[row * n + column] = sum;
        }
}

constexpr int TILE = 16;

API void matmul_tiled(float *__restrict c, const float *__restrict a, const float *__restrict b, int n) {
#pragma omp parallel for
    for (int top = 0; top < n; top += TILE)
        for (int left = 0; left < n; left += TILE) {
            float sum[TILE][TILE] = {};
            for (int start = 0; start < n; start += TILE)
                for (int i = 0; i < TILE; ++i)
                    for (int k = 0; k < TILE; ++k)
                        for (int j = 0; j < TILE; ++j)
                            sum[i][j] += a[(top + i) * n + start + k] * b[(start + k) * n + left + j];
            for (int i = 0; i < TILE; ++i)
                for (int j = 0; j < TILE; ++j) c[(top + i) * n + left + j] = sum[i][j];
        }
}

API void softmax(float *__restrict y, const float *__restrict x, int rows, int columns) {
#pragma omp parallel for
    for (int r = 0; r < rows; ++r) {
        const float *in = x + (long)r * columns;
        float *out = y + (long)r * columns;
        float largest = -INFINITY, sum = 0.0f;
        for (int i = 0; i < columns; ++i) largest = fmaxf(largest, in[i]);
        for (int i = 0; i < columns; ++i) sum += out[i] = expf(in[i] - largest);
        for (int i = 0; i < columns; ++i) out[i] *= 1.0f / sum;
    }
}
