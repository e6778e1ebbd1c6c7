"""Dynamic shared memory that kernels lay out themselves: which launches get an array for each part, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of, tangent_of
from every_plan import forced
from kernelgrad.runtime.config import make_launch
from shared_part_cases import CASES, END, Case, arguments


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


def test_launches_in_which_nobody_gets_to_the_memory() -> None:
    case = CASES["before the loop and in it"]
    body = f"if (n > 3) {{ {case.body.replace(END, '')} }} {END}"
    gradient, (y, x, z, f, *_) = kg.gradient(kernel_of(case._replace(body=body).source), "y, x, z"), arguments(case)
    adjoints = np.ones(160), np.zeros(160), np.zeros(160)
    gradient[3, 8, 256](y, x, z, f, 2, 2, *adjoints)
    assert not adjoints[1].any() and not adjoints[2].any()


def test_parts_are_aligned_as_what_is_read_there() -> None:
    body = """float4 *u = (float4 *)raw; Q *w = (Q *)raw; float *v = (float *)(raw + 160); w[t].b = x[i];
        if (t < 7) v[t] = z[i]; __syncthreads(); a = w[7 - t].b * v[t % 7]; __syncthreads();
        u[t] = make_float4(a, z[i], 1, 2); __syncthreads(); a *= u[7 - t].y + v[t % 7]; y[i] = a;"""
    case = Case(body, [(0, 160), (160, 28)], 192, "extern __shared__ __align__(16) char raw[];")
    source = "struct Q { float a, b, c, d, e; };" + case.source
    text = kg.gradient(kernel_of(source), "y, x, z").source_for(1, 8, *arguments(case), shared=192, on_gpu=True)
    assert "__shared__ float4 raw_0[10];" in text


def test_budgets_are_for_the_tape_that_the_launch_has() -> None:
    case = CASES["guards"]
    given = (3, case.block, case.nbytes), arguments(case)
    gradient = kg.gradient(kernel_of(case.source), "y, x, z")
    nbytes = gradient.tape_bytes(3, case.block, *given[1], shared=case.nbytes)
    budgeted = kg.gradient(kernel_of(case.source), "y, x, z", tape_budget=nbytes)
    budgeted[given[0]](*given[1], np.ones(160), np.zeros(160), np.zeros(160))
    assert nbytes < 24 * 16 * 8
