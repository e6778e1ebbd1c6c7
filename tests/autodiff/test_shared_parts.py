"""Dynamic shared memory that kernels lay out themselves: which launches get an array for each part, and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of, tangent_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch


class Case(NamedTuple):
    """`k(T *y, const T *x, const T *z, const int *f, int n, int d)`; `parts`: where they begin, and how many bytes they
    have; none where the memory stays one."""

    body: str
    parts: list[tuple[int, int]]
    nbytes: int = 256
    shared: str = "extern __shared__ double s[];"
    d: int = 2
    block: Any = 8

    @property
    def source(self) -> str:
        params = "double *y, const double *x, const double *z, const int *f, int n, int d"
        head = "struct P { double u; float v; int w; };"
        return f"{head}\n__global__ void k({params}) {{\n    {self.shared}\n{OWN}\n    {self.body}\n}}"


OWN = "    int t = threadIdx.x, B = blockDim.x, i = blockIdx.x * B + t; double a = 0, p = 1;"
SYNC, END = "__syncthreads();", "y[i] = a * p;"
TURNS = "for (int j = 0; j < n; j += B)"
SUM = "for (int q = 0; q < B; ++q) { p = 0.5 * p + 0.3 * sin(u[q] * v[q]); a += v[q] * p; }"
TWO = f"{TURNS} {{ v[t] = x[j + t]; {SYNC} {SUM} {SYNC} }} {END}"

CASES = {
    "before the loop and in it": Case(f"double *u = s, *v = s + B; u[t] = z[i]; {TWO}", [(0, 64), (64, 64)]),
    "addresses": Case(f"double *u = &s[0], *v = &s[B]; u[t] = z[i]; {TWO}", [(0, 64), (64, 64)]),
    "the other way round": Case(f"double *v = s, *u = v + B; u[t] = z[i]; {TWO}", [(0, 64), (64, 64)]),
    "with room between": Case(f"double *u = s + 2, *v = s + B + 4; u[t] = z[i]; {TWO}", [(16, 64), (96, 64)]),
    "indices": Case(
        f"s[t] = z[i]; {TURNS} {{ s[B + t] = x[j + t]; {SYNC} for (int q = 0; q < B; ++q) {{"
        f" p = 0.5 * p + 0.3 * sin(s[q] * s[B + q]); a += s[B + q] * p; }} {SYNC} }} {END}",
        [(0, 64), (64, 64)],
    ),
    "sizes": Case(
        "double *u = s, *v = u + B * d; for (int c = 0; c < d; ++c) u[t * d + c] = z[i + c];"
        f" {TURNS} {{ for (int c = 0; c < d; ++c) v[t * d + c] = x[j + t + c]; {SYNC}"
        " for (int q = 0; q < min(B, n - j); ++q) {"
        " double g = 0; for (int c = 0; c < d; ++c) g += u[t * d + c] * v[q * d + c];"
        f" p = 0.5 * p + 0.3 * sin(g); a += g * p; }} {SYNC} }} {END}",
        [(0, 128), (128, 128)],
    ),
    "three, one of integers": Case(
        "double *u = (double *)raw, *v = u + B; int *at = (int *)(v + B); u[t] = z[i];"
        f" {TURNS} {{ v[t] = x[j + t]; at[t] = f[j + t]; {SYNC} for (int q = 0; q < B; ++q)"
        f" {{ p = 0.5 * p + 0.3 * sin(u[q] * v[q]); a += v[q] * p * at[q]; }} {SYNC} }} {END}",
        [(0, 64), (64, 64), (128, 32)],
        shared="extern __shared__ char raw[];",
    ),
    "records": Case(
        f"P *u = (P *)raw; double *v = (double *)(u + B); u[t].u = z[i]; u[t].w = t;"
        f" {TURNS} {{ v[t] = x[j + t]; {SYNC} for (int q = 0; q < B; ++q)"
        f" {{ p = 0.5 * p + 0.3 * sin(u[q].u * v[q]); a += v[q] * p * (1 + u[q].w % 2); }} {SYNC} }} {END}",
        [(0, 120), (128, 64)],
        shared="extern __shared__ __align__(16) char raw[];",
    ),
    "guards": Case(
        "double *u = s, *v = s + 3 * d; if (t < 3 * d) u[t] = z[i];"
        f" {TURNS} {{ if (!j || f[j + t]) v[t] = x[j + t]; {SYNC}"
        f" for (int q = 0; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(u[q % 6] * v[q]); a += v[q] * p; }} {SYNC} }} {END}",
        [(0, 48), (48, 64)],
    ),
    "a tree": Case(
        f"double *u = s, *v = s + B; u[t] = z[i]; v[t] = x[i] * z[i]; {SYNC} for (int h = 4; h > 0; h /= 2)"
        f" {{ if (t < h) v[t] += v[t + h]; {SYNC} }} y[i] = u[B - 1 - t] * v[0];",
        [(0, 64), (64, 64)],
    ),
    "two rows of threads": Case(
        "int r = threadIdx.y; double *u = s, *v = s + 16; u[r * 4 + t] = z[r * 4 + t];"
        f" for (int j = 0; j < n; j += 4) {{ v[r * 4 + t] = x[j * 2 + r * 4 + t]; {SYNC} for (int q = 0; q < 4; ++q)"
        f" {{ p = 0.5 * p + 0.3 * sin(u[r * 4 + q] * v[q * 2 + r % 2]); a += p; }} {SYNC} }}"
        " y[blockIdx.x * 8 + r * 4 + t] = a;",
        [(0, 64), (128, 64)],
        block=(4, 2),
    ),
    # One array is all there is, or something reaches across.
    "one": Case(
        f"{TURNS} {{ s[t] = x[j + t]; {SYNC} for (int q = 0; q < B; ++q) a += s[q] * s[q]; {SYNC} }} {END}", []
    ),
    "overlapping": Case(
        f"double *u = s, *v = s + B - 2; {TURNS} {{ u[t] = z[i]; {SYNC} if (t > 0) v[t] = x[j + t]; {SYNC}"
        f" for (int q = 1; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(u[q] * v[q]); a += v[q] * p; }} {SYNC} }} {END}",
        [],
    ),
    "by data": Case(f"double *u = s, *v = s + B; u[t] = z[i]; {TWO}".replace("u[q]", "u[f[q]]"), []),
    "beyond what there is": Case(f"double *u = s, *v = s + B; u[t] = z[i]; {TWO}", [], 120),
    "pointers that are chosen": Case(
        f"double *u = s, *v = s + B; u[t] = z[i]; {TURNS} {{ v[t] = x[j + t]; {SYNC} const double *w = j % 16 ? u : v;"
        f" for (int q = 0; q < B; ++q) {{ p = 0.5 * p + 0.3 * sin(w[q]); a += v[q] * p; }} {SYNC} }} {END}",
        [],
    ),
}  # fmt: skip


def arguments(case: Case) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(0.5, 1.5, 160) for _ in range(3)]
    return (*arrays, rng.integers(0, 3, 160).astype(np.int32), 24, case.d)


def shared_arrays(case: Case, **options: Any) -> tuple[dict[str, int], Any]:
    """Those of the launch's form, and its plan."""
    gradient = kg.gradient(kernel_of(case.source), "y, x, z", **options)
    plan = gradient.planned(make_launch(3, case.block, case.nbytes), arguments(case), {}, on_gpu=True).plan
    found = plan.variant.kernel.module.globals
    return {name: found[name].type.size for name in found if found[name].space == "shared"}, plan


