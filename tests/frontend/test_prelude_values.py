"""The prelude's functions that are written in C++ mean what CUDA's do: their values, on the CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelgrad as kg

INCLUDES = "".join(
    f"#include <{name}>\n"
    for name in (
        "cuda_fp16.h cuda_bf16.h helper_math.h complex cuComplex.h tuple thrust/tuple.h "
        "cooperative_groups.h cooperative_groups/reduce.h cooperative_groups/scan.h"
    ).split()
)

# Expressions over: double w, v; float a, b; int e; const double z[2] = {3, 4}.
VALUES: dict[str, dict[str, float]] = {
    "compound": {
        "modf(-3.25, &w)": -0.25,
        "(modf(-3.25, &w), w)": -3,
        "frexp(10.0, &e)": 0.625,
        "(frexp(10.0, &e), e)": 4,
        "remquo(29.0, 3.0, &e)": -1,
        "(remquo(29.0, 3.0, &e), e)": 10 & 7,
        "(remquo(-29.0, 3.0, &e), e)": -(10 & 7),
        "(sincos(1.0, &w, &v), w + 10 * v)": math.sin(1) + 10 * math.cos(1),
        "(sincospif(.25f, &a, &b), a + b)": math.sqrt(2),
        "lrint(2.5)": 2,
        "lround(2.5)": 3,
        "llround(-2.5f)": -3,
        "scalbln(1.5, 3l)": 12,
        "norm(2, z)": 5,
        "std::hypot(1., 2., 2.)": 3,
        "isnormal(1e-40f)": 0,
        'isnan(nan(""))': 1,
        "powi(2.0, -2)": 0.25,
    },
    "overloads": {
        "pow(3.f, 2)": 9,
        "sqrt(16)": 4,
        "max(-1, 2u)": 2**32 - 1,
        "max((size_t)1, 2)": 2,
        "min(1.f, 2.0)": 1,
        "abs(-3l)": 3,
        "fma(1.f, 2, 3.f)": 5,
        "isinf(INFINITY)": 1,
        "signbit(-0.0)": 1,
        "std::is_trivially_copy_assignable_v<float2> + std::is_nothrow_move_constructible_v<int>": 2,
        "std::is_copy_constructible_v<int[2]> + std::is_assignable_v<int, int>": 0,
        "std::rank_v<float[2][3]> + std::extent_v<float[2][3], 1>": 5,
        "std::numeric_limits<int>::min()": -(2**31),
        "std::numeric_limits<double>::epsilon()": 2.0**-52,
    },
    "bits": {
        "__hiloint2double(0x40090000, 0)": 3.125,
        "__double2hiint(3.125)": 0x40090000,
        "__dp4a(make_char4(1, 2, 3, 4), make_char4(1, 1, -1, 1), 5)": 9,
        "__dp4a(0x01020304, 0x01010101, 5)": 15,
        "__ffs(8)": 4,
        "__byte_perm(0x33221100u, 0x77665544u, 0x7410u)": 0x77441100,
        "__funnelshift_l(0x80000000u, 1u, 1u)": 3,
        "__vadd4(0x01ff7f80u, 0x01010180u)": 0x02008000,
        "__vaddus4(0x01ff7f80u, 0x01010180u)": 0x02FF80FF,
        "__vaddss4(0x01ff7f80u, 0x01010180u)": 0x02007F80,
        "__vsub2(0x00010002u, 0x00020001u)": 0xFFFF0001,
        "__vabsdiffu4(0x05000105u, 0x01020304u)": 0x04020201,
        "__vsadu4(0x05000105u, 0x01020304u)": 9,
        "__vcmpeq4(0x01020304u, 0x01000300u)": 0xFF00FF00,
        "__vsetltu4(0x01020304u, 0x02020404u)": 0x01000100,
        "__vmaxs4(0xff010203u, 0x01ff0402u)": 0x01010403,
        "__vavgu4(0x01020304u, 0x02020204u)": 0x02020304,
        "__vneg2(0x0001ffffu)": 0xFFFF0001,
    },
    "half": {
        "__half2float(__float2half(0.1f))": float(np.float16(0.1)),
        "(float)(half(3) * half(0.1f))": float(np.float16(3) * np.float16(0.1)),
        "(float)hexp(half(1))": float(np.float16(math.e)),
        "__half2int_rn(half(2.5f))": 2,
        "__half2short_rz(half(60000.f))": 32767,
        "__half2uchar_rz(half(300.f))": 255,
        "__half_as_ushort(half(1))": 0x3C00,
        "(float)__half(__half_raw{0x3C00})": 1,
        "__low2float(__hfma2(half2(2, 3), half2(4, 5), half2(1, 1)))": 9,
        "(float)__hmax(half(1), half(2))": 2,
        "__hbeq2(half2(1, 2), half2(1, 2))": 1,
        "(float)(__nv_bfloat16)1.01f": 1.0078125,
        "__bfloat162float(__float2bfloat16(3.14159f))": 3.140625,
        "(float)std::numeric_limits<__half>::max()": 65504,
    },
    "records": {
        "std::abs(std::sqrt(std::complex<double>(3, 4)) * std::complex<double>(2, -1))": 5,
        "std::exp(std::complex<double>(0, M_PI)).real()": -1,
        "std::pow(std::complex<double>(0, 1), 2.0).real()": -1,
        "cuCdiv(make_cuDoubleComplex(1, 2), make_cuDoubleComplex(3, -4)).y": 0.4,
        "length(cross(make_float3(1, 0, 0), make_float3(0, 2, 0)))": 2,
        "dot(make_int3(1, 2, 3), make_int3(4, 5, 6))": 32,
        "clamp(make_float2(-1.f, 3.f), 0.f, 1.f).y": 1,
        "std::get<1>(std::make_tuple(1, 2.5))": 2.5,
        "thrust::get<0>(thrust::make_tuple(3, 2.5))": 3,
        "(std::tie(w, e) = std::make_tuple(1.5, 7), w + e)": 8.5,
        "(thrust::tie(std::ignore, e) = thrust::make_tuple(1.5, 7), e)": 7,
        "std::clamp(5, 1, 3)": 3,
        "__ldg(z)": 3,
    },
}


@pytest.mark.parametrize("group", VALUES)
def test_values(group: str) -> None:
    lines = "\n".join(f"  r[{k}] = (double)({expression});" for k, expression in enumerate(VALUES[group]))
    body = f"double w, v; float a, b; int e;\n{lines}"
    module = kg.compile(f"{INCLUDES}__global__ void k(double *r, const double *z) {{ {body} }}")
    results = np.zeros(len(VALUES[group]))
    module["k"][1, 1](results, np.array([3.0, 4.0]))
    assert dict(zip(VALUES[group], results, strict=True)) == pytest.approx(VALUES[group], rel=1e-6, abs=1e-9)


GROUPS = r"""
namespace cg = cooperative_groups;
__global__ void k(float *sum, float *scan, float *down, int *rank, int *ballot, float *even) {
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
  int i = block.thread_rank();
  sum[i] = cg::reduce(warp, (float)i, cg::plus<float>());
  scan[i] = cg::inclusive_scan(tile, 1.0f + i);
  down[i] = tile.shfl_down((float)i, 2);
  rank[i] = tile.meta_group_rank() * 100 + tile.thread_rank();
  ballot[i] = tile.ballot(i % 2);
  cg::sync(block);
  even[i] = cg::reduce(tile, i % 8 == 3 ? 7.0f : 1.0f, cg::greater<float>());
}
"""


def test_cooperative_groups() -> None:
    n = 64
    i = np.arange(n)
    floats = [np.zeros(n, np.float32) for _ in range(4)]
    ints = [np.zeros(n, np.int32) for _ in range(2)]
    kg.compile(INCLUDES + GROUPS)["k"][1, n](*floats[:3], *ints, floats[3])
    total, scan, down, largest = floats
    assert (total == np.repeat(i.reshape(-1, 32).sum(axis=1), 32)).all()
    assert (scan == np.cumsum(i.reshape(-1, 8) + 1, axis=1).ravel()).all()
    assert (down == np.where(i % 8 < 6, i + 2, i)).all()
    assert (ints[0] == i // 8 * 100 + i % 8).all()
    assert (ints[1] == 0b10101010).all()
    assert (largest == 7).all()
