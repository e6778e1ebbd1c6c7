"""Loads of what the thread stored before are computed again: where they can be, and with the same gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.analysis.roots import analyse
from kernelgrad.errors import KernelGradError
from kernelgrad.ir.ops import Module
from kernelgrad.transforms import stored_values

LOOP = "for (int c = threadIdx.x; c < n; c += blockDim.x)"
SUM = """s[threadIdx.x] = sum; __syncthreads(); sum = 0;
    for (int k = 0; k < blockDim.x; ++k) sum += s[k];
    __syncthreads();"""
ROW = "const double *a = x + blockIdx.x * n; double *b = y + blockIdx.x * n;"
TAKEN = {
    "rows": f"""{ROW} double sum = 0; {LOOP} {{ double e = exp(a[c]);
        b[c] = e; sum += e; }} {SUM} {LOOP} b[c] *= 1 / sum;""",
    "flat": f"""double sum = 0; {LOOP} {{ y[blockIdx.x * n + c] = sin(x[blockIdx.x * n + c]); sum += a0; }} {SUM}
        {LOOP} {{ double v = y[blockIdx.x * n + c]; y[blockIdx.x * n + c] = v * v * sum; }}""",
    "rows in turn": f"""for (int row = blockIdx.x; row < 5; row += gridDim.x) {{
        const double *a = x + row * n; double *b = y + row * n, sum = 0;
        {LOOP} {{ double e = exp(a[c]); b[c] = e; sum += e; }} {SUM} {LOOP} b[c] = b[c] / sum + sum;
    }}""",
    "one element each": f"""int i = blockIdx.x * blockDim.x + threadIdx.x; double sum = 0;
        if (threadIdx.x < n) {{ y[i] = x[i] * x[i]; sum = x[i]; }} {SUM} if (threadIdx.x < n) y[i] *= sum;""",
    "three loops": f"""{ROW} double sum = 0; {LOOP} {{ double e = exp(a[c]); b[c] = e; sum += e; }} {SUM}
        double more = 0; {LOOP} more += b[c] * sum; {LOOP} b[c] *= more;""",
}
NOT_TAKEN = {
    "another end": f"""{ROW} {LOOP} b[c] = exp(a[c]); __syncthreads(); for (int c
        = threadIdx.x; c < n - 1; c += blockDim.x) b[c + 1] *= a0;""",
    "another start": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); for (int
        c = threadIdx.x + 1; c < n; c += blockDim.x) b[c] *= a0;""",
    "another step": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); for (int
        c = threadIdx.x; c < n; c += 2 * blockDim.x) b[c] *= a0;""",
    "a neighbour": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); double v = 0; {LOOP}
        v += b[n - 1 - c]; z[blockIdx.x * blockDim.x + threadIdx.x] = v;""",
    "what a loop carries": f"{ROW} double v = 0; {LOOP} {{ v += a[c]; b[c] = v; }} {LOOP} b[c] *= b[c];",
    "under a condition": f"{ROW} {LOOP} if (a[c] > 0) b[c] = a[c] * a[c]; {LOOP} b[c] *= a0;",
    "stored in between": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; __syncthreads(); {LOOP}
        b[n - 1 - c] = a0; __syncthreads(); {LOOP} b[c] *= b[c];""",
    "stored twice": f"{ROW} {LOOP} {{ b[c] = a[c] * a[c]; if (c % 2) b[c] = 1; }} {LOOP} b[c] *= b[c];",
    "an input that is added to": f"{ROW} {LOOP} b[c] += a[c] * a[c]; {LOOP} b[c] *= b[c];",
    "atomic": f"""{ROW} {LOOP} b[c] = a[c] * a[c]; {LOOP} atomicAdd(&b[c],
        a0); {LOOP} z[blockIdx.x * n + c] = b[c] * a0;""",
    "one cell of a loop": f"""{ROW} {LOOP} b[threadIdx.x] = a[c] * a[c]; {LOOP}
        z[blockIdx.x * n + c] = b[threadIdx.x] * a0;""",
    "what decides": f"{ROW} {LOOP} b[c] = a[c] * a[c] + 1; {LOOP} b[c] = b[c] > 1.25 ? b[c] * a0 : a0;",
}
FORMS: dict[str, dict[str, Any]] = {
    "joint": {},
    "reverse": {"primal": False, "keep": "y", "assign": "x"},
    "deterministic": {"deterministic": True},
}


def _kernel(body: str) -> Any:
    text = f"""__global__ void k(double *y, const double *x, double *z, double a0, int n) {{
        __shared__ double s[8]; s[threadIdx.x] = 0; __syncthreads(); {body} }}"""
    return kg.compile(text)["k"]


def _arguments() -> list[Any]:
    rng = np.random.default_rng(6)
    return [np.zeros(45), rng.random(45) + 0.1, np.zeros(45), 0.75, 8]


def _reads_results(function: Any) -> bool:
    memory, (y, *_) = analyse(function), function.params
    return any(y.value in memory.of(op.ptr) for op in memory.loads)


@pytest.mark.parametrize("name", [*TAKEN, *NOT_TAKEN])
def test_gradients(name: str) -> None:
    kernel = _kernel({**TAKEN, **NOT_TAKEN}[name])
    assert _reads_results(kernel.function)
    assert _reads_results(stored_values.run(kernel.function, Module())) is (name in NOT_TAKEN)
    kg.check_gradient(kernel, "y, x, z", 4, 4, _arguments())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TAKEN)
def test_forms(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the gradient that loads what was stored; results are those of the kernel."""
    kernel, found = _kernel(TAKEN[name]), []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr("kernelgrad.transforms.stored_values.run", lambda function, module: function)
        arguments, g = _arguments(), np.random.default_rng(1).standard_normal(45)
        d_y, d_x, d_z = g.copy(), np.full(45, 3.0 if "assign" in FORMS[form] and not plain else 0.0), np.zeros(45)
        gradient = kg.gradient(kernel, "y, x, z", **({} if plain else FORMS[form]))
        gradient[4, 4](*arguments, d_y, d_x, d_z)
        if "keep" in FORMS[form] and not plain:
            np.testing.assert_array_equal(d_y, g)
        found.append((d_x, arguments[0]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
    expected = _arguments()
    kernel[4, 4](*expected)
    if form != "reverse":
        np.testing.assert_array_equal(found[0][1], expected[0])


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_read_is_not_kept(name: str) -> None:
    with pytest.raises(KernelGradError, match="not a pure output"):
        kg.gradient(_kernel(NOT_TAKEN[name]), "y, x, z", keep="y")
