"""Forward mode against central differences in double, construct by construct; and what it refuses."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.autodiff.forward import Jvp, jvp
from kernelgrad.errors import ArgumentError, UnsupportedError
from kernelgrad.ir.traverse import walk
from kernelgrad.kernel import Kernel

N = 24

SOURCE = """
#include <cuda_fp16.h>
struct Pair { double a; int tag; double b; };
struct Views { double *out; const double *in; double scale; int n; };

__device__ double g_factor = 1.5;

__device__ double cube(double v) { return v * v * v; }
__device__ double both(double &v, double w) { v += w; return v * w; }
__device__ void twice(double *p, const double *q) { p[0] = 2 * q[0] * p[0]; }

#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
#define KERNEL extern "C" __global__ void

KERNEL branches(double *y, const double *x, int n) {
    INDEX
    double v = x[i];
    if (v > 1.0) y[i] = v * v;
    else if (v > 0.0 && x[(i + 1) % n] > 0) y[i] = sin(v);
    else { double w = v > -1.0 ? exp(v) : -v; y[i] = w * v; }
}

KERNEL counted(double *y, const double *x, double s, int n) {
    INDEX
    double total = 0, product = 1;
    for (int j = 0; j <= i; ++j) { total += s * x[j] * x[i]; product *= 1 + 0.1 * sin(total); }
    for (int j = 0; j < 0; ++j) product = 7;
    y[i] = product * total;
}

KERNEL waiting(double *y, const double *x, int n) {
    INDEX
    double v = fabs(x[i]) + 0.1;
    int steps = 0;
    while (v < 5.0) {
        v = v * 1.5 + x[i] * x[i] * 0.1;
        if (++steps > 6) break;
        if (steps == 3) continue;
        v += 0.01 * cos(v);
    }
    do { v = sqrt(v); } while (v > 1.5);
    y[i] = v * steps;
}

KERNEL in_place(double *x, int n) {
    INDEX
    x[i] = x[i] * x[i];
    x[i] += sin(x[i]);
    if (i % 3 == 0) x[i] = 2.0;
}

KERNEL local_array(double *y, const double *x, int n) {
    INDEX
    double window[5];
    for (int j = 0; j < 5; ++j) window[j] = x[(i + j) % n];
    for (int j = 0; j < 20; ++j) window[(i + j) % 5] = window[(j * 3) % 5] * 0.9 + sin(window[j % 5]);
    window[i % 5] = 1.0;
    y[i] = window[0] + window[1] * window[2] - window[3];
}

KERNEL records(Pair *out, const Pair *in, int n) {
    INDEX
    Pair p = in[i];
    Pair q;
    q.a = p.a * p.b;
    q.tag = p.tag + 1;
    q.b = p.tag % 2 ? p.a : cube(p.b);
    Pair pairs[3] = {p, q, in[(i + 1) % n]};
    out[i] = pairs[(i + p.tag) % 3];
    out[i].a += q.b;
}

KERNEL vectors(double *y, const double2 *x, int n) {
    INDEX
    double2 v = x[i];
    double2 w = make_double2(v.y, v.x * v.y);
    reinterpret_cast<double2 *>(y)[i] = w;
    y[2 * i] *= v.x;
}

KERNEL calls(double *y, const double *x, int n) {
    INDEX
    double v = x[i], w = x[(i + 1) % n];
    double r = both(v, w) + both(v, v);
    y[i] = r * cube(v);
    twice(y + i, x + i);
    twice(&r, &r);
    y[i] += r;
}

KERNEL swapped(double *y, double *a, double *b, int n) {
    INDEX
    double *from = a + i, *to = b + i;
    for (int j = 0; j < 5; ++j) {
        *to = *from * 0.5 + sin(*to) + (j == 2 ? *from * *from : 0.0);
        double *t = from; from = to; to = t;
    }
    y[i] = *from;
}

KERNEL chosen(double *y, const double *x, const double *w, int n) {
    INDEX
    const double *p = i % 2 ? x : w;
    p += i;
    y[i] = p[0] * x[i] + (i % 3 ? w : x)[i];
}

