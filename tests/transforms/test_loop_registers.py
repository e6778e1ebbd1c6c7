"""Elements that a loop goes on storing are carried in registers: where they can be, with the same results to the last
bit, the same gradients, and no access that the kernel would not make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from every_plan import under_every_plan
from kernelgrad.analysis.aliases import Aliases
from kernelgrad.ir.effects import MEETINGS
from kernelgrad.ir.ops import For, Function, Store, While
from kernelgrad.ir.traverse import blocks, walk
from kernelgrad.ir.verifier import verify_function
from kernelgrad.kernel import Kernel
from kernelgrad.transforms import loop_registers
from loop_register_cases import LOOP, NOT_TAKEN, TAKEN, arguments_of, kernel_of

GRID, BLOCK = 2, 4
FORMS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False},
    "deterministic": {"deterministic": True},
    "checkpointed": {"tape_budget": 4096},
}


def carried(kernel: Any) -> Function:
    function = loop_registers.run(kernel.function, kernel.module)
    verify_function(function, kernel.module, "loop_registers")
    return function


def kernel_with(kernel: Any, function: Function) -> Kernel:
    module = replace(kernel.module, functions={kernel.name: function})
    return Kernel(kernel.name, module, kernel.variable)


def stays_in_memory(function: Function) -> bool:
    """Whether a loop in which nobody waits stores an element that it does not change."""
    aliases = Aliases(function)
    for loop in (op for op in walk(function.body) if isinstance(op, For | While)):
        inside = [op for b in blocks(loop) for op in walk(b)]
        if any(isinstance(op, MEETINGS) for op in inside):
            continue
        made = {v for op in inside for v in op.results}
        stores = (op for op in inside if isinstance(op, Store) and aliases.root(op.ptr) not in aliases.local)
        if any(op.ptr not in made for op in stores):
            return True
    return False


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("m", [0, 1, 3])
def test_results(name: str, m: int) -> None:
    """To the last bit, also without an iteration; watched, so that no access is made up."""
    kernel = kernel_of(TAKEN[name])
    changed = kernel_with(kernel, carried(kernel))
    assert changed.function is not kernel.function and not stays_in_memory(changed.function)
    expected, found = arguments_of(m), arguments_of(m)
    kernel[GRID, BLOCK](*expected)
    changed[GRID, BLOCK](*found)
    for one, other in zip(expected[:5], found[:5], strict=True):
        assert one.tobytes() == other.tobytes()
    assert changed.check(GRID, BLOCK, *arguments_of(m)).ok


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_others_stay_as_they_are(name: str) -> None:
    kernel = kernel_of(NOT_TAKEN[name])
    assert carried(kernel) is kernel.function


@pytest.mark.parametrize("name", [*TAKEN, *NOT_TAKEN])
def test_gradients(name: str) -> None:
    """Against forward mode, which keeps memory memory, and differences."""
    if name in ("bits", "volatile"):
        pytest.skip("refused")
    kg.check_gradient(kernel_of({**TAKEN, **NOT_TAKEN}[name]), "y, x, z, w", GRID, BLOCK, arguments_of())


def gradients(kernel: Any, arguments: list[Any], **options: Any) -> list[np.ndarray[Any, Any]]:
    """Adjoints and what the launch leaves in memory."""
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    g = np.random.default_rng(1).standard_normal((2, 24))
    d_y, d_x, d_z, d_w = g[0].copy(), np.zeros(24), g[1].copy(), np.zeros(3)
    gradient = kg.gradient(kernel, "y, x, z, w", **options)
    gradient[GRID, BLOCK](*arguments, d_y, d_x, d_z, d_w)
    return [d_x, d_w, d_y, d_z, *arguments[:5]]


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgrad.transforms.loop_registers.run", lambda function, module: function)


def same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TAKEN)
def test_forms(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the gradient that leaves elements in memory."""
    kernel = kernel_of(TAKEN[name])
    found = gradients(kernel, arguments_of(), **FORMS[form])
    plain(monkeypatch)
    expected = gradients(kernel, arguments_of())
    count = 4 if form == "reverse" else 9
    same(found[:count], expected[:count])


