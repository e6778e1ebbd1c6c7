int host_value = 3;
__global__ void k(int* y) {
  y[0] = host_value;  // error: UnsupportedError: 'host_value' is a variable of the host // at: host_value
}