KERNEL read_table(double *y, const double *x, const double *w, int n) {
    INDEX
    double square[2] = {x[i] * x[i], w[i]};
    const double *rows[3] = {x + i, w + i, &square[0]};
    y[i] = rows[i % 3][0] * square[1];
}

KERNEL write_table(double *y, const double *x, const double *w, int n) {
    INDEX
    double square[2] = {x[i] * x[i], w[i]}, other[2] = {2, 3};
    double *targets[2] = {&square[0], &other[0]};
    targets[i % 2][1] = x[(i + 1) % n];
    targets[(i + 1) % 2][0] *= 3;
    y[i] = square[0] * square[1] + other[0] * other[1];
}

KERNEL views(Views v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= v.n) return;
    Views w = v;
    w.out[i] = v.scale * w.in[i] * w.in[(i + 1) % v.n];
}

KERNEL reversed(double *y, const double *x, int n) {
    __shared__ double tile[32];
    __shared__ int count;
    int i = threadIdx.x;
    tile[i] = i < n ? x[i] * x[i] : 0.0;
    if (i == 0) count = n;
    __syncthreads();
    for (int s = 16; s > 0; s >>= 1) {
        if (i < s) tile[i] += tile[i + s] * 1.1;
        __syncthreads();
    }
    if (i < n) y[i] = tile[0] * x[count - 1 - i];
}

KERNEL atomics(double *sum, int *hits, const double *x, int n) {
    INDEX
    atomicAdd(sum + i % 3, x[i] * x[i]);
    atomicAdd(hits, 1);
    if (x[i] > 0) atomicAdd(sum, 1.0);
}

KERNEL shuffled(double *y, const double *x, int n) {
    int i = threadIdx.x;
    double v = i < n ? x[i] : 0.0;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v * v * 0.01, d);
    double first = __shfl_sync(0xffffffffu, v, 0);
    if (i < n) y[i] = first * v;
}

KERNEL switched(double *y, const double *x, int n) {
    INDEX
    double v = x[i];
    switch (i % 4) {
    case 0: v *= v;
    case 1: v = sin(v); break;
    case 2: v = v * x[0]; break;
    default: v = 3;
    }
    y[i] = v;
}

KERNEL halves(__half *y, const __half *x, int n) {
    INDEX
    y[i] = __hmul(x[i], __float2half(sinf(__half2float(x[i]))));
}

KERNEL quads(float *y, const float *x, int n) {
    INDEX
    float4 v = reinterpret_cast<const float4 *>(x)[i];
    reinterpret_cast<float4 *>(y)[i] = make_float4(v.x * v.y, v.z, 1.0f, expf(v.w));
}

KERNEL mixed(double *y, const float *x, int n) {
    INDEX
    int k = (int)x[i];
    y[i] = (double)x[i] * (double)(float)((double)x[i] * 0.5) + k + floor((double)x[i]);
}

KERNEL device_variable(double *y, const double *x, int n) {
    INDEX
    y[i] = g_factor * x[i];
}

KERNEL scratch(double *y, double *tmp, const double *x, int n) {
    INDEX
    tmp[i] = x[i] * x[i];
    __syncthreads();
    y[i] = sin(tmp[n - 1 - i]);
}

KERNEL bits(double *y, const double *x, int n) {
    INDEX
    y[i] = __longlong_as_double(__double_as_longlong(x[i]) & ~1ll);
}

KERNEL bits_in_memory(long long *y, double *x, int n) {
    INDEX
    x[i] *= 2;
    y[i] = reinterpret_cast<long long *>(x)[i];
}

KERNEL exchanged(double *y, float *x, int n) {
    INDEX
    y[i] = atomicExch(x + i, 1.0f);
}