PURE = (
    *("cleared", "a product", "in loops", "in two loops", "while", "sometimes", "in one of two ways", "several"),
    *("neighbours", "the last", "stored and read", "beside an atomic", "read later", "left"),
)


@pytest.mark.parametrize("name", PURE)
def test_outputs_are_pure(name: str) -> None:
    """Then a reverse alone keeps their adjoint, and neither reads nor writes them."""
    kernel, arguments = kernel_of(TAKEN[name]), arguments_of()
    expected = gradients(kernel, arguments)
    arguments[0][:] = np.nan
    found = gradients(kernel, arguments, primal=False, keep="y", assign="x")
    same(found[:2], expected[:2])
    assert np.isnan(found[4]).all()
    np.testing.assert_array_equal(found[2], np.random.default_rng(1).standard_normal((2, 24))[0])


@pytest.mark.parametrize("name", ["scaled", "added to", "a barrier", "other elements"])
def test_what_is_read_is_not_kept(name: str) -> None:
    with pytest.raises(kg.ArgumentError, match="not a pure output"):
        kg.gradient(kernel_of({**TAKEN, **NOT_TAKEN}[name]), "y, x, z, w", keep="y")


@pytest.mark.parametrize(
    "name", ["cleared", "a recurrence", "in loops", "added to", "stored and read", "between barriers"]
)
def test_every_plan(name: str) -> None:
    kernel = kernel_of(TAKEN[name])
    expected = gradients(kernel, arguments_of())
    for found in under_every_plan(lambda: gradients(kernel, arguments_of())).values():
        same(found, expected)
    if name != "a recurrence":
        for found in under_every_plan(lambda: gradients(kernel, arguments_of(), primal=False)).values():
            same(found[:4], expected[:4])


@pytest.mark.parametrize("name", ["cleared", "a recurrence", "added to", "several", "shared"])
def test_split(name: str) -> None:
    kernel, arguments = kernel_of(TAKEN[name]), arguments_of()
    expected = gradients(kernel, arguments)
    g = np.random.default_rng(1).standard_normal((2, 24))
    d_y, d_x, d_z, d_w = g[0].copy(), np.zeros(24), g[1].copy(), np.zeros(3)
    forward, reverse = kg.split(kernel, "y, x, z, w")
    tape = forward[GRID, BLOCK](*arguments)
    same(arguments[:3:2], expected[4:7:2])
    for buffer in arguments[:4]:
        buffer[:] = np.nan
    reverse[GRID, BLOCK](tape, *arguments, d_y, d_x, d_z, d_w)
    same([d_x, d_w, d_y, d_z], expected[:4])


@pytest.mark.parametrize("name", ["cleared", "a recurrence", "sometimes"])
def test_second_order(name: str) -> None:
    gradient = kg.gradient(kernel_of(TAKEN[name]), "y, x, z, w")
    d = [np.random.default_rng(3).standard_normal(size) for size in (24, 24, 24, 3)]
    kg.check_gradient(gradient, "x, w, d_y, d_x, d_w", GRID, BLOCK, [*arguments_of(), *d])


def test_arguments_that_may_overlap() -> None:
    """Then a store may change what the loop reads."""
    kernel = kernel_of(f"if (i == 0) {{ y[1] = 0; {LOOP} y[1] += x[k] * x[k]; }}")
    assert carried(kernel) is not kernel.function
    for together in (False, True):
        y, x, z, w, c, n, m = arguments_of()
        expected = (y := y if not together else x).copy()
        kernel[1, 1](expected, expected if together else x, z, w, c, n, m)
        d_y = np.ones(24)
        d_x = d_y if together else np.zeros(24)
        kg.gradient(kernel, "y, x", may_alias=True)[1, 1](y, x, z, w, c, n, m, d_y, d_x)
        np.testing.assert_array_equal(y, expected)
    with pytest.raises(kg.ArgumentError, match="share memory"):
        kg.gradient(kernel, "y, x")[1, 1](x, x, z, w, c, n, m, d_y, d_y)


