"""Gradients of host functions whose launches and copies take parts of allocations."""

from __future__ import annotations

import pytest

from host_functions import check, numbers

LEVELS = """
#define I int i = threadIdx.x
__global__ void put(double *y, const double *x) { I; y[i] = 0.9 * x[i] + 0.2 * x[i] * x[(i + 1) % 4]; }
__global__ void use(double *u, const double *a) { I; u[i] = 0.5 * u[i] + 0.4 * sin(a[i] + a[4 + i] * a[8 + i]); }
void run(double *a, double *u) {
  for (int t = 0; t < 12; t++) { put<<<1, 4>>>(a + t % 3 * 4, u); use<<<1, 4>>>(u, a); }
}
"""


@pytest.mark.parametrize("budget", [400, 500, 600, 800])
def test_parts_of_one_allocation_take_turns(budget: int) -> None:
    """Each launch may write all of the allocation, and leaves other parts of it as they were."""
    check(LEVELS, "run", "a, u", (numbers(12), numbers(4, seed=1)), tape_budget=budget)


def test_a_part_of_a_copy_has_an_adjoint() -> None:
    """The reverse of a copy tells parts of its source apart, which other steps used as a whole."""
    source = """
__global__ void f(double *y, const double *c, const double *a) {
  int i = threadIdx.x; y[i] = c[i] * c[i] + a[i] * a[i + 2]; }
void run(double *x, double *y) {
  double *a, *b, *c; cudaMalloc(&a, 32); cudaMalloc(&b, 32); cudaMalloc(&c, 16);
  cudaMemcpy(a, x, 32, cudaMemcpyDefault); cudaMemcpy(b, a, 32, cudaMemcpyDefault);
  cudaMemcpy(c, b, 16, cudaMemcpyDefault); f<<<1, 2>>>(y, c, a); }"""
    check(source, "run", "x, y", (numbers(4), numbers(2, seed=1)))