KERNEL returned(double *y, double *x, int n) {
    INDEX
    y[i] = atomicAdd(x, 1.0);
}
"""


pytestmark = pytest.mark.usefixtures("cache_of_its_own")


@cache
def module() -> kg.Module:
    return kg.compile(SOURCE, name="forward.cu")


def forward(kernel: Kernel, *listed: str) -> tuple[Kernel, Jvp]:
    made = jvp(kernel.function, kernel.module, listed)
    return Kernel(made.function.name, made.module, kernel.variable), made


# ---- against finite differences -------------------------------------------------------------------------------------

STEP = 1e-6


def numbers(like: Any, rng: np.random.Generator) -> Any:
    """Random tangents of an argument: arrays and structured arrays, integers in them zero."""
    if isinstance(like, np.ndarray) and like.dtype.names:
        made = np.zeros_like(like)
        for name in like.dtype.names:
            if like.dtype[name].kind == "f":
                made[name] = rng.normal(size=like.shape)
        return made
    return rng.normal(size=np.shape(like)).astype(getattr(like, "dtype", np.float64))


def moved(value: Any, tangent: Any, step: float) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.names:
        result = value.copy()
        for name in value.dtype.names:
            if value.dtype[name].kind == "f":
                result[name] += step * tangent[name]
        return result
    if isinstance(value, np.ndarray):
        return (value + step * tangent).astype(value.dtype)
    return value + step * float(tangent)


def floats(array: np.ndarray) -> np.ndarray:
    if array.dtype.names:
        return np.concatenate([array[n] for n in array.dtype.names if array.dtype[n].kind == "f"])
    return array


def assert_tangents(
    name: str, listed: tuple[str, ...], args: dict[str, Any], rtol: float = 1e-6, grid: int = 1
) -> None:
    """The kernel's tangents for random directions, against central differences; and the primal is still computed."""
    rng = np.random.default_rng(7)
    kernel = module()[name]
    tangent_kernel, _ = forward(kernel, *listed)
    directions = {key: numbers(args[key], rng) for key in listed}

    def run(step: float) -> dict[str, Any]:
        inputs = {k: moved(v, directions[k], step) if k in directions else _copy(v) for k, v in args.items()}
        kernel[grid, 32 // grid](*inputs.values())
        return inputs

    primal = {key: _copy(value) for key, value in args.items()}
    tangents = {key: np.atleast_1d(np.array(value)) for key, value in directions.items()}
    tangent_kernel[grid, 32 // grid](*primal.values(), *tangents.values())
    plain, above, below = run(0.0), run(STEP), run(-STEP)
    for key in listed:
        if not isinstance(args[key], np.ndarray):
            continue
        # Which products become part of an fma depends on what else is made of them.
        if plain[key].dtype == np.float64:
            np.testing.assert_allclose(primal[key], plain[key], rtol=4e-16, atol=0)
        else:
            np.testing.assert_array_equal(primal[key], plain[key])
        want = (floats(above[key]) - floats(below[key])) / (2 * STEP)
        np.testing.assert_allclose(floats(tangents[key]), want, rtol=rtol, atol=1e-7, err_msg=key)


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def data(seed: int, size: int = N) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size) * 1.5


PAIR = np.dtype([("a", np.float64), ("tag", np.int32), ("b", np.float64)], align=True)


def pairs(seed: int) -> np.ndarray:
    made = np.zeros(N, PAIR)
    made["a"], made["b"], made["tag"] = data(seed), data(seed + 1), np.arange(N)
    return made


Y = np.zeros(N)
CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("branches", ("y", "x"), {"y": Y, "x": data(1), "n": N}),
    ("counted", ("y", "x", "s"), {"y": Y, "x": data(2) * 0.3, "s": 0.7, "n": N}),
    ("counted", ("y", "s"), {"y": Y, "x": data(2) * 0.3, "s": 0.7, "n": N}),
    ("waiting", ("y", "x"), {"y": Y, "x": data(3), "n": N}),
    ("in_place", ("x",), {"x": data(4), "n": N}),
    ("local_array", ("y", "x"), {"y": Y, "x": data(5), "n": N}),
    ("records", ("out", "in"), {"out": pairs(6), "in": pairs(8), "n": N}),
    ("vectors", ("y", "x"), {"y": np.zeros(2 * N), "x": data(9, 2 * N).reshape(N, 2), "n": N}),
    ("calls", ("y", "x"), {"y": Y, "x": data(10), "n": N}),
    ("swapped", ("y", "a", "b"), {"y": Y, "a": data(11), "b": data(12), "n": N}),
    ("chosen", ("y", "x"), {"y": Y, "x": data(13), "w": data(14), "n": N}),
    ("chosen", ("y", "x", "w"), {"y": Y, "x": data(13), "w": data(14), "n": N}),
    *(
        (name, listed, {"y": Y, "x": data(20), "w": data(21), "n": N})
        for name in ("read_table", "write_table")
        for listed in (("y", "x"), ("y", "w"), ("y", "x", "w"))
    ),
    ("reversed", ("y", "x"), {"y": Y, "x": data(15) * 0.5, "n": N}),
    ("atomics", ("sum", "x"), {"sum": np.zeros(3), "hits": np.zeros(1, np.int32), "x": data(16), "n": N}),
    ("shuffled", ("y", "x"), {"y": Y, "x": data(17) * 0.5, "n": N}),
    ("switched", ("y", "x"), {"y": Y, "x": data(18), "n": N}),
]


