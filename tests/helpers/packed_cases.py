"""Kernels that move numbers as the bits of others: `k(T *y, const T *x, int n)`, a thread for 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgrad as kg

_SQUARES = "for (int j = 0; j < 4; ++j) h[j] = __hmul2(h[j], h[j]);"
_FLOATS = (
    "for (int j = 0; j < 4; ++j) { float2 f = TO_FLOATS(h[j]); o[j] = TO_HALVES(make_float2(f.x * f.x, f.y * f.y)); }"
)


@dataclass(frozen=True)
class Case:
    """Its outputs are the squares of its inputs."""

    body: str
    type: str = "__half"

    @property
    def dtype(self) -> Any:
        return {"__half": np.float16, "__half2": np.float16, "float": np.float32, "double": np.float64}[self.type]

    def kernel(self) -> kg.Kernel:
        body = self.body.replace("TO_FLOATS", "__half22float2").replace("TO_HALVES", "__float22half2_rn")
        return kg.compile(
            f"#include <cuda_fp16.h>\n__global__ void k({self.type} *y, const {self.type} *x, int n) {{\n"
            f"int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < n) {{ {body} }}\n}}"
        )["k"]


CASES = {
    "float4": Case(
        "float4 v = ((const float4 *)x)[i], w; __half2 *h = (__half2 *)&v, *o = (__half2 *)&w;"
        f"{_FLOATS} ((float4 *)y)[i] = w;"
    ),
    "uint4": Case(
        "uint4 v = *reinterpret_cast<const uint4 *>(x + 8 * i), w; __half2 *h = (__half2 *)&v, *o = (__half2 *)&w;"
        f"{_FLOATS} *reinterpret_cast<uint4 *>(y + 8 * i) = w;"
    ),
    "read-only path": Case(
        f"int4 v = __ldg((const int4 *)x + i); __half2 *h = (__half2 *)&v; {_SQUARES} ((int4 *)y)[i] = v;"
    ),
    "pairs": Case(
        f"float4 v = ((const float4 *)x)[i]; __half2 *h = (__half2 *)&v; {_SQUARES} ((float4 *)y)[i] = v;", "__half2"
    ),
    "fields": Case(
        "uint4 v = ((const uint4 *)x)[i]; __half2 a = *(__half2 *)&v.x, b = *(__half2 *)&v.y, c = *(__half2 *)&v.z,"
        " d = *(__half2 *)&v.w; a = __hmul2(a, a), b = __hmul2(b, b), c = __hmul2(c, c), d = __hmul2(d, d);"
        " uint4 w = {*(unsigned *)&a, *(unsigned *)&b, *(unsigned *)&c, *(unsigned *)&d}; ((uint4 *)y)[i] = w;"
    ),
    "array": Case(
        "__half h[8]; *(float4 *)h = ((const float4 *)x)[i]; for (int j = 0; j < 8; ++j) h[j] = h[j] * h[j];"
        " ((float4 *)y)[i] = *(float4 *)h;"
    ),
    "memcpy": Case(
        "__half h[8]; memcpy(h, x + 8 * i, 16); for (int j = 0; j < 8; ++j) h[j] *= h[j]; memcpy(y + 8 * i, h, 16);"
    ),
    "memcpy of others": Case(
        "uint4 v; memcpy(&v, x + 8 * i, sizeof v); __half2 h[4]; memcpy(&h, &v, sizeof h);"
        f"{_SQUARES} memcpy(&v, h, sizeof v); memcpy(&y[8 * i], &v, sizeof v);"
    ),
    "memcpy of bits": Case(
        "for (int j = 0; j < 4; ++j) { unsigned bits; memcpy(&bits, &x[4 * i + j], 4); float v; memcpy(&v, &bits, 4);"
        " v *= v; memcpy(y + 4 * i + j, &v, sizeof(float)); }",
        "float",
    ),
    "union": Case(
        "union { uint4 v; __half2 h[4]; } u; u.v = ((const uint4 *)x)[i]; __half2 *h = u.h;"
        f"{_SQUARES} ((uint4 *)y)[i] = u.v;"
    ),
    "chosen": Case(
        "uint4 v = i % 2 ? ((const uint4 *)x)[i] : ((const uint4 *)x)[i & ~1]; uint4 zero = {0, 0, 0, 0};"
        f" if (i < 0) v = zero; __half2 *h = (__half2 *)&v; {_SQUARES} ((uint4 *)y)[i] = v;"
    ),
    "carried": Case(
        "uint4 next = ((const uint4 *)x)[i], v; for (int k = 0; k < 3; ++k) { v = next; next = ((const uint4 *)x)[i]; }"
        f" __half2 *h = (__half2 *)&v; {_SQUARES} ((uint4 *)y)[i] = v;"
    ),
    "shuffled": Case(
        "uint4 v = ((const uint4 *)x)[i]; for (int k = 0; k < 2; ++k) { v.x = __shfl_xor_sync(~0u, v.x, 1);"
        f" v.w = __shfl_xor_sync(~0u, v.w, 1); }} __half2 *h = (__half2 *)&v; {_SQUARES} ((uint4 *)y)[i] = v;"
    ),
    "stepping": Case(
        "const float4 *p = (const float4 *)x + i; __half *to = (__half *)((uint4 *)y + i);"
        " for (int j = 0; j < 2; ++j) { __half a = ((const __half *)&p->x)[j], b = ((const __half *)&p->y)[j],"
        " c = ((const __half *)&p->z)[j], d = ((const __half *)&p->w)[j];"
        " to[j] = a * a; to[2 + j] = b * b; to[4 + j] = c * c; to[6 + j] = d * d; }"
    ),
    "floats": Case(
        "uint4 v = ((const uint4 *)x)[i]; float *h = (float *)&v; for (int j = 0; j < 4; ++j) h[j] *= h[j];"
        " ((uint4 *)y)[i] = v;",
        "float",
    ),
    "bits of floats": Case(
        "int4 v = ((const int4 *)x)[i]; float a = __int_as_float(v.x), b = __int_as_float(v.y);"
        " float c = __int_as_float(v.z), d = __int_as_float(v.w);"
        " v = make_int4(__float_as_int(a * a), __float_as_int(b * b), __float_as_int(c * c), __float_as_int(d * d));"
        " ((int4 *)y)[i] = v;",
        "float",
    ),
    "bits of doubles": Case(
        "for (int j = 0; j < 2; ++j) { double v = __longlong_as_double(((const long long *)x)[2 * i + j]);"
        " ((unsigned long long *)y)[2 * i + j] = __double_as_longlong(v * v); }",
        "double",
    ),
}
THREADS = 32


def inputs(case: Case) -> np.ndarray[Any, Any]:
    count = THREADS * 16 // np.dtype(case.dtype).itemsize
    return np.random.default_rng(5).uniform(0.5, 1.5, count).astype(case.dtype)
