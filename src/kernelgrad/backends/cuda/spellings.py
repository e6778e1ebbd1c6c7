"""How CUDA spells the IR's pure functions: one row each, one column per type.

A cell is a function's name, or a template with {0}, {1}, ... for the arguments. On 16-bit floats a function without a
cell of its own computes in float. `convert`, `bitcast`, `address` and `select` depend on two types or are syntax:
`conversions` and `expressions` write those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...analysis.float_bounds import at_least
from ...ir.ops import Apply, Op, Value
from ...ir.types import BOOL, F32, I32, U32, Scalar
from .names import once

_SMALLEST = 2.0**-126  # float that is not subnormal


@dataclass(frozen=True)
class Spelling:
    """`cells`: by the name of a scalar type; `operator`: an infix or prefix operator instead, on any type.

    `returns` is the C++ result's type where it is not the type that the first argument has.
    `selects` is the argument whose type chooses the cell.
    """

    name: str
    cells: dict[str, str] = field(default_factory=dict)
    operator: str | None = None
    returns: Scalar | None = None
    selects: int = 0


def _math(names: str, **options: Scalar) -> list[Spelling]:
    """The C library's way: `sin` on double, `sinf` on float."""
    return [Spelling(n, {"f32": f"{n}f", "f64": n}, None, **options) for n in names.split()]  # type: ignore[arg-type]


def _floats(name: str, f32: str, f64: str, **halves: str) -> Spelling:
    return Spelling(name, {"f32": f32, "f64": f64, **halves})


def _both_halves(text: str) -> dict[str, str]:
    return {"f16": text, "bf16": text}


def _rounded(name: str, f32: str, f64: str) -> list[Spelling]:
    return [_floats(f"{name}_{mode}", f"__{f32}_{mode}", f"__{f64}_{mode}") for mode in ("rd", "ru", "rz")]


def _ints(name: str, i32: str, u32: str, i64: str = "", u64: str = "", returns: Scalar | None = None) -> Spelling:
    cells = {"i32": i32, "u32": u32, "i64": i64, "u64": u64}
    return Spelling(name, {k: v for k, v in cells.items() if v}, returns=returns)


_INTEGERS = ("i32", "u32", "i64", "u64")
_MINMAX = "min max".split()
_FAST = "sin cos tan exp10 log log2 log10".split()

