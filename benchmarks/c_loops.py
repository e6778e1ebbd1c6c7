"""The C loops of kernels/loops.cpp, compiled on this machine."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cases import KERNELS, Case

FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


def available() -> bool:
    return shutil.which("g++") is not None


@cache
def _library(openmp: bool) -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="kernelgrad-bench-"))
    try:
        output = folder / "loops.so"
        flags = (*FLAGS, "-fopenmp") if openmp else FLAGS
        subprocess.run(["g++", *flags, str(KERNELS / "loops.cpp"), "-o", str(output)], check=True)
        return ctypes.CDLL(str(output))
    finally:
        shutil.rmtree(folder)


def work(case: Case, arrays: tuple[Any, ...], openmp: bool) -> Callable[[], object]:
    function = getattr(_library(openmp), case.kernel)
    function.restype = None
    arguments = [ctypes.c_void_p(a.ctypes.data) for a in arrays] + [ctypes.c_int(v) for v in case.c_scalars]
    return lambda: function(*arguments)
