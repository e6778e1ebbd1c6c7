"""The prelude: it parses alone and in any combination, its overloads resolve as in CUDA, and nothing in it dangles."""

from __future__ import annotations

from pathlib import Path

import clang.cindex as ci
import pytest

import kernelgrad as kg
from kernelgrad.cli import main
from kernelgrad.frontend.intrinsics import INTRINSICS, LOWERED_ELSEWHERE, REFUSED
from kernelgrad.frontend.prelude import parse_arguments, prelude_dir

KEEP_GOING, IMPLICIT_ATTRIBUTES = 0x200, 0x2000
PRELUDE = ["-include", "kernelgrad.h"]

HEADERS = sorted(
    str(path.relative_to(prelude_dir()))
    for path in prelude_dir().rglob("*")
    if path.is_file()
    and path.suffix not in (".py", ".pyc")
    and path.relative_to(prelude_dir()).parts[0] != "kernelgrad"
)


def parse(text: str, std: str = "c++17", extra: list[str] = PRELUDE) -> ci.TranslationUnit:
    arguments = [*parse_arguments(std), *extra]
    options = KEEP_GOING | IMPLICIT_ATTRIBUTES
    return ci.Index.create().parse("t.cu", args=arguments, unsaved_files=[("t.cu", text)], options=options)


def errors(unit: ci.TranslationUnit) -> list[str]:
    return [str(d) for d in unit.diagnostics]


