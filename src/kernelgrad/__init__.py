"""kernelgrad: CUDA C++ kernels as Python objects, on NVIDIA GPUs and on the CPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .api import (
    assume,
    check_gradient,
    compile,
    custom_gradient,
    gradient,
    hvp,
    jvp,
    load,
    split,
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
    NotFiniteError,
    ParseError,
    ProgramError,
    SourceError,
    TapeError,
    UnsupportedError,
)
from .module import Module

if TYPE_CHECKING:
    from . import jax as jax
    from . import torch as torch
    from .derivatives.gradient import Gradient
    from .host.api import checkpoint, copy, fill, record, zeros
    from .kernel import Kernel
    from .runtime.parameters import Parameter

__version__ = "0.1.0"

include_dir = f"{__path__[0]}/include"  # of headers for a build of your own: kernelgrad/stop_gradient.h
# Imported when they are asked for: the types of what is made here, programs of launches, the operators of frameworks.
_LATER = {"Kernel": "kernel", "Gradient": "derivatives.gradient", "Parameter": "runtime.parameters"}
_LATER |= dict.fromkeys(("checkpoint", "copy", "fill", "record", "zeros"), "host.api")
_FRAMEWORKS = ("torch", "jax")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        return found
    if name in _FRAMEWORKS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ArgumentError",
    "DeviceError",
    "Gradient",
    "GradientError",
    "InternalError",
    "Kernel",
    "KernelError",
    "KernelGradError",
    "LaunchError",
    "LookupFailed",
    "Module",
    "NotFiniteError",
    "Parameter",
    "ParseError",
    "ProgramError",
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