@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_parts(name: str, options: dict[str, Any]) -> None:
    case = CASES[name]
    if name == "beyond what there is":
        return  # not for a launch: it would be an error
    arrays, plan = shared_arrays(case, **options)
    sizes = [size for array, size in arrays.items() if "_" in array]
    assert sizes == [size + -size % 16 * (name == "records") for _, size in case.parts]
    assert plan.launch.shared_bytes == (0 if case.parts else case.nbytes)


@pytest.mark.parametrize("plan", ["as launched", "as on a GPU", "in two"])
@pytest.mark.parametrize("options", [{}, {"primal": False}], ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if name != "beyond what there is"])
def test_values(name: str, options: dict[str, Any], plan: str) -> None:
    """Against forward mode, by products with random tangents."""
    case, rng = CASES[name], np.random.default_rng(4)
    kernel, launch = kernel_of(case.source), (3, case.block, case.nbytes)
    (y, x, z, *numbers), seed = arguments(case), rng.uniform(-1, 1, 160)
    adjoints = [seed.copy(), np.zeros(160), np.zeros(160)]
    with forced(plan):
        kg.gradient(kernel, "y, x, z", **options)[launch](y.copy(), x, z, *numbers, *adjoints)
    tangents = [rng.uniform(-1, 1, 160) for _ in range(3)]
    moved = [v.copy() for v in tangents]
    tangent_of(kernel, "y, x, z")[launch](y.copy(), x, z, *numbers, *moved)
    np.testing.assert_allclose(sum(map(np.dot, adjoints, tangents)), seed @ moved[0], rtol=1e-10)


