"""The emitted CUDA C++ of many cases in one library: g++ spends its time on starting, not on small kernels."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

from kernelgrad.backends.cuda import global_names, kernel_name
from kernelgrad.ir.layout import param_layout
from kernelgrad.kernel import Kernel
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.launch import LaunchConfig

from ..emulation import run_text
from .build import build
from .case import Case

_BATCH = 24
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)


class Libraries:
    """For each case the library that holds it, or what g++ said against it. A batch is built when the first of its
    cases is asked for: of several processes, each builds what it runs."""

    def __init__(self, cases: list[Case]):
        batches = [cases[k : k + _BATCH] for k in range(0, len(cases), _BATCH)]
        self._batch_of = {case.name: batch for batch in batches for case in batch}
        self._built: dict[str, ctypes.CDLL | str] = {}

    def __getitem__(self, name: str) -> ctypes.CDLL | str:
        if name not in self._built:
            self._built |= _batch([(case.name, _part(case)) for case in self._batch_of[name]])
        return self._built[name]


def _part(case: Case) -> str:
    """A case's text in a namespace of its own, with its launcher."""
    kernel = build(case)
    # A reference to an array rather than a pointer: the text may take the array's address.
    dynamic = r"auto &\2 = *reinterpret_cast<\1(*)[4096]>(emulation::dynamic_shared);"
    text = run_text._DYNAMIC.sub(dynamic, kernel.source)
    launch = run_text._LAUNCH.format(kernel=kernel_name(kernel.name))
    launch = launch.replace("emulation_launch", _launcher(case.name))
    setters = "".join(
        f'extern "C" void *{_launcher(case.name)}_{name}() {{ return (void *)&{name}; }}\n'
        for name in _constants(kernel).values()
    )
    body = _INCLUDE.sub("", text).replace('extern "C" __global__', "__global__")
    start = f"namespace {_launcher(case.name)} {{"
    return "\n".join([*_INCLUDE.findall(text), start, body, launch, setters, "}", ""])


def _launcher(name: str) -> str:
    return "launch_" + re.sub(r"\W", "_", name)


def _constants(kernel: Kernel) -> dict[str, str]:
    module = kernel.cuda_module
    names = global_names(module, kernel.name)
    return {key: names[key] for key, g in module.globals.items() if g.space == "constant"}


def _batch(parts: list[tuple[str, str]]) -> dict[str, ctypes.CDLL | str]:
    """A batch that g++ refuses is built case by case, to tell which one is wrong."""
    library = _compile("\n".join(text for _, text in parts))
    if isinstance(library, str) and len(parts) > 1:
        return {name: found for part in parts for name, found in _batch([part]).items()}
    return {name: library for name, _ in parts}


def _compile(text: str) -> ctypes.CDLL | str:
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder, "cases.cpp"), Path(folder, "cases.so")
        file.write_text(f'#include "{run_text._precompiled()}"\n{text}')
        include = f"-I{Path(run_text.__file__).parent}"
        command = ["g++", *run_text._FLAGS, "-shared", include, "-o", str(library), str(file), str(run_text._threads())]
        built = subprocess.run(command, capture_output=True, text=True)
        return f"{built.stderr[:3000]}\n{text}" if built.returncode else ctypes.CDLL(str(library))


def run(case: Case, library: ctypes.CDLL, args: list[object]) -> None:
    kernel = build(case)
    module = kernel.cuda_module
    launch = make_launch(case.grid, case.block, case.shared)
    config = LaunchConfig(launch.grid, launch.block, launch.shared_bytes)
    bound, _ = kernel._binder.bind(tuple(args))
    bound = kernel._with_variables(module, bound, config, None)
    for key, name in _constants(kernel).items():
        data = kernel.variable(key).bytes()
        address = getattr(library, f"{_launcher(case.name)}_{name}")
        address.restype = ctypes.c_void_p
        ctypes.memmove(address(), data, len(data))
    offsets, _ = param_layout(module.functions[kernel.name])
    entry = getattr(library, _launcher(case.name))
    entry.restype = ctypes.c_char_p
    sizes = (ctypes.c_size_t * max(1, len(offsets)))(*offsets)
    error = entry((ctypes.c_uint * 3)(*config.grid), (ctypes.c_uint * 3)(*config.block), bound.packed, sizes)
    if error is not None:
        raise run_text.EmulationError(error.decode())
