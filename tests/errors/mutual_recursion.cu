__device__ int odd(int n);
__device__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }  // error: UnsupportedError: 'even' calls itself: recursion is not supported // at: even(n - 1)
__global__ void k(int* y) { y[0] = even(y[1]); }
