__global__ void k(int* y) {
  if (y[0]) goto end;  // error: UnsupportedError: goto is not supported // at: goto end
  y[1] = 1;
end:
  y[2] = 1;
}
