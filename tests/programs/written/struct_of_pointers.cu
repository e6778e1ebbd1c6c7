struct Grid { double *u, *v; int n; };
__global__ void advance(Grid g) { int i = threadIdx.x;
    if (i < g.n) g.v[i] = g.u[i] + 0.1 * g.u[(i + 1) % g.n] * g.u[i]; }
static Grid create(int n) { Grid g; g.n = n; cudaMalloc(&g.u, n * 8); cudaMalloc(&g.v, n * 8); return g; }
static void destroy(Grid *g) { cudaFree(g->u); cudaFree(g->v); g->u = g->v = nullptr; }
double run(double *x, int n) {
    Grid g = create(n);
    cudaMemcpy(g.u, x, n * 8, cudaMemcpyHostToDevice);
    for (int t = 0; t < 5; t++) { advance<<<1, 32>>>(g); double *s = g.u; g.u = g.v; g.v = s; }
    double h[32]; cudaMemcpy(h, g.u, n * 8, cudaMemcpyDeviceToHost); destroy(&g);
    double s = 0; for (int i = 0; i < n; i++) s += h[i] * h[i]; return s;
}
