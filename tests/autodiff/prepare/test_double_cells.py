"""Cells of adjoints to which very many equal floats are added: in loops, by threads, in memory of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways

N = 1 << 20
PAIR = np.dtype([("a", "f4"), ("k", "i4"), ("b", "f4")])
LAUNCH = 1, 1, 16
FACTOR = float(np.float32(1.1))

HEAD = """#include <cuda_fp16.h>
struct Pair { float a; int k; float b; };
__device__ float at(const float *w, int j) { return w[j & 3] * 1.1f; }
__global__ void k(float *y, const float *w, const Pair *p, const float2 *v, const half *h, float *z, const int *idx,
                  int n) {
    float s = 0; """

# The loop, what is read of in it, and how often each of its cells is.
LOOPS: dict[str, tuple[str, str, int]] = {
    "modulo": ("for (int j = 0; j < n; j++) s += w[j % 4] * 1.1f;", "w", N // 4),
    "inner": ("for (int j = 0; j < n; j++) for (int q = 0; q < 4; q++) s += w[q] * 1.1f;", "w", N),
    "outer": ("for (int q = 0; q < 4; q++) for (int j = 0; j < n; j++) s += w[(q + j) & 3] * 1.1f;", "w", N),
    "rows": ("for (int j = 0; j < n; j++) for (int q = 0; q < 2; q++) s += w[2 * (j & 1) + q] * 1.1f;", "w", N // 2),
    "while": ("int j = 0; while (j < n) { s += w[j & 3] * 1.1f; j += 1; }", "w", N // 4),
    "loaded": ("for (int j = idx[0]; j < idx[1]; j++) s += w[j & 3] * 1.1f;", "w", N // 4),
    "index": ("for (int j = 0; j < n; j++) s += w[idx[2 + (j & 3)]] * 1.1f;", "w", N // 4),
    "helper": ("for (int j = 0; j < n; j++) s += at(w, j);", "w", N // 4),
    "pointer": ("for (int j = 0; j < n; j++) { const float *q = w + 1; s += q[(j & 3) - 1] * 1.1f; }", "w", N // 4),
    "choice": ("for (int j = 0; j < n; j++) { const float *q = j & 1 ? w : w + 2; s += q[(j >> 1) & 1] * 1.1f; }",
               "w", N // 4),
    "fields": ("for (int j = 0; j < n; j++) s += p[j & 1].a * 1.1f + p[(j >> 1) & 1].b * 1.1f;", "p", N // 2),
    "vectors": ("for (int j = 0; j < n; j++) { float2 q = v[j & 1]; s += q.x * 1.1f + q.y * 1.1f; }", "v", N // 2),
    "view": ("for (int j = 0; j < n; j++) { float2 q = ((const float2 *)w)[j & 1]; s += q.x * 1.1f + q.y * 1.1f; }",
             "w", N // 2),
    "halves": ("for (int j = 0; j < n; j++) s += __half2float(h[j & 3]) * 1.1f;", "h", N // 4),
    "local": ("float q[4]; for (int j = 0; j < 4; j++) q[j] = w[j]; for (int j = 0; j < n; j++)"
              " s += q[(j * 7) & 3] * 1.1f;", "w", N // 4),
    "unlisted": ("for (int j = 0; j < 4; j++) z[j] = w[j]; for (int j = 0; j < n; j++) s += z[j & 3] * 1.1f;",
                 "w", N // 4),
    "shared": ("__shared__ float q[4]; for (int j = 0; j < 4; j++) q[j] = w[j]; __syncthreads();"
               " for (int j = 0; j < n; j++) s += q[j & 3] * 1.1f;", "w", N // 4),
    "dynamic": ("extern __shared__ float q[]; for (int j = 0; j < 4; j++) q[j] = w[j]; __syncthreads();"
                " for (int j = 0; j < n; j++) s += q[j & 3] * 1.1f;", "w", N // 4),
    "barriers": ("for (int j = 0; j < n / 2; j++) { s += w[j & 3] * 1.1f; __syncthreads(); }", "w", N // 8),
    "register": ("float q = w[0] + w[1] + w[2] + w[3]; for (int j = 0; j < n; j++)"
                 " { s += q * 1.1f; __syncthreads(); }", "w", N),
}  # fmt: skip


def _arguments(n: int) -> list[Any]:
    y, w, z = np.zeros(1, "f4"), np.ones(4, "f4"), np.zeros(4, "f4")
    idx = np.array([0, n, 3, 1, 0, 2], "i4")
    return [y, w, np.ones(2, PAIR), np.ones((2, 2), "f4"), np.ones(4, "f2"), z, idx, n]


def _adjoint(name: str) -> Any:
    return np.zeros(2, PAIR) if name == "p" else np.zeros((2, 2) if name == "v" else 4, "f4")


def _cells(adjoint: Any) -> Any:
    return np.array([adjoint["a"], adjoint["b"]]) if adjoint.dtype == PAIR else adjoint


# With a fixed order, what is written and read again is refused.
CASES = [(name, fixed) for name in LOOPS for fixed in (False, True) if (name, fixed) != ("unlisted", True)]


@pytest.mark.parametrize(("name", "deterministic"), CASES)
def test_one_thread(name: str, deterministic: bool) -> None:
    loop, read, times = LOOPS[name]
    n = N >> 3 if deterministic else N  # logs hold each addition
    kernel = kernel_of(HEAD + loop + " y[threadIdx.x] = s; }")
    gradient = kg.gradient(kernel, f"y, {read}", deterministic=deterministic)
    adjoint = _adjoint(read)
    gradient[LAUNCH](*_arguments(n), np.ones(1, "f4"), adjoint)
    np.testing.assert_allclose(_cells(adjoint), FACTOR * times * (n / N), rtol=1e-5)


@pytest.mark.parametrize("name", ["modulo", "vectors", "halves", "shared", "local"])
@pytest.mark.parametrize("form", ["reverse", "budget", "assign", "split", "keep"])
def test_forms(name: str, form: str) -> None:
    loop, read, times = LOOPS[name]
    kernel = kernel_of(HEAD + loop + " y[threadIdx.x] = s; }")
    adjoint, seed, n = _adjoint(read), np.ones(1, "f4"), N >> 1
    adjoint[:] = 3
    before = 0.0 if form == "assign" else 3.0
    if form == "split":
        forward, reverse = kg.split(kernel, f"y, {read}")
        reverse[LAUNCH](forward[LAUNCH](*_arguments(n)), *_arguments(n), seed, adjoint)
    else:
        forms: dict[str, dict[str, Any]] = {
            "reverse": {"primal": False},
            "budget": {"tape_budget": 1 << 28},
            "assign": {"assign": read},
            "keep": {"keep": "y"},
        }
        kg.gradient(kernel, f"y, {read}", **forms[form])[LAUNCH](*_arguments(n), seed, adjoint)
    np.testing.assert_allclose(_cells(adjoint), before + FACTOR * times / 2, rtol=1e-5)


@pytest.mark.parametrize("cells", [3, 4000])
@pytest.mark.parametrize("deterministic", [False, True])
def test_one_cell_of_many(cells: int, deterministic: bool) -> None:
    """At an address that memory holds, for all that is known before the launch."""
    source = """__global__ void k(float *y, const float *x, const int *idx, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[idx[i]] * 1.1f; }"""
    gradient = kg.gradient(kernel_of(source), "y, x", deterministic=deterministic)
    d_x, idx = np.full(cells, -0.0, "f4"), np.full(N, 1, "i4")
    gradient[N // 256, 256](np.zeros(N, "f4"), np.ones(cells, "f4"), idx, N - 3, np.ones(N, "f4"), d_x)
    np.testing.assert_allclose(d_x[1], FACTOR * (N - 3), rtol=1e-5)
    others = np.delete(d_x, 1)
    assert (others == 0).all() and np.signbit(others).all()  # nothing was added to them


def test_a_buffer_that_is_written_and_read() -> None:
    """What its adjoint held before goes on, and what the launch reads of it is what was added."""
    source = """__global__ void k(float *z, const float *w, float *y, int n) {
        float s = 0; for (int q = 0; q < 4; q++) z[q] *= w[q];
        for (int j = 0; j < n; j++) s += z[j & 3] * 1.1f; y[0] = s; }"""
    gradient = kg.gradient(kernel_of(source), "z, w, y")
    z, w, d_z, d_w = np.full(4, 2, "f4"), np.full(4, 3, "f4"), np.full(4, 5, "f4"), np.zeros(4, "f4")
    gradient[1, 1](z, w, np.zeros(1, "f4"), N, d_z, d_w, np.ones(1, "f4"))
    np.testing.assert_allclose(d_z, 3 * (5 + FACTOR * N / 4), rtol=1e-5)
    np.testing.assert_allclose(d_w, 2 * (5 + FACTOR * N / 4), rtol=1e-5)


def test_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where blocks add to copies of a small adjoint."""
    monkeypatch.setattr("kernelgrad.derivatives.gradient.Gradient.ways", lambda *_: Ways())
    monkeypatch.setattr("kernelgrad.launches.choice.choose.on_cores", lambda facts: facts)
    source = """__global__ void k(float *y, const float *w) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = w[i % 3] * 1.1f; }"""
    kernel, n = kernel_of(source), 3 << 21
    launch, y, w, d_w = (n // 256, 256), np.zeros(n, "f4"), np.ones(3, "f4"), np.ones(3, "f4")
    gradient = kg.gradient(kernel)
    gradient[launch](y, w, np.ones(n, "f4"), d_w)
    (facts,) = (f for _, f in gradient.forms.made if f.copied)
    assert facts.copied == facts.wide == {"w"}
    np.testing.assert_allclose(d_w, 1 + FACTOR * n / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "launch"),
    [
        ("y[i] = w[i] * 1.1f;", (4096, 256)),  # an element for each thread
        ("float s = 0; for (int j = 0; j < 64; j++) s += w[64 * i + j]; y[i] = s;", (64, 256)),
        ("float s = 0; for (int j = 0; j < n; j++) s += w[j]; y[i] = s;", (8, 256)),  # 2048 times each
        ("__shared__ float t[256]; t[threadIdx.x] = w[i]; __syncthreads(); for (int d = 128; d > 0; d >>= 1)"
         " { if (threadIdx.x < d) t[threadIdx.x] += t[threadIdx.x + d]; __syncthreads(); } y[i] = t[0];", (4096, 256)),
        ("__shared__ float t[256]; float s = 0; for (int q = 0; q < 512; q++) { t[threadIdx.x] = w[256 * q +"
         " threadIdx.x]; __syncthreads(); for (int j = 0; j < 256; j++) s += t[j]; __syncthreads(); } y[i] = s;",
         (8, 256)),
    ],
)  # fmt: skip
def test_few_contributions_stay_floats(body: str, launch: tuple[int, int]) -> None:
    source = f"__global__ void k(float *y, const float *w, int n) {{ int i = blockIdx.x * 256 + threadIdx.x; {body} }}"
    kernel, n = kernel_of(source), 1 << 20
    gradient = kg.gradient(kernel)
    primal, _ = kernel.bind((np.zeros(n, "f4"), np.zeros(n, "f4"), n))
    for ways in (Ways(), Ways(on_gpu=True), Ways(on_cpu=True)):
        facts = gradient.variant_for(("y", "w"), make_launch(*launch), primal, ways).options.facts
        assert not facts.wide


@pytest.mark.parametrize("fields", [(("c", "i1"), ("f", "f4")), (("f", "f4"), ("h", "i2")), (("h", "i2"), ("f", "f4"))])
def test_packed_records(fields: tuple[tuple[str, str], ...]) -> None:
    """Whose floats are not a whole number of floats apart."""
    declared = {"i1": "char", "i2": "short", "f4": "float"}
    members = " ".join(f"{declared[type]} {name};" for name, type in fields)
    source = f"""struct __attribute__((packed)) P {{ {members} }};
        __global__ void k(float *y, const P *p, int n) {{
            float s = 0; for (int j = 0; j < n; j++) s += p[j & 7].f * 1.1f; y[0] = s; }}"""
    adjoint, n = np.zeros(8, np.dtype(list(fields))), 1 << 17
    gradient = kg.gradient(kernel_of(source), "y, p")
    gradient[1, 1](np.zeros(1, "f4"), np.ones(8, adjoint.dtype), n, np.ones(1, "f4"), adjoint)
    np.testing.assert_allclose(adjoint["f"], FACTOR * n / 8, rtol=1e-3)
    assert not any(adjoint[name].any() for name, _ in fields if name != "f")


@pytest.mark.parametrize("index", ["idx[j & 7]", "(j & 7) - 4", "j & 7"])
def test_around_a_part_of_an_array(index: str) -> None:
    """A kernel may reach more of an array than the part that it is given: the adjoint of that is reached alike."""
    source = f"""__global__ void k(float *y, const float *x, const int *idx, int n) {{
        float s = 0;
        for (int j = 0; j < n; ++j) s += x[{index}] * 1.5f;
        y[threadIdx.x] = s;
    }}"""
    n, base, d_base = 1 << 15, np.ones(12, np.float32), np.zeros(12, np.float32)
    part = slice(0, 4) if index == "j & 7" else slice(4, 8)
    arguments = np.zeros(1, np.float32), base[part], np.arange(-4, 4, dtype=np.int32), n
    kg.gradient(kernel_of(source), "y, x")[1, 1](*arguments, np.ones(1, np.float32), d_base[part])
    np.testing.assert_array_equal(d_base, np.repeat(np.float32([1.5 * n / 8, 0]), [8, 4]))
