"""Kernels that make tapes of any number and size in an arena, and what they must come to: `xp` is NumPy or CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgrad as kg

HEAD = r"""
extern int enzyme_allocated, enzyme_const;
template <typename... Args> __device__ void *__enzyme_augmentfwd(Args...);
template <typename... Args> __device__ double __enzyme_reverse(Args...);
"""
CHAIN = (
    HEAD
    + r"""
__device__ double chain(double x, const double *w, int n) {
    for (int k = 0; k < n; k++) x = sin(x) * w[0];
    return x;
}
__device__ int visits;
__global__ void forward(const double *x, double *w, double *dw, void **tape, const int *n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tape[i] = __enzyme_augmentfwd(chain, x[i], w, dw, n[i]);
}
__global__ void backward(const double *x, double *w, double *dw, void **tape, const int *n, double *dx, double seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    dx[i] = __enzyme_reverse(chain, x[i], w, dw, n[i], seed, tape[i]);
}
__global__ void both(const double *x, double *w, double *dw, void **tape, int n, double *dx) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&visits, 1);
    for (int k = 0; k < n; k++) tape[i * n + k] = __enzyme_augmentfwd(chain, x[i] + k, w, dw, k);
    for (int k = 0; k < n; k++) dx[i] += __enzyme_reverse(chain, x[i] + k, w, dw, k, 1.0, tape[i * n + k]);
}
__global__ void visited(int *count) { *count = visits; }
__global__ void handed_on(const double *x, double *w, double *dw, void **old, void **tape, int n, double *dx) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    dx[i] = __enzyme_reverse(chain, x[i], w, dw, 2, 1.0, old[i]);
    tape[i] = __enzyme_augmentfwd(chain, x[i], w, dw, n);
}
__global__ void descend(double *x, double *w, double *dw, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double slope = 0;
    for (int k = 0; k < steps; k++) {
        int n = 10 + (int)(80 * fabs(slope));
        slope = __enzyme_reverse(chain, x[i], w, dw, n, 1.0, __enzyme_augmentfwd(chain, x[i], w, dw, n));
        x[i] -= 0.1 * slope;
    }
}
"""
)
WHILE = (
    HEAD
    + r"""
__device__ float newton(float a, float *rounds) {
    float x = a;
    int steps = 0;
    while (x * x - a > 1e-5f * a && steps < 100) {
        bool late = steps > 2;
        x = late ? 0.5f * (x + a / x) : x - (x * x - a) / (2.0f * x);
        steps++;
    }
    rounds[0] = (float)steps;
    return x;
}
__device__ void each(float a, float *rounds, float *drounds, void **tape) {
    *tape = __enzyme_augmentfwd(newton, a, rounds, drounds);
}
__global__ void forward(const float *a, float *rounds, float *drounds, void **tape) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    each(a[i], rounds + i, drounds + i, tape + i);
}
__global__ void backward(const float *a, float *rounds, float *drounds, void **tape, float *da) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    da[i] = (float)__enzyme_reverse(newton, a[i], rounds + i, drounds + i, 1.0f, tape[i]);
}
"""
)
# Without the right slopes these would not end, or read far outside.
LEAVING = (
    HEAD
    + r"""
template <typename... Args> __device__ double __enzyme_autodiff(Args...);
__device__ double chain(double x, int n) {
    for (int k = 0; k < n; k++) x = sin(x) * 1.01;
    return x;
}
__device__ double slope(double x, int n) {
    return __enzyme_reverse(chain, x, n, 1.0, __enzyme_augmentfwd(chain, x, n));
}
__device__ int next(double s, int n) { return min(200, (int)(20 / fabs(s) / (1 + n))); }
__global__ void climb(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (double v = 0; v < 10; y[i] = v) {
        double s = slope(x[i], n);
        v += s;
        n = next(s, n);
    }
}
__global__ void climb_at_once(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double v = 0, s;
    while (v < 10 && (s = __enzyme_autodiff(chain, x[i], n)) > 0) {
        v += s;
        n = next(s, n);
    }
    y[i] = v;
}
__global__ void look_up(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double table[256];
    for (int k = 0; k < 256; k++) table[k] = k + x[i];
    slope(x[i], n);
    y[i] = table[(int)(1 / slope(x[i], n))];
}
__global__ void together(const double *x, double *y, int n) {
    __shared__ double s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    double total = 0;
    while (total < 400) {
        s[t] = slope(x[i], t % 32 == 5 ? n : 3);
        __syncthreads();
        for (int k = 0; k < 64; k++) total += s[k];
        __syncthreads();
        if (t < 7 && total > 1e9) return;
    }
    y[i] = total;
}
__global__ void lanes(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double total = 0;
    do {
        double s = slope(x[i], i % 32 == 5 ? n : 3);
        for (int by = 16; by > 0; by /= 2) s += __shfl_xor_sync(0xffffffffu, s, by);
        total += s;
    } while (total < 200);
    y[i] = total;
}
__global__ void locked(const double *x, double *y, int n, int *lock, double *sum) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            y[i] = slope(x[i], n);
            atomicAdd(sum, y[i]);
            atomicExch(lock, 0);
            done = true;
        }
    }
}
"""
)
AROUND = (
    HEAD
    + r"""
