// gradient of: a, b
// launch: 1, 4; a[4], b[4], steps = 3
__global__ void ping_pong(double *a, double *b, int steps) {
    int i = threadIdx.x;
    double *from = a, *to = b;
    for (int k = 0; k < steps; k++) {
        to[i] = from[i] * from[i] * 0.5;
        double *t = from; from = to; to = t;
    }
}
