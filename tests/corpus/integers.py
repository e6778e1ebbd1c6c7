"""Integer arithmetic as C has it: promotion, mixed signs, narrow types, shifts, 64 bits, conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Theme, bits, floats, ints, of, wrap, zeros

theme = Theme()


@theme.case(
    """
    __global__ void k(int* y, const int* a, const int* b) {
      int i = threadIdx.x;
      y[2 * i] = a[i] / b[i];
      y[2 * i + 1] = a[i] % b[i];
    }
    """,
    zeros(8, I32),
    of([7, -7, 7, -7], I32),
    of([2, 2, -2, -2], I32),
    block=4,
)
def division_truncates(y: Any, a: Any, b: Any) -> Any:
    return np.array([3, 1, -3, -1, -3, 1, 3, -1])


@theme.case(
    """
    __global__ void k(int* y, const unsigned char* a, const signed char* b) {
      int i = threadIdx.x;
      y[4 * i] = a[i] + b[i];
      y[4 * i + 1] = a[i] - b[i];
      y[4 * i + 2] = a[i] * b[i];
      y[4 * i + 3] = ~a[i];
    }
    """,
    zeros(128, I32),
    bits(32, U8),
    bits(32, I8),
)
def narrow_operands_promote_to_int(y: Any, a: Any, b: Any) -> Any:
    x, z = a.astype(I32), b.astype(I32)
    return np.stack([x + z, x - z, x * z, ~x], 1).ravel()


@theme.case(
    """
    __global__ void k(signed char* y, unsigned char* u, short* s, const int* x) {
      int i = threadIdx.x;
      y[i] = x[i]; u[i] = x[i]; s[i] = x[i];
      y[i] += 100; u[i] += 100; s[i] *= 3;
      y[i] <<= 1; u[i] >>= 1; s[i] -= 30000;
    }
    """,
    zeros(32, I8),
    zeros(32, U8),
    zeros(32, I16),
    bits(32, I32),
)
def narrow_results_wrap(y: Any, u: Any, s: Any, x: Any) -> Any:
    v = x.astype(object)
    y = wrap(wrap(wrap(v, I8).astype(object) + 100, I8).astype(object) << 1, I8)
    u = wrap(wrap(v, U8).astype(object) + 100, U8) >> 1
    s = wrap(wrap(wrap(v, I16).astype(object) * 3, I16).astype(object) - 30000, I16)
    return y, u, s


@theme.case(
    """
    __global__ void k(int* y, int a, unsigned b) {
      y[0] = a < b;                   // -1 becomes huge
      y[1] = (int)(a / b);
      y[2] = a + b > 0;
      y[3] = (a >> 1) == -1;
      y[4] = (int)((unsigned)a >> 31);
      y[5] = a * 2u > 5u;
      y[6] = (long long)a < (long long)b;
      y[7] = a == 0xffffffffu;
      y[8] = -b > 0u;
      y[9] = (int)(a % 7u);
    }
    """,
    zeros(10, I32),
    -1,
    2,
    block=1,
)
def mixed_signs(y: Any, a: int, b: int) -> Any:
    return np.array([0, 0x7FFFFFFF, 1, 1, 1, 1, 1, 1, 1, 0xFFFFFFFF % 7])


@theme.case(
    """
    __global__ void k(int* y, unsigned* u, const int* x) {
      int i = threadIdx.x;
      y[i] = x[i] >> (i % 8);
      u[i] = (unsigned)x[i] >> (i % 8);
      y[i] ^= x[i] << (i % 5);
      u[i] |= 1u << i;
    }
    """,
    zeros(32, I32),
    zeros(32, U32),
    bits(32, I32),
)
def shifts(y: Any, u: Any, x: Any) -> Any:
    i = np.arange(32)
    left = wrap([int(v) << int(s) for v, s in zip(x, i % 5, strict=True)], I32)
    return (x >> (i % 8)) ^ left, (x.view(U32) >> (i % 8).astype(U32)) | (U32(1) << i.astype(U32))


@theme.case(
    """
    __global__ void k(long long* y, unsigned long long* u, const long long* x) {
      int i = threadIdx.x;
      y[i] = x[i] * 6364136223846793005LL + 1442695040888963407LL;
      y[i] ^= y[i] >> 33;
      u[i] = (unsigned long long)x[i] * 0x9E3779B97F4A7C15ull;
      u[i] = (u[i] >> 40) | (u[i] << 24);
    }
    """,
    zeros(32, I64),
    zeros(32, U64),
    bits(32, I64),
)
def sixty_four_bits(y: Any, u: Any, x: Any) -> Any:
    a = wrap([int(v) * 6364136223846793005 + 1442695040888963407 for v in x], I64)
    b = wrap([int(v) * 0x9E3779B97F4A7C15 for v in x], U64)
    return a ^ (a >> 33), (b >> U64(40)) | (b << U64(24))


@theme.case(
    """
    __global__ void k(long long* y, int a, int b) {
      y[0] = a * b;                  // wraps at 32 bits (as every CUDA compiler does)
      y[1] = (long long)a * b;
      y[2] = a * (long long)b / 1000;
      y[3] = 1LL << 40;
      y[4] = sizeof(int) * a;
      y[5] = (unsigned)a * (unsigned)b;
    }
    """,
    zeros(6, I64),
    123456,
    -54321,
    block=1,
)
def widening(y: Any, a: int, b: int) -> Any:
    p = a * b
    return np.array([int(wrap([p], I32)[0]), p, -((-p) // 1000), 1 << 40, 4 * a, int(wrap([p], U32)[0])])


@theme.case(
    """
    __global__ void k(int* y, const int* x) {
      int i = threadIdx.x;
      bool a = x[i] > 0, b = x[i] & 1, c = x[i];
      y[i] = a + b * 2 + c * 4 + !a * 8 + (a ^ b) * 16 + (a == b) * 32 + -a * 64;
      bool d = 4; d += 3; d |= a;
      y[i] += 1000 * d;
      bool e = 0.25f;
      y[i] += 10000 * e;
    }
    """,
    zeros(32, I32),
    ints(32, -4, 4),
)
def bools(y: Any, x: Any) -> Any:
    a, b, c = (x > 0).astype(int), x & 1, (x != 0).astype(int)
    return a + 2 * b + 4 * c + 8 * (1 - a) + 16 * (a ^ b) + 32 * (a == b) - 64 * a + 11000


@theme.case(
    """
    __global__ void k(int* y, const float* x, const double* z) {
      int i = threadIdx.x;
      y[6 * i] = (int)x[i];
      y[6 * i + 1] = (int)z[i];
      y[6 * i + 2] = static_cast<short>(x[i]);
      y[6 * i + 3] = (unsigned char)(x[i] + 100.0f);
      y[6 * i + 4] = (long long)(z[i] * 1e6) % 1000;
      y[6 * i + 5] = int(-z[i]);
    }
    """,
    zeros(192, I32),
    floats(32, -99, 99),
    floats(32, -1e5, 1e5, F64),
)
def float_to_int_truncates(y: Any, x: Any, z: Any) -> Any:
    t, w = np.trunc(x).astype(int), np.trunc(z).astype(int)
    m = np.trunc(z * 1e6).astype(I64)
    return np.stack([t, w, t, (x + F32(100)).astype(int), np.fmod(m, 1000), -w], 1).ravel()


@theme.case(
    """
    __global__ void k(int* y, signed char* c, unsigned* u, float f) {
      int a = 10;
      a += f; y[0] = a;              // computed in float, converted back
      a *= 1.5; y[1] = a;
      a -= 2.9f; y[2] = a;
      a /= 0.3f; y[3] = a;
      char d = 100; d += 27; d += 1; y[4] = d;
      short s = 7; s *= 2.6; y[5] = s;
      *c = 5; *c += 300;
      *u = 3; *u -= 5; *u /= 2;
      *u += 1.9f;
      int q = 7; q <<= 2; q |= 3; q &= ~4; q ^= 0x40; q %= 60; y[6] = q;
    }
    """,
    zeros(7, I32),
    zeros(1, I8),
    zeros(1, U32),
    3.7,
    block=1,
)
def mixed_compound_assignment(y: Any, c: Any, u: Any, f: float) -> Any:
    wrapped = int(F32(int(wrap([-2], U32)[0]) // 2) + F32(1.9))
    q = ((7 << 2 | 3) & ~4 ^ 0x40) % 60
    values = [13, 19, 16, int(F32(16) / F32(0.3)), -128, 18, q]
    return np.array(values), wrap([305], I8), np.array([wrapped])


@theme.case(
    """
    __global__ void k(int* y) {
      int i = 5;
      y[0] = i++; y[1] = i; y[2] = ++i; y[3] = i--; y[4] = --i;
      unsigned char c = 255; c++; y[5] = c; c--; y[6] = c--; y[7] = c;
      float f = 1.5f; y[8] = f++ * 2; y[9] = --f * 2;
      int a[2] = {10, 20};
      int p = 0; a[p++]++; ++a[p]; y[10] = a[0]; y[11] = a[1];
      long long l = -1; y[12] = l++ < 0; y[13] = l == 0;
      int j = 3; j = j++ + 1; y[14] = j;
      (++j) += 4; y[15] = j;
    }
    """,
    zeros(16, I32),
    block=1,
)
def increments(y: Any) -> Any:
    return np.array([5, 6, 7, 7, 5, 0, 255, 254, 3, 3, 11, 21, 1, 1, 4, 9])


@theme.case(
    """
    __global__ void k(int* y) {
      y[0] = 'a'; y[1] = '\\n'; y[2] = '\\\\'; y[3] = 0x7F; y[4] = 017; y[5] = 0b1011; y[6] = 1'000'000;
      y[7] = sizeof(double); y[8] = sizeof(short[5]); y[9] = INT_MAX; y[10] = INT_MIN; y[11] = UINT_MAX == ~0u;
      y[12] = sizeof(long); y[13] = sizeof(y[0]); y[14] = true; y[15] = alignof(double);
    }
    """,
    zeros(16, I32),
    block=1,
)
def literals(y: Any) -> Any:
    return np.array([97, 10, 92, 127, 15, 11, 10**6, 8, 10, 2**31 - 1, -(2**31), 1, 8, 4, 1, 8])


@theme.case(
    """
    __global__ void k(unsigned* y, const unsigned* x) {
      unsigned s = x[threadIdx.x];
      s ^= s << 13; s ^= s >> 17; s ^= s << 5;          // xorshift
      s = s * 1664525u + 1013904223u;
      y[threadIdx.x] = s;
    }
    """,
    zeros(32, U32),
    bits(32),
)
def random_numbers(y: Any, x: Any) -> Any:
    def one(s: int) -> int:
        s ^= s << 13 & 0xFFFFFFFF
        s ^= s >> 17
        s ^= s << 5 & 0xFFFFFFFF
        return (s * 1664525 + 1013904223) & 0xFFFFFFFF

    return np.array([one(int(v)) for v in x], U32)


@theme.case(
    """
    __global__ void k(unsigned long long* y, const unsigned short* a, const unsigned int* b) {
      int i = threadIdx.x;
      y[i] = (unsigned long long)a[i] << 48 | (unsigned long long)b[i] << 8 | (unsigned char)a[i];
    }
    """,
    zeros(32, U64),
    bits(32, U16),
    bits(32, U32),
)
def packing(y: Any, a: Any, b: Any) -> Any:
    return a.astype(U64) << U64(48) | b.astype(U64) << U64(8) | (a & 255).astype(U64)


@theme.case(
    """
    #include <cstdint>
    __global__ void k(int64_t* y, int8_t a, uint8_t b, int16_t c, uint16_t d, uint32_t e, size_t f, ptrdiff_t g) {
      y[0] = a; y[1] = b; y[2] = c; y[3] = d; y[4] = e; y[5] = (int64_t)f; y[6] = g;
      y[7] = a + b; y[8] = (uint8_t)(b + 1); y[9] = e + 1;
    }
    """,
    zeros(10, I64),
    -5,
    255,
    -300,
    65535,
    0xFFFFFFFF,
    2**40,
    -(2**40),
    block=1,
)
def fixed_width_types(y: Any, *values: int) -> Any:
    return np.array([*values, 250, 0, 0])


@theme.case(
    """
    __global__ void k(int* y, long n, long long m, unsigned long u) {
      int i = threadIdx.x;
      y[i] = i < n ? 1 : 0;
      y[i] += (size_t)i < u ? 10 : 0;
      y[i] += i - m < 0 ? 100 : 0;
      y[i] += i - u > 5 ? 1000 : 0;                 // unsigned: never negative
    }
    """,
    zeros(12, I32),
    8,
    4,
    6,
    block=12,
)
def sixty_four_bit_comparisons(y: Any, n: int, m: int, u: int) -> Any:
    i = np.arange(12)
    return (i < n) * 1 + (i < u) * 10 + (i < m) * 100 + ((i - u < 0) | (i - u > 5)) * 1000
