"""Gradients by integers, which are taken as the real numbers they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from clad_programs import integer_gradient
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
void by_host(int *out, int *in) { out[0] += in[0]; }

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


def test_functions_of_the_host_alone(capsys: Any) -> None:
    call = "int to[4] = {7}, from[4] = {1}; clad::gradient(by_host).execute(fives, ones, to, from);"
    call += 'printf("%d %d %d\\n", fives[0], to[0], from[0])'
    kg.compile(TEXT.replace("CALL", call))["main"](device="cpu")
    assert capsys.readouterr().out.splitlines()[0] == "6 7 8"


@pytest.mark.parametrize(
    ("name", "type", "dtype"),
    [
        ("launched", "int", np.int32),
        ("direct", "int", np.int32),
        ("in_turn", "int", np.int32),
        ("on_the_host", "int", np.int32),
        ("on_the_host", "long", np.int64),
        ("with_numbers", "int", np.int32),
    ],
)
def test_host_functions(name: str, type: str, dtype: Any) -> None:
    assert integer_gradient(name, type, dtype, "cpu") == integer_gradient(name, "double", np.float64, "cpu")


REFUSED = r"""#include <stdio.h>
__device__ int kept[2];
__global__ void rows(int **of) {}
__global__ void copied(int *out, const int *in) { out[threadIdx.x] = in[threadIdx.x]; }
void run(int *out, int *in) {
    copied<<<1, 2>>>(out, in);
    LINE
}
"""


@pytest.mark.parametrize(
    "line",
    [
        "out[0] = in[0] / 2;",
        "if (in[0] > 1) out[0] = 2;",
        "out[in[0]] = 1;",
        "out[0] = in[0] & 1;",
        "out[0] = (char)in[0];",
        "out[0] = (unsigned)in[0] > 3u;",
        "out[0] = in[0] * 0.5;",
        "for (int i = 0; i < in[0]; i++) out[i] = 1;",
        "copied<<<in[0], 1>>>(out, in);",
        "cudaMemset(out, 0, in[0]);",
        "((short *)out)[0] = 1;",
        "cudaMemcpyToSymbol(kept, in, 8);",
        "int **table; cudaMallocManaged(&table, 8); table[0] = out; rows<<<1, 1>>>(table);",
        "unsigned *bits = (unsigned *)out; copied<<<1, 1>>>((int *)bits, in); bits[0] = 1;",
    ],
)
def test_more_than_sums_and_products_on_the_host(line: str) -> None:
    args = [np.array(values, np.int32) for values in ([0, 0], [1, 1], [1, 1], [0, 0])]
    source = REFUSED.replace("LINE", line)
    number = 1 + [text.strip() for text in source.splitlines()].index(line)
    with pytest.raises(KernelGradError, match="integer") as caught:
        kg.gradient(kg.compile(source)["run"], "out, in").execute(*args, device="cpu")
    assert f":{number}:" in str(caught.value) and "use float" in str(caught.value)


def test_integers_must_be_named_and_adjoints_may_be_doubles() -> None:
    run = kg.compile(REFUSED.replace("LINE", 'printf("%d", in[0] * 3);'))["run"]
    with pytest.raises(KernelGradError, match="nothing to differentiate"):
        kg.gradient(run)
    out, inn = np.zeros(2, np.int32), np.array([3, 4], np.int32)
    d_out, d_in = np.array([0.5, 0.25]), np.zeros(2)
    kg.gradient(run, "out, in").execute(out, inn, d_out, d_in, device="cpu")
    assert out.tolist() == [3, 4] and d_in.tolist() == [0.5, 0.25] and d_out.tolist() == [0, 0]


def test_numbers_that_fit_no_integer() -> None:
    run = kg.compile(REFUSED.replace("LINE", "out[0] = in[0] * in[0];"))["run"]
    args = [np.array(values, np.int32) for values in ([0, 0], [1 << 17, 1], [1, 1], [0, 0])]
    with pytest.raises(KernelGradError, match="has grown past what int32 holds"):
        kg.gradient(run, "out, in").execute(*args, device="cpu")


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
