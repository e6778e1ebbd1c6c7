"""The emitted text of a dozen gradients, as people read it in review; each also compiles and runs.

`pytest tests/golden --update-golden` writes the texts anew.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.backends.cuda import kernel_name
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.types import Pointer, Scalar
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig
from kernelgrad.runtime.layouts import scalar_dtype, struct_dtype

from ..emulation.run_text import run_packed

FILES = sorted(f for f in Path(__file__).parent.glob("*.cu") if not f.name.endswith(".grad.cu"))
EVERY = pytest.mark.parametrize("file", [pytest.param(f, id=f.stem) for f in FILES])


@dataclass
class Golden:
    """A kernel and the launch its first lines describe."""

    gradient: Gradient
    grid: int
    block: int
    args: list[Any]
    adjoints: list[Any]


def read(file: Path) -> Golden:
    listed, launch = (line.partition(": ")[2] for line in file.read_text().splitlines()[:2])
    sizes, _, arguments = launch.partition("; ")
    grid, block = map(int, sizes.split(", "))
    kernel = kg.compile(file.read_text(), name=file.name)[file.stem]
    random = np.random.default_rng(1)
    params = {p.name: p for p in kernel.function.params}
    args = {p: _argument(params[p].type, text, random) for p, text in _named(arguments).items()}
    assert list(args) == list(params)
    adjoints = [_adjoint(args[name], params[name].type, random) for name in listed.split(", ")]
    return Golden(kg.gradient(kernel, listed), grid, block, list(args.values()), adjoints)


def _named(text: str) -> dict[str, str]:
    return {m[1]: m[2] for m in re.finditer(r"(\w+)(\[\d+\]| = [\d.]+)", text)}


def _argument(type: Any, text: str, random: np.random.Generator) -> Any:
    if not isinstance(type, Pointer):
        return int(text[3:]) if type.kind != "float" else float(text[3:])
    count = int(text[1:-1])
    if isinstance(type.pointee, Scalar):
        return random.uniform(0.25, 1.25, count).astype(scalar_dtype(type.pointee))
    dtype = struct_dtype(type.pointee)
    assert dtype is not None
    records = np.zeros(count, dtype)
    for name in dtype.names or ():
        records[name] = random.uniform(0.25, 1.25, count) if dtype[name].kind == "f" else np.arange(count) % 2
    return records


def _adjoint(argument: Any, type: Any, random: np.random.Generator) -> Any:
    if not isinstance(type, Pointer):
        return np.zeros(1, scalar_dtype(type))
    out = np.zeros_like(argument)
    for name in argument.dtype.names or ():
        if argument.dtype[name].kind == "f":
            out[name] = random.uniform(-1, 1, len(out))
    if argument.dtype.names is None:
        out[:] = random.uniform(-1, 1, len(out))
    return out


def _copies(arrays: list[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]


@EVERY
def test_text(file: Path, update_golden: bool) -> None:
    expected = file.with_suffix(".grad.cu")
    text = read(file).gradient.source
    if update_golden:
        expected.write_text(text)
    assert text == expected.read_text(), "pytest tests/golden --update-golden writes the new text"


@EVERY
def test_compiles_with_nvrtc(file: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelgrad.runtime.cuda import compile_only

    assert compile_only(file.with_suffix(".grad.cu").read_text(), "sm_80")


@EVERY
def test_runs_as_text(file: Path) -> None:
    """Compiled by g++ against an emulation of CUDA, it does what the CPU backend does."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    golden = read(file)
    native, emulated = (_copies([*golden.args, *golden.adjoints]) for _ in range(2))
    golden.gradient[golden.grid, golden.block](*native)
    launch = make_launch(golden.grid, golden.block)
    ((kernel, bound, *_),), _, own = golden.gradient._prepare(launch, tuple(emulated), {}, single=True)
    config = LaunchConfig(launch.grid, launch.block)
    module = kernel.cuda_module
    packed = kernel._with_variables(module, bound, config, None, own.supplied).packed
    offsets, _ = param_layout(module.functions[kernel.name])
    text = file.with_suffix(".grad.cu").read_text()
    run_packed(text, kernel_name(kernel.name), golden.grid, golden.block, packed, offsets)
    for want, got in zip(native, emulated, strict=True):
        if isinstance(want, np.ndarray):
            for name in want.dtype.names or (None,):
                one, other = (got, want) if name is None else (got[name], want[name])
                np.testing.assert_allclose(one, other, rtol=2e-5 if one.dtype == np.float32 else 1e-11, atol=1e-6)


@EVERY
def test_the_gradient_is_right(file: Path) -> None:
    golden = read(file)
    report = kg.check_gradient(
        golden.gradient.kernel, golden.gradient.settings.listed, golden.grid, golden.block, golden.args
    )
    assert report.ok, report
