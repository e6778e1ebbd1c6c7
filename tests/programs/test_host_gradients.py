"""Gradients of host functions against finite differences in double precision, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from host_functions import check, numbers

TURNS = """
__global__ void relax(const double *from, double *to) {
  size_t k = threadIdx.x;
  if (k < 6) to[k] += 0.1 * from[k] * from[k] - 0.3 * from[k];
}
void once(double *from, double *to) { relax<<<1, 8>>>(from, to); }
void turns(int times, double *a, double *b) {
  for (unsigned k = 0; k < times / 2; k++) { once(a, b); once(b, a); }
}
"""


@pytest.mark.parametrize("options", [{}, {"tape_budget": 200}, {"tape_budget": "1 kB"}])
def test_turns(options: dict[str, Any]) -> None:
    g = check(TURNS, "turns", "a, b", (10, numbers(6), numbers(6, seed=1)), **options)
    assert "10 steps" in g.explain()


CONTRACTION = """
typedef unsigned long long extent;
__device__ void strides(extent &start_a, extent &step_a, extent &start_b, extent &step_b, int at, const extent *b) {
  start_a = at / (b[1] * b[2]) * b[0];
  step_a = 1;
  start_b = at % (b[1] * b[2]);
  step_b = b[1] * b[2];
}
__global__ void contract(double *c, const double *a, const double *b, const extent *a_dim, const extent *b_dim) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  int all = a_dim[0] * a_dim[1] * b_dim[1] * b_dim[2];
  if (at >= all) return;
  extent start_a, step_a, start_b, step_b;
  strides(start_a, step_a, start_b, step_b, at, b_dim);
  double sum = 0;
  for (int k = 0; k < a_dim[2]; k++) sum += a[start_a + k * step_a] * b[start_b + k * step_b];
  c[at] = sum;
}
void launch(double *c, const double *a, const double *b, extent d1, extent d2, extent d3, extent d4, extent d5) {
  double *da = nullptr, *db = nullptr, *dc = nullptr;
  const extent na = d1 * d2 * d3 * sizeof(double), nb = d3 * d4 * d5 * sizeof(double);
  const extent nc = d1 * d2 * d4 * d5 * sizeof(double);
  cudaMalloc(&da, na); cudaMalloc(&db, nb); cudaMalloc(&dc, nc);
  cudaMemcpy(da, a, na, cudaMemcpyHostToDevice);
  cudaMemcpy(db, b, nb, cudaMemcpyHostToDevice);
  const extent a_dim[3] = {d1, d2, d3}, b_dim[3] = {d3, d4, d5};
  extent *da_dim = nullptr, *db_dim = nullptr;
  cudaMalloc(&da_dim, sizeof(a_dim)); cudaMalloc(&db_dim, sizeof(b_dim));
  cudaMemcpy(da_dim, a_dim, sizeof(a_dim), cudaMemcpyHostToDevice);
  cudaMemcpy(db_dim, b_dim, sizeof(b_dim), cudaMemcpyHostToDevice);
  contract<<<1, 64>>>(dc, da, db, da_dim, db_dim);
  cudaMemcpy(c, dc, nc, cudaMemcpyDeviceToHost);
  cudaFree(da); cudaFree(db); cudaFree(dc); cudaFree(da_dim); cudaFree(db_dim);
}
"""


def test_contraction_with_its_host_function() -> None:
    a, b, c = np.arange(1.0, 25).reshape(2, 3, 4), np.arange(1.0, 25).reshape(4, 3, 2), np.zeros((2, 3, 3, 2))
    g = kg.gradient(kg.compile(CONTRACTION)["launch"], "c, a, b")
    d_c, d_a, d_b = np.ones_like(c), np.zeros_like(a), np.full_like(b, 0.5)
    g.execute(c, a, b, 2, 3, 4, 3, 2, d_c, d_a, d_b, device="cpu")
    assert np.array_equal(c, np.einsum("ijk,klm->ijlm", a, b))
    assert np.array_equal(d_a, np.broadcast_to(b.sum((1, 2)), a.shape))
    assert np.array_equal(d_b, 0.5 + np.broadcast_to(a.sum((0, 1))[:, None, None], b.shape))
    assert not d_c.any()


STATISTICS = """
#include <vector>
__global__ void scale(double *y, const double *x, double by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i] * x[i];
}
double run(double *y, const double *x, double by, int n) {
  double *dx, *dy;
  size_t bytes = n * sizeof(double);
  cudaMalloc(&dx, bytes); cudaMalloc(&dy, bytes);
  cudaMemcpy(dx, x, bytes, cudaMemcpyHostToDevice);
  scale<<<(n + 3) / 4, 4>>>(dy, dx, 2 * by, n);
  std::vector<double> back(n);
  cudaMemcpy(back.data(), dy, bytes, cudaMemcpyDeviceToHost);
  double sum = 0;
  for (int i = 0; i < n; i++) sum += back[i];
  double mean = sum / n, error = 100, factor = 1;
  scale<<<(n + 3) / 4, 4>>>(dx, dy, mean * exp(-by), n);
  while (error > 0.1) {
    scale<<<(n + 3) / 4, 4>>>(dy, dx, 0.2, n);
    cudaMemcpy(dx, dy, bytes, cudaMemcpyDeviceToDevice);
    cudaMemcpy(&error, dx, sizeof(double), cudaMemcpyDeviceToHost);
    factor *= sqrt(mean);
  }
  cudaMemcpy(y, dx, bytes, cudaMemcpyDeviceToHost);
  cudaFree(dx); cudaFree(dy);
  return factor + y[1] * error;
}
"""


@pytest.mark.parametrize("options", [{}, {"tape_budget": "2 kB"}])
def test_values_read_back_and_passed_on(options: dict[str, Any]) -> None:
    check(STATISTICS, "run", "y, x, by", (np.zeros(5), numbers(5), 0.7, 5), seed=1.3, **options)


HOST_ONLY = {
    "loops over host memory": (
        """double run(double *out, const double *in, int n) {
             double *half = (double *)malloc(n * sizeof(double));
             for (int i = 0; i < n; i++) half[i] = 0.5 * in[i] * in[i];
             for (int i = 1; i < n; i++) out[i] = half[i] * half[i - 1] + out[i];
             double last = out[n - 1];
             free(half);
             return last * in[0];
           }""",
        "out, in",
        (numbers(5), numbers(5, seed=1), 5),
    ),
    "memcpy, memset, memmove": (
        """void run(double *a, double *b) {
             double c[4];
             memcpy(c, a, 4 * sizeof(double));
             memset(a, 0, 2 * sizeof(double));
             memmove(b + 1, b, 2 * sizeof(double));
             for (int i = 0; i < 4; i++) a[i] += c[i] * b[i];
           }""",
        "a, b",
        (numbers(4), numbers(4, seed=2)),
    ),
    "structs and rows of pointers": (
        """struct Model { double rate; int n; double *state; };
           double advance(Model &m) {
             double s = 0;
             for (int i = 0; i < m.n; i++) s += m.rate * m.state[i] * i;
             return s;
           }
           double run(double *x, double rate, int n) {
             double **rows = new double *[2];
             for (int r = 0; r < 2; r++) rows[r] = new double[n];
             for (int r = 0; r < 2; r++) for (int i = 0; i < n; i++) rows[r][i] = x[i] * (r + 1) * rate;
             Model m; m.rate = rate * rate; m.n = n; m.state = rows[1];
             double value = advance(m) + rows[0][2];
             Model copy = m; copy.rate = rows[1][0]; x[0] = copy.rate * rows[0][1];
             for (int r = 0; r < 2; r++) delete[] rows[r];
             delete[] rows;
             return value;
           }""",
        "x, rate",
        (numbers(4), 0.8, 4),
    ),
    "a choice that floats make, and floats in integers": (
        """double run(double *x, int n) {
             cudaDeviceSynchronize();
             double best = x[0];
             int where = 0, steps = (int)(x[1] * 4);
             for (int i = 1; i < n; i++) if (x[i] > best) { best = x[i]; where = i; }
             double y = best > 1 ? best * x[0] : x[1] / best;
             for (int k = 0; k < steps; k++) { y += 0.1 * y * x[2]; printf(""); }
             x[where] = y;
             return y * where;
           }""",
        "x",
        (numbers(4), 4),
    ),
    "pointers into the middle, used backwards": (
        """__global__ void shift(double *y, const double *x) {
             int i = threadIdx.x;
             y[-1 - i] += x[-i] * x[0];
           }
           void run(double *x, int n) {
             double *d; cudaMalloc(&d, 2 * n * sizeof(double));
             cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
             cudaMemcpy(d + n, x, n * sizeof(double), cudaMemcpyHostToDevice);
             shift<<<1, n - 1>>>(d + 2 * n - 1, d + n - 1);
             shift<<<1, 2>>>(d + n, d + 2 * n - 1);
             cudaMemcpy(x, d + n - 2, n * sizeof(double), cudaMemcpyDeviceToHost);
             cudaFree(d);
           }""",
        "x",
        (numbers(4), 4),
    ),
    "structs that are passed, with pointers and numbers": (
        """struct Work { double by; int n; double *out; const double *in; };
           __global__ void work(Work w, double2 more) {
             int i = threadIdx.x;
             if (i < w.n) w.out[i] = w.by * w.in[i] * w.in[i] + more.y * i;
           }
           void run(double *x, double *y, double by, int n) {
             Work w; w.by = by * by; w.n = n; w.out = y; w.in = x;
             double2 more = make_double2(by, by * n);
             work<<<1, n>>>(w, more);
             Work back = w; back.by *= 2; back.out = x; back.in = y;
             work<<<1, n>>>(back, more);
           }""",
        "x, y, by",
        (numbers(4), numbers(4, seed=1), 0.7, 4),
    ),
    "arrays of structs": (
        """#include <vector>
           struct Item { double value; int id; };
           __global__ void grow(Item *items) { items[threadIdx.x].value *= items[threadIdx.x].id + 1; }
           double run(double *x, int n) {
             std::vector<Item> a(n);
             for (int i = 0; i < n; i++) { a[i].value = x[i] * x[i]; a[i].id = i; }
             Item *d;
             cudaMalloc(&d, n * sizeof(Item));
             cudaMemcpy(d, a.data(), n * sizeof(Item), cudaMemcpyHostToDevice);
             grow<<<1, n>>>(d);
             std::vector<Item> b(a);
             cudaMemcpy(b.data(), d, n * sizeof(Item), cudaMemcpyDeviceToHost);
             double s = 0;
             for (int i = 0; i < n; i++) s += b[i].value * a[i].value * b[i].id;
             std::swap(a, b);
             cudaFree(d);
             return s + a[1].value;
           }""",
        "x",
        (numbers(4), 4),
    ),
    "variables with static storage": (
        """double scale = 1;
           __global__ void times(double *x, double by) { x[threadIdx.x] *= by; }
           void set(double by) { scale = 2 * by; }
           double run(double *x, double by, int n) {
             static double seen[4];
             set(by);
             for (int t = 0; t < 3; t++) {
               times<<<1, n>>>(x, scale);
               cudaMemcpy(&seen[t], x + t, sizeof(double), cudaMemcpyDeviceToHost);
               scale = 0.5 * scale + seen[t];
             }
             return seen[0] + seen[1] * seen[2];
           }""",
        "x, by",
        (numbers(4), 0.7, 4),
    ),
    "indices that the host sets anew": (
        """__global__ void gather(double *out, const double *in, const int *at) {
             out[threadIdx.x] = in[at[threadIdx.x]] * in[threadIdx.x];
           }
           void run(double *x, double *y, int n) {
             int *at = (int *)malloc(n * sizeof(int)), *d;
             cudaMalloc(&d, n * sizeof(int));
             for (int r = 0; r < 2; r++) {
               for (int i = 0; i < n; i++) at[i] = (2 * i + r + 1) % n;
               cudaMemcpy(d, at, n * sizeof(int), cudaMemcpyHostToDevice);
               gather<<<1, n>>>(y, x, d);
               gather<<<1, n>>>(x, y, d);
             }
             cudaFree(d); free(at);
           }""",
        "x, y",
        (numbers(5), numbers(5, seed=2), 5),
    ),
    "constant memory, set again and again": (
        """__constant__ double w[2];
           __global__ void weigh(double *x) { x[threadIdx.x] *= w[0] + w[1] * x[threadIdx.x]; }
           void run(double *x, double *given, int n) {
             for (int k = 0; k < 3; k++) {
               double own[2] = {given[0] * k, given[1] + 0.3};
               cudaMemcpyToSymbol(w, own, sizeof(own));
               weigh<<<1, n>>>(x);
             }
             given[0] = 0;
           }""",
        "x, given",
        (numbers(3), numbers(2, seed=3), 3),
    ),
}


@pytest.mark.parametrize("case", HOST_ONLY)
def test_host_code(case: str) -> None:
    source, listed, args = HOST_ONLY[case]
    check(source, "run", listed, args)


HEAT = """
__global__ void step(double *v, const double *u, double k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  v[i] = i == 0 || i == n - 1 ? u[i] : u[i] + k * (u[i - 1] - 2 * u[i] + u[i + 1]) * u[i];
}
static int runs = 0;
void heat(double *u, double k, int n, int steps) {
  double *d[2];
  for (int i = 0; i < 2; i++) cudaMalloc(&d[i], n * sizeof(double));
  cudaMemcpy(d[0], u, n * sizeof(double), cudaMemcpyHostToDevice);
  int src = 0, dst = 1;
  for (float t = 0; t < steps; t += 1) {
    step<<<(n + 3) / 4, 4>>>(d[dst], d[src], k / 2, n);
    int other = src; src = dst; dst = other;
  }
  cudaMemcpy(u, d[src], n * sizeof(double), cudaMemcpyDeviceToHost);
  for (int i = 0; i < 2; i++) cudaFree(d[i]);
  runs++;
}
"""


@pytest.mark.parametrize("options", [{}, {"tape_budget": 600}])
def test_heat_with_an_array_of_pointers(options: dict[str, Any]) -> None:
    check(HEAT, "heat", "u, k", (numbers(6), 0.2, 6, 12), **options)


def test_a_pointer_to_the_end_is_refused() -> None:
    source = """__global__ void last(double *end) { end[-1] *= end[-2]; }
    void run(double *x, int n) {
      last<<<1, 1>>>(x + n);
    }"""
    module, x, d_x = kg.compile(source), np.array([2.0, 3.0]), np.ones(2)
    module["run"](x, 2, device="cpu")
    assert x.tolist() == [2, 6]
    with pytest.raises(kg.UnsupportedError, match="a pointer to the end of an argument of 16 bytes") as caught:
        kg.gradient(module["run"]).execute(x, 2, d_x, device="cpu")
    assert caught.value.span.line == 3


@pytest.mark.parametrize(
    "body",
    [
        "float f = x[0]; int bits; memcpy(&bits, &f, 4);\nbits += 1;  // or here\nmemcpy(&f, &bits, 4); x[1] = f;",
        "float f = x[0] * 2;\nint bits = *(int *)&f;  // here\nx[1] = bits;",
        "int *p = (int *)x;\nx[1] = p[0];  // here\n",
        "int i = 0;\ni = __float_as_int(x[0]);  // here\nx[1] = i;",
    ],
)
def test_bits_of_floats_are_refused(body: str) -> None:
    module = kg.compile("void run(float *x) { cudaDeviceSynchronize();\n" + body + "\n}")
    x = np.ones(2, np.float32)
    module["run"](x, device="cpu")
    with pytest.raises(kg.UnsupportedError, match="bits of a floating-point number") as caught:
        kg.gradient(module["run"]).execute(x, np.ones(2, np.float32), device="cpu")
    assert caught.value.span.line in (2, 3)


def test_an_array_of_pointers_as_an_argument() -> None:
    source = """__global__ void step(double *to, const double *from, double by) {
      to[threadIdx.x] = from[threadIdx.x] * from[threadIdx.x] * by;
    }
    int run(double *temperature[2], double by, int n, int steps) {
      int src = 1, dst = 0;
      for (int t = 0; t < steps; t++) {
        int other = src; src = dst; dst = other;
        step<<<1, n>>>(temperature[dst], temperature[src], by);
      }
      return dst;
    }"""
    g = kg.gradient(kg.compile(source)["run"], "temperature, by")
    a, b, d_a, d_b, d_by = numbers(3), np.zeros(3), np.zeros(3), np.ones(3), np.zeros(1)
    start = a.copy()
    assert g.execute([a, b], 0.5, 3, 3, [d_a, d_b], d_by, device="cpu") == 1
    assert np.allclose(b, start**8 * 0.5**7) and not d_b.any()
    assert np.allclose(d_a, 8 * start**7 * 0.5**7)
    assert np.allclose(d_by, np.sum(7 * start**8 * 0.5**6))


def test_adjoints_by_name_and_left_out() -> None:
    g = kg.gradient(kg.compile(TURNS)["turns"])
    a, b, d_a, d_b = numbers(6), numbers(6, seed=1), np.ones(6), np.zeros(6)
    g.execute(2, a, b, d_a=d_a, d_b=d_b, device="cpu")
    assert d_b.any()
    with pytest.raises(kg.ArgumentError, match="takes 3 arguments and 2 adjoints, got 4"):
        g.execute(2, a, b, d_a, device="cpu")
    with pytest.raises(kg.ArgumentError, match="d_a: wants an array of 6 float64"):
        g.execute(2, a, b, np.ones(5), d_b, device="cpu")
    with pytest.raises(kg.LaunchError, match="is not a kernel: use execute"):
        g.execute_kernel(1, 1, 2, a, b)


def test_second_order_and_recordings_are_refused() -> None:
    function, a, b = kg.compile(TURNS)["turns"], numbers(6), numbers(6)
    with kg.record(), pytest.raises(kg.TapeError, match="turns, a host function, cannot be recorded"):
        function(2, a, b, device="cpu")
    with kg.record(), pytest.raises(kg.TapeError, match="cannot be recorded"):
        kg.gradient(function).execute(2, a, b, a, b, device="cpu")
    with pytest.raises(kg.LaunchError, match="is a host function: it is interpreted"):
        kg.gradient(function).source  # noqa: B018


def test_an_end_before_the_end() -> None:
    source = """__global__ void twice(double *x) { x[threadIdx.x] *= 2 * x[0]; }
    void run(double *x, int n) {
      double *d;
      cudaMalloc(&d, n * sizeof(double));
      cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
      cudaMemcpy(x, d, sizeof(double), cudaMemcpyDeviceToHost);
      x[1] = 3 * x[0];
      if (n > 1) exit(0);
      twice<<<1, n>>>(d);
    }"""
    g, d_x = kg.gradient(kg.compile(source)["run"]), np.array([1.0, 10.0])
    assert g.execute(np.array([2.0, 5.0]), 2, d_x, device="cpu") == 0
    assert d_x.tolist() == [31, 0]


def test_what_is_asked_of_kernels_only() -> None:
    function = kg.compile(TURNS)["turns"]
    with pytest.raises(kg.ArgumentError, match="keep, deterministic: of kernels, not of host functions as turns"):
        kg.gradient(function, "a, b", keep="a", deterministic=True)
    with pytest.raises(kg.ArgumentError, match="has no parameter 'c'"):
        kg.gradient(function, "a, c")
    with pytest.raises(kg.ArgumentError, match="holds no floating-point numbers"):
        kg.gradient(function, "a, times")


STRUCTS = """
struct Grid { double spacing[2]; int n; };
struct Problem { Grid grid; double *u; double k; };
__global__ void step(Problem p, double *to) {
  int i = threadIdx.x;
  if (i < p.grid.n) to[i] = p.u[i] * p.u[(i + 1) % p.grid.n] * p.k / p.grid.spacing[0];
}
void run(Problem p, double *to) {
  step<<<1, 8>>>(p, to);
  p.grid.spacing[0] *= p.grid.spacing[1];
  for (int i = 0; i < p.grid.n; i++) p.k += 0.1 * p.grid.spacing[0];
  step<<<1, 8>>>(Problem{p.grid, to, p.k}, p.u);
}"""


def test_structs_from_python() -> None:
    function = kg.compile(STRUCTS)["run"]

    def called(u: Any, spacing: Any, k: float, to: Any) -> None:
        function({"grid": {"spacing": spacing, "n": 4}, "u": u, "k": k}, to, device="cpu")

    u, to, spacing, along = numbers(4), np.zeros(4), [0.7, 1.3], numbers(4, seed=5)
    weights = numbers(4, seed=6)
    d_u, d_to, d_k, d_spacing = weights.copy(), np.zeros(4), np.zeros(1), [np.zeros(1), np.zeros(1)]
    kg.gradient(function).execute(
        ({"spacing": spacing, "n": 4}, u.copy(), 0.4), to.copy(),
        {"grid": {"spacing": d_spacing}, "u": d_u, "k": d_k}, d_to, device="cpu",
    )  # fmt: skip

    def f(h: float) -> float:
        moved, out = u + h * along, np.zeros(4)
        called(moved, [0.7 + 2 * h, 1.3 - h], 0.4 + 3 * h, out)
        return float(weights @ moved)

    found = d_u @ along + 3 * d_k[0] + 2 * d_spacing[0][0] - d_spacing[1][0]
    assert found == pytest.approx((f(1e-6) - f(-1e-6)) / 2e-6, rel=1e-7)
    with pytest.raises(kg.ArgumentError, match=r"'p.grid': wants the members spacing, n, got spacing"):
        function({"grid": {"spacing": spacing}, "u": u, "k": 0.4}, to, device="cpu")
    with pytest.raises(kg.ArgumentError, match="'p' wants a dict of grid, u, k, got 3"):
        function(3, to, device="cpu")


LATE = """
__global__ void step(double *to, const double *from, double by) { int i = threadIdx.x; to[i] = from[i] * from[i] * by; }
double run(double *a, double *b, double k, int n) {
  double by = k;
  for (int t = 0; t < 3; t++) {
    step<<<1, n>>>(b, a, by / 2);
    by = by * k + 0.1;
    step<<<1, n>>>(a, b, by);
  }
  return by;
}"""


def test_numbers_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: steps of the host are put off until the adjoints of numbers are needed."""
    from kernelgrad.host import backward, shadow_memory
    from kernelgrad.host.steps import CopyStep, LaunchStep

    def is_of_kernel(step: Any) -> bool:
        return isinstance(step, LaunchStep) and step.name == "step"

    settled: list[int] = []
    settle_all = shadow_memory.ShadowMemory.settle_all
    for module in (backward, shadow_memory):
        monkeypatch.setattr(module, "on_device", is_of_kernel)
    monkeypatch.setattr(backward, "_can_wait", lambda step: isinstance(step, CopyStep | LaunchStep))
    monkeypatch.setattr(
        shadow_memory.ShadowMemory, "settle_all", lambda self: (settled.append(self.waits), settle_all(self))[1]
    )
    check(LATE, "run", "a, b, k", (numbers(3), numbers(3), 0.8, 3))
    assert sum(settled) == 1
    check(LATE, "run", "a, b, k", (numbers(3), numbers(3), 0.8, 3), tape_budget=500)
