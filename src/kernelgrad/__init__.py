"""kernelgrad: CUDA C++ kernels as Python objects, on NVIDIA GPUs and on the CPU."""

from .api import Module, compile, gradient, load
from .errors import (
    ArgumentError,
    DeviceError,
    InternalError,
    KernelError,
    KernelGradError,
    LaunchError,
    LookupFailed,
    ParseError,
    SourceError,
    UnsupportedError,
)

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "DeviceError",
    "InternalError",
    "KernelError",
    "KernelGradError",
    "LaunchError",
    "LookupFailed",
    "Module",
    "ParseError",
    "SourceError",
    "UnsupportedError",
    "compile",
    "gradient",
    "load",
]
