// One explicit step of the heat equation on an insulated plate.
// Each block stages its tile, and the cells around it, in shared memory.
#include <cuda_runtime.h>

constexpr int TILE = 16;
constexpr int SIDE = TILE + 2;

__device__ int clamped(int i, int n) { return min(max(i, 0), n - 1); }

__global__ void heat(float *next, const float *now, float alpha, int width, int height) {
    __shared__ float tile[SIDE][SIDE];

    const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;
    for (int cell = threadIdx.y * TILE + threadIdx.x; cell < SIDE * SIDE; cell += TILE * TILE) {
        const int row = cell / SIDE, column = cell % SIDE;
        const int y = clamped(top + row - 1, height), x = clamped(left + column - 1, width);
        tile[row][column] = now[y * width + x];
    }
    __syncthreads();

    const int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= width || y >= height) return;

    const int i = threadIdx.y + 1, j = threadIdx.x + 1;
    const float here = tile[i][j];
    const float around = tile[i - 1][j] + tile[i + 1][j] + tile[i][j - 1] + tile[i][j + 1];
    next[y * width + x] = here + alpha * (around - 4.0f * here);
}
