"""Gradients by integers, which are taken as the real numbers they stand for."""

from __future__ import annotations

from typing import Any

import pytest

import kernelgrad as kg
from kernelgrad.errors import KernelGradError

TEXT = r"""
#include "clad/Differentiator/Differentiator.h"
#include <stdio.h>
__global__ void square(int *a) { *a *= *a; }
__global__ void add(int *out, int *in) { out[threadIdx.x] += in[threadIdx.x]; }
__global__ void sums(int *out, int *in, int n) {
    int index = threadIdx.x;
    if (index < n) {
        int sum = 0;
        for (int i = index; i < n; i += warpSize) sum += 2 * in[i] - 1;
        out[index] = sum;
    }
}
__global__ void mixed(int *out, int *in) {
    out[0] = in[0] * 0.5;
}
__global__ void halved(int *out, int *in) { out[0] = in[0] / 2; }
__global__ void branch(int *out, int *in) { if (in[0] > 0) out[0] = in[0]; }
__global__ void indexed(int *out, int *in) { out[in[0]] = in[1]; }
__global__ void shifted(int *out, int *in) { out[0] = in[0] << 1; }
void by_host(int *out, int *in) { out[0] = in[0]; }

template <class F> void show(F *dev, int n, const char *format) {
    F *host = (F *)malloc(n * sizeof(F));
    cudaMemcpy(host, dev, n * sizeof(F), cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) printf(format, host[i]);
    printf("\n");
    free(host);
}
int main() {
    int *a, *b, *da, *db, fives[4] = {5, 5, 5, 5}, ones[4] = {1, 1, 1, 1};
    cudaMalloc(&a, 16); cudaMalloc(&b, 16); cudaMalloc(&da, 16); cudaMalloc(&db, 16);
    cudaMemcpy(a, fives, 16, cudaMemcpyHostToDevice);
    cudaMemcpy(b, fives, 16, cudaMemcpyHostToDevice);
    cudaMemcpy(da, ones, 16, cudaMemcpyHostToDevice);
    cudaMemset(db, 0, 16);
    CALL;
    show(a, 4, "%d ");
    show(da, 4, "%d ");
    show(db, 4, "%d ");
}
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("clad::gradient(square).execute_kernel(1, 1, a, da)", "25 5 5 5 \n10 1 1 1 \n0 0 0 0 \n"),
        ('clad::gradient(add, "out, in").execute_kernel(1, 4, a, b, da, db)',
         "10 10 10 10 \n1 1 1 1 \n1 1 1 1 \n"),
        ('clad::gradient(sums, "out, in").execute_kernel(1, 4, a, b, 4, da, db)',
         "9 9 9 9 \n0 0 0 0 \n2 2 2 2 \n"),
    ],
)  # fmt: skip
def test_sums_and_products(call: str, expected: str, capsys: Any) -> None:
    kg.compile(TEXT.replace("CALL", call))["main"](device="cpu")
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("name", "line"), [("mixed", 15), ("halved", 17), ("branch", 18), ("indexed", 19), ("shifted", 20)]
)
def test_refused_at_the_line(name: str, line: int) -> None:
    call = f"clad::gradient({name}).execute_kernel(1, 1, a, b, da, db)"
    with pytest.raises(KernelGradError, match="more than added, subtracted and multiplied") as caught:
        kg.compile(TEXT.replace("CALL", call))["main"](device="cpu")
    assert f":{line}:" in str(caught.value) and "use float" in str(caught.value)


def test_host_functions_of_integers_are_refused() -> None:
    call = "clad::gradient(by_host).execute(fives, ones, fives, ones)"
    with pytest.raises(KernelGradError, match=r"(?s)holds integers.*use float"):
        kg.compile(TEXT.replace("CALL", call))["main"](device="cpu")


def test_arrays_of_one_allocation(capsys: Any) -> None:
    """What they share they share as doubles, too: the sums, and adjoints of both, beside each other."""
    call = (
        "cudaFree(a); cudaMalloc(&a, 64); cudaMemset(a, 0, 64); cudaMemcpy(a, fives, 16, cudaMemcpyHostToDevice);"
        "cudaMemcpy(a + 12, ones, 16, cudaMemcpyHostToDevice);"
        'clad::gradient(sums, "out, in").execute_kernel(1, 4, a + 4, a, 4, a + 12, a + 8); show(a, 16, "%d ")'
    )
    kg.compile(TEXT.replace("CALL", call))["main"](device="cpu")
    assert capsys.readouterr().out.startswith("5 5 5 5 9 9 9 9 2 2 2 2 0 0 0 0 \n")


def test_other_types_in_one_allocation_are_refused() -> None:
    call = "clad::gradient(add).execute_kernel(1, 4, a, a + 1, (int *)((char *)a + 2), db)"
    with pytest.raises(KernelGradError, match="lie in one allocation"):
        kg.compile(TEXT.replace("CALL", call))["main"](device="cpu")