@pytest.mark.parametrize(("name", "listed", "args"), CASES, ids=[f"{c[0]}-{'+'.join(c[1])}" for c in CASES])
def test_tangents(name: str, listed: tuple[str, ...], args: dict[str, Any]) -> None:
    assert_tangents(name, listed, args)


@pytest.mark.parametrize("name", ["swapped", "atomics"])
def test_several_blocks(name: str) -> None:
    _, listed, args = next(c for c in CASES if c[0] == name)
    assert_tangents(name, listed, args, grid=4)


def test_structs_of_pointers_have_tangents_of_the_same_form() -> None:
    kernel, made = forward(module()["views"], "v")
    assert made.tangents == ("t_v",)
    x, t_x, y, t_y = data(1), data(2), np.zeros(N), np.zeros(N)
    kernel[1, 32]({"out": y, "in": x, "scale": 2.0, "n": N}, {"out": t_y, "in": t_x, "scale": 0.5, "n": 0})
    after, t_after = np.roll(x, -1), np.roll(t_x, -1)
    np.testing.assert_allclose(t_y, 0.5 * x * after + 2 * (t_x * after + x * t_after))


def test_conversions_between_floats_pass_and_to_integers_cut() -> None:
    kernel, _ = forward(module()["mixed"], "y", "x")
    x, t_x = data(3).astype(np.float32), data(4).astype(np.float32)
    y, t_y = np.zeros(N), np.ones(N)
    kernel[1, 32](y, x, N, t_y, t_x)
    np.testing.assert_allclose(t_y, x.astype(float) * t_x, rtol=1e-6)


def test_half_precision() -> None:
    kernel, _ = forward(module()["halves"], "y", "x")
    x, t_x = data(3).astype(np.float16), data(4).astype(np.float16)
    y, t_y = np.zeros(N, np.float16), np.ones(N, np.float16)
    kernel[1, 32](y, x, N, t_y, t_x)
    wide = x.astype(float)
    np.testing.assert_allclose(t_y, t_x * (np.sin(wide) + wide * np.cos(wide)), rtol=5e-3, atol=5e-3)


def test_vectors_in_memory_of_floats() -> None:
    kernel, _ = forward(module()["quads"], "y", "x")
    x, t_x = data(3, 4 * N).astype(np.float32), data(4, 4 * N).astype(np.float32)
    y, t_y = np.zeros(4 * N, np.float32), np.ones(4 * N, np.float32)
    kernel[1, 32](y, x, N, t_y, t_x)
    v, t = x.reshape(N, 4), t_x.reshape(N, 4)
    want = np.stack((t[:, 0] * v[:, 1] + v[:, 0] * t[:, 1], t[:, 2], 0 * t[:, 0], np.exp(v[:, 3]) * t[:, 3]), axis=1)
    np.testing.assert_allclose(t_y.reshape(N, 4), want, rtol=1e-5)


