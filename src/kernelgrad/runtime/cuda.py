"""Kernels on an NVIDIA GPU: compiled text, loaded and launched."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

from ..analysis.machine import REGISTER_STEP
from ..backends.cuda import emit, global_names, kernel_name
from ..backends.cuda.shared import shared_layout
from ..errors import DeviceError, LaunchError
from ..ir.layout import param_layout
from ..ir.ops import Module, called
from ..locks import make_lock
from .devices import check, current, describe, driver, limits, primary_context
from .driver_library import number
from .launch import BoundArguments, LaunchConfig
from .nvrtc import compile_only

_handle = ctypes.c_void_p

__all__ = ["CudaExecutable", "compile_cuda", "compile_only"]


def compile_cuda(module: Module, kernel: str, device: int) -> CudaExecutable:
    return CudaExecutable(emit(module, kernel), module, kernel, device)


class CudaExecutable:
    """A kernel loaded on one device. `registers`, `local_bytes`, `static_shared` and `max_threads` are the compiler's
    figures for it. Launches with more threads than have registers for it get it compiled for fewer: `narrower`."""

    def __init__(self, text: str, module: Module, kernel: str, device: int, registers: int | None = None):
        self.name, self.shown, self.device = kernel, module.functions[kernel].called, device
        self._text, self._in_module = text, module
        self._constants: dict[str, bytes] = {}
        self._narrower: dict[int, CudaExecutable] = {}
        self._lock = make_lock()
        self._driver = driver()
        self._context = int(primary_context(device))
        self._limits = limits(device)
        self._variables = global_names(module, kernel)
        self._shared = shared_layout(module, kernel)
        cubin = compile_only(text, self._limits.arch, registers)
        with current(device):
            self._module = check(self._driver, self._driver.cuModuleLoadData(cubin))
            found = self._driver.cuModuleGetFunction(self._module, kernel_name(kernel).encode())
            self._function = check(self._driver, found)
        self._handle = _handle(self._function)
        self.registers = self._attribute("NUM_REGS")
        self.local_bytes = self._attribute("LOCAL_SIZE_BYTES")
        self.static_shared = self._attribute("SHARED_SIZE_BYTES")
        self.max_threads = self._attribute("MAX_THREADS_PER_BLOCK")
        self._dynamic_allowed = self._limits.shared_per_block - self.static_shared
        self._parameters = _Parameters(*param_layout(module.functions[kernel]))

    def _attribute(self, name: str) -> int:
        attribute = number("CU_FUNC_ATTRIBUTE_", name)
        return int(check(self._driver, self._driver.cuFuncGetAttribute(attribute, self._function)))

    # ---- launching

    def launch(self, config: LaunchConfig, arguments: BoundArguments) -> None:
        x, y, z = config.block
        if x * y * z > self.max_threads:
            return self._narrower_for(config).launch(config, arguments)
        bindings = self._driver
        _, context = bindings.cuCtxGetCurrent()
        if context != self._context:
            with current(self.device):
                return self.launch(config, arguments)
        shared = self._shared.moved + config.shared_bytes
        if shared > self._dynamic_allowed:
            self._allow_dynamic(shared, config)
        parameters = self._parameters.filled(arguments.packed)
        stream = _handle(config.stream) if config.stream else None
        status = bindings.launch_kernel(self._handle, *config.grid, *config.block, shared, stream, parameters, None)
        if status:
            raise self._launch_error(config, status)

    def ready(self, config: LaunchConfig) -> tuple[int, int]:
        """For who calls the driver: the function for such launches, and the bytes of dynamic shared memory they get."""
        x, y, z = config.block
        if x * y * z > self.max_threads:
            return self._narrower_for(config).ready(config)
        shared = self._shared.moved + config.shared_bytes
        if shared > self._dynamic_allowed:
            with current(self.device):
                self._allow_dynamic(shared, config)
        return int(self._function), shared

    def _narrower_for(self, config: LaunchConfig) -> CudaExecutable:
        """The same kernel, with so few registers for a thread that a block of that size has enough of them."""
        threads = math.prod(config.block)
        registers = self._limits.registers_per_block // threads // REGISTER_STEP * REGISTER_STEP
        if threads > self._limits.threads_per_block or self.registers <= registers:
            raise self._launch_error(config, None)
        with self._lock:
            if registers not in self._narrower:
                found = CudaExecutable(self._text, self._in_module, self.name, self.device, registers)
                for name, data in list(self._constants.items()):
                    found.set_constant(name, data)
                self._narrower[registers] = found
        return self._narrower[registers]

    def _allow_dynamic(self, nbytes: int, config: LaunchConfig) -> None:
        """More than the usual 48 KB must be asked for, once per kernel."""
        most = self._limits.shared_per_block_optin
        if nbytes + self.static_shared > most:
            parts = [f"{g.type.size} in {called(g.name)}" for g in self._shared.fixed]
            parts += [f"{config.shared_bytes} bytes of dynamic shared memory"] if config.shared_bytes else []
            parts += [f"{config.shadow_bytes} of these for its shadow"] if config.shadow_bytes else []
            raise LaunchError(
                f"{self.shown}: a block needs {nbytes + self.static_shared} bytes of shared memory"
                f" ({', '.join(parts)}); {self._limits.name} has {most}"
            )
        attribute = number("CU_FUNC_ATTRIBUTE_", "MAX_DYNAMIC_SHARED_SIZE_BYTES")
        check(self._driver, self._driver.cuFuncSetAttribute(self._function, attribute, nbytes))
        self._dynamic_allowed = nbytes

    def _launch_error(self, config: LaunchConfig, status: Any) -> Exception:
        """Why the driver refused: what of the configuration exceeds which limit, else the driver's own words."""
        x, y, z = config.block
        if x * y * z > self.max_threads:
            return LaunchError(
                f"{self.shown}: a block of {config.block} is {x * y * z} threads; this kernel runs with at most"
                f" {self.max_threads} ({self.registers} registers per thread)"
            )
        for what, size, most in (("block", config.block, self._limits.block), ("grid", config.grid, self._limits.grid)):
            if any(not 0 < n <= limit for n, limit in zip(size, most, strict=True)):
                return LaunchError(f"{self.shown}: {what} {size} is outside 1 to {most}")
        return DeviceError(f"{self.shown}: {describe(self._driver, status)}")

    # ---- variables

    def set_constant(self, name: str, data: bytes) -> None:
        """Replaces the contents of a `__constant__` variable, between launches that came before and that follow."""
        symbol = self._variables.get(name)
        if symbol is None:
            return  # this kernel does not use it
        bindings = self._driver
        with current(self.device):
            address, size = check(bindings, bindings.cuModuleGetGlobal(self._module, symbol.encode()))
            if len(data) != size:
                raise DeviceError(f"constant '{name}' has {size} bytes, not {len(data)}")
            self._constants[name] = data
            check(bindings, bindings.cuCtxSynchronize())
            check(bindings, bindings.cuMemcpyHtoD(address, data, size))
            # The copy may still be under way on the default stream when the call returns.
            check(bindings, bindings.cuCtxSynchronize())
        with self._lock:  # one that is being made has the constants that were there before
            others = list(self._narrower.values())
        for other in others:
            other.set_constant(name, data)


class _Parameters(threading.local):
    """A launch's arguments as the driver wants them: an array of addresses, one into the packed bytes for each.

    The driver copies them while it launches, so each thread fills the same memory again and again.
    """

    def __init__(self, offsets: tuple[int, ...], size: int):
        self._bytes = (ctypes.c_ubyte * max(1, size))()
        self._base = ctypes.addressof(self._bytes)
        self._pointers = (ctypes.c_void_p * max(1, len(offsets)))(*(self._base + offset for offset in offsets))
        self._address = ctypes.c_void_p(ctypes.addressof(self._pointers)) if offsets else None
        self._size = size

    def filled(self, packed: bytes) -> ctypes.c_void_p | None:
        if len(packed) != self._size:
            raise LaunchError(f"{len(packed)} bytes of arguments where the kernel takes {self._size}")
        ctypes.memmove(self._base, packed, self._size)
        return self._address
