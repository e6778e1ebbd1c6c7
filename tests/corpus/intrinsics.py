"""Bit, conversion, fast-math and other intrinsics."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, F64, I32, I64, U32, U64, Theme, bits, floats, of, wrap, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(int* y, const unsigned* x, const unsigned long long* z) {
      int i = threadIdx.x, n = 32;
      y[i] = __popc(x[i]); y[n + i] = __clz(x[i]); y[2 * n + i] = __ffs(x[i]); y[3 * n + i] = __popcll(z[i]);
      y[4 * n + i] = __clzll(z[i]); y[5 * n + i] = __ffsll(z[i]); y[6 * n + i] = __brev(x[i]) >> 4;
      y[7 * n + i] = __clz(0) + __ffs(0) + __popc(0);
    }
    """,
    zeros((8, 32), I32),
    bits(32),
    bits(32, U64),
)
def counting_bits(y: Any, x: Any, z: Any) -> Any:
    def ffs(v: int) -> int:
        return (v & -v).bit_length()

    a, b = [int(v) for v in x], [int(v) for v in z]
    return np.array(
        [
            [v.bit_count() for v in a],
            [32 - v.bit_length() for v in a],
            [ffs(v) for v in a],
            [v.bit_count() for v in b],
            [64 - v.bit_length() for v in b],
            [ffs(v) for v in b],
            [int(f"{v:032b}"[::-1], 2) >> 4 for v in a],
            [32] * 32,
        ]
    )


@theme.case(
    """
    __global__ void k(unsigned* y, const unsigned* a, const unsigned* b) {
      int i = threadIdx.x, n = 32;
      y[i] = __umulhi(a[i], b[i]); y[n + i] = __mulhi((int)a[i], (int)b[i]); y[2 * n + i] = __umul24(a[i], b[i]);
      y[3 * n + i] = __byte_perm(a[i], b[i], 0x5140); y[4 * n + i] = __funnelshift_l(a[i], b[i], i);
      y[5 * n + i] = __funnelshift_r(a[i], b[i], i); y[6 * n + i] = __usad(a[i], b[i], 5);
      y[7 * n + i] = __uhadd(a[i], b[i]);
      y[8 * n + i] = __mul24((int)a[i], (int)b[i]);
    }
    """,
    zeros((9, 32), U32),
    bits(32),
    bits(32),
)
def integer_functions(y: Any, a: Any, b: Any) -> Any:
    def signed(v: int, w: int) -> int:
        v &= (1 << w) - 1
        return v - (1 << w) if v >> (w - 1) else v

    rows: list[list[int]] = [[] for _ in range(9)]
    for i, (p, q) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        bytes_ = p.to_bytes(4, "little") + q.to_bytes(4, "little")
        wide = q << 32 | p
        values = [
            p * q >> 32,
            signed(p, 32) * signed(q, 32) >> 32,
            (p & 0xFFFFFF) * (q & 0xFFFFFF),
            int.from_bytes(bytes([bytes_[0], bytes_[4], bytes_[1], bytes_[5]]), "little"),
            (wide << i) >> 32,
            wide >> i,
            abs(p - q) + 5,
            (p + q) >> 1,
            signed(p, 24) * signed(q, 24),
        ]
        for row, v in zip(rows, values, strict=True):
            row.append(v)
    return wrap(rows, U32).reshape(9, 32)


@theme.case(
    """
    __global__ void k(int* y, const float* x, const double* d) {
      int i = threadIdx.x, n = 16;
      y[i] = __float2int_rn(x[i]); y[n + i] = __float2int_rz(x[i]); y[2 * n + i] = __float2int_rd(x[i]);
      y[3 * n + i] = __float2int_ru(x[i]); y[4 * n + i] = __double2int_rn(d[i]);
      y[5 * n + i] = (int)__float2uint_rz(fabsf(x[i]));
      y[6 * n + i] = __float_as_int(x[i]); y[7 * n + i] = (int)__float2ll_rd(x[i]);
    }
    """,
    zeros((8, 16), I32),
    floats(16, -50, 50),
    floats(16, -50, 50, F64),
    block=16,
)
def float_conversions(y: Any, x: Any, d: Any) -> Any:
    rows = [np.rint(x), np.trunc(x), np.floor(x), np.ceil(x), np.rint(d), np.trunc(np.abs(x))]
    return np.stack([*(r.astype(int) for r in rows), x.view(I32), np.floor(x).astype(int)])


@theme.case(
    """
    __global__ void k(float* y, double* z, const int* n, const long long* l) {
      int i = threadIdx.x;
      y[i] = __int2float_rn(n[i]); y[8 + i] = __int_as_float(n[i] & 0x3fffffff);
      y[16 + i] = __uint2float_rn((unsigned)n[i]);
      z[i] = __longlong_as_double(l[i] & 0x3fffffffffffffffLL);
      z[8 + i] = __hiloint2double(0x40000000 + (n[i] & 0xffff), n[i]);
      z[16 + i] = __double2loint(z[i]); z[24 + i] = __ll2double_rn(l[i]);
    }
    """,
    zeros((3, 8)),
    zeros((4, 8), F64),
    bits(8, I32),
    bits(8, I64),
    block=8,
    exact=True,
)
def reinterpretations(y: Any, z: Any, n: Any, v: Any) -> Any:
    a = np.stack([n.astype(F32), (n & 0x3FFFFFFF).view(F32), n.view(U32).astype(F32)])
    low = v & 0x3FFFFFFFFFFFFFFF
    pair = (np.int64(0x40000000) + (n & 0xFFFF).astype(I64)) << 32 | n.view(U32).astype(I64)
    return a, np.stack([low.view(F64), pair.view(F64), low.astype(I32).astype(F64), v.astype(F64)])


