"""kernelgrad: CUDA C++ kernels as Python objects, on NVIDIA GPUs and on the CPU."""

from .api import Module, assume, check_gradient, compile, gradient, jvp, load, split
from .errors import (
    ArgumentError,
    DeviceError,
    GradientError,
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
    "GradientError",
    "InternalError",
    "KernelError",
    "KernelGradError",
    "LaunchError",
    "LookupFailed",
    "Module",
    "ParseError",
    "SourceError",
    "UnsupportedError",
    "assume",
    "check_gradient",
    "compile",
    "gradient",
    "jvp",
    "load",
    "split",
]