_TABLE: list[Spelling] = [
    *(Spelling(n, operator=o) for n, o in zip("add sub mul div rem".split(), "+ - * / %".split(), strict=True)),
    *(Spelling(n, operator=o) for n, o in zip("and or xor shl shr".split(), "& | ^ << >>".split(), strict=True)),
    *(Spelling(n, operator=o) for n, o in zip("lt le gt ge eq ne".split(), "< <= > >= == !=".split(), strict=True)),
    Spelling("neg", operator="-"),
    Spelling("not", operator="~"),
    Spelling(
        "abs",
        {"i32": "abs", "i64": "llabs", "u32": "{0}", "u64": "{0}", "f32": "fabsf", "f64": "fabs"}
        | _both_halves("__habs"),
    ),
    *(
        Spelling(
            n, dict.fromkeys(("i32", "u32", "i64", "u64"), n) | {"f32": f"f{n}f", "f64": f"f{n}"} | _both_halves(h)
        )
        for n, h in zip(_MINMAX, ("__hmin", "__hmax"), strict=True)
    ),
    *(Spelling(n, {"f32": n, "f64": n}, returns=BOOL) for n in "isnan isinf isfinite signbit".split()),
    *_math(
        "sqrt rsqrt cbrt rcbrt exp exp2 exp10 expm1 log log2 log10 log1p logb sin cos tan sinpi cospi asin acos atan"
    ),
    *_math("sinh cosh tanh asinh acosh atanh erf erfc erfinv erfcinv erfcx normcdf normcdfinv lgamma tgamma"),
    *_math("j0 j1 y0 y1 cyl_bessel_i0 cyl_bessel_i1 floor ceil trunc round rint"),
    *_math("pow atan2 hypot rhypot fmod remainder copysign nextafter fdim norm3d rnorm3d norm4d rnorm4d ldexp"),
    *_math("ilogb", returns=I32),
    Spelling("fma", {"f32": "fmaf", "f64": "fma"} | _both_halves("__hfma")),
    _floats("tanpi", "tan_pi", "tan_pi"),
    _floats("rcp", "__frcp_rn", "__drcp_rn"),
    _floats("saturate", "__saturatef", "fmin(fmax({0}, 0.0), 1.0)"),
    _floats("powi", "powf({0}, (float)({1}))", "pow({0}, (double)({1}))"),
    *(Spelling(n, {"f32": f"{n}f", "f64": n}, selects=1) for n in ("jn", "yn")),
    _floats("frexp_mantissa", "frexp_mantissa", "frexp_mantissa"),
    Spelling("frexp_exponent", {"f32": "frexp_exponent", "f64": "frexp_exponent"}, returns=I32),
    *(_floats(f"fast_{n}", f"__{n}f", n) for n in _FAST),
    _floats("fast_exp", "__expf", "exp"),
    _floats("fast_tanh", "__tanhf", "tanh"),
    _floats("fast_pow", "__powf", "pow"),
    _floats("fast_div", "__fdividef", "__ddiv_rn"),
    *(_floats(f"{n}_rn", f"__f{n}_rn", f"__d{n}_rn", **_both_halves(f"__h{n}_rn")) for n in ("add", "sub", "mul")),
    *_rounded("add", "fadd", "dadd"),
    *_rounded("sub", "fsub", "dsub"),
    *_rounded("mul", "fmul", "dmul"),
    *_rounded("div", "fdiv", "ddiv"),
    *_rounded("sqrt", "fsqrt", "dsqrt"),
    *_rounded("rcp", "frcp", "drcp"),
    *_rounded("fma", "fmaf", "fma"),
    _ints("popc", "__popc", "__popc", "__popcll", "__popcll", I32),
    _ints("clz", "__clz", "__clz", "__clzll", "__clzll", I32),
    _ints("ffs", "__ffs", "__ffs", "__ffsll", "__ffsll", I32),
    _ints("brev", "(int)__brev({0})", "__brev", "(long long)__brevll({0})", "__brevll"),
    _ints("mulhi", "__mulhi", "__umulhi", "__mul64hi", "__umul64hi"),
    _ints("mul24", "__mul24", "__umul24"),
    _ints("byte_perm", "(int)__byte_perm({0}, {1}, {2})", "__byte_perm"),
    *(
        _ints(f"funnel_{n}", f"(int)__funnelshift_{f}({{0}}, {{1}}, {{2}})", f"__funnelshift_{f}")
        for n, f in (("left", "l"), ("right", "r"), ("left_clamp", "lc"), ("right_clamp", "rc"))
    ),
    _ints("sad", "__sad", "__usad", returns=U32),
    _ints("hadd", "__hadd", "__uhadd"),
    _ints("rhadd", "__rhadd", "__urhadd"),
    *(_ints(n, f"__{n}", f"__{n}") for n in ("dp4a", "dp2a_lo", "dp2a_hi")),
]


def _merged_runs(type: str, *names: str) -> str:
    """Lanes of a whole warp with the same address as the one before give that what they have to add."""
    more = "".join(f"                {type} more_{v} = __shfl_down_sync(active, {v}, distance);\n" for v in names)
    sums = "".join(f"                    {v} += more_{v};\n" for v in names)
    return f"""    unsigned int active = __activemask();
    unsigned int lane = (threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x) % 32;
    unsigned long long mine = (unsigned long long)address;
    if (active == 0xffffffffu) {{
        unsigned long long before = __shfl_up_sync(active, mine, 1);
        unsigned int firsts = __ballot_sync(active, lane == 0 || mine != before);
        if (firsts != 0xffffffffu) {{
            unsigned int later = firsts & (0xfffffffeu << lane), end = later != 0 ? __ffs(later) - 1 : 32;
            for (unsigned int distance = 1; distance < 32; distance *= 2) {{
{more}                if (lane + distance < end) {{
{sums}                }}
            }}
            if ((firsts >> lane & 1) == 0) {{
                return;
            }}
        }}
    }}"""