def test_listed_module_variable() -> None:
    kernel, made = forward(module()["device_variable"], "y", "g_factor")
    assert made.tangents == ("t_y", "t_g_factor")
    x, y, t_y = data(5), np.zeros(N), np.zeros(N)
    kernel[1, 32](y, x, N, t_y, np.array([2.0]))
    np.testing.assert_allclose(t_y, 2 * x)


# ---- second order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["branches", "local_array", "swapped", "reversed", "calls"])
def test_jvp_of_jvp(name: str) -> None:
    """The second tangent against differences of the first."""
    _, listed, args = next(c for c in CASES if c[0] == name)
    first, made = forward(module()[name], *listed)
    second, made_again = forward(first, *listed, *made.tangents)
    rng = np.random.default_rng(3)
    arrays = {**args, **{t: rng.normal(size=N) for t in made.tangents}}
    directions = {key: rng.normal(size=N) for key in (*listed, *made.tangents)}

    def run(step: float) -> dict[str, Any]:
        inputs = {k: v + step * directions[k] if k in directions else v for k, v in arrays.items()}
        first[1, 32](*inputs.values())
        return inputs

    values = {k: _copy(v) for k, v in arrays.items()}
    tangents = dict(zip(made_again.tangents, (_copy(v) for v in directions.values()), strict=True))
    second[1, 32](*values.values(), *tangents.values())
    above, below = run(STEP), run(-STEP)
    for key, tangent in zip(directions, tangents.values(), strict=True):
        np.testing.assert_allclose(tangent, (above[key] - below[key]) / (2 * STEP), rtol=1e-5, atol=1e-6, err_msg=key)


# ---- activity -------------------------------------------------------------------------------------------------------


def test_code_that_depends_on_nothing_listed_gets_no_tangent() -> None:
    kernel = module()["counted"]
    only_result = jvp(kernel.function, kernel.module, ("y",)).function
    assert len(list(walk(only_result.body))) == len(list(walk(kernel.function.body))) + 2  # t_y[i] = 0


def test_names_of_tangents_are_fresh() -> None:
    text = 'extern "C" __global__ void k(double *y, const double *t_y) { y[0] = t_y[0]; }'
    kernel = kernel_of(text)
    assert jvp(kernel.function, kernel.module, ("y", "t_y")).tangents == ("t_y_", "t_t_y")


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "listed", "words", "line"),
    [
        ("scratch", ("y", "x"), "stored in 'tmp', which is not listed", "tmp[i] = x[i] * x[i];"),
        ("bits", ("y", "x"), "bits of a floating point number", "__longlong_as_double"),
        ("bits_in_memory", ("x",), "bits of a floating point number", "reinterpret_cast<long long *>"),
        ("exchanged", ("y", "x"), "atomic maximum, minimum or exchange", "atomicExch"),
        ("returned", ("y", "x"), "an atomic operation returns", "y[i] = atomicAdd(x, 1.0);"),
    ],
)
def test_refused(name: str, listed: tuple[str, ...], words: str, line: str) -> None:
    kernel = module()[name]
    with pytest.raises(UnsupportedError, match=words) as error:
        jvp(kernel.function, kernel.module, listed)
    assert line in SOURCE.splitlines()[error.value.span.line - 1]


def test_scratch_may_be_listed() -> None:
    assert_tangents("scratch", ("y", "tmp", "x"), {"y": Y, "tmp": np.zeros(N), "x": data(19), "n": N})


def test_parameters_without_a_derivative_are_not_listed() -> None:
    kernel = module()["branches"]
    with pytest.raises(ArgumentError, match="'n'"):
        jvp(kernel.function, kernel.module, ("y", "n"))
    with pytest.raises(ArgumentError, match="no parameter 'z'; it has: y, x, n"):
        jvp(kernel.function, kernel.module, ("z",))