__device__ double chain(double x, int n) {
    for (int k = 0; k < n; k++) x = sin(x) * 1.01;
    return x;
}
__global__ void middle(double *x, void **tape, double *dx, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    if (i == 0) x[-1] += 1;
    if (i == count - 1) x[count] += 1;
    tape[i] = __enzyme_augmentfwd(chain, x[i], n);
    dx[i] = __enzyme_reverse(chain, x[i], n, 1.0, tape[i]);
}
int run(double *out, int n) {
    double *x, *dx;
    void **tape;
    cudaMalloc(&x, (n + 2) * sizeof(double));
    cudaMalloc(&dx, n * sizeof(double)); cudaMalloc(&tape, n * sizeof(void *));
    cudaMemset(x, 0, (n + 2) * sizeof(double));
    middle<<<2, n / 2>>>(x + 1, tape, dx, 400);
    cudaMemcpy(out, x, (n + 2) * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(x); cudaFree(dx); cudaFree(tape);
    return 0;
}
"""
)
W = 1.01


def chained(x: Any, w: Any, n: Any) -> Any:
    for k in range(int(np.max(n, initial=0))):
        x = np.where(k < np.asarray(n), np.sin(x) * w, x)
    return x


def by_x(x: Any, w: float, n: Any) -> Any:
    return chained(x + 1e-30j, w, n).imag / 1e-30


def by_w(x: Any, w: float, n: Any) -> Any:
    return np.imag(chained(x, w + 1e-30j, n)) / 1e-30


def on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


class Chains:
    """Arrays for a launch of `forward` and one of `backward`."""

    def __init__(self, xp: Any, n: Any, start: float = 0.1):
        self.count, self.lengths = len(n), np.asarray(n, np.int32)
        self.given = np.linspace(start, start + 0.8, self.count)
        self.x, self.n, self.w = xp.array(self.given), xp.array(self.lengths), xp.full(1, W)
        self.dw, self.dx, self.tape = xp.zeros(1), xp.zeros(self.count), xp.zeros(self.count, np.uint64)

    def forward(self, module: Any, *how: Any) -> None:
        module["forward"][how or (-(-self.count // 32), 32)](self.x, self.w, self.dw, self.tape, self.n)

    def backward(self, module: Any, *how: Any, seed: float = 2.0) -> None:
        arrays = self.x, self.w, self.dw, self.tape, self.n, self.dx
        module["backward"][how or (-(-self.count // 32), 32)](*arrays, seed)

    def compare(self, seed: float = 2.0) -> None:
        np.testing.assert_allclose(on_host(self.dx), seed * by_x(self.given, W, self.lengths), rtol=1e-10)
        np.testing.assert_allclose(on_host(self.dw), seed * by_w(self.given, W, self.lengths).sum(), rtol=1e-9)


def grows_with_every_launch(xp: Any) -> None:
    module = kg.compile(CHAIN + "// longer and longer")
    kept = [Chains(xp, np.arange(1024) % most, 0.1 * most**0.1) for most in (5, 70, 300, 40, 1000)]
    for chains in kept:
        chains.forward(module)
        chains.w[:] = 50
    for chains in reversed(kept):
        chains.backward(module)
    for chains in kept:
        chains.compare()


def used_in_the_same_kernel(xp: Any) -> None:
    module, n, count = kg.compile(CHAIN + "// of a kernel's own"), 40, 256
    given = np.linspace(0.1, 0.9, count)
    x, w, dw, dx = xp.array(given), xp.full(1, W), xp.zeros(1), xp.zeros(count)
    visits = xp.zeros(1, np.int32)
    for launches in (1, 2):
        module["both"][8, 32](x, w, dw, xp.zeros(count * n, np.uint64), n, dx)
        module["visited"][1, 1](visits)
        assert int(on_host(visits)[0]) == launches * count  # none of what was undone
    np.testing.assert_allclose(on_host(dx), 2 * sum(by_x(given + k, W, k) for k in range(n)), rtol=1e-10)
    np.testing.assert_allclose(on_host(dw), 2 * sum(by_w(given + k, W, k).sum() for k in range(n)), rtol=1e-10)


def handed_on_and_used_later(xp: Any) -> None:
    """A kernel that uses the tapes of another and makes some for a third, for which it is made again."""
    module = kg.compile(CHAIN + "// handed on")
    first, later = Chains(xp, np.full(128, 2)), Chains(xp, np.full(128, 400))
    first.forward(module, 4, 32)
    dx = xp.zeros(128)
    module["handed_on"][4, 32](first.x, first.w, first.dw, first.tape, later.tape, 400, dx)
    later.backward(module, 2, 64)
    later.compare()
    first.dx = 2 * dx
    first.dw *= 2
    first.compare()


def grows_within_a_launch(xp: Any) -> None:
    """How long a tape is depends on what the one before it came to, so that a larger arena is found wanting again."""
    module, steps, count = kg.compile(CHAIN + "// step by step"), 6, 96
    given, dw = np.linspace(0.2, 1.4, count), 0.0
    x, w, found_dw = xp.array(given), xp.full(1, W), xp.zeros(1)
    rooms, (arena,) = [0], module["descend"]._growing
    supply = arena.supply
    arena.supply = lambda *a: (rooms.append(arena.room), supply(*a))[1]
    module["descend"][3, 32](x, w, found_dw, steps)
    slope = np.zeros(count)
    for _ in range(steps):
        n = 10 + (80 * np.abs(slope)).astype(int)
        dw, slope = dw + by_w(given, W, n).sum(), by_x(given, W, n)
        given = given - 0.1 * slope
    assert len(rooms) > 3
    assert rooms == sorted(set(rooms))
    np.testing.assert_allclose(on_host(x), given, rtol=1e-10)
    np.testing.assert_allclose(on_host(found_dw), dw, rtol=1e-10)


def while_loops(xp: Any) -> None:
    module, count = kg.compile(WHILE), 2048
    given = np.geomspace(1.5, 1e6, count, dtype=np.float32)
    a, rounds, drounds, da = xp.array(given), *(xp.zeros(count, np.float32) for _ in range(3))
    tape = xp.zeros(count, np.uint64)
    module["forward"][16, 128](a, rounds, drounds, tape)
    assert on_host(rounds).max() > 8
    module["backward"][32, 64](a, rounds, drounds, tape, da)
    np.testing.assert_allclose(on_host(da), 0.5 / np.sqrt(given), rtol=1e-2)


def _climbed(x: float, n: int) -> float:
    v = 0.0
    while v < 10:
        s = by_x(x, W, n)
        v, n = v + s, min(200, int(20 / s / (1 + n)))
    return v


def _summed(x: Any, lanes: int, most: float) -> Any:
    """Of each group of so many threads, as often as it takes."""
    slopes = by_x(x, W, np.where(np.arange(len(x)) % 32 == 5, 150, 3)).reshape(-1, lanes).sum(1)
    return (np.ceil(most / slopes) * slopes).repeat(lanes)


ENDS: dict[str, Callable[[Any], Any]] = {
    "climb": lambda x: np.array([_climbed(v, 150) for v in x]),
    "climb_at_once": lambda x: np.array([_climbed(v, 150) for v in x]),
    "look_up": lambda x: x + (1 / by_x(x, W, 150)).astype(int),
    "together": lambda x: _summed(x, 64, 400),
    "lanes": lambda x: _summed(x, 32, 200),
}


def ends_by_what_reverses_give(xp: Any, name: str) -> None:
    """Threads whose tapes find no room leave at once, and those that meet them too."""
    given = np.linspace(0.2, 0.5, 256)
    y = xp.zeros(256)
    kg.compile(LEAVING)[name][4, 64](xp.array(given), y, 150)
    np.testing.assert_allclose(on_host(y), ENDS[name](given), rtol=1e-9)


def with_a_lock(xp: Any) -> None:
    given = np.linspace(0.2, 0.5, 64)
    y, lock, total = xp.zeros(64), xp.zeros(1, np.int32), xp.zeros(1)
    kg.compile(LEAVING)["locked"][2, 32](xp.array(given), y, 150, lock, total)
    np.testing.assert_allclose(on_host(y), by_x(given, W, 150), rtol=1e-9)
    np.testing.assert_allclose(on_host(total), by_x(given, W, 150).sum(), rtol=1e-9)
    assert int(on_host(lock)[0]) == 0


def written_around(xp: Any) -> None:
    """What a launch that is undone wrote before and behind the parts of arrays that it was given."""
    module, count = kg.compile(AROUND), 16
    x, dx = xp.full(count + 2, 0.25), xp.zeros(count)
    module["middle"][2, 8](x[1:-1], xp.zeros(count, np.uint64), dx, 400)
    np.testing.assert_array_equal(on_host(x), [1.25] + [0.25] * count + [1.25])
    np.testing.assert_allclose(on_host(dx), by_x(np.full(count, 0.25), W, 400), rtol=1e-10)


CASES: dict[str, Callable[[Any], None]] = {
    f.__name__.replace("_", " "): f
    for f in (
        grows_with_every_launch,
        used_in_the_same_kernel,
        handed_on_and_used_later,
        grows_within_a_launch,
        while_loops,
        written_around,
        with_a_lock,
    )
}
