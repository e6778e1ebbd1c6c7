"""Rows of passes: what a row names is all that its pass concerns, and for other functions it is not entered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

import kernelgrad as kg
from kernelgrad import pipeline
from kernelgrad.backends.cuda.emit import ARRANGING
from kernelgrad.ir.ops import TOGETHER, For, Function, Module, While
from kernelgrad.ir.printer import print_module
from kernelgrad.ir.traverse import kinds
from kernelgrad.transforms import simplify
from kernelgrad.transforms.passes import Pass, applied

HEAD = "__global__ void k(float *y, const float *x, const float *w, float a, int n) {"
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
BODIES = {
    "straight": f"{INDEX} if (i < n) y[i] = a * x[i] + y[i];",
    "no load": f"{INDEX} y[i] = a; y[i + n] = a * i; int j = 3 * i; y[j] = 2.0f;",
    "one atomic": f"{INDEX} atomicAdd(&y[i], a);",
    "no store": f"{INDEX} atomicAdd(&y[0], x[i] * a);",
    "stored twice": f"{INDEX} y[i] = x[i]; y[i] = x[i + 1] * a; float v = y[i]; y[i + 1] = v * v;",
    "loop": f"{INDEX} float s = 0; for (int k = 0; k < n; ++k) s += x[k] * w[k]; if (i < n) y[i] = s;",
    "while": f"{INDEX} float v = x[i]; while (v > 0.5f) v = v * a; y[i] = v;",
    "shared": f"__shared__ float t[64]; {INDEX} t[threadIdx.x] = x[i]; __syncthreads(); y[i] = t[63 - threadIdx.x];",
    "lanes": f"{INDEX} float v = x[i]; for (int d = 1; d < 32; d *= 2) v += __shfl_down_sync(~0u, v, d); y[i] = v;",
    "returns": f"{INDEX} if (i >= n) return; y[i] = x[i]; __syncthreads(); y[i + 1] = x[i] * a;",
    "chosen": f"{INDEX} const float *p = i < n ? x : w; y[i] = fmaxf(x[i], a) * sinf(x[i]) * cosf(x[i]) + p[i];",
    "given": f"{INDEX} y[i] = kernelgrad::stop_gradient(x[i]) * x[i];",
    "array": f"{INDEX} float t[4]; for (int k = 0; k < 4; ++k) t[k] = x[i + k]; y[i] = t[n % 4] * a;",
}
TABLES = (pipeline.KERNEL, pipeline.DERIVATIVE, pipeline.ARRANGED, pipeline.LAST, pipeline.WIDENED, pipeline.CPU)
OTHERS = (
    pipeline.UNROLLED_UPDATES,
    pipeline.UNROLLED_LOADS,
    Pass("sums", "transforms.sums", (For, While), (frozenset(("_d_x", "_d_w")),)),
)
ROWS = {stage.name: stage for table in (*TABLES, pipeline.CUDA, ARRANGING, OTHERS) for stage in table if stage.needs}


@cache
def functions() -> list[tuple[Function, Module]]:
    """Kernels after each stage, and their finished gradients."""
    return list(_functions())


def _functions() -> Iterator[tuple[Function, Module]]:
    for body in BODIES.values():
        kernel = kg.compile(f"{HEAD} {body} }}")["k"]
        modules = [kernel.module]
        for options in ({}, {"primal": False}):
            try:
                modules += [k.module for k in kg.gradient(kernel, **options).variant().kernels]
            except kg.UnsupportedError:
                continue
        yield from ((function, module) for module in modules for function in module.functions.values())


def text(function: Function, module: Module) -> str:
    tidy = simplify.run(function, module)
    return print_module(Module({function.name: tidy}, module.globals, module.structs))


@pytest.mark.parametrize("name", ROWS)
def test_a_pass_leaves_alone_what_it_does_not_concern(name: str) -> None:
    stage, left, concerned = ROWS[name], 0, 0
    for function, module in functions():
        if stage.concerns(function):
            concerned += 1
            continue
        left += 1
        assert text(applied(stage._replace(needs=()), function, module), module) == text(function, module)
    assert left
    assert concerned or name in ("inline", "returns", "cpu-variables", "cuda-variables")  # done, or of other kernels


def test_passes_are_not_entered_for_others() -> None:
    def fails(function: Function, _: Module) -> Function:
        raise AssertionError(function.name)

    straight, module = functions()[0]
    assert While not in kinds(straight.body)
    assert applied(Pass("fails", fails, (While,)), straight, module) is straight
    with pytest.raises(AssertionError):
        applied(Pass("fails", fails, ("mul",)), straight, module)


def test_kinds_of_operations() -> None:
    """Classes with those they are derived from, pure functions by their names, also in nested blocks; and whether lanes
    make additions together, as those to elements that all of them read."""
    held = kinds(functions()[0][0].body)
    assert {"mul", "add", "lt"} <= held
    assert not held & {"sin", For, While, TOGETHER}
    assert any(TOGETHER in kinds(function.body) for function, _ in functions())
