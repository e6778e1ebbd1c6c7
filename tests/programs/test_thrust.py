"""thrust's vectors and algorithms in host functions, and their gradients, against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from host_functions import check, numbers

HEAD = """
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/transform.h>
#include <thrust/reduce.h>
#include <thrust/transform_reduce.h>
#include <thrust/inner_product.h>
#include <thrust/copy.h>
#include <thrust/fill.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/sequence.h>
#include <thrust/functional.h>
#include <thrust/adjacent_difference.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/execution_policy.h>
struct Saxpy { double a; __host__ __device__ double operator()(double x, double y) const { return a * x * y + y; } };
struct Square { __host__ __device__ double operator()(double x) const { return x * x; } };
"""

CASES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "transform and copy": (
        """double run(double *x, double *y, double a, int n) {
             thrust::device_vector<double> dx(x, x + n), dy(n, 0.5);
             thrust::transform(dx.begin(), dx.end(), dy.begin(), dy.begin(), Saxpy{a});
             thrust::transform(dy.begin(), dy.end(), dx.begin(), Square());
             thrust::host_vector<double> h = dx;
             thrust::copy(dy.begin(), dy.end(), y);
             for (int i = 0; i < n; i++) x[i] = h[i] * y[i];
             return dx[1] * dy[0];
           }""",
        "x, y, a",
        (numbers(6), numbers(6, seed=1), 0.7, 6),
    ),
    "sums": (
        """double run(double *x, int n) {
             thrust::device_vector<double> d(x, x + n), e = d;
             double sum = thrust::reduce(d.begin(), d.end(), 0.0, thrust::plus<double>());
             double all = thrust::reduce(d.begin(), d.end());
             double squares = thrust::transform_reduce(d.begin(), d.end(), Square(), 1.0, thrust::plus<double>());
             double largest = thrust::reduce(d.begin(), d.end(), -1.0, thrust::maximum<double>());
             d[0] = sum * 0.5;
             double dot = thrust::inner_product(d.begin(), d.end(), e.begin(), 2.0);
             thrust::host_vector<double> h(e);
             double on_host = thrust::reduce(h.begin(), h.end(), 1.0, thrust::multiplies<double>());
             thrust::fill(d.begin(), d.begin() + 2, all * 0.1);
             thrust::copy(d.begin(), d.end(), x);
             return sum * squares + dot * largest + on_host;
           }""",
        "x",
        (numbers(7), 7),
    ),
    "many": (
        """double run(double *x, int n) {
             thrust::device_vector<double> d(x, x + n);
             thrust::inclusive_scan(d.begin(), d.end(), d.begin());
             thrust::transform(d.begin(), d.end(), d.begin(), thrust::negate<double>());
             return thrust::transform_reduce(d.begin(), d.end(), Square(), 0.0, thrust::plus<double>());
           }""",
        "x",
        (numbers(700) / 700, 700),
    ),
    "scans": (
        """void run(double *x, double *y, double start, int n) {
             thrust::device_vector<double> d(x, x + n), e(n), f(n);
             thrust::inclusive_scan(d.begin(), d.end(), e.begin(), thrust::multiplies<double>());
             thrust::exclusive_scan(e.begin(), e.end(), f.begin(), start);
             thrust::exclusive_scan(thrust::host, x, x + n, y);
             thrust::copy(f.begin(), f.end(), x);
           }""",
        "x, y, start",
        (numbers(9), numbers(9), 0.3, 9),
    ),
    "sorted": (
        """void run(double *x, double *y, int n) {
             thrust::device_vector<double> k(x, x + n), v(y, y + n);
             thrust::sort_by_key(k.begin(), k.end(), v.begin());
             thrust::transform(k.begin(), k.end(), v.begin(), v.begin(), Saxpy{0.4});
             thrust::sort(v.begin(), v.end(), thrust::greater<double>());
             thrust::copy(k.begin(), k.end(), x);
             thrust::copy(v.begin(), v.end(), y);
           }""",
        "x, y",
        (numbers(8), numbers(8, seed=2), 8),
    ),
    "by key": (
        """void run(double *x, double *y, double start, int n) {
             int keys[9] = {3, 3, 1, 4, 4, 4, 1, 1, 0}, kept[9];
             thrust::device_vector<int> k(keys, keys + n), j(n);
             thrust::device_vector<double> v(x, x + n), sums(n), to(n);
             auto end = thrust::reduce_by_key(k.begin(), k.end(), v.begin(), j.begin(), sums.begin());
             long count = end.first - j.begin();
             if (count != end.second - sums.begin() || count != 5) return;
             thrust::inclusive_scan_by_key(k.begin(), k.end(), v.begin(), to.begin(), thrust::equal_to<int>(),
                                           thrust::multiplies<double>());
             thrust::exclusive_scan_by_key(thrust::device, k.begin(), k.end(), to.begin(), v.begin(), start);
             thrust::reduce_by_key(keys, keys + n, x, kept, y, thrust::equal_to<int>(), thrust::multiplies<double>());
             thrust::exclusive_scan_by_key(keys, keys + n, x, x);
             thrust::inclusive_scan_by_key(keys + 2, keys + n, y + 2, y + 2);
             for (int i = 0; i < n; i++) { x[i] += v[i] * sums[i % count]; y[i] *= kept[0] * j[1] * x[i]; }
           }""",
        "x, y, start",
        (numbers(9), numbers(9, seed=1), 0.3, 9),
    ),
    "neighbours and permutations": (
        """void run(double *x, double *y, int n) {
             int places[7] = {4, 0, 6, 1, 1, 5, 2};
             thrust::device_vector<int> at(places, places + n);
             thrust::device_vector<double> v(x, x + n), w(n, 0.5);
             thrust::adjacent_difference(v.begin(), v.end(), v.begin(), thrust::multiplies<double>());
             thrust::adjacent_difference(v.begin(), v.end(), w.begin() + 0);
             thrust::adjacent_difference(thrust::host, x, x + n, x);
             auto of = thrust::make_permutation_iterator(w.begin(), at.begin());
             thrust::transform(of, of + n, v.begin(), Square());
             double sum = thrust::reduce(of, of + 3);
             for (int i = 0; i < n; i++) y[i] += v[i] * w[n - 1 - i] * x[i] + sum;
           }""",
        "x, y",
        (numbers(7), numbers(7, seed=1), 7),
    ),
    "raw pointers, policies, lambdas and counters": (
        """void run(double *x, double *y, int n) {
             double *d; cudaMalloc(&d, n * sizeof(double));
             cudaMemcpy(d, x, n * sizeof(double), cudaMemcpyHostToDevice);
             thrust::device_ptr<double> p(d);
             thrust::transform(thrust::device, d, d + n, d, [=] __host__ __device__(double v) { return v * v * 0.5; });
             thrust::counting_iterator<int> count(0);
             thrust::for_each(count, count + n, [=] __host__ __device__(int) {});
             thrust::device_vector<double> e(n);
             thrust::transform(count, count + n, e.begin(), [=] __device__(int i) { return d[(i + 1) % n] * d[i]; });
             double total = thrust::reduce(thrust::device, p, p + n);
             e[2] += total;
             thrust::copy(e.begin(), e.end(), y);
             cudaFree(thrust::raw_pointer_cast(p));
           }""",
        "x, y",
        (numbers(5), numbers(5, seed=2), 5),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_gradient(case: str) -> None:
    source, listed, args = CASES[case]
    check(HEAD + source, "run", listed, args)


def test_values() -> None:
    source = (
        HEAD
        + """void run(double *x, int *order, int n) {
      thrust::device_vector<double> d(x, x + n); thrust::device_vector<int> at(n);
      thrust::sequence(at.begin(), at.end());
      thrust::sort_by_key(d.begin(), d.end(), at.begin(), thrust::greater<double>());
      thrust::exclusive_scan(d.begin(), d.end(), d.begin(), 10.0);
      thrust::copy(d.begin(), d.end(), x); thrust::copy(at.begin(), at.end(), order);
    }"""
    )
    x, order = np.array([2.0, 5.0, 2.0, 7.0]), np.zeros(4, np.int32)
    kg.compile(source)["run"](x, order, 4, device="cpu")
    assert x.tolist() == [10, 17, 22, 24] and order.tolist() == [3, 1, 0, 2]


def test_an_order_of_ones_own_is_refused() -> None:
    source = HEAD + "struct Near { __host__ __device__ bool operator()(double a, double b) const { return a < b; } };\n"
    source += "void run(double *x) { thrust::device_ptr<double> p(x);\nthrust::sort(p, p + 3, Near()); }"
    with pytest.raises(kg.UnsupportedError, match="sort by less or greater") as caught:
        kg.compile(source)["run"]
    assert "thrust::sort(p" in str(caught.value)


ASKED = r"""
#include "clad/Differentiator/Differentiator.h"
#include "clad/Differentiator/ThrustDerivatives.h"
#include <thrust/device_vector.h>
#include <thrust/inner_product.h>
#include <thrust/transform.h>
#include <array>
#include <cstdio>
double product(const thrust::device_vector<double> &a, thrust::device_vector<double> &b, double scale) {
    thrust::transform(a.begin(), a.end(), b.begin(), b.begin(), thrust::multiplies<double>());
    return scale * thrust::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
void grow(thrust::device_vector<double> &a) { a.resize(100); }
int main(int argc, char **argv) {
    thrust::device_vector<double> a(3), b(3), d_a(3), d_b(3);
    for (int k = 0; k < 3; k++) { a[k] = k + 1; b[k] = 2 * k - 1; }
    double d_scale = 0;
    auto g = clad::gradient(product);
    g.execute(a, b, 0.5, &d_a, &d_b, &d_scale);
    std::array<double, 3> got, wanted = {-1, 2, 9};
    for (int k = 0; k < 3; k++) got[k] = d_a[k];
    printf("%d %g %g %g %g %g\n", got != wanted, (double)b[2], (double)d_b[0], (double)d_b[1], (double)d_b[2], d_scale);
    if (argc > 1) { auto h = clad::gradient(grow); h.execute(a, &d_a); }
}
"""


def test_gradients_that_host_code_asks_for_by_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    module = kg.compile(ASKED)
    module["main"](device="cpu")  # d/da of a * a * b / 2, and of b alone
    assert capsys.readouterr().out == "0 9 0.5 2 4.5 30\n"
    with pytest.raises(kg.UnsupportedError, match="gives an object other memory"):
        module["main"]("grow", device="cpu")
