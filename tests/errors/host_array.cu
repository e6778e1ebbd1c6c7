float table[4] = {1, 2, 3, 4};
__global__ void k(float* y) {
  y[0] = table[threadIdx.x];  // error: UnsupportedError: 'table' is a variable of the host // at: table
}
