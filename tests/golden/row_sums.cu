// gradient of: y, m
// launch: 1, 4; y[4], m[20], columns = 5
__global__ void row_sums(float *y, const float *m, int columns) {
    int row = threadIdx.x;
    float sum = 0;
    for (int c = 0; c < columns; c++) sum += m[row * columns + c] * m[row * columns + c];
    y[row] = sum;
}