def _warp_add(count: int) -> str:
    """`warp_add` for neighbouring floats."""
    names = "abcd"[:count]
    singly = "".join(f"        atomicAdd(address + {k}, {v});\n" for k, v in enumerate(names))
    return f"""// Adds atomically to {count} neighbours, in one access where the device can and the address allows it.
// Of neighbouring lanes with the same address, the first adds for all.
__device__ inline void warp_add_{count}(float *address, {", ".join(f"float {v}" for v in names)})
{{
{_merged_runs("float", *names)}
    if ({" || ".join(f"{v} != 0.0f" for v in names)}) {{
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ * 10 + __CUDACC_VER_MINOR__ > 120
        if (mine % {4 * count} == 0) {{
            atomicAdd((float{count} *)address, make_float{count}({", ".join(names)}));
            return;
        }}
#endif
{singly}    }}
}}
"""


def _warp_row(count: int, shared: bool = False) -> str:
    """`warp_add` for many neighbours: where all lanes have the same address, a lane adds up each element, or two do.
    `shared`: in shared memory, which knows no additions to several at once."""
    names = [f"v{k}" for k in range(count)]
    rest = (
        ""
        if count == 32
        else f"""
            for (unsigned int distance = {count}; distance < 32; distance *= 2) {{
                parts[0] += __shfl_xor_sync(active, parts[0], distance);
            }}"""
    )
    singly = f"""
#pragma unroll
    for (unsigned int j = 0; j < {count}; j += 4) {{
        add_four(address + j, parts[j], parts[j + 1], parts[j + 2], parts[j + 3]);
    }}"""
    if shared:
        singly = f"""
#pragma unroll
    for (unsigned int j = 0; j < {count}; ++j) {{
        if (parts[j] != T(0)) {{
            atomicAdd(address + j, parts[j]);
        }}
    }}"""
    name, where = (
        ("cells_add", f"{count} neighbours in shared memory") if shared else ("warp_add", f"{count} neighbours")
    )
    return f"""// Adds atomically to {where}. Where all lanes have the same address, each adds up some.
template <typename T>
__device__ void {name}_{count}(T *address, {", ".join(f"T {v}" for v in names)})
{{
    T parts[{count}] = {{{", ".join(names)}}};
    unsigned long long mine = (unsigned long long)address;
    unsigned int active = __activemask();
    if (active == 0xffffffffu) {{
        if (__all_sync(active, mine == __shfl_sync(active, mine, 0))) {{
            unsigned int lane = (threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x) % 32;
            // Each lane gives away the half of its sums that its partner goes on with.
#pragma unroll
            for (unsigned int half = {count // 2}; half > 0; half /= 2) {{
                bool upper = lane & half;
#pragma unroll
                for (unsigned int j = 0; j < half; ++j) {{
                    T given = upper ? parts[j] : parts[j + half];
                    T kept = upper ? parts[j + half] : parts[j];
                    parts[j] = kept + __shfl_xor_sync(active, given, half);
                }}
            }}{rest}
            if (lane < {count} && parts[0] != T(0)) {{
                atomicAdd(address + lane, parts[0]);
            }}
            return;
        }}
    }}{singly}
}}
"""


SPELLINGS: dict[str, Spelling] = {row.name: row for row in _TABLE}

