"""On the GPU: kernelgrad's kernels against the same source compiled directly by NVRTC, in the same launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cases import Case
from timing import DELAY, DELAY_CYCLES, Run

BATCH = 20  # launches per sample, queued behind a delay so that the host's part of a launch is not measured


def available() -> bool:
    try:
        from cuda.core import Device

        Device(0).set_current()
    except Exception:  # not installed, no driver, or no device
        return False
    return True


def name() -> str:
    from cuda.core import Device

    return str(Device(0).name)


class DeviceArray:
    """GPU memory that kernelgrad and plain launches both take."""

    def __init__(self, host: Any):
        from cuda.bindings import driver

        self._driver, self.shape, self.dtype, self.nbytes = driver, host.shape, host.dtype, host.nbytes
        self.pointer = int(_checked(driver.cuMemAlloc(host.nbytes)))
        _checked(driver.cuMemcpyHtoD(self.pointer, host.ctypes.data, host.nbytes))
        self.__cuda_array_interface__ = {
            "shape": host.shape,
            "typestr": host.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def get(self) -> Any:
        host = np.empty(self.shape, self.dtype)
        _checked(self._driver.cuMemcpyDtoH(host.ctypes.data, self.pointer, self.nbytes))
        return host

    def free(self) -> None:
        _checked(self._driver.cuMemFree(self.pointer))


def _checked(answer: Any) -> Any:
    error, *values = answer
    if int(error) != 0:
        raise RuntimeError(f"the CUDA driver says {error.name}")
    return values[0] if values else None


class Bench:
    def __init__(self) -> None:
        from cuda.core import Device, EventOptions

        self.device = Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self._timed = EventOptions(timing_enabled=True)
        self._delay = self.compile(DELAY, "delay")

    def compile(self, source: str, kernel: str) -> Any:
        """The kernel in this source, by NVRTC alone."""
        from cuda.core import Program, ProgramOptions

        options = ProgramOptions(std="c++17", arch=f"sm_{self.device.arch}")
        program = Program(source, "c++", options)
        return program.compile("cubin", name_expressions=(kernel,)).get_kernel(kernel)

    def timed(self, launch: Callable[[], object]) -> Run:
        """The GPU's seconds per launch."""

        def run() -> float:
            self.plain(self._delay, 1, 1, [np.int64(DELAY_CYCLES)])()
            start = self.stream.record(options=self._timed)
            for _ in range(BATCH):
                launch()
            end = self.stream.record(options=self._timed)
            end.sync()
            return float(end - start) / 1e3 / BATCH

        return run

    def plain(self, kernel: Any, grid: Any, block: Any, args: list[Any]) -> Callable[[], object]:
        from cuda.core import LaunchConfig, launch

        config = LaunchConfig(grid=grid, block=block)
        return lambda: launch(self.stream, config, kernel, *args)

    def contenders(self, case: Case, compiled: Any, arrays: tuple[DeviceArray, ...]) -> dict[str, Run]:
        """`compiled` is kernelgrad's kernel."""
        ours = compiled[case.grid, case.block, 0, self.stream]
        args: list[Any] = [a.pointer for a in arrays] + [np.int32(v) for v in case.scalars]
        original = self.plain(self.compile(case.source, case.kernel), case.grid, case.block, args)
        return {
            "kernelgrad": self.timed(lambda: ours(*arrays, *case.scalars)),
            "nvrtc": self.timed(original),
        }