@theme.case(
    """
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x, n = 32;
      y[i] = __expf(x[i]); y[n + i] = __logf(fabsf(x[i]) + 1.5f); y[2 * n + i] = __sinf(x[i]);
      y[3 * n + i] = __cosf(x[i]);
      y[4 * n + i] = __powf(fabsf(x[i]) + 0.1f, 1.5f); y[5 * n + i] = __saturatef(x[i]);
      y[6 * n + i] = __fsqrt_rn(fabsf(x[i]));
      y[7 * n + i] = __frcp_rn(x[i]); y[8 * n + i] = __fmul_rn(x[i], 3.0f) + __fadd_rn(x[i], 1.0f);
      y[9 * n + i] = rsqrtf(fabsf(x[i]));
      y[10 * n + i] = __tanf(x[i] * 0.5f); y[11 * n + i] = __fmaf_rn(x[i], x[i], 1.0f);
    }
    """,
    zeros((12, 32)),
    floats(32),
    rtol=1e-4,
    atol=1e-5,
)
def fast_math(y: Any, x: Any) -> Any:
    v = x.astype(F64)
    a = np.abs(v)
    rows = [np.exp(v), np.log(a + 1.5), np.sin(v), np.cos(v), (a + 0.1) ** 1.5, np.clip(v, 0, 1), np.sqrt(a), 1 / v]
    return np.stack([*rows, v * 3 + v + 1, 1 / np.sqrt(a), np.tan(v / 2), v * v + 1])


@theme.case(
    """
    __global__ void k(double* y, float* z) {
      y[0] = __dadd_rd(1.0, 1e-20); y[1] = __dadd_ru(1.0, 1e-20); y[2] = __dadd_rn(1.0, 1e-20);
      y[3] = __dmul_rz(0.1, 3.0);
      z[0] = __fadd_rd(1.0f, 1e-10f); z[1] = __fadd_ru(1.0f, 1e-10f); z[2] = __fdiv_rn(1.0f, 3.0f);
      z[3] = __double2float_ru(0.1);
      z[4] = __double2float_rd(0.1);
    }
    """,
    zeros(4, F64),
    zeros(5),
    block=1,
    exact=True,
)
def rounding_modes(y: Any, z: Any) -> Any:
    up, up32 = np.nextafter(1.0, 2.0), np.nextafter(F32(1), F32(2))
    near = F32(0.1)  # above 0.1
    product = float(np.nextafter(0.1 * 3.0, 0))  # 0.1 * 3 rounds up; towards zero is one below
    return np.array([1, up, 1, product]), np.array([1, up32, F32(1) / F32(3), near, np.nextafter(near, F32(0))], F32)


@theme.case(
    """
    __global__ void k(float* y, const float* __restrict__ x, const int4* __restrict__ v, int* z) {
      int i = threadIdx.x;
      y[i] = __ldg(&x[i]) + __ldg(x + 7 - i) + __ldcg(x);
      int4 q = __ldg(&v[i & 1]);
      __stcs(&z[i], q.x + q.w);
    }
    """,
    zeros(8),
    floats(8),
    of(np.arange(8), I32),
    zeros(8, I32),
    block=8,
)
def cached_loads(y: Any, x: Any, v: Any, z: Any) -> Any:
    return x + x[::-1] + x[0], x, v, np.where(np.arange(8) & 1, 11, 3)


@theme.case(
    """
    __global__ void k(int* y, const int* a, const int* b) {
      int i = threadIdx.x;
      y[i] = __dp4a(a[i], b[i], 10);
      y[16 + i] = (int)__vadd4(a[i], b[i]);
      y[32 + i] = __hadd(a[i] >> 8, b[i] >> 8);
    }
    """,
    zeros((3, 16), I32),
    bits(16, I32),
    bits(16, I32),
    block=16,
)
def simd(y: Any, a: Any, b: Any) -> Any:
    p, q = a.view(np.int8).reshape(-1, 4).astype(int), b.view(np.int8).reshape(-1, 4).astype(int)
    added = (p + q).astype(np.int8).view(I32).ravel()
    return np.stack([(p * q).sum(1) + 10, added, ((a >> 8) + (b >> 8)) >> 1])


@theme.case(
    """
    __global__ void k(int* y) {
      long long t0 = clock64();
      int s = 0;
      for (int i = 0; i < 10; ++i) s += i;
      long long t1 = clock64();
      y[0] = t1 >= t0; y[1] = s;
      __builtin_assume(s > 0);
      if (__builtin_expect(s == 45, 1)) y[2] = 1;
    }
    """,
    zeros(3, I32),
    block=1,
)
def clocks_and_hints(y: Any) -> Any:
    return np.array([1, 45, 1])
