// gradient of: a
// launch: 1, 4; a[4]
__global__ void square_in_place(double *a) {
    int i = threadIdx.x;
    a[i] = a[i] * a[i];
}
