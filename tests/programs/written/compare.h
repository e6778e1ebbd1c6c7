// Of each program: its gradient against finite differences.
int main() {
    const int n = 6;
    double x[n] = {0.3, 0.7, 1.1, -0.4, 0.9, 0.5}, d[n] = {0, 0, 0, 0, 0, 0};
    auto g = clad::gradient(run, "x");
    g.execute(x, n, d);
    for (int i = 0; i < n; i++) {
        double h = 1e-5, old = x[i];
        x[i] = old + h; double up = run(x, n);
        x[i] = old - h; double down = run(x, n);
        x[i] = old;
        double fd = (up - down) / (2 * h);
        if (fabs(fd - d[i]) > 1e-6 * (1 + fabs(fd)) || fd == 0) printf("BAD %d: %.9g %.9g\n", i, d[i], fd);
        else printf("ok %.6f\n", fd);
    }
}