NUMBERS = {
    "float": ("float y", "y[i] = 0.1f; {} y[i] += x[k] * 0.3f;"),
    "half": ("__half y", "y[i] = __float2half(0.1f); {} y[i] = __hadd(y[i], __float2half(x[k] * 0.3f));"),
    "int": ("int y", "y[i] = i; {} y[i] += (int)(x[k] * 10) * y[i];"),
    "unsigned char": ("unsigned char y", "y[i] = i; {} y[i] += (int)(x[k] * 1000);"),
    "float4": ("float4 y", "y[i].x = y[i].y = 0; {} {{ y[i].x += x[k]; y[i].y -= y[i].x * x[k + 1]; }}"),
    "whole float4": ("float4 y", "{} {{ float4 v = y[i]; v.x += x[k]; v.w *= v.x; y[i] = v; }}"),
    "a float for a double": ("float y", "y[i] = 1; {} y[i] = y[i] * 1.0000001 + x[k] * 1e-9;"),
    "zeros and infinities": ("float y", "y[i] = -0.0f; {} y[i] = k % 2 ? y[i] / x[k] : y[i] * -x[7];"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    """A register holds what memory would."""
    type, body = NUMBERS[name]
    body = body.replace("{}", LOOP).replace("{{", "{").replace("}}", "}")
    declared = type.replace(" y", " *y")
    head = "#include <cuda_fp16.h>\n__global__ void k"
    kernel = kg.compile(f"{head}({declared}, const float *x, int m) {{ int i = threadIdx.x; {body} }}")["k"]
    changed = kernel_with(kernel, carried(kernel))
    assert changed.function is not kernel.function and not stays_in_memory(changed.function)
    found = []
    for each in (kernel, changed):
        y, x = np.zeros(4 * 16, "u1"), np.random.default_rng(2).random(9).astype("f")
        x[3] = 0
        y.view("f")[:] = np.arange(16)
        element = {"half": "f2", "int": "i4", "unsigned char": "u1"}.get(name, "f4")
        each[1, 4](y.view(element), x, 8)
        found.append(y.tobytes())
    assert found[0] == found[1]


def test_fields_of_one_struct() -> None:
    text = f"struct P {{ double a, b; }}; __global__ void k(P *y, const double *x, int m) {{ {LOOP} {{"
    kernel = kg.compile(f"{text} y[threadIdx.x].a += x[k]; y[threadIdx.x].b *= y[threadIdx.x].a; }} }}")["k"]
    assert not stays_in_memory(carried(kernel))


def test_pointers_from_elsewhere() -> None:
    """In structs, in memory, or carried through the loop."""
    texts = {
        f"struct S {{ double *y, *x; }}; void k(S s, int m) {{ s.y[0] = 0; {LOOP} s.y[0] += s.x[k]; }}": False,
        f"void k(double **rows, int m) {{ rows[0][0] = 0; {LOOP} rows[0][0] += rows[1][k]; }}": False,
        f"void k(double **rows, double *y, int m) {{ y[0] = 0; {LOOP} y[0] += rows[1][k]; }}": False,
        f"void k(double *y, const double *x, int m) {{ {LOOP} *y++ += x[k]; }}": False,
        f"__device__ double c; void k(const double *x, int m) {{ {LOOP} c += x[k]; }}": True,
    }
    for text, taken in texts.items():
        kernel = kg.compile(text.replace("void k", "__global__ void k"))["k"]
        assert (carried(kernel) is not kernel.function) is taken, text


def test_checks_see_the_kernel() -> None:
    """Races and accesses out of bounds are found where they were."""
    kernel = kg.compile(f"""__global__ void k(double *y, const double *x, int m) {{
        int i = threadIdx.x / 2;
        {LOOP}
            y[i] += x[k];
    }}""")["k"]
    y, x = np.zeros(2), np.ones(3)
    for size, word in ((2, "race"), (1, "out-of-bounds")):
        reports = [kernel.check(1, 4, y[:size], x, 3)]
        reports.append(kg.gradient(kernel, "y, x").check(1, 4, y[:size], x, 3, np.ones(size), np.ones(3)))
        for report in reports:
            assert not report.ok and word in str(report) and ":4:" in str(report)
