"""What is emitted compiles with CUDA 12's NVRTC, too; which NVRTC is taken where there are several. `make test` puts
CUDA 12's beside the environment; KERNELGRAD_CUDA12 names another folder with its wheels."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelgrad as kg
from kernelgrad.runtime import nvrtc_library
from kernelgrad.runtime.nvrtc_library import Nvrtc, headers

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.cu"))
WHEELS = Path(os.environ.get("KERNELGRAD_CUDA12") or Path(sys.prefix) / "cuda12")
SOURCES = {
    "halves": "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n__global__ void k(__half *y, const __nv_bfloat16 *x) {"
    " y[threadIdx.x] = __float2half(sinf(__bfloat162float(x[threadIdx.x])) * __half2float(y[threadIdx.x])); }",
    "cooperation": "__global__ void k(double *y, const double *x, int n) { __shared__ double t[64];"
    " int i = threadIdx.x; t[i] = x[i]; __syncthreads(); double v = t[63 - i] * x[i]; for (int o = 16; o; o /= 2)"
    " v += __shfl_down_sync(0xffffffff, v, o); if (i % 32 == 0) atomicAdd(y, log(v)); }",
}


@pytest.fixture(scope="module")
def cuda12() -> Nvrtc:
    library = WHEELS / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"
    if not library.is_file():
        pytest.skip(f"CUDA 12's NVRTC is not in {WHEELS}: make test puts it there")
    found = Nvrtc(str(library))
    assert found.version >= (12, 0) and found.version < (13, 0)
    return found


def compiled(by: Nvrtc, text: str) -> bytes:
    include = WHEELS / "nvidia" / "cuda_runtime" / "include"
    return by.compile(text, ["--gpu-architecture=sm_90", "--std=c++17", f"--include-path={include}"])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_files(path: Path, cuda12: Nvrtc) -> None:
    assert compiled(cuda12, path.read_text()).startswith(b"\x7fELF")


@pytest.mark.parametrize("name", SOURCES)
def test_gradients(name: str, cuda12: Nvrtc) -> None:
    kernel = kg.compile(SOURCES[name])["k"]
    for text in (kernel.source, kg.gradient(kernel).source, kg.gradient(kernel, report_nan=True).source):
        assert compiled(cuda12, text).startswith(b"\x7fELF")


def test_the_newest_that_the_driver_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, name in (("cu13", "libnvrtc.so.13"), ("cuda_nvrtc", "libnvrtc.so.12")):
        folder = tmp_path / "nvidia" / version / "lib"
        folder.mkdir(parents=True)
        (folder / name).touch()
        (folder / name.replace("nvrtc", "nvrtc-builtins")).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    loaded: list[str] = []

    def load(path: str) -> Any:
        loaded.append(Path(path).name)
        return path

    monkeypatch.setattr(nvrtc_library, "Nvrtc", load)
    for driver in ((13, 0), (12, 4)):
        monkeypatch.setattr(nvrtc_library, "driver_version", lambda driver=driver: driver)
        nvrtc_library.nvrtc.cache_clear()
        nvrtc_library.nvrtc()
    nvrtc_library.nvrtc.cache_clear()
    assert loaded == ["libnvrtc.so.13", "libnvrtc.so.12"]


def test_headers_are_those_of_the_library() -> None:
    major = nvrtc_library.nvrtc().version[0]
    found = headers(major)
    assert found is not None and (Path(found) / "cuda_fp16.h").is_file()
