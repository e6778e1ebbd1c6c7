"""The CUDA runtime as far as it goes without a GPU: compiling, caching, and saying what is missing."""

import gc
from contextlib import nullcontext
from pathlib import Path

import pytest

from kernelgrad.errors import DeviceError, InternalError
from kernelgrad.runtime import devices, nvrtc, nvrtc_library, scratch

TEXT = 'extern "C" __global__ void k(float *x) { *x = 1.0f; }'


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "_memory", {})
    return tmp_path


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_compiles_once(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = nvrtc.compile_only(TEXT, "sm_90")
    assert cubin[:4] == b"\x7fELF"
    assert len(entries(empty_cache)) == 1
    nvrtc._memory.clear()
    monkeypatch.setattr(nvrtc, "_compile", lambda text, arch: pytest.fail("compiled again"))
    assert nvrtc.compile_only(TEXT, "sm_90") == cubin


def test_a_damaged_entry_is_rebuilt(empty_cache: Path) -> None:
    cubin = nvrtc.compile_only(TEXT, "sm_90")
    (entry,) = entries(empty_cache)
    entry.write_bytes(entry.read_bytes()[:-1])
    nvrtc._memory.clear()
    assert nvrtc.compile_only(TEXT, "sm_90") == cubin


def test_architectures_do_not_share_an_entry(empty_cache: Path) -> None:
    assert nvrtc.compile_only(TEXT, "sm_80") != nvrtc.compile_only(TEXT, "sm_90")


def test_half_headers_are_found(empty_cache: Path) -> None:
    text = '#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nextern "C" __global__ void k(__half *x) { *x += *x; }'
    assert nvrtc.compile_only(text, "sm_90")


def test_wrong_text_is_our_fault(empty_cache: Path) -> None:
    with pytest.raises(InternalError, match=r"(?s)kernelgrad wrote.*undeclared.*1 \|"):
        nvrtc.compile_only('extern "C" __global__ void k() { undeclared = 1; }', "sm_90")


def test_unknown_architecture(empty_cache: Path) -> None:
    with pytest.raises(DeviceError, match="sm_12345"):
        nvrtc.compile_only(TEXT, "sm_12345")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_library, "_folders", list)
    monkeypatch.setattr(nvrtc_library, "_MAJORS", (99,))
    nvrtc_library.nvrtc.cache_clear()
    with pytest.raises(DeviceError, match=r"kernelgrad\[cuda13\]"):
        nvrtc_library.nvrtc()
    monkeypatch.setattr(devices, "_driver_device_count", lambda: 1)
    devices.cuda_available.cache_clear()
    assert not devices.cuda_available()
    for made in (nvrtc_library.nvrtc, devices.cuda_available):
        made.cache_clear()


def test_no_driver() -> None:
    assert isinstance(devices.cuda_available(), bool)
    if devices.cuda_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        devices.driver()


@pytest.mark.usefixtures("no_garbage_collection")
def test_memory_is_freed_on_the_stream_that_used_it_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tape of one stream that is read on another."""
    freed: list[tuple[int, int]] = []

    class Driver:
        def cuMemAllocAsync(self, nbytes: int, stream: int) -> int:
            return 64 * (stream + 1)

        def cuMemFreeAsync(self, address: int, stream: int) -> None:
            freed.append((address, stream))

    monkeypatch.setattr(scratch, "driver", Driver)
    monkeypatch.setattr(scratch, "check", lambda driver, found: found)
    monkeypatch.setattr(scratch, "current", lambda device: nullcontext())
    monkeypatch.setattr(scratch, "_keep_freed_memory", lambda device: None)
    stays, moves = (scratch.Scratch(16, 0, 1) for _ in range(2))
    moves.follow(2)
    del stays, moves
    gc.collect()
    assert sorted(freed) == [(128, 1), (128, 2)]


class Contexts:
    """A driver that has them in a stack."""

    def __init__(self, *stack: int):
        self.stack = [0, *stack]

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, self.stack[-1]

    def cuCtxPushCurrent(self, context: int) -> tuple[int]:
        self.stack.append(context)
        return (0,)

    def cuCtxPopCurrent(self) -> tuple[int, int]:
        return 0, self.stack.pop()


@pytest.mark.parametrize(
    ("device", "before", "after"), [(0, 0, 100), (1, 0, 0), (0, 7, 7), (1, 100, 100), (0, 100, 100)]
)
def test_contexts(device: int, before: int, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread without one keeps the first device's."""
    bindings = Contexts(*([before] if before else []))
    monkeypatch.setattr(devices, "driver", lambda: bindings)
    monkeypatch.setattr(devices, "check", lambda _, found: found[1] if len(found) > 1 else None)
    for name in ("primary_context", "context_number"):
        monkeypatch.setattr(devices, name, lambda number: 100 + number)
    for _ in range(2):
        with devices.current(device):
            assert bindings.stack[-1] == 100 + device
        assert bindings.stack[-1] == after and len(bindings.stack) <= 2
