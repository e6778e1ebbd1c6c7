__global__ void k(int* y) {
  y[0] = ({ int t = 1; t + 1; });  // error: UnsupportedError: statement expressions are not supported // at: ({ int t = 1; t + 1; })
}