def test_layouts_of_one_gradient() -> None:
    """Sizes decide, launch by launch."""
    case = CASES["sizes"]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z")
    y, x, z, f, n, _ = arguments(case)
    for d, nbytes in ((2, 256), (1, 128), (2, 512), (3, 384), (2, 256)):
        rng, found = np.random.default_rng(d), [np.ones(160), np.zeros(160), np.zeros(160)]
        gradient[3, 8, nbytes](y.copy(), x, z, f, n, d, *found)
        tangents = [np.zeros(160), *(rng.uniform(-1, 1, 160) for _ in range(2))]
        moved = [v.copy() for v in tangents]
        tangent_of(kernel_of(case.source), "y, x, z")[3, 8, nbytes](y.copy(), x, z, f, n, d, *moved)
        np.testing.assert_allclose(sum(map(np.dot, found[1:], tangents[1:])), moved[0].sum(), rtol=1e-10)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.parts])
def test_nvrtc(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelgrad.runtime.cuda import compile_only

    case = CASES[name]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z")
    text = gradient.source_for(3, case.block, *arguments(case), shared=case.nbytes, on_gpu=True)
    assert "extern __shared__" not in text
    assert compile_only(text, "sm_80")


PRODUCT = """__global__ void k(float *C, const float *A, const float *B, int n, int T) {
    extern __shared__ float shared[];
    float *a = shared, *b = shared + SIDE * SIDE, s = 0;
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * SIDE + y, column = blockIdx.x * SIDE + x;
    for (int k = 0; k < n; k += SIDE) {
        a[y * SIDE + x] = A[row * n + k + x];
        b[y * SIDE + x] = B[(k + y) * n + column];
        __syncthreads();
        for (int q = 0; q < SIDE; ++q) s += a[y * SIDE + q] * b[q * SIDE + x];
        __syncthreads();
    }
    C[row * n + column] = s;
}"""


def test_tiles_whose_size_is_an_argument_get_the_plan_of_others() -> None:
    texts = []
    for side in ("32", "T"):
        gradient = kg.gradient(kernel_of(PRODUCT.replace("SIDE", side)), "C, A, B", primal=False, keep="C")
        arguments = (*(np.empty(1 << 20, np.float32) for _ in range(3)), 1024, 32)
        texts.append(gradient.source_for((32, 32), (32, 32), *arguments, shared=8192, on_gpu=True))
    assert texts[0].count("atomicAdd(") == texts[1].count("atomicAdd(")
    assert texts[0].count("__syncthreads") == texts[1].count("__syncthreads")
