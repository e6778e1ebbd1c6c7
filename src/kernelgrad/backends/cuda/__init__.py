"""IR to readable CUDA C++, for plain nvcc as for NVRTC. See `emit.emit` for the order of its steps."""

from .emit import emit, global_names, kernel_name

__all__ = ["emit", "global_names", "kernel_name"]
