"""Addresses from several sides of a condition: LLVM 22.1 takes one lane's for all (Note [Addresses that meet])."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

# What a block's threads do in some turns of a loop, behind conditions that are the same for all, and others.
FILLS = {
    "or": "if (j == 0 || f[j + t] == 0) s[t] = x[j + t];",
    "or, and": "if (j == 0 || (f[j + t] == 0 && f[j + t + 1] != 7)) s[t] = x[j + t];",
    "or, by data": "if (f[j] == 2 || f[j + t] == 0) s[t] = x[j + t];",
    "chosen": "bool go = j == 0 ? true : f[j + t] == 0; int at = go ? j + t : t; if (go) s[t] = x[at];",
    "a flag": "int at = t; bool go = true; if (j != 0) { at = j + t; go = f[at] == 0; } if (go) s[t] = x[at];",
    "else if": "if (j == 0) s[t] = x[t]; else if (f[j + t] == 0) s[t] = x[j + t];",
    "pointers": "const double *p = x; bool go = true; if (j) { p = x + j; go = f[j + t] == 0; } if (go) s[t] = p[t];",
    "stores": "if (j == 0 || f[j + t] == 0) z[j + t] = x[t]; s[t] = z[j + t];",
    "two": "if (j == 0 || f[j + t] == 0) { s[t] = x[j + t] * z[j + t]; z[j + t] = x[t]; }",
}


@pytest.mark.parametrize("block", [8, 33])
@pytest.mark.parametrize("name", FILLS)
def test_fills(name: str, block: int) -> None:
    """Check mode does one thread after the other."""
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, const int *f, int n, double *z) {{
        __shared__ double s[64];
        int t = threadIdx.x;
        double a = 0;
        s[t] = 0;
        for (int j = 0; j < n; ++j) {{
            if (j % 3 != 1) {{
                {FILLS[name]}
                __syncthreads();
                for (int q = 0; q < blockDim.x; ++q) a += s[q] * s[q];
                __syncthreads();
            }}
        }}
        y[t] = a;
    }}""")["k"]
    rng = np.random.default_rng(block)
    f, x = rng.integers(0, 3, 64, dtype=np.int32), np.arange(1.0, 65.0)
    f[2] = 1  # the first lane's decides
    found, expected = (np.zeros(block), np.ones(64)), (np.zeros(block), np.ones(64))
    kernel[1, block](found[0], x, f, 9, found[1])
    kernel.check(1, block, expected[0], x, f, 9, expected[1])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


HEAVY = " ".join(f"z[t + {k * 64}] = x[t + {k}] * x[t + {2 * k + 1}];" for k in range(12))  # loops are not cut in two
# Addresses that conditions for all threads choose, behind others: what is chosen may be a number, too.
CHOSEN = {
    "a flag": "int at = t + 1; bool go = true; if (u != 0) { at = u + t; go = f[t] == 0; } if (go) y[t] = x[at];",
    "else if": "if (u > v) y[t] = x[u + t]; else if (f[t] == 0) y[t] = x[v + t];",
    "a store": "int at = t + 1; bool go = true; if (u != 0) { at = u + t; go = f[t] == 0; } if (go) y[at] = x[t];",
    "a number": "int at = t + 1; bool go = true; if (u != 0) { at = u + t; go = f[t] == 0; }"
    " if (go) { y[t] = x[at]; w[t] = at; }",
    "a store and a number": "int at; bool go; if (u < v) { at = u + t; go = f[t] == 0; }"
    " else { at = v + t; go = true; } if (go) { y[at] = x[t]; w[t] = at & 7; }",
    "one for all": "int at; bool go = true; if (u != 0) { at = u; go = f[t] == 0; } else at = 1;"
    " if (go) y[t] = x[at] + at;",
}


@pytest.mark.parametrize("name", CHOSEN)
def test_choices(name: str) -> None:
    params = "double *y, const double *x, const int *f, int u, int v, double *z, int *w"
    kernel = kg.compile(f"""__global__ void k({params}) {{
        int t = threadIdx.x;
        {HEAVY}
        {CHOSEN[name]}
    }}""")["k"]
    flags = (np.arange(200) % 2 == 0).astype(np.int32)
    found, expected = ((np.zeros(264), np.arange(1.0, 300.0), flags, 5, 7, np.zeros(2000)) for _ in range(2))
    numbers = np.zeros(64, np.int32), np.zeros(64, np.int32)
    kernel[1, 64](*found, numbers[0])
    kernel.check(1, 64, *expected, numbers[1])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(*numbers)


def test_the_forward_of_a_split() -> None:
    """In which the blended address is that of a gather, too."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, const double *z, const int *f, int n) {
        __shared__ double s[8], r[8];
        int t = threadIdx.x, b = 0;
        double a = 0, p = 1;
        for (int j = 0; j < n; ++j) {
            b = 1 - b;
            if (!j || f[j + t]) { s[t] = b ? x[j] : z[j + t]; r[t] = x[j + t]; }
            __syncthreads();
            for (int q = 0; q < 8; ++q) { p = 0.5 * p + 0.3 * sin(s[q] * r[q]); a += s[q] * p; }
            __syncthreads();
        }
        y[t] = a * p;
    }""")["k"]
    rng = np.random.default_rng(17)
    x, z, f = *rng.uniform(0.5, 1.5, (2, 64)), rng.integers(0, 3, 64).astype(np.int32)
    found, expected = np.zeros(8), np.zeros(8)
    kernel.check(1, 8, expected, x, z, f, 17)
    kg.split(kernel, "y, x, z")[0][1, 8](found, x, z, f, 17)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