# Functions of ours that emitted code brings along where it uses them.
# Asked of the hardware: with `__isLocal` of a pointer that is exchanged in a loop between global and shared memory,
# NVRTC 13.0 ends in a segmentation fault.
IS_LOCAL = once(
    "is_local",
    """// Whether it is memory of the thread's own.
__device__ inline bool is_local(const void *address)
{
#ifdef __CUDA_ARCH__
    unsigned int local;
    asm("{ .reg .pred p; isspacep.local p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(local) : "l"(address));
    return local != 0;
#else
    return __isLocal(address);
#endif
}
""",
)

HELPERS: dict[str, str] = {
    "tan_pi": """__device__ inline float tan_pi(float x) { return sinpif(x) / cospif(x); }
__device__ inline double tan_pi(double x) { return sinpi(x) / cospi(x); }
""",
    "frexp_mantissa": """__device__ inline float frexp_mantissa(float x) { int e; return frexpf(x, &e); }
__device__ inline double frexp_mantissa(double x) { int e; return frexp(x, &e); }
""",
    "frexp_exponent": """__device__ inline int frexp_exponent(float x) { int e; frexpf(x, &e); return e; }
__device__ inline int frexp_exponent(double x) { int e; frexp(x, &e); return e; }
""",
    "lane_id": """__device__ inline unsigned int lane_id()
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
""",
    "global_timer": """__device__ inline unsigned long long global_timer()
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
""",
    "block_sum": """// The sum over all threads of the block, for each of them.
template <typename T>
__device__ T block_sum(T value)
{
    __shared__ T sums[32];
    unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned int thread = threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x;
    unsigned int lane = thread % 32;
    unsigned int lanes = min(threads - (thread - lane), 32u);
    unsigned int mask = 0xffffffffu >> (32 - lanes);
    for (unsigned int distance = 16; distance > 0; distance /= 2) {
        T other = __shfl_down_sync(mask, value, distance);
        value += lane + distance < lanes ? other : T(0);
    }
    if (lane == 0) {
        sums[thread / 32] = value;
    }
    __syncthreads();
    T total = sums[0];
    for (unsigned int warp = 1; warp < (threads + 31) / 32; ++warp) {
        total += sums[warp];
    }
    __syncthreads();
    return total;
}
""",
    "warp_sum": """// The sum over all lanes of the warp, for each of them.
template <typename T>
__device__ T warp_sum(T value)
{
    unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned int thread = threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x;
    unsigned int lane = thread % 32;
    unsigned int lanes = min(threads - (thread - lane), 32u);
    unsigned int mask = 0xffffffffu >> (32 - lanes);
    for (unsigned int distance = 16; distance > 0; distance /= 2) {
        T other = __shfl_down_sync(mask, value, distance);
        value += lane + distance < lanes ? other : T(0);
    }
    return __shfl_sync(mask, value, 0);
}
""",
    "lanes_totals": """// Two sums over all 32 lanes: the first for lanes below 16, the second for the others.
template <typename T>
__device__ T lanes_totals(T first, T second)
{
    bool upper = (threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x) & 16;
    T value = (upper ? second : first) + __shfl_xor_sync(0xffffffffu, upper ? first : second, 16);
#pragma unroll
    for (unsigned int distance = 8; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}
""",
    "lanes_total": """// The sum over all 32 lanes, for each of them.
template <typename T>
__device__ T lanes_total(T value)
{
#pragma unroll
    for (unsigned int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}
""",
    "take": """// What is there, for one of the threads that ask for it at once; the others get zero.
__device__ inline float take(float *address)
{
    return atomicExch(address, 0.0f);
}
__device__ inline double take(double *address)
{
    return __longlong_as_double(atomicExch((unsigned long long *)address, 0ull));
}
""",
    "add_anywhere": IS_LOCAL
    + """// Adds atomically, but to memory of the thread's own.
template <typename T>
__device__ void add_anywhere(T *address, T value)
{
    if (is_local(address)) {
        *address += value;
    } else if (value != T(0)) {
        atomicAdd(address, value);
    }
}
""",
    "take_anywhere": IS_LOCAL
    + """// What is there. Of memory that threads share, for one of those that ask for it at once.
__device__ inline float take_anywhere(float *address)
{
    if (is_local(address)) {
        float found = *address;
        *address = 0.0f;
        return found;
    }
    return atomicExch(address, 0.0f);
}
__device__ inline double take_anywhere(double *address)
{
    if (is_local(address)) {
        double found = *address;
        *address = 0.0;
        return found;
    }
    return __longlong_as_double(atomicExch((unsigned long long *)address, 0ull));
}
""",
    "rsqrt_normal": """// rsqrtf of a number that is not subnormal, without the steps that those take.
__device__ inline float rsqrt_normal(float x)
{
#ifdef __CUDA_ARCH__
    float root;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
#else
    return rsqrtf(x);
#endif
}
""",
    "warp_add": """// Adds atomically. Of neighbouring lanes with the same address, the first adds for all;
// in a branch that some take alone, if all of these have the same. Floats may be added to a double.
template <typename T, typename V>
__device__ void warp_add(T *address, V value)
{
"""
    + _merged_runs("V", "value")
    + """ else if ((active & (active - 1)) != 0) {
        unsigned int first = __ffs(active) - 1;
        if (__all_sync(active, mine == __shfl_sync(active, mine, first))) {
            unsigned int later = active & (0xfffffffeu << lane), next = later != 0 ? __ffs(later) - 1 : 32;
            for (unsigned int lanes = __popc(active); lanes > 1; lanes = (lanes + 1) / 2) {
                unsigned int from = next < 32 ? next : lane;
                V more_value = __shfl_sync(active, value, from);
                unsigned int after = __shfl_sync(active, next, from);
                if (next < 32) {
                    value += more_value;
                    next = after;
                }
            }
            if (lane != first) {
                return;
            }
        }
    }
    if (value != V(0)) {
        atomicAdd(address, (T)value);
    }
}
""",
    "warp_add_2": _warp_add(2),
    "warp_add_4": _warp_add(4),
    "add_four": """// Adds atomically to four neighbours, in one access where the device can and the address allows it.
template <typename T>
__device__ void add_four(T *address, T a, T b, T c, T d)
{
    if (a != T(0) || b != T(0) || c != T(0) || d != T(0)) {
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ * 10 + __CUDACC_VER_MINOR__ > 120
        if (sizeof(T) == 4 && (unsigned long long)address % 16 == 0) {
            atomicAdd((float4 *)address, make_float4((float)a, (float)b, (float)c, (float)d));
            return;
        }
#endif
        atomicAdd(address + 0, a);
        atomicAdd(address + 1, b);
        atomicAdd(address + 2, c);
        atomicAdd(address + 3, d);
    }
}
""",
    "warp_add_8": _warp_row(8),
    "warp_add_16": _warp_row(16),
    "warp_add_32": _warp_row(32),
    **{f"cells_add_{count}": _warp_row(count, shared=True) for count in (8, 16, 32)},
    "lanes_alike": """// Of how many neighbouring lanes, 32, 16 or 8, all have the same value; else 1.
template <typename T>
__device__ unsigned int lanes_alike(T value)
{
    for (unsigned int lanes = 32; lanes >= 8; lanes /= 2) {
        if (__all_sync(0xffffffffu, value == __shfl_sync(0xffffffffu, value, 0, lanes))) {
            return lanes;
        }
    }
    return 1;
}
""",
    "lane_sums": """// For lane j, parts[j % 8] summed over its 32, 16 or 8 neighbours.
template <typename T>
__device__ T lane_sums(T *parts, unsigned int lanes)
{
    unsigned int lane = (threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x) % 32;
    // Each lane gives away the half of its sums that its partner goes on with.
#pragma unroll
    for (unsigned int half = 4; half > 0; half /= 2) {
        bool upper = lane & half;
#pragma unroll
        for (unsigned int j = 0; j < half; ++j) {
            T given = upper ? parts[j] : parts[j + half];
            T kept = upper ? parts[j + half] : parts[j];
            parts[j] = kept + __shfl_xor_sync(0xffffffffu, given, half);
        }
    }
    T sum = parts[0];
    for (unsigned int distance = 8; distance < lanes; distance *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    return sum;
}
""",
    "lane_columns": """// Lane j gets parts[j % N] of the N lanes it is among, 16 or 32. Whether all are finite.
template <unsigned int N, typename T>
__device__ bool lane_columns(T (&parts)[N])
{
    unsigned int lane = (threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x) % 32;
    T zero = T(0);
#pragma unroll
    for (unsigned int j = 0; j < N; ++j) {
        zero += parts[j] * T(0);
    }
#pragma unroll
    for (unsigned int half = N / 2; half > 0; half /= 2) {
        bool upper = lane & half;
#pragma unroll
        for (unsigned int j = 0; j < N; ++j) {
            if ((j & half) == 0) {
                T got = __shfl_xor_sync(0xffffffffu, upper ? parts[j] : parts[j + half], half);
                parts[j] = upper ? got : parts[j];
                parts[j + half] = upper ? parts[j + half] : got;
            }
        }
    }
    return __all_sync(0xffffffffu, zero == T(0));
}
""",
    "lane_products": """template <typename T>
__device__ T *warp_cells(unsigned int warp)
{
    __align__(16) __shared__ T cells[32][32];
    return cells[warp];
}

// For lane j, the sum over all lanes of value times their parts[j % N] (`lane_columns`).
template <unsigned int N, typename T>
__device__ T lane_products(T value, const T (&columns)[N])
{
    unsigned int thread = threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x, lane = thread % 32;
    T *own = warp_cells<T>(thread / 32);
    __syncwarp();
    own[lane] = value;
    __syncwarp();
    own += lane / N * N;
    T sums[N / 8] = {T(0), T(0)};
#pragma unroll
    for (unsigned int j = 0; j < N; ++j) {
        sums[j % (N / 8)] += own[j] * columns[j];
    }
#pragma unroll
    for (unsigned int j = 1; j < N / 8; ++j) {
        sums[0] += sums[j];
    }
    return N == 32 ? sums[0] : sums[0] + __shfl_xor_sync(0xffffffffu, sums[0], 16);
}
""",
    "warp_sums": """// Each lane gives away the half of its sums that its partner goes on with.
template <unsigned int half, typename T>
__device__ void give_half(T *parts, unsigned int lane)
{
    bool upper = lane & half;
#pragma unroll
    for (unsigned int j = 0; j < half; ++j) {
        T given = upper ? parts[j] : parts[j + half];
        T kept = upper ? parts[j + half] : parts[j];
        parts[j] = kept + __shfl_xor_sync(0xffffffffu, given, half);
    }
}

// For lane j, parts[j] summed over all 32 lanes.
template <typename T>
__device__ T warp_sums(T *parts)
{
    unsigned int lane = (threadIdx.x + (threadIdx.y + threadIdx.z * blockDim.y) * blockDim.x) % 32;
    give_half<16>(parts, lane);
    give_half<8>(parts, lane);
    give_half<4>(parts, lane);
    give_half<2>(parts, lane);
    give_half<1>(parts, lane);
    return parts[0];
}
""",
    "bit_cast": """template <typename To, typename From>
__device__ inline To bit_cast(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
""",
}


def has_normal_root(op: Apply, definition: Mapping[Value, Op]) -> bool:
    """Whether a reciprocal root is of a float that is known not to be subnormal."""
    return op.fn == "rsqrt" and op.result.type == F32 and at_least(op.args[0], definition) >= _SMALLEST