@pytest.fixture(scope="module")
def precompiled(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    target = tmp_path_factory.mktemp("pch") / "kernelgrad.pch"
    unit = ci.Index.create().parse(str(prelude_dir() / "kernelgrad.h"), args=parse_arguments(), options=0x2 | 0x4)
    assert errors(unit) == []
    unit.save(str(target))
    return ["-include-pch", str(target)]


def everything() -> str:
    return "".join(f"#include <{header}>\n" for header in HEADERS)


def test_every_header_that_kernels_include_is_there() -> None:
    wanted = (
        "cuda.h cuda_runtime.h cuda_runtime_api.h device_launch_parameters.h device_functions.h cuda_fp16.h "
        "cuda_bf16.h cooperative_groups.h cooperative_groups/reduce.h math.h cmath cfloat float.h climits "
        "limits.h cstdint stdint.h cstddef stddef.h cstdio stdio.h cstdlib stdlib.h cstring string.h cassert "
        "assert.h iostream iomanip string vector algorithm numeric random chrono memory functional utility tuple "
        "type_traits limits array complex map set unordered_map fstream sstream time.h sys/time.h unistd.h omp.h "
        "math_constants.h vector_types.h helper_cuda.h helper_math.h curand_kernel.h cuComplex.h thrust/complex.h "
    )
    assert set(wanted.split()) <= set(HEADERS)


@pytest.mark.parametrize("header", HEADERS)
def test_header_alone(header: str, precompiled: list[str]) -> None:
    assert errors(parse(f"#include <{header}>\n", extra=precompiled)) == []


@pytest.mark.parametrize("std", ["c++14", "c++17", "c++20"])
def test_all_headers_together(std: str) -> None:
    assert errors(parse(everything(), std)) == []


def test_nothing_outside_the_prelude_is_read() -> None:
    unit = parse(everything())
    files = {Path(include.include.name).resolve() for include in unit.get_includes()}
    assert files and all(file.is_relative_to(prelude_dir().resolve()) for file in files)


# ---- overloads


OVERLOADS = {
    "float": "sqrt(2.f)|pow(1.f, 2.f)|abs(-1.f)|std::abs(-1.f)|std::max(1.f, 2.f)|max(1.f, 2.f)|fmax(1.f, 2.f)"
    "|exp10(1.f)|rsqrt(1.f)|ldexp(1.f, 2)|fma(1.f, 2.f, 3.f)|std::sin(1.f)|frexp(1.f, (int *)0)|hypot(1.f, 2.f)"
    "|jn(1, 2.f)|atomicAdd((float *)0, 1.f)|__shfl_sync(0u, 1.f, 2)|__ldg((const float *)0)"
    "|numeric_limits<float>::max()",
    "double": "sqrt(2)|pow(2, 2)|pow(1.f, 2)|pow(1., 2)|max(1.f, 2.)|min(1., 2.f)|fmod(1.f, 2)|atan2(1, 2.f)|fabs(2)"
    "|hypot(2, 3)|log(2u)|std::exp(3)|norm3d(1.f, 2.f, 3.f)|fma(1.f, 2, 3.f)|exp(2ull)|atomicAdd((double *)0, 1)",
    "int": "max(1, 2)|max((short)1, (short)2)|abs(-1)|__popc(1u)|__float2int_rn(1.f)|__any_sync(0u, 1)|ilogb(1.f)"
    "|__hadd(1, 2)|__shfl_down_sync(0u, (short)1, 2u)|min('a', 'b')|__syncthreads_count(1)",
    "unsigned int": "max(1, 2u)|min(2u, 1)|__ballot_sync(0u, 1)|__float_as_uint(1.f)|__activemask()|__umulhi(1u, 2u)",
    "long": "abs(-1l)|lround(1.f)|max(1l, 2)|max(1l, 2u)",
    "unsigned long": "max((size_t)1, 2)|min(1l, (size_t)2)",
    "long long": "max(1ll, 2u)|llrint(1.)|min(1ll, 2ll)|__double_as_longlong(1.)",
    "unsigned long long": "max(1ull, 2ll)|atomicAdd((unsigned long long *)0, 1)",
    "bool": "isnan(1.f)|std::isinf(1.)|isfinite(1)|signbit(1.f)|__hlt(__half(1), __half(2))",
    "_Float16": "__hadd(__half(1), __half(2))|__half(1) + __half(2)|hsin(__half(1))|atomicAdd((__half *)0, __half(1))"
    "|__shfl_xor_sync(0u, __half(1), 2)",
    "__bf16": "__hfma(__nv_bfloat16(1), __nv_bfloat16(2), __nv_bfloat16(3))|__float2bfloat16(1.f)",
    "__half2": "__half2(1, 2) + __half2(3, 4)|__float2half2_rn(1.f)|__shfl_sync(0u, __half2(1, 2), 2)",
    "float2": "atomicAdd((float2 *)0, make_float2(1, 2))|__half22float2(__half2(1, 2))",
}


def test_overloads_resolve_as_in_cuda() -> None:
    checks = [
        f"static_assert(__is_same(decltype({expression}), {type}));"
        for type, expressions in OVERLOADS.items()
        for expression in expressions.split("|")
    ]
    assert errors(parse("using std::numeric_limits;\n" + "\n".join(checks))) == []


LAYOUTS = {
    "char3": (3, 1), "char4": (4, 4), "short2": (4, 4), "short3": (6, 2), "int2": (8, 8), "int3": (12, 4),
    "uint4": (16, 16), "longlong2": (16, 16), "float2": (8, 8), "float3": (12, 4), "float4": (16, 16),
    "double2": (16, 16), "double3": (24, 8), "double4": (32, 16), "dim3": (12, 4), "__half2": (4, 4), "size_t": (8, 8),
    "__nv_bfloat162": (4, 4), "ulonglong4_32a": (32, 32), "uint3": (12, 4), "long": (8, 8), "uchar1": (1, 1),
}  # fmt: skip


def test_layouts_are_those_of_cuda() -> None:
    checks = [
        f"static_assert(sizeof({type}) == {size} && alignof({type}) == {align});"
        for type, (size, align) in LAYOUTS.items()
    ]
    assert errors(parse("\n".join(checks))) == []


PROGRAM = r"""
#include <cstdio>
#include <iostream>
#include <vector>
#include <chrono>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <helper_math.h>
#include <complex>
using namespace std;
namespace cg = cooperative_groups;
__constant__ float W[16];
__device__ int counter = 3;
template <class T, int n> __global__ void scale(T *__restrict__ y, const T *x, T a) {
  __shared__ T tile[n];
  extern __shared__ unsigned char dynamic[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = __ldg(x + i);
  __syncthreads();
  y[i] = a * tile[(threadIdx.x + 1) % warpSize] + std::numeric_limits<T>::epsilon() + T(INFINITY) + T(M_PI);
}
__global__ void __launch_bounds__(256, 2) mixed(float *f, double *d, int n, __half *h, float3 *v, complex<float> *z) {
  register int i = threadIdx.x;
  float s, c, whole;
  int e;
  sincosf(f[i], &s, &c);
  f[i] = s * c + modff(f[i], &whole) + frexpf(f[i], &e) + max(f[i], 0.f) + min(n, 3u) + pow(f[i], 2);
  swap(s, c);
  d[i] = norm3d(1, 2, 3) + erfcinv(d[i]) + cyl_bessel_i0(d[i]) + remquo(d[i], 2.0, &e) + nan("");
  h[i] = hexp(h[i]) + __float2half(1.f) * h[i + 1];
  half2 pair = __floats2half2_rn(f[0], f[1]);
  v[i] = normalize(cross(v[i], v[i + 1])) * 2.0f + make_float3(1.f, 2.f, 3.f);
  z[i] = std::exp(z[i]) * z[i + 1] / 2.0f;
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  cg::thread_block_tile<8> small = cg::tiled_partition<8>(tile);
  f[i] += cg::reduce(tile, f[i], cg::plus<float>()) + small.shfl_down(f[i], 2) + __low2float(pair);
  if (tile.thread_rank() == 0 && __any_sync(0xffffffff, f[i] > 0)) atomicAdd(&f[0], W[i]);
  int all;
  unsigned lanes = __match_all_sync(~0u, i, &all) ^ __vaddus4(1u, 2u) ^ __funnelshift_l(1u, 2u, 3u);
  if (lanes == 0) __trap();
  assert(i < n && "in range");
  printf("%d %f\n", i, f[i]);
}
#define CHECK(x) if (cudaError_t e = (x)) fprintf(stderr, "%s", cudaGetErrorString(e)), exit(1)
int main(int argc, char **argv) {
  vector<float> host(argc > 1 ? atoi(argv[1]) : 10, 1.0f);
  float *x, *y;
  CHECK(cudaMalloc(&x, host.size() * sizeof(float)));
  CHECK(cudaMalloc((void **)&y, 4));
  CHECK(cudaMemcpy(x, host.data(), 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyToSymbol(W, host.data(), sizeof(W)));
  auto start = std::chrono::steady_clock::now();
  dim3 grid(3, 2), block(32);
  scale<float, 64><<<grid, block, 16, 0>>>(y, x, 2.0f);
  mixed<<<1, 32>>>(x, nullptr, 3, nullptr, nullptr, nullptr);
  CHECK(cudaDeviceSynchronize());
  auto stop = std::chrono::steady_clock::now();
  cout << "took " << std::chrono::duration_cast<std::chrono::milliseconds>(stop - start).count() << endl;
  return rand() % 2;
}
"""


def test_a_program_of_many_parts(precompiled: list[str]) -> None:
    assert errors(parse(PROGRAM, extra=precompiled)) == []


def test_assert_obeys_ndebug_at_each_include() -> None:
    unit = parse("#define NDEBUG\n#include <assert.h>\n__global__ void k() { assert(this is no expression); }")
    assert errors(unit) == []


def test_infinities_and_nan_are_constants() -> None:
    checks = "static_assert(INFINITY > FLT_MAX && HUGE_VAL > DBL_MAX && NAN != NAN && INT_MIN < 0 && UINT_MAX == ~0u);"
    assert errors(parse(checks + "static_assert(std::numeric_limits<double>::infinity() == HUGE_VAL);")) == []


def test_traits() -> None:
    checks = """
    using namespace std;
    struct F { float operator()(int) const; };
    static_assert(is_invocable_v<F, int> && !is_invocable_v<F, F> && is_same_v<invoke_result_t<F, int>, float>);
    static_assert(is_floating_point_v<const double> && !is_floating_point_v<__half> && is_integral_v<char>);
    static_assert(is_same_v<common_type_t<float, int, double>, double> && is_same_v<decay_t<const int &>, int>);
    static_assert(is_same_v<remove_cvref_t<const float &>, float> && is_same_v<make_unsigned_t<long>, unsigned long>);
    static_assert(conjunction_v<is_void<void>, is_pointer<int *>> && numeric_limits<bool>::digits == 1);
    static_assert(numeric_limits<unsigned>::digits == 32 && numeric_limits<long long>::digits10 == 18);
    """
    assert errors(parse(checks)) == []


# ---- intrinsics and their rows


def declared_only(unit: ci.TranslationUnit) -> dict[str, list[ci.Cursor]]:
    """The device functions without a body, by name."""
    found: dict[str, list[ci.Cursor]] = {}
    kinds = (ci.CursorKind.FUNCTION_DECL, ci.CursorKind.FUNCTION_TEMPLATE)
    spaces = (ci.CursorKind.NAMESPACE, ci.CursorKind.LINKAGE_SPEC, ci.CursorKind.UNEXPOSED_DECL)
    pending = [unit.cursor]
    while pending:
        for cursor in pending.pop().get_children():
            if cursor.kind in spaces:
                pending.append(cursor)
            elif cursor.kind in kinds and cursor.get_definition() is None and _is_device(cursor):
                found.setdefault(cursor.spelling, []).append(cursor)
    return found


def _is_device(cursor: ci.Cursor) -> bool:
    return any(child.kind == ci.CursorKind.CUDADEVICE_ATTR for child in cursor.get_children())


# Derivatives that are asked for in the source: `frontend/in_source` knows them, or refuses them.
ASKED = set("gradient differentiate hessian jacobian estimate_error".split())
ASKED |= {f"__enzyme_{name}" for name in ("autodiff", "fwddiff", "augmentfwd", "reverse")}


def test_every_function_without_a_body_has_a_row_or_a_reason() -> None:
    declared = set(declared_only(parse(everything())))
    assert declared - {"declval"} == declared & (set(INTRINSICS) | LOWERED_ELSEWHERE | set(REFUSED) | ASKED)


def test_every_row_has_a_declaration() -> None:
    known_to_clang = {name for name in INTRINSICS if name.startswith("__builtin_")} | {"__syncthreads"}
    assert set(INTRINSICS) - known_to_clang <= set(declared_only(parse(everything())))
    uses = "__syncthreads(); __builtin_assume(x); __builtin_prefetch(p); __builtin_expect(x, 1); __builtin_trap();"
    assert errors(parse(f"__global__ void k(int x, float *p) {{ {uses} __builtin_unreachable(); }}")) == []


def test_refused_functions_have_no_row() -> None:
    assert not set(INTRINSICS) & (set(REFUSED) | LOWERED_ELSEWHERE)
    assert set(REFUSED) <= set(declared_only(parse(everything())))


def test_stop_gradient_has_a_header_for_other_compilers(capsys: pytest.CaptureFixture[str]) -> None:
    """Which says nothing where the prelude has said it, and compiles where nothing has."""
    assert main(["include-dir"]) == 0 and capsys.readouterr().out == f"{kg.include_dir}\n"
    source = (
        "#include <kernelgrad/stop_gradient.h>\n__global__ void k(float *y) { *y = kernelgrad::stop_gradient(*y); }\n"
    )
    for folders in ([], ["-I", kg.include_dir]):
        assert errors(parse(source, extra=[*PRELUDE, *folders])) == []
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelgrad.runtime.cuda import compile_only

    header = Path(kg.include_dir, "kernelgrad", "stop_gradient.h").read_text().replace("#pragma once", "")
    assert compile_only(header + source.partition("\n")[2], "sm_80")
