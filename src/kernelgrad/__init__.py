"""kernelgrad: CUDA C++ kernels as Python objects, on NVIDIA GPUs and on the CPU."""

from .api import (
    Module,
    assume,
    check_gradient,
    checkpoint,
    compile,
    copy,
    custom_gradient,
    fill,
    gradient,
    hvp,
    jvp,
    load,
    record,
    split,
    zeros,
)
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
    TapeError,
    UnsupportedError,
)

__version__ = "0.1.0"

include_dir = f"{__path__[0]}/include"  # of headers for a build of your own: kernelgrad/stop_gradient.h

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
    "TapeError",
    "UnsupportedError",
    "assume",
    "check_gradient",
    "checkpoint",
    "compile",
    "copy",
    "custom_gradient",
    "fill",
    "gradient",
    "hvp",
    "include_dir",
    "jvp",
    "load",
    "record",
    "split",
    "zeros",
]
