// gradient of: y, x
// launch: 1, 4; y[4], x[4]
__global__ void newton(double *y, const double *x) {
    int i = threadIdx.x;
    double root = x[i], step = 1;
    while (fabs(step) > 1e-12) {
        step = (root * root - x[i]) / (2 * root);
        root -= step;
    }
    y[i] = root;
}
